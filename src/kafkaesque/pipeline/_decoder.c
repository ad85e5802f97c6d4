/* Decodes the records of Kafka batches directly into the buffers of an Arrow record batch.
 *
 * Decodes only the records of v2 batches (org.apache.kafka.common.record.DefaultRecord).
 * kafka/decoding.py finds, verifies, decompresses and filters batches; kafka/plain_decoder.py is the
 * same decoder in numpy for machines without this extension. Input is not trusted: a length that
 * exceeds its record, or a number that exceeds its type, raises ValueError.
 *
 * Columns are allocated at their upper bound (a column is never larger than the bodies), filled in
 * one pass and truncated: pages that are not touched cost nothing.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    PyObject *bytes;
    char *data;
    Py_ssize_t used;
} Column;

static int column_open(Column *column, Py_ssize_t capacity)
{
    column->bytes = PyBytes_FromStringAndSize(NULL, capacity);
    if (column->bytes == NULL)
        return -1;
    column->data = PyBytes_AS_STRING(column->bytes);
    column->used = 0;
    return 0;
}

/* Offsets, data and validity of a variable-length column. */
typedef struct {
    Column offsets, data, validity;
    int64_t nulls;
    int32_t rows;
} Strings;

static int strings_open(Strings *strings, Py_ssize_t rows, Py_ssize_t size_bytes)
{
    if (column_open(&strings->offsets, (rows + 1) * 4) < 0 ||
        column_open(&strings->data, size_bytes) < 0 ||
        column_open(&strings->validity, (rows + 7) / 8) < 0)
        return -1;
    memset(strings->validity.data, 0, (size_t)((rows + 7) / 8));
    strings->nulls = 0;
    strings->rows = 0;
    ((int32_t *)strings->offsets.data)[0] = 0;
    return 0;
}

static inline void strings_add(Strings *strings, const uint8_t *data, int64_t size_bytes)
{
    int32_t row = strings->rows++;
    if (size_bytes < 0) {
        strings->nulls++;
    } else {
        memcpy(strings->data.data + strings->data.used, data, (size_t)size_bytes);
        strings->data.used += (Py_ssize_t)size_bytes;
        strings->validity.data[row >> 3] |= (char)(1 << (row & 7));
    }
    ((int32_t *)strings->offsets.data)[row + 1] = (int32_t)strings->data.used;
}

static void strings_drop(Strings *strings)
{
    Py_XDECREF(strings->offsets.bytes);
    Py_XDECREF(strings->data.bytes);
    Py_XDECREF(strings->validity.bytes);
}

/* Returns (offsets, data, validity or None); the tuple holds references to the buffers. */
static PyObject *strings_result(Strings *strings)
{
    PyObject *validity = Py_None;
    if (_PyBytes_Resize(&strings->offsets.bytes, ((Py_ssize_t)strings->rows + 1) * 4) < 0 ||
        _PyBytes_Resize(&strings->data.bytes, strings->data.used) < 0 ||
        _PyBytes_Resize(&strings->validity.bytes, ((Py_ssize_t)strings->rows + 7) / 8) < 0)
        return NULL;
    if (strings->nulls > 0)
        validity = strings->validity.bytes;
    return PyTuple_Pack(3, strings->offsets.bytes, strings->data.bytes, validity);
}

typedef struct {
    const uint8_t *at, *end;
    int bad;
} Cursor;

static inline uint64_t varint(Cursor *cursor, int bits_max)
{
    uint64_t value = 0;
    int shift = 0;
    while (cursor->at < cursor->end) {
        uint8_t byte = *cursor->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            if (bits_max == 32 && value > UINT32_MAX)
                break;
            return value;
        }
        shift += 7;
        if (shift >= bits_max)
            break;
    }
    cursor->bad = 1;
    return 0;
}

static inline int64_t zigzag(Cursor *cursor, int bits_max)
{
    uint64_t value = varint(cursor, bits_max);
    return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

/* A length and the bytes after it. -1 is null; a length that exceeds the record sets `bad`. */
static inline const uint8_t *sized(Cursor *cursor, int64_t *size_bytes)
{
    int64_t size = zigzag(cursor, 32);
    const uint8_t *data = cursor->at;
    if (size > cursor->end - cursor->at || size < -1)
        cursor->bad = 1;
    if (cursor->bad)
        size = -1;
    if (size > 0)
        cursor->at += size;
    *size_bytes = size;
    return data;
}

typedef struct {
    Strings keys, values, header_keys, header_values;
    Column offsets, timestamps, list_offsets, list_validity;
    Py_ssize_t rows, header_nulls;
    int with_headers;
    int64_t from_offset, until_offset;
} Table;

static int walk_headers(Table *table, Cursor *record, int keep)
{
    int64_t count = zigzag(record, 32);
    if (record->bad || count < 0 || count > record->end - record->at)
        return -1;
    for (int64_t i = 0; i < count; i++) {
        int64_t name_size, value_size;
        const uint8_t *name = sized(record, &name_size);
        const uint8_t *value = record->bad ? NULL : sized(record, &value_size);
        if (record->bad || name_size < 0)
            return -1;
        if (keep) {
            strings_add(&table->header_keys, name, name_size);
            strings_add(&table->header_values, value, value_size);
        }
    }
    if (keep) {
        Py_ssize_t row = table->rows;
        if (count > 0)
            table->list_validity.data[row >> 3] |= (char)(1 << (row & 7));
        else
            table->header_nulls++;
        ((int32_t *)table->list_offsets.data)[row + 1] = table->header_keys.rows;
    }
    return 0;
}

/* Decodes one body. Returns NULL, or the error as text. */
static const char *walk(Table *table, const uint8_t *body, Py_ssize_t size_bytes,
                        int64_t base_offset, int64_t base_timestamp, int64_t append_time,
                        int64_t last_delta, int64_t record_count)
{
    Cursor all = {body, body + size_bytes, 0};
    int64_t previous = -1;
    for (int64_t i = 0; i < record_count; i++) {
        int64_t length = zigzag(&all, 32);
        if (all.bad || length < 6 || length > all.end - all.at)
            return "a record runs past the end of its batch";
        Cursor record = {all.at + 1, all.at + length, 0};
        all.at += length;
        int64_t time_delta = zigzag(&record, 64);
        int64_t delta = zigzag(&record, 32);
        if (record.bad || delta <= previous || delta > last_delta)
            return "offset deltas do not ascend";
        previous = delta;
        int64_t offset = base_offset + delta;
        int keep = offset >= table->from_offset && offset < table->until_offset;
        int64_t key_size, value_size = -1;
        const uint8_t *key = sized(&record, &key_size);
        const uint8_t *value = record.bad ? NULL : sized(&record, &value_size);
        if (record.bad)
            return "a key or value runs past its record";
        if (walk_headers(table, &record, keep && table->with_headers) < 0)
            return "headers run past their record";
        if (record.at != record.end)
            return "bytes are left at the end of a record";
        if (keep) {
            int64_t time_ms = append_time;
            if (append_time < 0 && __builtin_add_overflow(base_timestamp, time_delta, &time_ms))
                return "a timestamp overflows";
            if (__builtin_mul_overflow(time_ms, (int64_t)1000, &time_ms))
                return "a timestamp overflows";
            strings_add(&table->keys, key, key_size);
            strings_add(&table->values, value, value_size);
            ((int64_t *)table->offsets.data)[table->rows] = offset;
            ((int64_t *)table->timestamps.data)[table->rows] = time_ms;
            table->rows++;
        }
    }
    return all.at == all.end ? NULL : "bytes are left after the last record";
}

static int table_open(Table *table, Py_ssize_t rows, Py_ssize_t size_bytes, int with_headers)
{
    memset(table, 0, sizeof(*table));
    table->with_headers = with_headers;
    if (strings_open(&table->keys, rows, size_bytes) < 0 ||
        strings_open(&table->values, rows, size_bytes) < 0 ||
        column_open(&table->offsets, rows * 8) < 0 ||
        column_open(&table->timestamps, rows * 8) < 0)
        return -1;
    if (!with_headers)
        return 0;
    /* A header takes at least two bytes of its record. */
    if (strings_open(&table->header_keys, size_bytes / 2, size_bytes) < 0 ||
        strings_open(&table->header_values, size_bytes / 2, size_bytes) < 0 ||
        column_open(&table->list_offsets, (rows + 1) * 4) < 0 ||
        column_open(&table->list_validity, (rows + 7) / 8) < 0)
        return -1;
    memset(table->list_validity.data, 0, (size_t)((rows + 7) / 8));
    ((int32_t *)table->list_offsets.data)[0] = 0;
    return 0;
}

static void table_drop(Table *table)
{
    strings_drop(&table->keys);
    strings_drop(&table->values);
    strings_drop(&table->header_keys);
    strings_drop(&table->header_values);
    Py_XDECREF(table->offsets.bytes);
    Py_XDECREF(table->timestamps.bytes);
    Py_XDECREF(table->list_offsets.bytes);
    Py_XDECREF(table->list_validity.bytes);
}

static PyObject *headers_result(Table *table)
{
    if (!table->with_headers)
        Py_RETURN_NONE;
    if (_PyBytes_Resize(&table->list_offsets.bytes, (table->rows + 1) * 4) < 0 ||
        _PyBytes_Resize(&table->list_validity.bytes, (table->rows + 7) / 8) < 0)
        return NULL;
    PyObject *keys = strings_result(&table->header_keys);
    PyObject *values = keys == NULL ? NULL : strings_result(&table->header_values);
    if (values == NULL) {
        Py_XDECREF(keys);
        return NULL;
    }
    PyObject *validity = table->header_nulls > 0 ? table->list_validity.bytes : Py_None;
    return Py_BuildValue("(OOnNN)", table->list_offsets.bytes, validity,
                         (Py_ssize_t)table->header_keys.rows, keys, values);
}

static PyObject *table_result(Table *table)
{
    if (_PyBytes_Resize(&table->offsets.bytes, table->rows * 8) < 0 ||
        _PyBytes_Resize(&table->timestamps.bytes, table->rows * 8) < 0)
        return NULL;
    PyObject *keys = strings_result(&table->keys);
    PyObject *values = keys == NULL ? NULL : strings_result(&table->values);
    PyObject *headers = values == NULL ? NULL : headers_result(table);
    if (headers == NULL) {
        Py_XDECREF(keys);
        Py_XDECREF(values);
        return NULL;
    }
    return Py_BuildValue("(nNNOON)", table->rows, keys, values, table->offsets.bytes,
                         table->timestamps.bytes, headers);
}

/* Rows and bytes of all bodies, for the allocation. Returns -1 with an exception set on error. */
static int measure(PyObject *bodies, Py_ssize_t *rows, Py_ssize_t *size_bytes)
{
    *rows = *size_bytes = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(bodies); i++) {
        Py_buffer view;
        long long base, time, append, last, count;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(bodies, i), "y*LLLLL", &view, &base, &time, &append,
                              &last, &count))
            return -1;
        Py_ssize_t length = view.len;
        PyBuffer_Release(&view);
        /* A record takes at least seven bytes. */
        if (count < 0 || count > length / 7) {
            PyErr_Format(PyExc_ValueError, "a batch claims %lld records in %zd bytes", count,
                         length);
            return -1;
        }
        *rows += (Py_ssize_t)count;
        *size_bytes += length;
    }
    if (*size_bytes > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "more than 2 GiB of records at once");
        return -1;
    }
    return 0;
}

static int fill(Table *table, PyObject *bodies)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(bodies); i++) {
        Py_buffer view;
        long long base, time, append, last, count;
        const char *wrong;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(bodies, i), "y*LLLLL", &view, &base, &time, &append,
                              &last, &count))
            return -1;
        wrong = walk(table, view.buf, view.len, base, time, append, last, count);
        PyBuffer_Release(&view);
        if (wrong != NULL) {
            PyErr_Format(PyExc_ValueError, "batch at offset %lld: %s", base, wrong);
            return -1;
        }
    }
    return 0;
}

static PyObject *decode(PyObject *self, PyObject *args)
{
    PyObject *bodies;
    long long from_offset, until_offset;
    int with_headers;
    Py_ssize_t rows, size_bytes;
    Table table;
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!LLp", &PyList_Type, &bodies, &from_offset, &until_offset,
                          &with_headers))
        return NULL;
    if (measure(bodies, &rows, &size_bytes) < 0)
        return NULL;
    if (table_open(&table, rows, size_bytes, with_headers) == 0) {
        table.from_offset = from_offset;
        table.until_offset = until_offset;
        if (fill(&table, bodies) == 0)
            result = table_result(&table);
    }
    table_drop(&table);
    return result;
}

static PyMethodDef methods[] = {
    {"decode", decode, METH_VARARGS,
     "decode([(body, base offset, base timestamp, append time or -1, last offset delta, records)],\n"
     "       from offset, until offset, with headers)\n"
     "-> (rows, keys, values, offsets, timestamps in us, headers or None)"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_decoder", "Kafka records to Arrow buffers.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__decoder(void)
{
    const char *pure = getenv("KAFKAESQUE_PURE");
    if (pure != NULL && *pure != '\0' && strcmp(pure, "modules") != 0) {
        PyErr_SetString(PyExc_ImportError, "KAFKAESQUE_PURE is set");
        return NULL;
    }
    return PyModule_Create(&module);
}
