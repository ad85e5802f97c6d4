/* The append of a batch to a log, compiled: where nothing but the write itself has to happen.
 *
 * `Log.append` and what it calls (`SegmentChain.append`, `Segment.append` and `note`) are the rules.
 * This does the same where the active segment goes on as it is, working on the slots of the same
 * objects, and hands every other case to the Python method before anything has changed: a failure, a
 * refusal, a roll, a repair, a first batch, a new epoch, a tail for the journal. A write that fails or
 * is short is the Python method's too, which does it again in the same place. A runway is laid by the
 * segment itself.
 *
 * The write goes through `files.calls.pwrite`, as in Python.
 */
#include "_slots.h"

/* As in broker/storage/native.py: each slot by its class and name. */
enum {
    LOG_LOCK, LOG_DURABILITY, LOG_CHAIN, LOG_EPOCHS, LOG_END_OFFSET, LOG_TAIL,
    DURABILITY_FAILURE, EPOCHS_LATEST,
    CHAIN_IS_REFUSING, CHAIN_SEGMENTS, CHAIN_FILES, CHAIN_CONFIG, FILES_CALLS,
    SEGMENT_BASE_OFFSET, SEGMENT_SIZE_BYTES, SEGMENT_FIRST_TIMESTAMP, SEGMENT_MAX_TIMESTAMP,
    SEGMENT_MAX_TIMESTAMP_POSITION, SEGMENT_INDEX, SEGMENT_IS_SYNCED, SEGMENT_INDEXED_POSITION,
    SEGMENT_NEEDS_REPAIR, SEGMENT_PINNED_FD, SEGMENT_RECENT, SEGMENT_RUNWAY_END,
    SEGMENT_UNSYNCED_POSITION,
    INDEX_COUNT, INDEX_TAIL,
    CONFIG_SEGMENT_BYTES, CONFIG_SEGMENT_MS, CONFIG_INDEX_INTERVAL_BYTES,
    CONFIG_SEGMENT_INDEX_BYTES, CONFIG_RUNWAY_BYTES, CONFIG_RUNWAY_FROM_BYTES,
    SLOTS
};

/* Fields of a BatchHeader. */
enum { BASE_OFFSET = 0, SIZE_BYTES = 1, LEADER_EPOCH = 2, LAST_OFFSET_DELTA = 6, MAX_TIMESTAMP = 8,
       RECORD_COUNT = 12, HEADER_FIELDS = 13 };

/* Limits, as bound by broker/storage/native.py. */
enum Limit { OFFSET_DELTA_MAX, POSITION_MAX, ENTRY_SIZE_BYTES, RECENT_MAX, LIMITS };

typedef struct {
    Slot slots[SLOTS];
    PyTypeObject *header; /* borrowed, as the slots' classes are */
    int64_t limit[LIMITS];
} Layout;

static PyObject *acquire_name, *release_name, *pwrite_name, *extend_name, *lay_runway_name;

/* What is known before the write. References are borrowed: the log's lock keeps them. */
typedef struct {
    PyObject *segment, *index, *index_tail, *recent, *files, *calls, *config, *pinned_fd;
    PyObject *max_timestamp;
    int64_t base_offset, size_bytes, delta, timestamp, record_count;
    int64_t position, segment_base_offset, max_seen;
    int is_indexed, needs_runway;
} Append;

static int read_header(const Layout *layout, PyObject *header, Append *it, int64_t *epoch) {
    return Py_IS_TYPE(header, layout->header) && PyTuple_GET_SIZE(header) == HEADER_FIELDS &&
           get_field(header, BASE_OFFSET, &it->base_offset) &&
           get_field(header, SIZE_BYTES, &it->size_bytes) &&
           get_field(header, LEADER_EPOCH, epoch) &&
           get_field(header, LAST_OFFSET_DELTA, &it->delta) &&
           get_field(header, MAX_TIMESTAMP, &it->timestamp) &&
           get_field(header, RECORD_COUNT, &it->record_count) &&
           /* So that no sum of them can overflow. */
           it->base_offset >= 0 && it->base_offset < INT64_MAX / 4 && it->size_bytes > 0 &&
           it->size_bytes <= INT32_MAX && it->delta >= 0 && it->delta <= INT32_MAX &&
           it->timestamp > INT64_MIN / 4 && it->timestamp < INT64_MAX / 4;
}

/* As Segment.append's questions: 1 if the batch just goes behind the others. */
static int fits(const Layout *layout, PyObject *config, Append *it, int64_t now_ms) {
    PyObject *segment = it->segment;
    int64_t first_timestamp, count, fd, runway_end, unsynced_position, indexed_position;
    int64_t segment_bytes, segment_ms, interval_bytes, index_bytes, runway_bytes, runway_from_bytes;
    if (get(layout->slots, segment, SEGMENT_NEEDS_REPAIR) != Py_False ||
        get(layout->slots, segment, SEGMENT_IS_SYNCED) != Py_False)
        return 0;
    it->index = get(layout->slots, segment, SEGMENT_INDEX);
    it->recent = get(layout->slots, segment, SEGMENT_RECENT);
    it->pinned_fd = get(layout->slots, segment, SEGMENT_PINNED_FD);
    it->max_timestamp = get(layout->slots, segment, SEGMENT_MAX_TIMESTAMP);
    it->index_tail = get(layout->slots, it->index, INDEX_TAIL);
    if (it->index_tail == NULL || Py_IsNone(it->index_tail) || it->recent == NULL ||
        !PyDict_CheckExact(it->recent) || PyDict_GET_SIZE(it->recent) >= layout->limit[RECENT_MAX])
        return 0;
    if (!get_int(layout->slots, segment, SEGMENT_SIZE_BYTES, &it->position) ||
        !get_int(layout->slots, segment, SEGMENT_BASE_OFFSET, &it->segment_base_offset) ||
        !get_int(layout->slots, segment, SEGMENT_FIRST_TIMESTAMP, &first_timestamp) ||
        !get_int(layout->slots, segment, SEGMENT_MAX_TIMESTAMP, &it->max_seen) ||
        !get_int(layout->slots, segment, SEGMENT_PINNED_FD, &fd) ||
        !get_int(layout->slots, segment, SEGMENT_RUNWAY_END, &runway_end) ||
        !get_int(layout->slots, segment, SEGMENT_UNSYNCED_POSITION, &unsynced_position) ||
        !get_int(layout->slots, segment, SEGMENT_INDEXED_POSITION, &indexed_position) ||
        !get_int(layout->slots, it->index, INDEX_COUNT, &count) ||
        !get_int(layout->slots, config, CONFIG_SEGMENT_BYTES, &segment_bytes) ||
        !get_int(layout->slots, config, CONFIG_SEGMENT_MS, &segment_ms) ||
        !get_int(layout->slots, config, CONFIG_INDEX_INTERVAL_BYTES, &interval_bytes) ||
        !get_int(layout->slots, config, CONFIG_SEGMENT_INDEX_BYTES, &index_bytes) ||
        !get_int(layout->slots, config, CONFIG_RUNWAY_BYTES, &runway_bytes) ||
        !get_int(layout->slots, config, CONFIG_RUNWAY_FROM_BYTES, &runway_from_bytes))
        return 0;
    int64_t end_position = it->position + it->size_bytes;
    int64_t time = it->timestamp >= 0 ? it->timestamp : now_ms;
    if (it->position <= 0 || fd < 0 || first_timestamp < -1 ||
        it->base_offset + it->delta - it->segment_base_offset > layout->limit[OFFSET_DELTA_MAX] ||
        end_position > segment_bytes || end_position > layout->limit[POSITION_MAX] ||
        time - first_timestamp > segment_ms ||
        (count + 1) * layout->limit[ENTRY_SIZE_BYTES] > index_bytes)
        return 0;
    if (end_position > runway_end && it->position - unsynced_position >= runway_from_bytes &&
        it->size_bytes <= runway_bytes / 2)
        it->needs_runway = 1;
    it->is_indexed = it->position - indexed_position >= interval_bytes;
    return 1;
}

/* With the lock held: 1 if all is ordinary. Nothing is changed. */
static int prepare(const Layout *layout, PyObject *log, PyObject *const *args, Append *it) {
    PyObject *chain = get(layout->slots, log, LOG_CHAIN), *segments;
    int64_t now_ms, epoch, latest, end_offset;
    PyObject *durability = get(layout->slots, log, LOG_DURABILITY);
    PyObject *epochs = get(layout->slots, log, LOG_EPOCHS);
    if (get(layout->slots, durability, DURABILITY_FAILURE) != Py_None ||
        get(layout->slots, log, LOG_TAIL) != Py_None ||
        get(layout->slots, chain, CHAIN_IS_REFUSING) != Py_False || !PyLong_CheckExact(args[3]))
        return 0;
    now_ms = PyLong_AsLongLong(args[3]);
    if (now_ms < 0 || now_ms > INT64_MAX / 4 || !read_header(layout, args[2], it, &epoch) ||
        !get_int(layout->slots, log, LOG_END_OFFSET, &end_offset) || it->base_offset < end_offset ||
        PyObject_Size(args[1]) != it->size_bytes ||
        !get_int(layout->slots, epochs, EPOCHS_LATEST, &latest) || epoch > latest)
        return 0;
    segments = get(layout->slots, chain, CHAIN_SEGMENTS);
    it->files = get(layout->slots, chain, CHAIN_FILES);
    it->config = get(layout->slots, chain, CHAIN_CONFIG);
    if (segments == NULL || !PyList_CheckExact(segments) || PyList_GET_SIZE(segments) == 0) return 0;
    it->segment = PyList_GET_ITEM(segments, PyList_GET_SIZE(segments) - 1);
    it->calls = get(layout->slots, it->files, FILES_CALLS);
    return it->calls != NULL && fits(layout, it->config, it, now_ms);
}

/* As Segment.note and `recent`, and the log's end. 0 with an error set if memory ran out. */
static int note(const Layout *layout, PyObject *log, Append *it) {
    PyObject *position = PyLong_FromLongLong(it->position), *done = NULL;
    PyObject *end_position = PyLong_FromLongLong(it->position + it->size_bytes);
    PyObject *end_offset = PyLong_FromLongLong(it->base_offset + it->delta + 1);
    PyObject *base_offset = PyLong_FromLongLong(it->base_offset);
    PyObject *timestamp = PyLong_FromLongLong(it->timestamp), *count = NULL, *entry = NULL;
    int is_noted = 0;
    if (!position || !end_position || !end_offset || !base_offset || !timestamp) goto out;
    if (it->is_indexed) {
        int64_t entries;
        if (!get_int(layout->slots, it->index, INDEX_COUNT, &entries)) goto out;
        count = PyLong_FromLongLong(entries + 1);
        entry = Py_BuildValue("LOO", (long long)(it->base_offset - it->segment_base_offset), position,
                              it->max_timestamp);
        if (!count || !entry) goto out;
        done = PyObject_CallMethodOneArg(it->index_tail, extend_name, entry);
        if (!done) goto out;
        set(layout->slots, it->index, INDEX_COUNT, count);
        set(layout->slots, it->segment, SEGMENT_INDEXED_POSITION, position);
    }
    if (it->timestamp > it->max_seen && it->record_count) {
        set(layout->slots, it->segment, SEGMENT_MAX_TIMESTAMP, timestamp);
        set(layout->slots, it->segment, SEGMENT_MAX_TIMESTAMP_POSITION, position);
    }
    set(layout->slots, it->segment, SEGMENT_SIZE_BYTES, end_position);
    is_noted = PyDict_SetItem(it->recent, base_offset, position) == 0;
    if (is_noted) set(layout->slots, log, LOG_END_OFFSET, end_offset);
out:
    Py_XDECREF(position), Py_XDECREF(end_position), Py_XDECREF(end_offset), Py_XDECREF(base_offset);
    Py_XDECREF(timestamp), Py_XDECREF(count), Py_XDECREF(entry), Py_XDECREF(done);
    return is_noted;
}

/* 1 if all of `buffer` was written; 0 if not; -1 with an error that is nobody's here. */
static int write_at(const Append *it, PyObject *buffer, int64_t position, int64_t size_bytes) {
    PyObject *place = PyLong_FromLongLong(position);
    if (place == NULL) return -1;
    PyObject *args[] = {it->calls, it->pinned_fd, buffer, place};
    PyObject *written = PyObject_VectorcallMethod(pwrite_name, args, 4, NULL);
    Py_DECREF(place);
    if (written == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_OSError)) return -1;
        PyErr_Clear();
        return 0;
    }
    int is_whole = PyLong_CheckExact(written) && PyLong_AsLongLong(written) == size_bytes;
    Py_DECREF(written);
    PyErr_Clear();
    return is_whole;
}

/* As `write_at` says it. The segment does it: what it must undo, it knows. */
static int lay_runway(const Append *it) {
    PyObject *end_position = PyLong_FromLongLong(it->position + it->size_bytes);
    if (end_position == NULL) return -1;
    PyObject *args[] = {it->segment, it->files, end_position, it->config};
    PyObject *laid = PyObject_VectorcallMethod(lay_runway_name, args, 4, NULL);
    Py_DECREF(end_position);
    if (laid == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_OSError)) return -1;
        PyErr_Clear();
        return 0;
    }
    Py_DECREF(laid);
    return 1;
}

/* append(log, buffer, header, now_ms) */
static PyObject *append_call(PyObject *self, PyObject *const *args, Py_ssize_t count,
                             PyObject *names) {
    PyObject *pure = PyTuple_GET_ITEM(self, 0), *lock, *done;
    const Layout *layout = PyCapsule_GetPointer(PyTuple_GET_ITEM(self, 1), NULL);
    lock = count == 4 && names == NULL ? get(layout->slots, args[0], LOG_LOCK) : NULL;
    if (lock == NULL) return PyObject_Vectorcall(pure, args, (size_t)count, names);
    Py_INCREF(lock);
    done = PyObject_CallMethodNoArgs(lock, acquire_name);
    if (done == NULL) {
        Py_DECREF(lock);
        return NULL;
    }
    Py_DECREF(done);
    Append it = {0};
    int outcome = prepare(layout, args[0], args, &it);
    PyErr_Clear(); /* of a number that is too large, or an object without a length */
    if (outcome) {
        PyObject *held[] = {it.segment, it.index,  it.index_tail, it.recent,       it.files,
                            it.calls,   it.config, it.pinned_fd,  it.max_timestamp};
        for (size_t n = 0; n < sizeof held / sizeof *held; n++) Py_INCREF(held[n]);
        if (it.needs_runway) outcome = lay_runway(&it);
        if (outcome > 0) outcome = write_at(&it, args[1], it.position, it.size_bytes);
        if (outcome > 0 && !note(layout, args[0], &it)) outcome = -1;
        for (size_t n = 0; n < sizeof held / sizeof *held; n++) Py_DECREF(held[n]);
    }
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    done = PyObject_CallMethodNoArgs(lock, release_name);
    Py_DECREF(lock);
    if (done == NULL) outcome = -1;
    Py_XDECREF(done);
    if (type != NULL) PyErr_Restore(type, value, trace);
    if (outcome < 0) return NULL;
    if (outcome > 0) return PyLong_FromLongLong(it.segment_base_offset);
    return PyObject_Vectorcall(pure, args, (size_t)count, NULL);
}

/* -- module ------------------------------------------------------------------------------------------ */

static PyMethodDef append_def = {
    "append", (PyCFunction)(void (*)(void))append_call, METH_FASTCALL | METH_KEYWORDS, NULL,
};

/* append(pure, ((class, slot), ...), BatchHeader, (limit, ...)) -> method */
static PyObject *make_append(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *pure, *slots, *header, *limits, *made = NULL;
    if (!PyArg_ParseTuple(args, "OO!O!O!", &pure, &PyTuple_Type, &slots, &PyType_Type, &header,
                          &PyTuple_Type, &limits))
        return NULL;
    if (PyTuple_GET_SIZE(limits) != LIMITS ||
        !PyType_IsSubtype((PyTypeObject *)header, &PyTuple_Type)) {
        PyErr_SetString(PyExc_ValueError, "not the limits or the header that are needed");
        return NULL;
    }
    void *room;
    PyObject *capsule = new_layout(sizeof(Layout), &room);
    if (capsule == NULL) return NULL;
    Layout *layout = room;
    layout->header = (PyTypeObject *)header;
    int is_known = find_slots(layout->slots, SLOTS, slots);
    for (int n = 0; is_known && n < LIMITS; n++) {
        layout->limit[n] = PyLong_AsLongLong(PyTuple_GET_ITEM(limits, n));
        is_known = !PyErr_Occurred();
    }
    if (is_known) made = bind_method(&append_def, pure, capsule, args);
    Py_DECREF(capsule);
    return made;
}

static PyMethodDef functions[] = {
    {"append", make_append, METH_VARARGS, "(pure, slots, BatchHeader, limits)"},
    {NULL, NULL, 0, NULL},
};

static int start(PyObject *module) {
    (void)module;
    if (refuse_if_pure() < 0) return -1;
    acquire_name = PyUnicode_InternFromString("acquire");
    release_name = PyUnicode_InternFromString("release");
    pwrite_name = PyUnicode_InternFromString("pwrite");
    extend_name = PyUnicode_InternFromString("extend");
    lay_runway_name = PyUnicode_InternFromString("_lay_runway");
    return acquire_name && release_name && pwrite_name && extend_name && lay_runway_name ? 0 : -1;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, start}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "The append of kafkaesque.broker.storage, compiled.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
