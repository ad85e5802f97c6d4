/* Slots of Python objects, read and set from C, and methods that work on them.
 *
 * A compiled method is told at its making which slots it will touch: ((class, name), ...). It does
 * the ordinary case and hands every other one to the Python method that it was made with.
 */
#ifndef KAFKAESQUE_SLOTS_H
#define KAFKAESQUE_SLOTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <stdint.h>
#include <stdlib.h>

typedef struct {
    PyTypeObject *owner; /* borrowed from the description, which lives as long */
    Py_ssize_t place;
} Slot;

/* Borrowed, or NULL where the object is of another class, a subclass included, whose methods may be
 * other ones, or the slot is empty. */
static inline PyObject *get(const Slot *slots, PyObject *object, int number) {
    const Slot *slot = &slots[number];
    if (object == NULL || !Py_IS_TYPE(object, slot->owner)) return NULL;
    return *(PyObject **)((char *)object + slot->place);
}

static inline int get_int(const Slot *slots, PyObject *object, int number, int64_t *value) {
    PyObject *found = get(slots, object, number);
    if (found == NULL || !PyLong_CheckExact(found)) return 0;
    *value = PyLong_AsLongLong(found);
    return *value != -1 || !PyErr_Occurred();
}

/* `get` has found something there before. */
static inline void set(const Slot *slots, PyObject *object, int number, PyObject *value) {
    PyObject **place = (PyObject **)((char *)object + slots[number].place), *old = *place;
    *place = Py_NewRef(value);
    Py_XDECREF(old);
}

/* A number in a tuple of the kind that NamedTuple makes. */
static inline int get_field(PyObject *tuple, Py_ssize_t field, int64_t *value) {
    PyObject *found = PyTuple_GET_ITEM(tuple, field);
    if (!PyLong_CheckExact(found)) return 0;
    *value = PyLong_AsLongLong(found);
    return *value != -1 || !PyErr_Occurred();
}

/* 0 with an error set unless `told` is ((class, name of a slot), ...), so many. */
static int find_slots(Slot *slots, Py_ssize_t count, PyObject *told) {
    if (PyTuple_GET_SIZE(told) != count) {
        PyErr_SetString(PyExc_ValueError, "not the slots that are needed");
        return 0;
    }
    for (Py_ssize_t n = 0; n < count; n++) {
        PyObject *type, *name;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(told, n), "O!U", &PyType_Type, &type, &name)) return 0;
        PyObject *found = PyObject_GetAttr(type, name);
        if (found == NULL) return 0;
        int is_slot = 0;
        if (Py_IS_TYPE(found, &PyMemberDescr_Type)) {
            PyMemberDef *member = ((PyMemberDescrObject *)found)->d_member;
            is_slot = member->type == T_OBJECT_EX;
            slots[n] = (Slot){(PyTypeObject *)type, member->offset};
        }
        Py_DECREF(found);
        if (!is_slot) {
            PyErr_Format(PyExc_TypeError, "%R is not a slot", name);
            return 0;
        }
    }
    return 1;
}

static void free_layout(PyObject *capsule) { PyMem_Free(PyCapsule_GetPointer(capsule, NULL)); }

/* A capsule with a zeroed layout, for `bind_method`. */
static PyObject *new_layout(size_t size_bytes, void **layout) {
    *layout = PyMem_Calloc(1, size_bytes);
    if (*layout == NULL) return PyErr_NoMemory();
    PyObject *capsule = PyCapsule_New(*layout, NULL, free_layout);
    if (capsule == NULL) PyMem_Free(*layout);
    return capsule;
}

/* The method; its self is (pure, capsule, what must live as long). */
static PyObject *bind_method(PyMethodDef *definition, PyObject *pure, PyObject *capsule,
                             PyObject *kept) {
    PyObject *made = NULL, *self = PyTuple_Pack(3, pure, capsule, kept);
    if (self == NULL) return NULL;
    PyObject *builtin = PyCFunction_NewEx(definition, self, NULL);
    if (builtin != NULL) made = PyInstanceMethod_New(builtin);
    Py_XDECREF(builtin);
    Py_DECREF(self);
    return made;
}

/* For a module's start: -1 with an ImportError where nothing compiled is wanted. */
static int refuse_if_pure(void) {
    const char *wish = getenv("KAFKAESQUE_PURE");
    if (wish == NULL || *wish == '\0') return 0;
    PyErr_SetString(PyExc_ImportError, "KAFKAESQUE_PURE is set");
    return -1;
}

#endif
