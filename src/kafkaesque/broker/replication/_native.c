/* The append of a batch to a Raft log, compiled: where it goes behind the last one of its segment.
 *
 * `EntryLog.append_batch` and `_note` are the rules. Whatever is not ordinary is handed to them: before
 * the write everything that may be refused, and a log of which nothing is known yet; behind it a batch
 * that began a segment, and one that fills a block of the entry index.
 */
#include "../storage/_slots.h"

/* As in broker/replication/native.py: each slot by its class and name. */
enum {
    ENTRIES_LOG, ENTRIES_JOURNAL, ENTRIES_ACTIVE, ENTRIES_TERM, ENTRIES_GATE_POSITION, ENTRIES_LAST_INDEX,
    LOG_END_OFFSET,
    JOURNAL_SYNCED_POSITION,
    INDEX_BASE_OFFSET, INDEX_END_OFFSET, INDEX_END_POSITION, INDEX_TAIL,
    SLOTS
};

/* Fields of a BatchHeader, a BatchPayload and a BatchRef. */
enum { BASE_OFFSET = 0, SIZE_BYTES = 1, LEADER_EPOCH = 2, HEADER_FIELDS = 13 };
enum { DATA = 0, HEADER = 1, PAYLOAD_FIELDS = 2 };
enum { REF_BASE_OFFSET, REF_NEXT_OFFSET, REF_SIZE_BYTES, REF_SEGMENT_BASE_OFFSET, REF_POSITION,
       REF_FIELDS };

enum { ENTRIES, INDEX, TERM, PAYLOAD, NOW_MS, ARGUMENTS };

typedef struct {
    Slot slots[SLOTS];
    PyTypeObject *header, *payload, *ref; /* borrowed, as the slots' classes are */
    int64_t block_entries;
} Layout;

static PyObject *append_name, *note_name;
static const int POSITION_BITS = 32;

/* References are borrowed; `active` and `log` are the owner's, whose thread this is. */
typedef struct {
    PyObject *log, *active, *tail, *header, *data;
    int64_t base_offset, size_bytes;
} Batch;

/* A slot of the entry log itself, which may be of a subclass: its class led here. */
static PyObject *own(const Layout *layout, PyObject *entries, int number) {
    const Slot *slot = &layout->slots[number];
    if (!PyObject_TypeCheck(entries, slot->owner)) return NULL;
    return *(PyObject **)((char *)entries + slot->place);
}

static int as_int(PyObject *number, int64_t *value) {
    if (number == NULL || !PyLong_CheckExact(number)) return 0;
    *value = PyLong_AsLongLong(number);
    return *value != -1 || !PyErr_Occurred();
}

/* 1 if the batch is the next entry, and nothing has to be found out or waited for first. */
static int is_next(const Layout *layout, PyObject *const *args, Batch *it) {
    const Slot *slots = layout->slots;
    PyObject *entries = args[ENTRIES], *payload = args[PAYLOAD];
    int64_t index, term, epoch, last_index, last_term, end_offset, synced_position, gate_position;
    if (!Py_IS_TYPE(payload, layout->payload) || PyTuple_GET_SIZE(payload) != PAYLOAD_FIELDS) return 0;
    it->data = PyTuple_GET_ITEM(payload, DATA);
    it->header = PyTuple_GET_ITEM(payload, HEADER);
    if (!Py_IS_TYPE(it->header, layout->header) || PyTuple_GET_SIZE(it->header) != HEADER_FIELDS)
        return 0;
    it->log = own(layout, entries, ENTRIES_LOG);
    it->active = own(layout, entries, ENTRIES_ACTIVE);
    it->tail = get(slots, it->active, INDEX_TAIL);
    return it->tail != NULL && as_int(args[INDEX], &index) && as_int(args[TERM], &term) &&
           get_field(it->header, BASE_OFFSET, &it->base_offset) &&
           get_field(it->header, SIZE_BYTES, &it->size_bytes) &&
           get_field(it->header, LEADER_EPOCH, &epoch) &&
           as_int(own(layout, entries, ENTRIES_LAST_INDEX), &last_index) &&
           as_int(own(layout, entries, ENTRIES_TERM), &last_term) &&
           as_int(own(layout, entries, ENTRIES_GATE_POSITION), &gate_position) &&
           get_int(slots, it->log, LOG_END_OFFSET, &end_offset) &&
           get_int(slots, own(layout, entries, ENTRIES_JOURNAL), JOURNAL_SYNCED_POSITION,
                   &synced_position) &&
           index == last_index + 1 && it->base_offset == end_offset && epoch == term &&
           term == last_term && synced_position >= gate_position && it->size_bytes > 0 &&
           it->size_bytes <= INT32_MAX;
}

/* As EntryIndex.append: the position of the batch, or NULL with an error. */
static PyObject *note_place(const Layout *layout, const Batch *it, PyObject *next_offset) {
    const Slot *slots = layout->slots;
    PyObject *position = Py_XNewRef(get(slots, it->active, INDEX_END_POSITION)), *done = NULL;
    PyObject *packed = NULL, *end_position = NULL;
    int64_t position_bytes, end_offset, base_offset;
    if (!as_int(position, &position_bytes) ||
        !get_int(slots, it->active, INDEX_END_OFFSET, &end_offset) ||
        !get_int(slots, it->active, INDEX_BASE_OFFSET, &base_offset)) {
        PyErr_Format(PyExc_TypeError, "%R is no index of entries", it->active);
        Py_CLEAR(position);
        goto out;
    }
    packed = PyLong_FromUnsignedLongLong((uint64_t)(end_offset - base_offset) << POSITION_BITS |
                                         (uint64_t)position_bytes);
    end_position = PyLong_FromLongLong(position_bytes + it->size_bytes);
    if (packed != NULL && end_position != NULL)
        done = PyObject_CallMethodOneArg(it->tail, append_name, packed);
    if (done == NULL) {
        Py_CLEAR(position);
        goto out;
    }
    set(slots, it->active, INDEX_END_POSITION, end_position);
    set(slots, it->active, INDEX_END_OFFSET, next_offset);
out:
    Py_XDECREF(packed), Py_XDECREF(end_position), Py_XDECREF(done);
    return position;
}

/* As EntryLog._note, for a batch that stands behind another one in its segment and block. */
static PyObject *note(const Layout *layout, PyObject *const *args, const Batch *it,
                      PyObject *segment_base_offset) {
    PyObject *next_offset = get(layout->slots, it->log, LOG_END_OFFSET);
    PyObject *ref = layout->ref->tp_alloc(layout->ref, REF_FIELDS);
    PyObject *position = ref == NULL ? NULL : note_place(layout, it, next_offset);
    if (position == NULL) {
        Py_XDECREF(ref);
        return NULL;
    }
    set(layout->slots, args[ENTRIES], ENTRIES_LAST_INDEX, args[INDEX]);
    PyTuple_SET_ITEM(ref, REF_BASE_OFFSET, Py_NewRef(PyTuple_GET_ITEM(it->header, BASE_OFFSET)));
    PyTuple_SET_ITEM(ref, REF_NEXT_OFFSET, Py_NewRef(next_offset));
    PyTuple_SET_ITEM(ref, REF_SIZE_BYTES, Py_NewRef(PyTuple_GET_ITEM(it->header, SIZE_BYTES)));
    PyTuple_SET_ITEM(ref, REF_SEGMENT_BASE_OFFSET, Py_NewRef(segment_base_offset));
    PyTuple_SET_ITEM(ref, REF_POSITION, position);
    return ref;
}

/* append_batch(entries, index, term, payload, now_ms) */
static PyObject *append_batch_call(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                   PyObject *names) {
    const Layout *layout = PyCapsule_GetPointer(PyTuple_GET_ITEM(self, 1), NULL);
    Batch it;
    if (count != ARGUMENTS || names != NULL || !is_next(layout, args, &it)) {
        PyErr_Clear(); /* of a number that is too large */
        return PyObject_Vectorcall(PyTuple_GET_ITEM(self, 0), args, (size_t)count, names);
    }
    Py_INCREF(it.log), Py_INCREF(it.active), Py_INCREF(it.tail);
    PyObject *call[] = {it.log, it.data, it.header, args[NOW_MS]};
    PyObject *segment_base_offset = PyObject_VectorcallMethod(append_name, call, 4, NULL);
    PyObject *ref = NULL;
    if (segment_base_offset != NULL) {
        int64_t began;
        Py_ssize_t entries = PyObject_Size(it.tail);
        if (as_int(segment_base_offset, &began) && began != it.base_offset && entries >= 0 &&
            (entries + 1) % layout->block_entries != 0) {
            ref = note(layout, args, &it, segment_base_offset);
        } else {
            PyObject *told[] = {args[ENTRIES], args[INDEX], it.header, segment_base_offset};
            PyErr_Clear();
            ref = PyObject_VectorcallMethod(note_name, told, 4, NULL);
        }
        Py_DECREF(segment_base_offset);
    }
    Py_DECREF(it.log), Py_DECREF(it.active), Py_DECREF(it.tail);
    return ref;
}

/* -- module ---------------------------------------------------------------------------------------- */

static PyMethodDef append_batch_def = {
    "append_batch", (PyCFunction)(void (*)(void))append_batch_call, METH_FASTCALL | METH_KEYWORDS, NULL,
};

/* append_batch(pure, ((class, slot), ...), BatchHeader, BatchPayload, BatchRef, block_entries) -> method */
static PyObject *make_append_batch(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *pure, *slots, *header, *payload, *ref, *made = NULL;
    long long block_entries;
    if (!PyArg_ParseTuple(args, "OO!O!O!O!L", &pure, &PyTuple_Type, &slots, &PyType_Type, &header,
                          &PyType_Type, &payload, &PyType_Type, &ref, &block_entries))
        return NULL;
    if (block_entries < 1 || !PyType_IsSubtype((PyTypeObject *)header, &PyTuple_Type) ||
        !PyType_IsSubtype((PyTypeObject *)payload, &PyTuple_Type) ||
        !PyType_IsSubtype((PyTypeObject *)ref, &PyTuple_Type)) {
        PyErr_SetString(PyExc_ValueError, "not the tuples that are needed");
        return NULL;
    }
    void *room;
    PyObject *capsule = new_layout(sizeof(Layout), &room);
    if (capsule == NULL) return NULL;
    Layout *layout = room;
    layout->header = (PyTypeObject *)header;
    layout->payload = (PyTypeObject *)payload;
    layout->ref = (PyTypeObject *)ref;
    layout->block_entries = block_entries;
    if (find_slots(layout->slots, SLOTS, slots))
        made = bind_method(&append_batch_def, pure, capsule, args);
    Py_DECREF(capsule);
    return made;
}

static PyMethodDef functions[] = {
    {"append_batch", make_append_batch, METH_VARARGS,
     "(pure, slots, BatchHeader, BatchPayload, BatchRef, block_entries)"},
    {NULL, NULL, 0, NULL},
};

static int start(PyObject *module) {
    (void)module;
    append_name = PyUnicode_InternFromString("append");
    note_name = PyUnicode_InternFromString("_note");
    return append_name && note_name ? refuse_if_pure() : -1;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, start}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "The append of kafkaesque.broker.replication, compiled.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
