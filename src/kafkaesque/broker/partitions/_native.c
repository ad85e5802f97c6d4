/* The append of a producer's batch to a partition, compiled: where its leader is alone and the batch
 * as a producer may send it.
 *
 * `Partition.append` and `_store`, `Rules.admit` and `Replica.append` are the rules. What is not
 * ordinary is handed to them: to `append` before the batch is touched, whatever may refuse it, wait
 * for others or look into it; to `_store`, which does it again in the same place, what the log
 * refuses. What an ordinary batch needs of others is asked of them as Python does: the clock, the
 * batch's header, a producer's sequence, the log of entries.
 */
#include "../storage/_slots.h"

/* As in broker/partitions/native.py: each slot by its class and name. */
enum {
    PARTITION_CLOSED, PARTITION_REPLICA, PARTITION_CONFIG, PARTITION_ENV, PARTITION_RULES,
    PARTITION_INSPECTIONS, PARTITION_WATCHERS, PARTITION_PRODUCERS, PARTITION_HIGH_WATERMARK,
    PARTITION_UNSYNCED_SINCE_MS,
    REPLICA_LEADS_ALONE, REPLICA_ENTRIES, REPLICA_STANDING, REPLICA_FLUSH_MESSAGES,
    ENTRIES_LOG, ENTRIES_LAST_INDEX,
    LOG_START_OFFSET, LOG_END_OFFSET,
    ENV_CLOCK, ENV_FLUSH_ALWAYS,
    RULES_SIZE_BYTES_MAX, RULES_BEFORE_MAX_MS, RULES_AFTER_MAX_MS, RULES_MAY_INSPECT,
    RULES_USES_APPEND_TIME,
    INSPECTIONS_UNDER_WAY,
    CONFIG_MIN_INSYNC_REPLICAS,
    SLOTS
};

/* Fields of a Standing, a BatchHeader, a BatchPayload and an Appended. */
enum { TERM = 1, STANDING_FIELDS = 4 };
enum { SIZE_BYTES = 1, LAST_OFFSET_DELTA = 6, PRODUCER_ID = 9, HEADER_FIELDS = 13 };
enum { DATA, HEADER, PAYLOAD_FIELDS };
enum { BASE_OFFSET, END_OFFSET, APPEND_TIME_MS, FIRST_OFFSET, APPENDED_FIELDS };

enum { PARTITION, RECORDS, ALL_REPLICAS, ARGUMENTS }; /* the last by its name */
enum { NO_PRODUCER = -1, NO_TIMESTAMP = -1 };

typedef struct {
    Slot slots[SLOTS];
    /* Borrowed, as the slots' classes are. */
    PyTypeObject *header, *payload, *appended;
    PyObject *plain_header, *stamp, *refusal;
} Layout;

static PyObject *all_replicas_name, *wall_ms_name, *judge_name, *append_batch_name, *store_name,
    *apply_name, *advance_name;

enum { RULES, ENV, CLOCK, ENTRIES, LOG, WATCHERS, AT_TERM, AT_OFFSET, PARTS };

typedef struct {
    PyObject *part[PARTS]; /* borrowed by `is_open`, and held while others are asked */
    int64_t last_index, base_offset;
} Place;

static int is_all_replicas(PyObject *names) {
    return names != NULL && PyTuple_GET_SIZE(names) == 1 &&
           PyTuple_GET_ITEM(names, 0) == all_replicas_name;
}

/* 1 if nothing but the batch itself can keep it from being appended and committed now. */
static int is_open(const Layout *layout, PyObject *const *args, Place *it) {
    const Slot *slots = layout->slots;
    PyObject *partition = args[PARTITION], *replica = get(slots, partition, PARTITION_REPLICA);
    PyObject *config = get(slots, partition, PARTITION_CONFIG), *standing, *under_way;
    int64_t flush_messages, min_insync;
    if (get(slots, partition, PARTITION_CLOSED) != Py_None ||
        get(slots, replica, REPLICA_LEADS_ALONE) != Py_True ||
        !get_int(slots, replica, REPLICA_FLUSH_MESSAGES, &flush_messages) ||
        flush_messages != INT64_MAX ||
        !get_int(slots, config, CONFIG_MIN_INSYNC_REPLICAS, &min_insync) || min_insync > 1)
        return 0;
    PyObject *rules = it->part[RULES] = get(slots, partition, PARTITION_RULES);
    under_way = get(slots, get(slots, partition, PARTITION_INSPECTIONS), INSPECTIONS_UNDER_WAY);
    if (get(slots, rules, RULES_MAY_INSPECT) != Py_False ||
        get(slots, rules, RULES_USES_APPEND_TIME) != Py_False || under_way == NULL ||
        !PyList_CheckExact(under_way) || PyList_GET_SIZE(under_way) != 0)
        return 0;
    it->part[ENV] = get(slots, partition, PARTITION_ENV);
    it->part[CLOCK] = get(slots, it->part[ENV], ENV_CLOCK);
    it->part[ENTRIES] = get(slots, replica, REPLICA_ENTRIES);
    it->part[LOG] = get(slots, it->part[ENTRIES], ENTRIES_LOG);
    it->part[AT_OFFSET] = get(slots, it->part[LOG], LOG_END_OFFSET);
    it->part[WATCHERS] = get(slots, partition, PARTITION_WATCHERS);
    standing = get(slots, replica, REPLICA_STANDING);
    if (it->part[CLOCK] == NULL || it->part[WATCHERS] == NULL ||
        !PyAnySet_CheckExact(it->part[WATCHERS]) || standing == NULL || !PyTuple_Check(standing) ||
        PyTuple_GET_SIZE(standing) != STANDING_FIELDS)
        return 0;
    it->part[AT_TERM] = PyTuple_GET_ITEM(standing, TERM);
    return get_int(slots, it->part[LOG], LOG_END_OFFSET, &it->base_offset) && it->base_offset >= 0 &&
           it->base_offset < INT64_MAX / 4 &&
           get_int(slots, it->part[ENTRIES], ENTRIES_LAST_INDEX, &it->last_index);
}

/* As Rules.admit: the header; None if the batch is not ordinary; NULL with an error. */
static PyObject *admit(const Layout *layout, PyObject *rules, PyObject *records, PyObject *now_ms) {
    PyObject *size_bytes_max = get(layout->slots, rules, RULES_SIZE_BYTES_MAX), *header = NULL;
    int64_t now, before, after;
    if (size_bytes_max == NULL || !PyLong_CheckExact(now_ms) ||
        (now = PyLong_AsLongLong(now_ms)) < 0 ||
        !get_int(layout->slots, rules, RULES_BEFORE_MAX_MS, &before) || before < 0 ||
        !get_int(layout->slots, rules, RULES_AFTER_MAX_MS, &after)) {
        PyErr_Clear();
        return Py_NewRef(Py_None);
    }
    PyObject *earliest_ms = PyLong_FromLongLong(now - before);
    PyObject *latest_ms = PyLong_FromLongLong(after > INT64_MAX - now ? INT64_MAX : now + after);
    if (earliest_ms != NULL && latest_ms != NULL) {
        PyObject *asked[] = {records, size_bytes_max, earliest_ms, latest_ms};
        header = PyObject_Vectorcall(layout->plain_header, asked, 4, NULL);
    }
    Py_XDECREF(earliest_ms), Py_XDECREF(latest_ms);
    return header;
}

/* 1 if `header` is what a store needs. */
static int read_header(const Layout *layout, PyObject *header, int64_t *producer_id, int64_t *delta) {
    return Py_IS_TYPE(header, layout->header) && PyTuple_GET_SIZE(header) == HEADER_FIELDS &&
           get_field(header, PRODUCER_ID, producer_id) &&
           get_field(header, LAST_OFFSET_DELTA, delta) && *delta >= 0 && *delta <= INT32_MAX;
}

/* The batch, stamped, is the next entry. 0 with an error if not: then nothing has changed. */
static int write_batch(const Layout *layout, const Place *it, PyObject *records, PyObject *header,
                       PyObject *now_ms) {
    PyObject *payload = layout->payload->tp_alloc(layout->payload, PAYLOAD_FIELDS), *ref = NULL;
    PyObject *index = PyLong_FromLongLong(it->last_index + 1);
    if (payload != NULL && index != NULL) {
        PyTuple_SET_ITEM(payload, DATA, Py_NewRef(records));
        PyTuple_SET_ITEM(payload, HEADER, Py_NewRef(header));
        PyObject *told[] = {it->part[ENTRIES], index, it->part[AT_TERM], payload, now_ms};
        ref = PyObject_VectorcallMethod(append_batch_name, told, 5, NULL);
    }
    Py_XDECREF(payload), Py_XDECREF(index);
    if (ref == NULL) return 0;
    Py_DECREF(ref);
    return 1;
}

static int tell(PyObject *name, PyObject *const *args, size_t count) {
    PyObject *told = PyObject_VectorcallMethod(name, args, count, NULL);
    Py_XDECREF(told);
    return told != NULL;
}

/* As `_store` behind the write, of a batch that is committed by it. */
static PyObject *note(const Layout *layout, const Place *it, PyObject *partition, PyObject *header,
                      int64_t delta, int is_of_producer, PyObject *now_ms) {
    const Slot *slots = layout->slots;
    PyObject *end_offset = PyLong_FromLongLong(it->base_offset + delta + 1), *appended = NULL;
    PyObject *append_time_ms = PyLong_FromLong(NO_TIMESTAMP);
    PyObject *applied[] = {get(slots, partition, PARTITION_PRODUCERS), header};
    PyObject *advanced[] = {partition, end_offset, PyTuple_GET_ITEM(header, SIZE_BYTES)};
    if (end_offset == NULL || append_time_ms == NULL) goto out;
    if (is_of_producer && !tell(apply_name, applied, 2)) goto out;
    if (PySet_GET_SIZE(it->part[WATCHERS]) == 0)
        set(slots, partition, PARTITION_HIGH_WATERMARK, end_offset);
    else if (!tell(advance_name, advanced, 3))
        goto out;
    if (get(slots, partition, PARTITION_UNSYNCED_SINCE_MS) == Py_None &&
        get(slots, it->part[ENV], ENV_FLUSH_ALWAYS) == Py_False)
        set(slots, partition, PARTITION_UNSYNCED_SINCE_MS, now_ms);
    appended = layout->appended->tp_alloc(layout->appended, APPENDED_FIELDS);
    if (appended == NULL) goto out;
    PyObject *log_start_offset = get(slots, it->part[LOG], LOG_START_OFFSET);
    PyTuple_SET_ITEM(appended, BASE_OFFSET, Py_NewRef(it->part[AT_OFFSET]));
    PyTuple_SET_ITEM(appended, END_OFFSET, Py_NewRef(end_offset));
    PyTuple_SET_ITEM(appended, APPEND_TIME_MS, Py_NewRef(append_time_ms));
    PyTuple_SET_ITEM(appended, FIRST_OFFSET, Py_NewRef(log_start_offset));
out:
    Py_XDECREF(end_offset), Py_XDECREF(append_time_ms);
    return appended;
}

/* As `append`, of a partition that is open. */
static PyObject *append(const Layout *layout, PyObject *const *args, const Place *it, int *is_ordinary) {
    PyObject *partition = args[PARTITION], *records = args[RECORDS], *stamped = NULL, *done = NULL;
    PyObject *now_ms = PyObject_CallMethodNoArgs(it->part[CLOCK], wall_ms_name);
    PyObject *header = now_ms == NULL ? NULL : admit(layout, it->part[RULES], records, now_ms);
    int64_t producer_id, delta;
    if (header == NULL) goto out;
    *is_ordinary = read_header(layout, header, &producer_id, &delta);
    if (!*is_ordinary) goto out;
    if (producer_id != NO_PRODUCER) {
        PyObject *judged[] = {partition, header, Py_None};
        done = PyObject_VectorcallMethod(judge_name, judged, 3, NULL);
        if (done == NULL || !Py_IsNone(done)) goto out;
        Py_CLEAR(done);
    }
    PyObject *with[] = {records, header, it->part[AT_OFFSET], it->part[AT_TERM]};
    stamped = PyObject_Vectorcall(layout->stamp, with, 4, NULL);
    if (stamped == NULL) goto out;
    if (write_batch(layout, it, records, stamped, now_ms)) {
        done = note(layout, it, partition, stamped, delta, producer_id != NO_PRODUCER, now_ms);
    } else if (PyErr_ExceptionMatches(layout->refusal)) {
        PyObject *again[] = {partition, records, header, now_ms};
        PyErr_Clear();
        done = PyObject_VectorcallMethod(store_name, again, 4, NULL);
    }
out:
    Py_XDECREF(now_ms), Py_XDECREF(header), Py_XDECREF(stamped);
    return done;
}

/* append(partition, records, *, all_replicas) */
static PyObject *append_call(PyObject *self, PyObject *const *args, Py_ssize_t count,
                             PyObject *names) {
    const Layout *layout = PyCapsule_GetPointer(PyTuple_GET_ITEM(self, 1), NULL);
    Place it;
    int is_ordinary =
        count == ARGUMENTS - 1 && is_all_replicas(names) && is_open(layout, args, &it);
    PyErr_Clear(); /* of a number that is too large */
    if (is_ordinary) {
        for (int n = 0; n < PARTS; n++) Py_INCREF(it.part[n]);
        PyObject *done = append(layout, args, &it, &is_ordinary);
        for (int n = 0; n < PARTS; n++) Py_DECREF(it.part[n]);
        if (is_ordinary) return done;
    }
    PyErr_Clear();
    return PyObject_Vectorcall(PyTuple_GET_ITEM(self, 0), args, (size_t)count, names);
}

/* -- module ---------------------------------------------------------------------------------------- */

static PyMethodDef append_def = {
    "append", (PyCFunction)(void (*)(void))append_call, METH_FASTCALL | METH_KEYWORDS, NULL,
};

/* append(pure, ((class, slot), ...), BatchHeader, BatchPayload, Appended, plain_header, stamp, KafkaError)
 * -> method */
static PyObject *make_append(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *pure, *slots, *header, *payload, *appended, *plain_header, *stamp, *refusal, *made = NULL;
    if (!PyArg_ParseTuple(args, "OO!O!O!O!OOO!", &pure, &PyTuple_Type, &slots, &PyType_Type, &header,
                          &PyType_Type, &payload, &PyType_Type, &appended, &plain_header, &stamp,
                          &PyType_Type, &refusal))
        return NULL;
    PyTypeObject *tuple = &PyTuple_Type;
    if (!PyType_IsSubtype((PyTypeObject *)header, tuple) ||
        !PyType_IsSubtype((PyTypeObject *)payload, tuple) ||
        !PyType_IsSubtype((PyTypeObject *)appended, tuple) || !PyExceptionClass_Check(refusal)) {
        PyErr_SetString(PyExc_ValueError, "not the tuples or the exception that are needed");
        return NULL;
    }
    void *room;
    PyObject *capsule = new_layout(sizeof(Layout), &room);
    if (capsule == NULL) return NULL;
    Layout *layout = room;
    layout->header = (PyTypeObject *)header;
    layout->payload = (PyTypeObject *)payload;
    layout->appended = (PyTypeObject *)appended;
    layout->plain_header = plain_header;
    layout->stamp = stamp;
    layout->refusal = refusal;
    if (find_slots(layout->slots, SLOTS, slots)) made = bind_method(&append_def, pure, capsule, args);
    Py_DECREF(capsule);
    return made;
}

static PyMethodDef functions[] = {
    {"append", make_append, METH_VARARGS,
     "(pure, slots, BatchHeader, BatchPayload, Appended, plain_header, stamp, KafkaError)"},
    {NULL, NULL, 0, NULL},
};

static int start(PyObject *module) {
    (void)module;
    all_replicas_name = PyUnicode_InternFromString("all_replicas");
    wall_ms_name = PyUnicode_InternFromString("wall_ms");
    judge_name = PyUnicode_InternFromString("_judge");
    append_batch_name = PyUnicode_InternFromString("append_batch");
    store_name = PyUnicode_InternFromString("_store");
    apply_name = PyUnicode_InternFromString("apply");
    advance_name = PyUnicode_InternFromString("_advance");
    if (!all_replicas_name || !wall_ms_name || !judge_name || !append_batch_name || !store_name ||
        !apply_name || !advance_name)
        return -1;
    return refuse_if_pure();
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, start}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "The append of kafkaesque.broker.partitions, compiled.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
