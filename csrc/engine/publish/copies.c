/* Carbon copies. */
#include "copies.h"

#include "alloc.h"
#include "check.h"
#include "error.h"
#include "field_table.h"
#include "properties.h"

#define CC QSI_SLICE_LITERAL("CC")
#define BCC QSI_SLICE_LITERAL("BCC")

qs_status qsi_copies_check(const struct qsi_copies *copies, qs_error *error)
{
    if (qsi_slice_is_null(copies->bad_name)) {
        return QS_OK;
    }
    return qsi_copies_refuse(copies->bad_name, copies->bad_type, error);
}

void qsi_copies_fini(struct qsi_copies *copies)
{
    qsi_free(copies->keys);
    qsi_free(copies->properties);
    *copies = (struct qsi_copies){0};
}

/* ---- keys ---- */

/* Both names end in "CC". */
bool qsi_may_have_copies(struct qsi_slice blob)
{
    const uint8_t *end = blob.data + blob.bytes;

    for (const uint8_t *at = blob.data; at < end; at++) {
        at = memchr(at, 'C', (size_t)(end - at));
        if (at == NULL) {
            return false;
        }
        if (at + 1 < end && at[1] == 'C') {
            return true;
        }
    }
    return false;
}

static qs_status add_keys(struct qsi_copies *copies, struct qsi_slice array, qs_error *error)
{
    struct qsi_field_walk walk = qsi_array_walk(array);
    struct qsi_field element;
    struct qsi_slice *grown;
    uint32_t count = 0;

    while (qsi_field_next(&walk, &element)) {
        count += element.type == 'S' ? 1 : 0;
    }
    if (count == 0) {
        return QS_OK;
    }
    grown = qsi_realloc(copies->keys, (copies->count + count) * sizeof *grown);
    if (grown == NULL) {
        return qsi_fail(error, QS_ENOMEM, "message");
    }
    copies->keys = grown;
    walk = qsi_array_walk(array);
    while (qsi_field_next(&walk, &element)) {
        if (element.type == 'S') {
            copies->keys[copies->count++] = element.value;
        }
    }
    return QS_OK;
}

static qs_status read_header(struct qsi_copies *copies, struct qsi_slice headers,
                             struct qsi_slice name, qs_error *error)
{
    struct qsi_field field;

    if (!qsi_table_find(headers, name, &field)) {
        return QS_OK;
    }
    if (field.type == 'A') {
        return add_keys(copies, field.value, error);
    }
    if (qsi_slice_is_null(copies->bad_name)) {
        copies->bad_name = name;
        copies->bad_type = field.type;
    }
    return QS_OK;
}

/* ---- taking BCC out ---- */

/* Copies the table without BCC to out, which has room for all of it; returns the bytes written. */
static uint32_t copy_without(uint8_t *out, struct qsi_slice table)
{
    struct qsi_field_walk walk = qsi_table_walk(table);
    const uint8_t *from = walk.at;
    struct qsi_field field;
    uint32_t bytes = 0;

    while (qsi_field_next(&walk, &field)) {
        if (!qsi_slice_equals(field.name, BCC)) {
            memcpy(out + bytes, from, (size_t)(walk.at - from));
            bytes += (uint32_t)(walk.at - from);
        }
        from = walk.at;
    }
    QS_DCHECK(bytes <= table.bytes);
    return bytes;
}

static qs_status take_out(struct qsi_copies *copies, struct qsi_slice blob, qs_error *error)
{
    struct qsi_properties properties;
    struct qsi_slice table;
    uint8_t *left;

    if (qsi_properties_decode(&properties, blob.data, blob.bytes, error) != QS_OK) {
        return qsi_fail(error, QS_EINVAL, "the properties are not well formed");
    }
    table = properties.text[QSI_PROPERTY_HEADERS];
    left = qsi_alloc(table.bytes);
    copies->properties = qsi_alloc(blob.bytes);
    if (left == NULL || copies->properties == NULL) {
        qsi_free(left);
        return qsi_fail(error, QS_ENOMEM, "message");
    }
    qsi_properties_set(&properties, QSI_PROPERTY_HEADERS,
                       qsi_slice_make(left, copy_without(left, table)));
    qsi_properties_encode(copies->properties, &properties);
    QS_ASSERT(qsi_properties_bytes(&properties) <= blob.bytes);
    copies->properties_bytes = (uint32_t)qsi_properties_bytes(&properties);
    qsi_free(left);
    return QS_OK;
}

qs_status qsi_copies_read(struct qsi_copies *copies_out, struct qsi_slice blob, qs_error *error)
{
    struct qsi_slice headers = qsi_properties_headers(blob.data, blob.bytes);
    struct qsi_field field;
    qs_status status;

    *copies_out = (struct qsi_copies){0};
    if (qsi_slice_is_null(headers)) {
        return QS_OK;
    }
    status = read_header(copies_out, headers, CC, error);
    if (status == QS_OK) {
        status = read_header(copies_out, headers, BCC, error);
    }
    if (status == QS_OK && qsi_table_find(headers, BCC, &field)) {
        status = take_out(copies_out, blob, error);
    }
    if (status != QS_OK) {
        qsi_copies_fini(copies_out);
    }
    return status;
}
