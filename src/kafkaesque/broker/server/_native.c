/* The short way of requests, compiled: from their frames to the frames of their answers.
 *
 * `Dispatcher.serve_plainly`, `PlainRoute.serve` and `ApiStats.answered` are the rules. What a handler
 * answers otherwise than in plain values, and an answer that took longer than the first bucket of
 * latencies, are theirs.
 */
#include "../storage/_slots.h"

/* As in broker/server/native.py: each slot by its class and name. */
enum {
    DISPATCHER_CONTEXT, DISPATCHER_PLAIN,
    ROUTE_HANDLE, ROUTE_READ, ROUTE_WRITE, ROUTE_VERSION, ROUTE_STATS,
    STATS_RECEIVED_BYTES, STATS_SENT_BYTES, STATS_LATENCY,
    LATENCY_COUNTS, LATENCY_SUM_SECONDS,
    SLOTS
};

enum { DISPATCHER, FRAMES, STARTED, OUTBOX, SIZE_BYTES_MAX, ARGUMENTS };
enum { CORRELATION_ID, VALUES, READ_FIELDS };
enum { OUTPUT, OUTPUT_BYTES, BEGUN, SERVED_FIELDS };
enum { KEY_AND_VERSION_BYTES = 4 };

typedef struct {
    Slot slots[SLOTS];
    PyObject *monotonic; /* borrowed, as the slots' classes are */
    double first_bucket_seconds;
} Layout;

/* One request on its way. References are borrowed. */
typedef struct {
    PyObject *route, *context, *frame, *started;
} Request;

static PyObject *otherwise_name;

/* As ApiStats.answered, of an answer that took next to no time. 0 with or without an error if it is
 * not that: then nothing is counted. */
static int count_quick(const Layout *layout, PyObject *stats, Py_ssize_t received_bytes,
                       Py_ssize_t sent_bytes, double seconds) {
    const Slot *slots = layout->slots;
    PyObject *latency = get(slots, stats, STATS_LATENCY);
    PyObject *counts = get(slots, latency, LATENCY_COUNTS);
    PyObject *sum = get(slots, latency, LATENCY_SUM_SECONDS);
    int64_t received, sent;
    if (!(seconds <= layout->first_bucket_seconds) || counts == NULL || !PyList_CheckExact(counts) ||
        PyList_GET_SIZE(counts) == 0 || sum == NULL || !PyFloat_CheckExact(sum) ||
        !get_int(slots, stats, STATS_RECEIVED_BYTES, &received) ||
        !get_int(slots, stats, STATS_SENT_BYTES, &sent) || received > INT64_MAX / 2 ||
        sent > INT64_MAX / 2)
        return 0;
    long long quick = PyLong_AsLongLong(PyList_GET_ITEM(counts, 0));
    if (quick < 0) return 0;
    PyObject *fresh[] = {
        PyLong_FromLongLong(received + received_bytes),
        PyLong_FromLongLong(sent + sent_bytes),
        PyLong_FromLongLong(quick + 1),
        PyFloat_FromDouble(PyFloat_AS_DOUBLE(sum) + seconds),
    };
    int is_counted = fresh[0] && fresh[1] && fresh[2] && fresh[3];
    if (is_counted) {
        set(slots, stats, STATS_RECEIVED_BYTES, fresh[0]);
        set(slots, stats, STATS_SENT_BYTES, fresh[1]);
        PyList_SetItem(counts, 0, Py_NewRef(fresh[2])); /* cannot fail: it has this item */
        set(slots, latency, LATENCY_SUM_SECONDS, fresh[3]);
    }
    for (size_t n = 0; n < sizeof fresh / sizeof *fresh; n++) Py_XDECREF(fresh[n]);
    return is_counted;
}

static int count_answered(const Layout *layout, const Request *it, Py_ssize_t sent_bytes) {
    PyObject *stats = get(layout->slots, it->route, ROUTE_STATS);
    Py_ssize_t received_bytes = PyObject_Size(it->frame);
    PyObject *now = PyObject_CallNoArgs(layout->monotonic);
    if (now == NULL || received_bytes < 0) {
        Py_XDECREF(now);
        return 0;
    }
    double seconds = PyFloat_AsDouble(now) - PyFloat_AsDouble(it->started);
    Py_DECREF(now);
    if (PyErr_Occurred()) return 0;
    if (count_quick(layout, stats, received_bytes, sent_bytes, seconds)) return 1;
    PyErr_Clear();
    PyObject *told = PyObject_CallMethod(stats, "answered", "nnd", received_bytes, sent_bytes, seconds);
    Py_XDECREF(told);
    return told != NULL;
}

/* The frame of an answer in plain values; its size is counted. */
static PyObject *write_answer(const Layout *layout, const Request *it, PyObject *correlation_id,
                              PyObject *values, Py_ssize_t *size_bytes) {
    PyObject *put[] = {correlation_id, values};
    PyObject *frame = PyObject_Vectorcall(get(layout->slots, it->route, ROUTE_WRITE), put, 2, NULL);
    if (frame == NULL) return NULL;
    *size_bytes = PyObject_Size(frame);
    if (*size_bytes < 0 || !count_answered(layout, it, *size_bytes)) Py_CLEAR(frame);
    return frame;
}

/* As PlainRoute.serve: the frame of an answer in plain values, or in `served` what it is otherwise. */
static PyObject *serve(const Layout *layout, const Request *it, Py_ssize_t *size_bytes,
                       PyObject **served) {
    const Slot *slots = layout->slots;
    PyObject *frame = NULL, *answer = NULL, *read = NULL, *correlation_id;
    read = PyObject_Vectorcall(get(slots, it->route, ROUTE_READ), &it->frame, 1, NULL);
    if (read == NULL) return NULL;
    if (Py_IsNone(read)) {
        *served = read;
        return NULL;
    }
    if (!PyTuple_CheckExact(read) || PyTuple_GET_SIZE(read) != READ_FIELDS) {
        PyErr_SetString(PyExc_TypeError, "a reader gives a correlation id and values");
        goto out;
    }
    correlation_id = PyTuple_GET_ITEM(read, CORRELATION_ID);
    PyObject *asked[] = {it->context, PyTuple_GET_ITEM(read, VALUES),
                         get(slots, it->route, ROUTE_VERSION)};
    answer = PyObject_Vectorcall(get(slots, it->route, ROUTE_HANDLE), asked, 3, NULL);
    if (answer == NULL) goto out;
    if (PyTuple_CheckExact(answer)) {
        frame = write_answer(layout, it, correlation_id, answer, size_bytes);
    } else {
        PyObject *told[] = {it->route, answer, correlation_id, it->frame, it->started};
        *served = PyObject_VectorcallMethod(otherwise_name, told, 5, NULL);
    }
out:
    Py_XDECREF(answer), Py_DECREF(read);
    return frame;
}

/* The route of a request, borrowed; NULL without an error if it has no short way. */
static PyObject *find_route(const Layout *layout, PyObject *routes, PyObject *frame) {
    Py_buffer view;
    if (PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *key = NULL, *route = NULL;
    if (view.len >= KEY_AND_VERSION_BYTES) {
        const uint8_t *p = view.buf;
        key = PyLong_FromLong((int32_t)((uint32_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3]));
    }
    PyBuffer_Release(&view);
    if (key != NULL) route = PyDict_GetItemWithError(routes, key);
    Py_XDECREF(key);
    return route != NULL && get(layout->slots, route, ROUTE_STATS) != NULL ? route : NULL;
}

/* What was served otherwise than in plain values goes the same ways. -1 with an error; 0 if it is for
 * the ordinary way; else 1, with what it was begun as. */
static int take_other(PyObject *served, PyObject *outbox, Py_ssize_t *size_bytes, PyObject **begun) {
    if (Py_IsNone(served)) return 0;
    if (!PyTuple_CheckExact(served) || PyTuple_GET_SIZE(served) != SERVED_FIELDS) {
        PyErr_SetString(PyExc_TypeError, "what was served is an output, its size and what was begun");
        return -1;
    }
    PyObject *output = PyTuple_GET_ITEM(served, OUTPUT);
    Py_ssize_t end = PyList_GET_SIZE(outbox);
    if (PyList_SetSlice(outbox, end, end, output) < 0) return -1;
    *size_bytes = PyLong_AsSsize_t(PyTuple_GET_ITEM(served, OUTPUT_BYTES));
    if (!Py_IsNone(PyTuple_GET_ITEM(served, BEGUN)))
        *begun = Py_NewRef(PyTuple_GET_ITEM(served, BEGUN));
    return *size_bytes < 0 ? -1 : 1;
}

/* serve_plainly(dispatcher, frames, started, outbox, size_bytes_max) */
static PyObject *serve_plainly_call(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                    PyObject *names) {
    const Layout *layout = PyCapsule_GetPointer(PyTuple_GET_ITEM(self, 1), NULL);
    PyObject *routes = NULL, *begun = NULL, *done = NULL;
    Py_ssize_t size_bytes_max = 0;
    Request it = {0};
    if (count == ARGUMENTS && names == NULL) {
        size_bytes_max = PyLong_AsSsize_t(args[SIZE_BYTES_MAX]);
        if (size_bytes_max == -1 && PyErr_Occurred()) return NULL;
        it.context = get(layout->slots, args[DISPATCHER], DISPATCHER_CONTEXT);
        it.started = args[STARTED];
        routes = get(layout->slots, args[DISPATCHER], DISPATCHER_PLAIN);
    }
    if (it.context == NULL || routes == NULL || !PyDict_CheckExact(routes) ||
        !PyList_CheckExact(args[FRAMES]) || !PyList_CheckExact(args[OUTBOX]))
        return PyObject_Vectorcall(PyTuple_GET_ITEM(self, 0), args, (size_t)count, names);
    Py_INCREF(it.context), Py_INCREF(routes);
    Py_ssize_t number = 0, total_bytes = 0;
    int outcome = 1;
    while (outcome > 0 && begun == NULL && number < PyList_GET_SIZE(args[FRAMES]) &&
           total_bytes <= size_bytes_max) {
        Py_ssize_t size_bytes = 0;
        PyObject *served = NULL, *answer = NULL;
        it.frame = Py_NewRef(PyList_GET_ITEM(args[FRAMES], number));
        it.route = find_route(layout, routes, it.frame);
        if (it.route == NULL) {
            outcome = PyErr_Occurred() ? -1 : 0;
        } else {
            Py_INCREF(it.route);
            answer = serve(layout, &it, &size_bytes, &served);
            if (answer != NULL) outcome = PyList_Append(args[OUTBOX], answer) < 0 ? -1 : 1;
            else outcome = served == NULL ? -1 : take_other(served, args[OUTBOX], &size_bytes, &begun);
            Py_DECREF(it.route);
        }
        Py_DECREF(it.frame);
        Py_XDECREF(answer), Py_XDECREF(served);
        number += outcome > 0;
        total_bytes += size_bytes;
    }
    Py_DECREF(it.context), Py_DECREF(routes);
    if (outcome >= 0) done = Py_BuildValue("nnO", number, total_bytes, begun ? begun : Py_None);
    Py_XDECREF(begun);
    return done;
}

/* -- module ---------------------------------------------------------------------------------------- */

static PyMethodDef serve_plainly_def = {
    "serve_plainly", (PyCFunction)(void (*)(void))serve_plainly_call, METH_FASTCALL | METH_KEYWORDS,
    NULL,
};

/* serve_plainly(pure, ((class, slot), ...), monotonic, first_bucket_seconds) */
static PyObject *make_serve_plainly(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *pure, *slots, *monotonic, *made = NULL;
    double first_bucket_seconds;
    if (!PyArg_ParseTuple(args, "OO!Od", &pure, &PyTuple_Type, &slots, &monotonic,
                          &first_bucket_seconds))
        return NULL;
    void *room;
    PyObject *capsule = new_layout(sizeof(Layout), &room);
    if (capsule == NULL) return NULL;
    Layout *layout = room;
    layout->monotonic = monotonic;
    layout->first_bucket_seconds = first_bucket_seconds;
    if (find_slots(layout->slots, SLOTS, slots))
        made = bind_method(&serve_plainly_def, pure, capsule, args);
    Py_DECREF(capsule);
    return made;
}

static PyMethodDef functions[] = {
    {"serve_plainly", make_serve_plainly, METH_VARARGS,
     "(pure, slots, monotonic, first_bucket_seconds)"},
    {NULL, NULL, 0, NULL},
};

static int start(PyObject *module) {
    (void)module;
    otherwise_name = PyUnicode_InternFromString("_otherwise");
    return otherwise_name ? refuse_if_pure() : -1;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, start}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "The short way of kafkaesque.broker, compiled.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
