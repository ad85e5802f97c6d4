/* Readers, writers, frames and the request header of wire/ in C.
 *
 * One engine serves every (message, version). A plan (wire/native.py) lists the fields of a struct in
 * wire order. The engine handles the common case and gives up at anything else: a length that does
 * not fit, a tagged field, a value out of range, an unusual type. Then the generated Python function
 * of the same (message, version) processes the whole message again. Only that function raises errors,
 * so the two cannot differ in what they reject, only in speed.
 *
 * Lengths read from bytes are compared with the remaining data before they are used.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The kinds of fields: number, size in bytes if it is fixed, and name in a field's declaration. The
 * module exports the numbers by name as KINDS, and the flags, for native.py. */
#define EACH_KIND(X)                                                                             \
    X(ABSENT, 0, "ABSENT") X(BOOL, 1, "Bool") X(INT8, 1, "Int8") X(INT16, 2, "Int16")            \
    X(INT32, 4, "Int32") X(INT64, 8, "Int64") X(UINT16, 2, "UInt16") X(UINT32, 4, "UInt32")      \
    X(FLOAT64, 8, "Float64") X(UUID, 16, "Uuid") X(STRING, 0, "String") X(BYTES, 0, "Bytes")     \
    X(RECORDS, 0, "Records") X(STRUCT, 0, "STRUCT")
#define NUMBER(kind, width, name) kind,
#define WIDTH_OF(kind, width, name) width,
#define NAME_OF(kind, width, name) name,
enum Kind { EACH_KIND(NUMBER) KINDS };
enum Flag { ARRAY = 1, NULLABLE = 2, TAGGED = 4 };

enum { STRING_LENGTH_MAX = 0x7FFF, CAPACITY_FIRST = 512, REQUEST_HEADER_BYTES_MIN = 10, LENGTH_BYTES = 4 };

static const int WIDTH[KINDS] = {EACH_KIND(WIDTH_OF)};
static const char *const NAME[KINDS] = {EACH_KIND(NAME_OF)};

typedef struct Plan Plan;
typedef struct {
    enum Kind kind;
    int flags;
    Py_ssize_t size_min; /* of one element: bounds a count before anything is allocated */
    Py_ssize_t slot;     /* offset of the field in its object */
    PyObject *fallback;  /* its default; borrowed from the description, as is `type` below */
    Plan *plan;          /* of a STRUCT */
} Item;
struct Plan {
    PyTypeObject *type;
    int flexible;
    Py_ssize_t count;
    Item items[];
};

static uint16_t u16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }
static uint32_t u32(const uint8_t *p) { return (uint32_t)u16(p) << 16 | u16(p + 2); }
static uint64_t u64(const uint8_t *p) { return (uint64_t)u32(p) << 32 | u32(p + 4); }
static void put_u32(uint8_t *p, uint32_t v) { p[0] = v >> 24, p[1] = v >> 16, p[2] = v >> 8, p[3] = v; }

static PyObject **slot_of(PyObject *object, const Item *item) {
    return (PyObject **)((char *)object + item->slot);
}

/* -- plans: (type, flexible, ((kind, flags, size_min, name, default, plan or None), ...)) --------- */

static void free_plan(Plan *plan) {
    if (plan == NULL) return;
    for (Py_ssize_t n = 0; n < plan->count; n++) free_plan(plan->items[n].plan);
    PyMem_Free(plan);
}

static void free_capsule(PyObject *capsule) {
    free_plan(PyCapsule_GetPointer(capsule, NULL));
}

/* The offset of the slot `name` in `type`; -1 with an error if there is none. */
static Py_ssize_t find_slot(PyTypeObject *type, PyObject *name) {
    PyObject *found = PyObject_GetAttr((PyObject *)type, name);
    if (found == NULL) return -1;
    Py_ssize_t offset = -1;
    if (Py_IS_TYPE(found, &PyMemberDescr_Type)) {
        PyMemberDef *member = ((PyMemberDescrObject *)found)->d_member;
        if (member->type == T_OBJECT_EX) offset = member->offset;
    }
    Py_DECREF(found);
    if (offset < 0) PyErr_Format(PyExc_TypeError, "%R is not a slot", name);
    return offset;
}

static Plan *make_plan(PyObject *description) {
    PyTypeObject *type;
    PyObject *items;
    int flexible;
    if (!PyArg_ParseTuple(description, "O!pO!", &PyType_Type, &type, &flexible, &PyTuple_Type, &items))
        return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(items);
    Plan *plan = PyMem_Calloc(1, sizeof(Plan) + (size_t)count * sizeof(Item));
    if (plan == NULL) return (Plan *)PyErr_NoMemory();
    plan->type = type, plan->flexible = flexible, plan->count = count;
    for (Py_ssize_t n = 0; n < count; n++) {
        Item *item = &plan->items[n];
        PyObject *name, *nested;
        int kind;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(items, n), "iinUOO", &kind, &item->flags,
                              &item->size_min, &name, &item->fallback, &nested))
            goto failed;
        item->kind = kind;
        item->slot = find_slot(type, name);
        if (item->slot < 0) goto failed;
        if (kind < 0 || kind >= KINDS || item->size_min < 1 || (kind == STRUCT) == Py_IsNone(nested)) {
            PyErr_SetString(PyExc_ValueError, "no such field");
            goto failed;
        }
        if (kind == STRUCT && (item->plan = make_plan(nested)) == NULL) goto failed;
    }
    return plan;
failed:
    free_plan(plan);
    return NULL;
}

/* -- reading: NULL, with or without an error set, means "use the Python function" ------------------ */

typedef struct {
    const uint8_t *bytes;
    Py_ssize_t position, end;
    int64_t budget;
    PyObject *data, *read_uuid;
} In;

static int has(const In *in, Py_ssize_t size) { return size <= in->end - in->position; }

/* Reads a length or count into *value, -1 for null. Returns 0 if it cannot be read. */
static int read_length(In *in, int flexible, int width, int64_t *value) {
    if (!flexible) {
        if (!has(in, width)) return 0;
        const uint8_t *p = in->bytes + in->position;
        *value = width == 2 ? (int16_t)u16(p) : (int32_t)u32(p);
        in->position += width;
        return 1;
    }
    uint64_t sum = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        if (!has(in, 1)) return 0;
        uint8_t byte = in->bytes[in->position++];
        sum |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = (int64_t)sum - 1;
            return sum <= UINT32_MAX;
        }
    }
    return 0;
}

static PyObject *slice(PyObject *data, Py_ssize_t start, Py_ssize_t stop) {
    PyObject *from = PyLong_FromSsize_t(start), *to = PyLong_FromSsize_t(stop), *range = NULL;
    PyObject *found = NULL;
    if (from != NULL && to != NULL) range = PySlice_New(from, to, NULL);
    if (range != NULL) found = PyObject_GetItem(data, range);
    Py_XDECREF(from), Py_XDECREF(to), Py_XDECREF(range);
    return found;
}

static PyObject *read_sized(In *in, enum Kind kind, int flexible, int nullable) {
    int64_t size;
    if (!read_length(in, flexible, kind == STRING ? 2 : 4, &size)) return NULL;
    if (size == -1 && nullable) Py_RETURN_NONE;
    if (size < 0 || !has(in, size) || (kind == STRING && size > STRING_LENGTH_MAX)) return NULL;
    const char *p = (const char *)in->bytes + in->position;
    in->position += size;
    if (kind == STRING) return PyUnicode_DecodeUTF8(p, size, NULL);
    if (kind == BYTES) return PyBytes_FromStringAndSize(p, size);
    return slice(in->data, in->position - size, in->position);
}

static PyObject *read_struct(In *in, const Plan *plan);

static PyObject *read_value(In *in, const Item *item, int flexible, int nullable) {
    if (item->kind == STRUCT) {
        if (nullable) {
            if (!has(in, 1)) return NULL;
            if ((int8_t)in->bytes[in->position++] < 0) Py_RETURN_NONE;
        }
        return read_struct(in, item->plan);
    }
    int width = WIDTH[item->kind];
    if (width == 0) return read_sized(in, item->kind, flexible, nullable);
    if (!has(in, width)) return NULL;
    const uint8_t *p = in->bytes + in->position;
    in->position += width;
    switch (item->kind) {
    case BOOL: return PyBool_FromLong(p[0]);
    case INT8: return PyLong_FromLong((int8_t)p[0]);
    case INT16: return PyLong_FromLong((int16_t)u16(p));
    case INT32: return PyLong_FromLong((int32_t)u32(p));
    case INT64: return PyLong_FromLongLong((int64_t)u64(p));
    case UINT16: return PyLong_FromLong(u16(p));
    case UINT32: return PyLong_FromUnsignedLong(u32(p));
    case FLOAT64: {
        double value = PyFloat_Unpack8((const char *)p, 0);
        return value == -1.0 && PyErr_Occurred() ? NULL : PyFloat_FromDouble(value);
    }
    case UUID: {
        PyObject *raw = PyBytes_FromStringAndSize((const char *)p, 16);
        PyObject *found = raw == NULL ? NULL : PyObject_CallOneArg(in->read_uuid, raw);
        Py_XDECREF(raw);
        return found;
    }
    default: return NULL;
    }
}

static PyObject *read_array(In *in, const Item *item, int flexible) {
    int64_t count;
    if (!read_length(in, flexible, 4, &count)) return NULL;
    if (count == -1 && item->flags & NULLABLE) Py_RETURN_NONE;
    if (count < 0 || count > (in->end - in->position) / item->size_min) return NULL;
    in->budget -= count;
    if (in->budget < 0) return NULL;
    PyObject *list = PyList_New(count);
    for (Py_ssize_t n = 0; list != NULL && n < count; n++) {
        PyObject *value = read_value(in, item, flexible, 0);
        if (value == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, n, value);
    }
    return list;
}

static PyObject *default_of(const Item *item) {
    return PyList_CheckExact(item->fallback) ? PyList_New(0) : Py_NewRef(item->fallback);
}

static PyObject *read_field(In *in, const Item *item, int flexible) {
    if (item->kind == ABSENT || item->flags & TAGGED) return default_of(item);
    if (item->flags & ARRAY) return read_array(in, item, flexible);
    return read_value(in, item, flexible, item->flags & NULLABLE);
}

static PyObject *read_struct(In *in, const Plan *plan) {
    PyObject *made = plan->type->tp_alloc(plan->type, 0);
    if (made == NULL) return NULL;
    for (Py_ssize_t n = 0; n < plan->count; n++) {
        const Item *item = &plan->items[n];
        PyObject *value = read_field(in, item, plan->flexible);
        if (value == NULL) goto failed;
        *slot_of(made, item) = value;
    }
    if (!plan->flexible) return made;
    if (has(in, 1) && in->bytes[in->position++] == 0) return made; /* no tagged fields */
failed:
    Py_DECREF(made);
    return NULL;
}

/* The `self` of a builtin: (pure, capsule of the plan, description of the plan, ...). */
#define PURE(self) PyTuple_GET_ITEM(self, 0)
#define BOUND(self, n) PyTuple_GET_ITEM(self, (n) + 3)
#define PLAN(self) ((Plan *)PyCapsule_GetPointer(PyTuple_GET_ITEM(self, 1), NULL))

static PyObject *fall_back(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    PyErr_Clear();
    return PyObject_Vectorcall(PURE(self), args, (size_t)count, NULL);
}

/* read(data, position) -> message; bound: read_uuid, may trail, budget */
static PyObject *read_call(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Py_buffer view;
    Py_ssize_t position = count == 2 ? PyLong_AsSsize_t(args[1]) : -1;
    if (position < 0 || !PyMemoryView_Check(args[0]) ||
        PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return fall_back(self, args, count);
    PyObject *made = NULL;
    if (view.itemsize == 1 && position <= view.len) {
        In in = {view.buf, position, view.len, PyLong_AsLongLong(BOUND(self, 2)), args[0],
                 BOUND(self, 0)};
        made = read_struct(&in, PLAN(self));
        if (made != NULL && in.position != in.end && !Py_IsTrue(BOUND(self, 1))) Py_CLEAR(made);
    }
    PyBuffer_Release(&view);
    return made != NULL ? made : fall_back(self, args, count);
}

/* -- writing: 0, with or without an error set, means "use the Python function" --------------------- */

typedef struct {
    uint8_t *bytes; /* the current piece */
    size_t size, room;
    uint8_t first[CAPACITY_FIRST];
    PyObject *pieces; /* finished pieces, with records between them; NULL if there are none */
    Py_ssize_t total;
} Out;

static uint8_t *reserve(Out *out, size_t size) {
    if (size > out->room - out->size) {
        size_t room = 2 * (out->size + size);
        uint8_t *grown = PyMem_Realloc(out->bytes == out->first ? NULL : out->bytes, room);
        if (grown == NULL) return NULL;
        if (out->bytes == out->first) memcpy(grown, out->first, out->size);
        out->bytes = grown, out->room = room;
    }
    uint8_t *place = out->bytes + out->size;
    out->size += size;
    return place;
}

static int put(Out *out, const void *bytes, size_t size) {
    uint8_t *place = reserve(out, size);
    if (place != NULL) memcpy(place, bytes, size);
    return place != NULL;
}

/* Finishes the current piece and starts another. */
static int finish_piece(Out *out) {
    PyObject *piece = PyBytes_FromStringAndSize((const char *)out->bytes, (Py_ssize_t)out->size);
    if (out->pieces == NULL) out->pieces = PyList_New(0);
    int done = piece != NULL && out->pieces != NULL && PyList_Append(out->pieces, piece) == 0;
    Py_XDECREF(piece);
    out->total += (Py_ssize_t)out->size;
    out->size = 0;
    return done;
}

static int put_length(Out *out, int flexible, int width, int64_t value) {
    uint8_t bytes[5], *p = bytes;
    if (!flexible && width == 2) {
        if (value > INT16_MAX) return 0;
        *p++ = (uint8_t)((uint64_t)value >> 8), *p++ = (uint8_t)value;
    } else if (value >= INT32_MAX) {
        return 0;
    } else if (!flexible) {
        put_u32(p, (uint32_t)value), p += 4;
    } else {
        uint32_t rest = (uint32_t)(value + 1);
        for (; rest > 0x7F; rest >>= 7) *p++ = rest | 0x80;
        *p++ = rest;
    }
    return put(out, bytes, (size_t)(p - bytes));
}

static int put_integer(Out *out, int64_t low, int64_t high, int width, PyObject *value) {
    if (!PyLong_Check(value)) return 0;
    int64_t number = PyLong_AsLongLong(value);
    if ((number == -1 && PyErr_Occurred()) || number < low || number > high) return 0;
    uint8_t *p = reserve(out, (size_t)width);
    if (p == NULL) return 0;
    for (int n = width; n > 0; n--) *p++ = (uint8_t)((uint64_t)number >> 8 * (n - 1));
    return 1;
}

static int put_sized(Out *out, enum Kind kind, int flexible, PyObject *value) {
    if (kind == STRING) {
        Py_ssize_t size;
        const char *text = PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, &size) : NULL;
        return text != NULL && size <= STRING_LENGTH_MAX && put_length(out, flexible, 2, size) &&
               put(out, text, (size_t)size);
    }
    Py_buffer view;
    if (PyObject_GetBuffer(value, &view, PyBUF_SIMPLE) < 0) return 0;
    Py_ssize_t size = view.len;
    int done = view.itemsize == 1 && put_length(out, flexible, 4, size);
    if (kind == BYTES) done = done && put(out, view.buf, (size_t)size);
    PyBuffer_Release(&view);
    if (kind == BYTES || !done || size == 0) return done;
    out->total += size;
    return finish_piece(out) && PyList_Append(out->pieces, value) == 0;
}

static int put_uuid(Out *out, PyObject *value) {
    PyObject *raw = PyObject_GetAttrString(value, "bytes");
    int done = raw != NULL && PyBytes_Check(raw) && PyBytes_GET_SIZE(raw) == 16 &&
               put(out, PyBytes_AS_STRING(raw), 16);
    Py_XDECREF(raw);
    return done;
}

static int put_struct(Out *out, const Plan *plan, PyObject *object);

static int put_value(Out *out, const Item *item, int flexible, PyObject *value) {
    switch (item->kind) {
    case BOOL: {
        int truth = PyObject_IsTrue(value);
        uint8_t byte = truth > 0;
        return truth >= 0 && put(out, &byte, 1);
    }
    case INT8: return put_integer(out, INT8_MIN, INT8_MAX, 1, value);
    case INT16: return put_integer(out, INT16_MIN, INT16_MAX, 2, value);
    case INT32: return put_integer(out, INT32_MIN, INT32_MAX, 4, value);
    case INT64: return put_integer(out, INT64_MIN, INT64_MAX, 8, value);
    case UINT16: return put_integer(out, 0, UINT16_MAX, 2, value);
    case UINT32: return put_integer(out, 0, UINT32_MAX, 4, value);
    case FLOAT64: {
        char bytes[8];
        return PyFloat_Check(value) && PyFloat_Pack8(PyFloat_AS_DOUBLE(value), bytes, 0) == 0 &&
               put(out, bytes, 8);
    }
    case UUID: return put_uuid(out, value);
    case STRING: case BYTES: case RECORDS: return put_sized(out, item->kind, flexible, value);
    case STRUCT: return put_struct(out, item->plan, value);
    default: return 0;
    }
}

static int put_field(Out *out, const Item *item, int flexible, PyObject *value) {
    if (Py_IsNone(value)) {
        if (!(item->flags & NULLABLE)) return 0;
        if (item->kind == STRUCT && !(item->flags & ARRAY)) return put(out, "\xff", 1);
        int is_short = item->kind == STRING && !(item->flags & ARRAY);
        return put_length(out, flexible, is_short ? 2 : 4, -1);
    }
    if (!(item->flags & ARRAY)) {
        if (item->kind == STRUCT && item->flags & NULLABLE && !put(out, "\1", 1)) return 0;
        return put_value(out, item, flexible, value);
    }
    if (!PyList_CheckExact(value) || !put_length(out, flexible, 4, PyList_GET_SIZE(value))) return 0;
    for (Py_ssize_t n = 0; n < PyList_GET_SIZE(value); n++) {
        PyObject *element = Py_NewRef(PyList_GET_ITEM(value, n));
        int done = put_value(out, item, flexible, element);
        Py_DECREF(element);
        if (!done) return 0;
    }
    return 1;
}

/* Whether a tagged field has its default and is omitted; others are left to the Python writer. */
static int is_left_out(const Item *item, PyObject *value) {
    if (item->flags & ARRAY) return PyList_CheckExact(value) && PyList_GET_SIZE(value) == 0;
    if (item->kind == STRUCT || Py_IsNone(item->fallback)) return Py_IsNone(value);
    return value == item->fallback || PyObject_RichCompareBool(value, item->fallback, Py_EQ) == 1;
}

static int put_struct(Out *out, const Plan *plan, PyObject *object) {
    if (!Py_IS_TYPE(object, plan->type)) return 0;
    for (Py_ssize_t n = 0; n < plan->count; n++) {
        const Item *item = &plan->items[n];
        if (item->kind == ABSENT) continue;
        PyObject *value = *slot_of(object, item);
        if (value == NULL) return 0;
        Py_INCREF(value);
        int done = item->flags & TAGGED ? is_left_out(item, value)
                                        : put_field(out, item, plan->flexible, value);
        Py_DECREF(value);
        if (!done) return 0;
    }
    return !plan->flexible || put(out, "\0", 1);
}

/* The pieces of `message`, after `head` bytes left blank. NULL means "use the Python function". */
static PyObject *write_pieces(PyObject *self, PyObject *message, size_t head, Py_ssize_t *total) {
    Out out = {.bytes = out.first, .room = CAPACITY_FIRST};
    int done = reserve(&out, head) != NULL;
    if (done) memset(out.bytes, 0, head);
    done = done && put_struct(&out, PLAN(self), message) &&
           ((out.pieces != NULL && out.size == 0) || finish_piece(&out));
    if (out.bytes != out.first) PyMem_Free(out.bytes);
    if (!done) Py_CLEAR(out.pieces);
    *total = out.total;
    return out.pieces;
}

/* write(message) -> pieces */
static PyObject *write_call(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Py_ssize_t total;
    PyObject *pieces = count == 1 ? write_pieces(self, args[0], 0, &total) : NULL;
    return pieces != NULL ? pieces : fall_back(self, args, count);
}

/* write_frame(message, correlation id) -> (pieces, their size); bound: is the header flexible */
static PyObject *write_frame_call(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Py_ssize_t total;
    PyObject *pieces = NULL;
    long correlation_id = count == 2 ? PyLong_AsLong(args[1]) : -1;
    if (count == 2 && !PyErr_Occurred() && correlation_id >= INT32_MIN && correlation_id <= INT32_MAX)
        pieces = write_pieces(self, args[0], Py_IsTrue(BOUND(self, 0)) ? 9 : 8, &total);
    if (pieces == NULL || total > INT32_MAX) {
        Py_XDECREF(pieces);
        return fall_back(self, args, count);
    }
    /* This bytes object is not visible to anyone else yet, so it may be changed. */
    uint8_t *head = (uint8_t *)PyBytes_AS_STRING(PyList_GET_ITEM(pieces, 0));
    put_u32(head, (uint32_t)(total - 4));
    put_u32(head + 4, (uint32_t)correlation_id);
    return Py_BuildValue("Nn", pieces, total);
}

/* -- construct(*values) -> struct; bound: for each field the number of its value, or NOT_GIVEN ------- */

enum { NOT_GIVEN = 255 };

static PyObject *construct_call(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    const Plan *plan = PLAN(self);
    const uint8_t *numbers = (const uint8_t *)PyBytes_AS_STRING(BOUND(self, 0));
    if (count != PyLong_AsSsize_t(BOUND(self, 1))) return fall_back(self, args, count);
    PyObject *made = plan->type->tp_alloc(plan->type, 0);
    for (Py_ssize_t n = 0; made != NULL && n < plan->count; n++) {
        const Item *item = &plan->items[n];
        PyObject *value =
            numbers[n] == NOT_GIVEN ? default_of(item) : Py_NewRef(args[numbers[n]]);
        if (value == NULL) Py_CLEAR(made);
        else *slot_of(made, item) = value;
    }
    return made;
}

/* -- decode_request_header(frame) ------------------------------------------------------------------- */

/* self: (pure, RequestHeader, (lowest, highest, flexible since) of each API key as native int32) */
static PyObject *header_call(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Py_buffer view;
    if (count != 1 || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return fall_back(self, args, count);
    PyTypeObject *type = (PyTypeObject *)PyTuple_GET_ITEM(self, 1);
    const int32_t *rules = (const int32_t *)PyBytes_AS_STRING(PyTuple_GET_ITEM(self, 2));
    Py_ssize_t keys = PyBytes_GET_SIZE(PyTuple_GET_ITEM(self, 2)) / (Py_ssize_t)sizeof(int32_t[3]);
    PyObject *made = NULL, *client_id = NULL;
    if (view.len < REQUEST_HEADER_BYTES_MIN) goto done;
    const uint8_t *p = view.buf;
    int16_t key = (int16_t)u16(p), version = (int16_t)u16(p + 2), length = (int16_t)u16(p + 8);
    if (key < 0 || key >= keys) goto done;
    const int32_t *rule = rules + 3 * key;
    if (version < rule[0] || version > rule[1] || length < -1) goto done;
    Py_ssize_t position = REQUEST_HEADER_BYTES_MIN;
    if (length < 0) {
        client_id = Py_NewRef(Py_None);
    } else {
        if (length > view.len - position) goto done;
        client_id = PyUnicode_DecodeUTF8((const char *)p + position, length, NULL);
        position += length;
    }
    if (client_id == NULL) goto done;
    if (version >= rule[2]) {
        if (position >= view.len || p[position] != 0) goto done;
        position++;
    }
    PyObject *fields[] = {
        PyLong_FromLong(key), PyLong_FromLong(version), PyLong_FromLong((int32_t)u32(p + 4)),
        Py_NewRef(client_id), PyLong_FromSsize_t(position),
    };
    made = type->tp_alloc(type, 5);
    for (int n = 0; n < 5; n++) {
        if (made != NULL && fields[n] == NULL) Py_CLEAR(made);
        if (made != NULL) PyTuple_SET_ITEM(made, n, fields[n]);
        else Py_XDECREF(fields[n]);
    }
done:
    Py_XDECREF(client_id);
    PyBuffer_Release(&view);
    return made != NULL ? made : fall_back(self, args, count);
}

/* -- cut_frames(view, start, filled, smallest, largest) ---------------------------------------------- */

/* self: (pure,) */
static PyObject *cut_frames_call(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Py_ssize_t numbers[4];
    Py_buffer view;
    if (count != 5 || !PyMemoryView_Check(args[0])) return fall_back(self, args, count);
    for (int n = 0; n < 4; n++) {
        numbers[n] = PyLong_AsSsize_t(args[n + 1]);
        if (numbers[n] < 0) return fall_back(self, args, count);
    }
    Py_ssize_t start = numbers[0], filled = numbers[1], smallest = numbers[2], largest = numbers[3];
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0) return fall_back(self, args, count);
    PyObject *frames = view.itemsize == 1 && filled <= view.len ? PyList_New(0) : NULL;
    PyObject *next = Py_None;
    while (frames != NULL && filled - start >= LENGTH_BYTES) {
        int32_t length = (int32_t)u32((const uint8_t *)view.buf + start);
        Py_ssize_t body = start + LENGTH_BYTES;
        if (length < smallest || length > largest || length > filled - body) {
            next = PyLong_FromLong(length);
            break;
        }
        PyObject *frame = slice(args[0], body, body + length);
        if (frame == NULL || PyList_Append(frames, frame) < 0) Py_CLEAR(frames);
        Py_XDECREF(frame);
        start = body + length;
    }
    PyBuffer_Release(&view);
    if (frames == NULL || next == NULL) {
        Py_XDECREF(frames);
        return fall_back(self, args, count);
    }
    if (next == Py_None) Py_INCREF(next);
    return Py_BuildValue("NnN", frames, start, next);
}

/* -- module ------------------------------------------------------------------------------------------ */

#define FAST(name) {#name, (PyCFunction)(void (*)(void))name##_call, METH_FASTCALL, NULL}

static PyMethodDef read_def = FAST(read);
static PyMethodDef write_def = FAST(write);
static PyMethodDef write_frame_def = FAST(write_frame);
static PyMethodDef construct_def = FAST(construct);
static PyMethodDef header_def = FAST(header);
static PyMethodDef cut_frames_def = FAST(cut_frames);

/* (pure, description, *bound) -> builtin with self (pure, capsule, description, *bound) */
static PyObject *make(PyMethodDef *method, PyObject *args, Py_ssize_t bound) {
    if (PyTuple_GET_SIZE(args) != bound + 2)
        return PyErr_Format(PyExc_TypeError, "%s takes %zd arguments", method->ml_name, bound + 2);
    Plan *plan = make_plan(PyTuple_GET_ITEM(args, 1));
    if (plan == NULL) return NULL;
    PyObject *capsule = PyCapsule_New(plan, NULL, free_capsule);
    if (capsule == NULL) {
        free_plan(plan);
        return NULL;
    }
    PyObject *self = PyTuple_New(bound + 3), *made = NULL;
    if (self != NULL) {
        PyTuple_SET_ITEM(self, 0, Py_NewRef(PyTuple_GET_ITEM(args, 0)));
        PyTuple_SET_ITEM(self, 1, Py_NewRef(capsule));
        for (Py_ssize_t n = 0; n <= bound; n++)
            PyTuple_SET_ITEM(self, n + 2, Py_NewRef(PyTuple_GET_ITEM(args, n + 1)));
        made = PyCFunction_NewEx(method, self, NULL);
        Py_DECREF(self);
    }
    Py_DECREF(capsule);
    return made;
}

static PyObject *make_read(PyObject *module, PyObject *args) {
    (void)module;
    return make(&read_def, args, 3);
}

static PyObject *make_write(PyObject *module, PyObject *args) {
    (void)module;
    return make(&write_def, args, 0);
}

static PyObject *make_write_frame(PyObject *module, PyObject *args) {
    (void)module;
    return make(&write_frame_def, args, 1);
}

static PyObject *make_construct(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *made = make(&construct_def, args, 2);
    if (made == NULL) return NULL;
    const Plan *plan = PLAN(PyCFunction_GET_SELF(made));
    PyObject *numbers = PyTuple_GET_ITEM(args, 2);
    Py_ssize_t count = PyLong_AsSsize_t(PyTuple_GET_ITEM(args, 3));
    int fits = count >= 0 && PyBytes_Check(numbers) && PyBytes_GET_SIZE(numbers) == plan->count;
    for (Py_ssize_t n = 0; fits && n < plan->count; n++) {
        uint8_t number = (uint8_t)PyBytes_AS_STRING(numbers)[n];
        fits = number == NOT_GIVEN || number < count;
    }
    if (fits) return made;
    Py_DECREF(made);
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "one number for each field is needed");
    return NULL;
}

static PyObject *make_header(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *pure, *type, *rules;
    if (!PyArg_ParseTuple(args, "OO!O!", &pure, &PyType_Type, &type, &PyBytes_Type, &rules)) return NULL;
    if (!PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "a subclass of tuple is needed");
        return NULL;
    }
    return PyCFunction_NewEx(&header_def, args, NULL);
}

static PyObject *make_cut_frames(PyObject *module, PyObject *args) {
    (void)module;
    if (PyTuple_GET_SIZE(args) == 1) return PyCFunction_NewEx(&cut_frames_def, args, NULL);
    return PyErr_Format(PyExc_TypeError, "cut_frames takes 1 argument");
}

static PyMethodDef functions[] = {
    {"read", make_read, METH_VARARGS, "(pure, plan, read_uuid, may_trail, budget)"},
    {"write", make_write, METH_VARARGS, "(pure, plan)"},
    {"write_frame", make_write_frame, METH_VARARGS, "(pure, plan, header_is_flexible)"},
    {"construct", make_construct, METH_VARARGS, "(pure, plan, numbers, count)"},
    {"cut_frames", make_cut_frames, METH_VARARGS, "(pure)"},
    {"decode_request_header", make_header, METH_VARARGS, "(pure, RequestHeader, rules)"},
    {NULL, NULL, 0, NULL},
};

static int start(PyObject *module) {
    const char *wish = getenv("KAFKAESQUE_PURE");
    if (wish != NULL && *wish != '\0' && strcmp(wish, "modules") != 0) {
        PyErr_SetString(PyExc_ImportError, "KAFKAESQUE_PURE is set");
        return -1;
    }
    PyObject *kinds = PyDict_New();
    int is_bad = kinds == NULL;
    for (int kind = 0; kind < KINDS && !is_bad; kind++) {
        PyObject *number = PyLong_FromLong(kind);
        is_bad = number == NULL || PyDict_SetItemString(kinds, NAME[kind], number) < 0;
        Py_XDECREF(number);
    }
    is_bad = is_bad || PyModule_AddObjectRef(module, "KINDS", kinds) < 0 ||
             PyModule_AddIntMacro(module, ARRAY) < 0 || PyModule_AddIntMacro(module, NULLABLE) < 0 ||
             PyModule_AddIntMacro(module, TAGGED) < 0;
    Py_XDECREF(kinds);
    return is_bad ? -1 : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, start}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "Readers and writers of kafkaesque.wire, compiled.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
