/* The hot functions of records/ in C: checksums, batch headers, selection of batches.
 *
 * Each factory takes the pure Python function with the same behaviour and returns a builtin. The
 * builtin handles the common case and calls the pure function for everything else (damage, old
 * formats, unusual argument types). Only the pure function raises errors, so the two cannot differ in
 * what they reject, only in speed.
 *
 * Lengths and positions read from bytes are never trusted: a position is compared with the rest of
 * the buffer, never added up first, so no sum can overflow and no read can leave the buffer.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "_crc32c.h"

/* Sizes, positions and bits of a batch are macros that the build passes: layout.py is their source. */
#ifndef HEADER_SIZE_BYTES
#error "compile with hatch_build.py, which passes the constants of layout.py"
#endif

enum { CODEC_LAST = 4, NO_PRODUCER = -1, NO_TIMESTAMP = -1 };

/* Below this size, releasing and reacquiring the GIL costs more than it gains. */
#define GIL_FREE_BYTES 65536

static uint32_t u32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}
static int32_t i32(const uint8_t *p) { return (int32_t)u32(p); }
static int16_t i16(const uint8_t *p) { return (int16_t)(p[0] << 8 | p[1]); }
static int64_t i64(const uint8_t *p) { return (int64_t)((uint64_t)u32(p) << 32 | u32(p + 4)); }

static void put_u32(uint8_t *p, uint32_t value) {
    p[0] = value >> 24, p[1] = value >> 16, p[2] = value >> 8, p[3] = value;
}
static void put_i64(uint8_t *p, int64_t value) {
    put_u32(p, (uint64_t)value >> 32), put_u32(p + 4, (uint32_t)value);
}

static uint32_t checksum(const uint8_t *bytes, Py_ssize_t size) {
    uint32_t crc;
    if (size < GIL_FREE_BYTES) return crc32c_of(bytes, (size_t)size);
    Py_BEGIN_ALLOW_THREADS
    crc = crc32c_of(bytes, (size_t)size);
    Py_END_ALLOW_THREADS
    return crc;
}

/* -- factories: (pure, *bound) -> builtin --------------------------------------------------- */

/* The `self` of a builtin is a tuple: the pure function, then the bound values. */
#define PURE(self) PyTuple_GET_ITEM(self, 0)
#define BOUND(self, n) PyTuple_GET_ITEM(self, (n) + 1)

/* Positional arguments; a call with keywords goes to the pure function. */
#define ARGUMENTS PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names
#define FALL_BACK fall_back(self, args, count, names)

static PyObject *fall_back(ARGUMENTS) {
    PyErr_Clear();
    return PyObject_Vectorcall(PURE(self), args, (size_t)count, names);
}

static PyObject *make(PyMethodDef *method, PyObject *args, Py_ssize_t bound) {
    if (PyTuple_GET_SIZE(args) != bound + 1)
        return PyErr_Format(PyExc_TypeError, "%s takes %zd arguments", method->ml_name, bound + 1);
    return PyCFunction_NewEx(method, args, NULL);
}

/* A bound class must be a subclass of tuple: its items are set without a check. */
static int is_tuple_type(PyObject *type) {
    if (PyType_Check(type) && PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type)) return 1;
    PyErr_SetString(PyExc_TypeError, "a subclass of tuple is needed");
    return 0;
}

/* tuple.__new__(type, items). Steals the references to the items, even if it fails. */
static PyObject *tuple_of(PyObject *type, PyObject **items, Py_ssize_t count) {
    PyObject *made = NULL;
    Py_ssize_t n = 0;
    while (n < count && items[n] != NULL) n++;
    if (n == count) made = ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, count);
    for (n = 0; n < count; n++) {
        if (made == NULL) Py_XDECREF(items[n]);
        else PyTuple_SET_ITEM(made, n, items[n]);
    }
    return made;
}

/* -- crc32c(view) ---------------------------------------------------------------------------- */

static PyObject *crc32c_call(ARGUMENTS) {
    Py_buffer view;
    if (names != NULL || count != 1 || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return FALL_BACK;
    uint32_t crc = checksum(view.buf, view.len);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc);
}

/* -- checksum_by(way, view): for tests, which compare all implementations on this processor ------ */

static PyObject *checksum_by(PyObject *module, PyObject *args) {
    const char *name;
    Py_buffer view;
    PyObject *crc = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "sy*", &name, &view)) return NULL;
    for (size_t n = 0; n < CRC32C_WAYS && crc == NULL; n++) {
        const Crc32cWay *way = &crc32c_ways[n];
        if (strcmp(way->name, name) == 0 && way->is_there())
            crc = PyLong_FromUnsignedLong(~way->update(~0u, view.buf, (size_t)view.len));
    }
    PyBuffer_Release(&view);
    if (crc == NULL && !PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "no way like %s", name);
    return crc;
}

static PyObject *checksum_ways(void) {
    PyObject *names = PyList_New(0);
    for (size_t n = 0; n < CRC32C_WAYS && names != NULL; n++) {
        if (!crc32c_ways[n].is_there()) continue;
        PyObject *name = PyUnicode_FromString(crc32c_ways[n].name);
        if (name == NULL || PyList_Append(names, name) < 0) Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}

/* -- read_header(buffer, position=0) ----------------------------------------------------------- */

static int is_sound(const uint8_t *p, int64_t size_bytes, int64_t size_bytes_max) {
    return p[MAGIC_POSITION] == MAGIC && size_bytes >= HEADER_SIZE_BYTES &&
           size_bytes <= size_bytes_max;
}

static PyObject *header_of(PyObject *type, const uint8_t *p, int64_t size_bytes) {
    PyObject *fields[HEADER_FIELDS] = {
        PyLong_FromLongLong(i64(p)),
        PyLong_FromLongLong(size_bytes),
        PyLong_FromLong(i32(p + EPOCH_POSITION)),
        PyLong_FromLong(MAGIC),
        PyLong_FromUnsignedLong(u32(p + CRC_POSITION)),
        PyLong_FromLong(i16(p + CHECKSUMMED_POSITION)),
        PyLong_FromLong(i32(p + DELTA_POSITION)),
        PyLong_FromLongLong(i64(p + BASE_TIMESTAMP_POSITION)),
        PyLong_FromLongLong(i64(p + MAX_TIMESTAMP_POSITION)),
        PyLong_FromLongLong(i64(p + PRODUCER_POSITION)),
        PyLong_FromLong(i16(p + PRODUCER_EPOCH_POSITION)),
        PyLong_FromLong(i32(p + SEQUENCE_POSITION)),
        PyLong_FromLong(i32(p + COUNT_POSITION)),
    };
    return tuple_of(type, fields, HEADER_FIELDS);
}

static PyObject *read_header_call(ARGUMENTS) {
    Py_buffer view;
    Py_ssize_t position = 0;
    if (count == 2) position = PyLong_AsSsize_t(args[1]);
    if (names != NULL || count < 1 || count > 2 || position < 0 ||
        PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return FALL_BACK;
    const uint8_t *p = (const uint8_t *)view.buf + position;
    int64_t size_bytes_max = PyLong_AsLongLong(BOUND(self, 1));
    int64_t size_bytes = 0;
    int is_whole = view.len >= HEADER_SIZE_BYTES && position <= view.len - HEADER_SIZE_BYTES;
    if (is_whole) size_bytes = (int64_t)i32(p + LENGTH_POSITION) + LENGTH_OVERHEAD_BYTES;
    if (!is_whole || !is_sound(p, size_bytes, size_bytes_max) || i64(p) < 0 ||
        i32(p + DELTA_POSITION) < 0 || i32(p + COUNT_POSITION) < 0) {
        PyBuffer_Release(&view);
        return FALL_BACK;
    }
    PyObject *header = header_of(BOUND(self, 0), p, size_bytes);
    PyBuffer_Release(&view);
    return header;
}

/* -- plain_header(buffer, size_bytes_max, earliest_ms, latest_ms) ------------------------------- */

/* The rules of records.batch.plain_header, without the checksum. */
static int is_plain(const uint8_t *p, int64_t earliest_ms, int64_t latest_ms) {
    int attributes = i16(p + CHECKSUMMED_POSITION);
    int64_t records = i32(p + COUNT_POSITION), producer_id = i64(p + PRODUCER_POSITION);
    int64_t first_ms = i64(p + BASE_TIMESTAMP_POSITION), greatest_ms = i64(p + MAX_TIMESTAMP_POSITION);
    if (i64(p) != 0 || records <= 0 || (int64_t)i32(p + DELTA_POSITION) + 1 != records) return 0;
    if ((attributes & (CONTROL_BIT | APPEND_TIME_BIT)) || (attributes & CODEC_MASK) > CODEC_LAST)
        return 0;
    if (producer_id == NO_PRODUCER ? attributes & TRANSACTIONAL_BIT : i32(p + SEQUENCE_POSITION) < 0) return 0;
    if (first_ms != NO_TIMESTAMP && (first_ms < earliest_ms || first_ms > latest_ms)) return 0;
    return greatest_ms == NO_TIMESTAMP || (greatest_ms >= earliest_ms && greatest_ms <= latest_ms);
}

static PyObject *plain_header_call(ARGUMENTS) {
    Py_buffer view;
    if (names != NULL || count != 4) return FALL_BACK;
    int64_t size_bytes_max = PyLong_AsLongLong(args[1]), limit = PyLong_AsLongLong(BOUND(self, 1));
    int64_t earliest_ms = PyLong_AsLongLong(args[2]), latest_ms = PyLong_AsLongLong(args[3]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0) return FALL_BACK;
    const uint8_t *p = view.buf;
    int64_t size_bytes = view.len;
    if (size_bytes_max > limit) size_bytes_max = limit;
    PyObject *header = NULL;
    if (size_bytes >= HEADER_SIZE_BYTES && is_sound(p, size_bytes, size_bytes_max) &&
        (int64_t)i32(p + LENGTH_POSITION) + LENGTH_OVERHEAD_BYTES == size_bytes &&
        is_plain(p, earliest_ms, latest_ms) &&
        checksum(p + CHECKSUMMED_POSITION, size_bytes - CHECKSUMMED_POSITION) ==
            u32(p + CRC_POSITION))
        header = header_of(BOUND(self, 0), p, size_bytes);
    PyBuffer_Release(&view);
    return header != NULL || PyErr_Occurred() ? header : Py_NewRef(Py_None);
}

/* -- verify_crc(buffer, header, position=0) ---------------------------------------------------- */

static PyObject *verify_crc_call(ARGUMENTS) {
    Py_buffer view;
    Py_ssize_t position = 0;
    if (count == 3) position = PyLong_AsSsize_t(args[2]);
    if (names != NULL || count < 2 || count > 3 || position < 0 || !PyTuple_Check(args[1]) ||
        PyTuple_GET_SIZE(args[1]) != HEADER_FIELDS ||
        PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return FALL_BACK;
    Py_ssize_t size_bytes = PyLong_AsSsize_t(PyTuple_GET_ITEM(args[1], 1));
    unsigned long long expected = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(args[1], 4));
    int is_right = 0;
    if (!PyErr_Occurred() && position <= view.len && size_bytes >= CHECKSUMMED_POSITION &&
        size_bytes <= view.len - position) {
        const uint8_t *p = (const uint8_t *)view.buf + position;
        is_right =
            checksum(p + CHECKSUMMED_POSITION, size_bytes - CHECKSUMMED_POSITION) == expected;
    }
    PyBuffer_Release(&view);
    return is_right ? Py_NewRef(Py_None) : FALL_BACK;
}

/* -- stamp(buffer, header, base_offset, leader_epoch) ------------------------------------------- */

static PyObject *stamp_call(ARGUMENTS) {
    Py_buffer view;
    if (names != NULL || count != 4 || !PyTuple_Check(args[1]) ||
        PyTuple_GET_SIZE(args[1]) != HEADER_FIELDS)
        return FALL_BACK;
    long long base_offset = PyLong_AsLongLong(args[2]);
    long leader_epoch = PyLong_AsLong(args[3]);
    if (PyErr_Occurred() || leader_epoch < INT32_MIN || leader_epoch > INT32_MAX ||
        PyObject_GetBuffer(args[0], &view, PyBUF_WRITABLE) < 0)
        return FALL_BACK;
    int fits = view.len >= MAGIC_POSITION;
    if (fits) {
        put_i64(view.buf, base_offset);
        put_u32((uint8_t *)view.buf + EPOCH_POSITION, (uint32_t)leader_epoch);
    }
    PyBuffer_Release(&view);
    if (!fits) return FALL_BACK;
    PyObject *fields[HEADER_FIELDS];
    for (Py_ssize_t n = 0; n < HEADER_FIELDS; n++)
        fields[n] = Py_NewRef(n == 0 ? args[2] : n == 2 ? args[3] : PyTuple_GET_ITEM(args[1], n));
    return tuple_of(BOUND(self, 0), fields, HEADER_FIELDS);
}

/* -- cut_batches(chunk, offset, limit_offset, max_bytes, at_least_one, epoch, start_offset) ---- */

#define ANY (-1) /* in place of an offset or an epoch: unknown, not checked */

typedef struct {
    int64_t offset, limit_offset, max_bytes, epoch, start_offset, size_bytes_max;
    int at_least_one;
} Wanted;

typedef struct {
    int64_t start, end, next_offset, missing_bytes, start_offset;
} Choice;

/* The rules of storage.scanning.cut_batches. Returns 0 for any damage; the pure function reports it.
 *
 * A skipped batch may end after the chunk. Then the loop ends with a position after the chunk, which
 * is returned but never read. It cannot overflow: `position` is at most the chunk's length when a
 * size of 31 bits is added. */
static int choose(const uint8_t *chunk, int64_t length, const Wanted *want, Choice *choice) {
    int64_t start = 0, position = 0, next_offset = want->offset, missing_bytes = 0;
    int64_t start_offset = want->start_offset, expected = start_offset;
    int is_out = 1; /* the loop ended at the end of the chunk, not at a limit */
    while (length - position >= HEADER_SIZE_BYTES) {
        const uint8_t *p = chunk + position;
        int64_t base_offset = i64(p), delta = i32(p + DELTA_POSITION);
        int64_t size_bytes = (int64_t)i32(p + LENGTH_POSITION) + LENGTH_OVERHEAD_BYTES;
        if (!is_sound(p, size_bytes, want->size_bytes_max)) return 0;
        if (delta < 0 || (position > start && base_offset < next_offset)) return 0;
        if (base_offset > INT64_MAX - delta - 1) return 0;
        if (expected != ANY && expected != base_offset) return 0;
        if (expected != ANY) expected = base_offset + delta + 1;
        if (base_offset + delta < want->offset) {
            start = position = position + size_bytes;
            start_offset = expected;
            continue;
        }
        is_out = 0;
        if (base_offset >= want->limit_offset) break;
        int is_first = position == start;
        if (position + size_bytes - start > want->max_bytes && !(want->at_least_one && is_first))
            break;
        if (size_bytes > length - position) {
            if (is_first) missing_bytes = size_bytes;
            break;
        }
        if (want->epoch != ANY && want->epoch != i32(p + EPOCH_POSITION)) return 0;
        uint32_t crc = crc32c_of(
            p + CHECKSUMMED_POSITION, (size_t)(size_bytes - CHECKSUMMED_POSITION));
        if (crc != u32(p + CRC_POSITION)) return 0;
        next_offset = base_offset + delta + 1;
        position += size_bytes;
        is_out = 1;
    }
    if (is_out && position == start) missing_bytes = HEADER_SIZE_BYTES;
    *choice = (Choice){start, position, next_offset, missing_bytes, start_offset};
    return 1;
}

static PyObject *cut_batches_call(ARGUMENTS) {
    Py_buffer view;
    if (names != NULL || count != 7) return FALL_BACK;
    Wanted want = {
        .offset = PyLong_AsLongLong(args[1]),
        .limit_offset = PyLong_AsLongLong(args[2]),
        .max_bytes = PyLong_AsLongLong(args[3]),
        .epoch = PyLong_AsLongLong(args[5]),
        .start_offset = PyLong_AsLongLong(args[6]),
        .size_bytes_max = PyLong_AsLongLong(BOUND(self, 1)),
        .at_least_one = PyObject_IsTrue(args[4]),
    };
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return FALL_BACK;
    Choice choice;
    int is_chosen;
    if (view.len < GIL_FREE_BYTES) {
        is_chosen = choose(view.buf, view.len, &want, &choice);
    } else {
        Py_BEGIN_ALLOW_THREADS
        is_chosen = choose(view.buf, view.len, &want, &choice);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&view);
    if (!is_chosen) return FALL_BACK;
    PyObject *fields[] = {
        PyLong_FromLongLong(choice.start),
        PyLong_FromLongLong(choice.end),
        PyLong_FromLongLong(choice.next_offset),
        PyLong_FromLongLong(choice.missing_bytes),
        Py_NewRef(Py_None),
        PyLong_FromLongLong(choice.start_offset),
    };
    return tuple_of(BOUND(self, 0), fields, 6);
}

/* -- module ------------------------------------------------------------------------------------- */

#define FAST(name) {#name, (PyCFunction)(void (*)(void))name##_call, METH_FASTCALL | METH_KEYWORDS, NULL}

static PyMethodDef crc32c_def = FAST(crc32c);
static PyMethodDef read_header_def = FAST(read_header);
static PyMethodDef verify_crc_def = FAST(verify_crc);
static PyMethodDef stamp_def = FAST(stamp);
static PyMethodDef cut_batches_def = FAST(cut_batches);
static PyMethodDef plain_header_def = FAST(plain_header);

static PyObject *make_crc32c(PyObject *module, PyObject *args) {
    (void)module;
    return make(&crc32c_def, args, 0);
}

static PyObject *make_verify_crc(PyObject *module, PyObject *args) {
    (void)module;
    return make(&verify_crc_def, args, 0);
}

/* (pure, tuple class, largest batch) */
static PyObject *make_with_type(PyMethodDef *method, PyObject *args) {
    PyObject *made = make(method, args, 2);
    if (made == NULL) return NULL;
    if (is_tuple_type(PyTuple_GET_ITEM(args, 1)) && PyLong_Check(PyTuple_GET_ITEM(args, 2)))
        return made;
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "the largest batch size is a number");
    Py_DECREF(made);
    return NULL;
}

static PyObject *make_read_header(PyObject *module, PyObject *args) {
    (void)module;
    return make_with_type(&read_header_def, args);
}

static PyObject *make_plain_header(PyObject *module, PyObject *args) {
    (void)module;
    return make_with_type(&plain_header_def, args);
}

static PyObject *make_stamp(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *made = make(&stamp_def, args, 1);
    if (made == NULL || is_tuple_type(PyTuple_GET_ITEM(args, 1))) return made;
    Py_DECREF(made);
    return NULL;
}

static PyObject *make_cut_batches(PyObject *module, PyObject *args) {
    (void)module;
    return make_with_type(&cut_batches_def, args);
}

static PyMethodDef functions[] = {
    {"crc32c", make_crc32c, METH_VARARGS, "(pure) -> the compiled crc32c"},
    {"read_header", make_read_header, METH_VARARGS, "(pure, BatchHeader, size_bytes_max)"},
    {"verify_crc", make_verify_crc, METH_VARARGS, "(pure) -> the compiled verify_crc"},
    {"plain_header", make_plain_header, METH_VARARGS, "(pure, BatchHeader, size_bytes_max)"},
    {"stamp", make_stamp, METH_VARARGS, "(pure, BatchHeader)"},
    {"cut_batches", make_cut_batches, METH_VARARGS, "(pure, Cut, size_bytes_max)"},
    {"checksum_by", checksum_by, METH_VARARGS, "(way, buffer) -> its CRC-32C by that way"},
    {NULL, NULL, 0, NULL},
};

static int start(PyObject *module) {
    const char *wish = getenv("KAFKAESQUE_PURE");
    if (wish != NULL && *wish != '\0' && strcmp(wish, "modules") != 0) {
        PyErr_SetString(PyExc_ImportError, "KAFKAESQUE_PURE is set");
        return -1;
    }
    crc32c_prepare();
    PyObject *ways = checksum_ways();
    if (ways == NULL || PyModule_AddObjectRef(module, "CHECKSUM_WAYS", ways) < 0) {
        Py_XDECREF(ways);
        return -1;
    }
    Py_DECREF(ways);
    return PyModule_AddStringConstant(module, "CHECKSUM_BY", crc32c_way->name);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, start}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "The hot functions of kafkaesque.records, compiled.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
