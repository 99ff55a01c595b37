/* Columns of maps from strings to strings: the headers of messages.  Lists of key-value structs
 * have the same layout. */
#include "arrow_column.h"
#include "check.h"

#include <inttypes.h>

/* The row of the map that an entry belongs to. */
static uint64_t row_of_entry(const struct qsi_arrow_headers_column *headers, uint64_t entry)
{
    const qsi_arrow_i32 *offsets = (const qsi_arrow_i32 *)headers->places;
    uint64_t row = 0;

    QS_DCHECK(headers->places != NULL);
    while ((uint64_t)(offsets[row + 1] - headers->first) <= entry) {
        row++;
    }
    return row;
}

static qs_status check_header_names(const struct qsi_arrow_column *map,
                                    const struct qsi_arrow_headers_column *headers,
                                    uint64_t entries)
{
    const struct qsi_arrow_strings *strings = &headers->keys.strings;

    if (strings->validity == NULL && headers->keys.codes.validity == NULL &&
        qsi_arrow_strings_max(strings) <= QSI_SHORTSTR_BYTES_MAX) {
        return QS_OK;
    }
    for (uint64_t entry = 0; entry < entries; entry++) {
        struct qsi_slice name = qsi_arrow_bytes(&headers->keys, entry);

        if (qsi_slice_is_null(name)) {
            return qsi_arrow_fail_row(map, row_of_entry(headers, entry), "has a null key");
        }
        if (name.bytes > QSI_SHORTSTR_BYTES_MAX) {
            return qsi_arrow_fail_row(map, row_of_entry(headers, entry),
                                      "has a key of %" PRIu32 " bytes, at most %d are possible",
                                      name.bytes, QSI_SHORTSTR_BYTES_MAX);
        }
    }
    return QS_OK;
}

/* Opens one of the two children of a map's entries, for the entries in use. */
static qs_status open_map_child(const struct qsi_arrow_column *entries,
                                struct qsi_arrow_bytes_column *bytes_out, int child,
                                const char *part)
{
    struct qsi_arrow_column column = *entries;

    QS_DCHECK(child == 0 || child == 1);
    column.part = part;
    column.schema = entries->schema->children[child];
    column.array = entries->array->children[child];
    if (column.schema == NULL || column.array == NULL || column.schema->format == NULL) {
        return qsi_arrow_fail(entries, "a child is missing");
    }
    if (column.array->offset < 0 || column.array->offset > QSI_ARROW_POSITIONS_MAX) {
        return qsi_arrow_fail(&column, "offset %" PRId64 " is impossible", column.array->offset);
    }
    column.first += (uint64_t)column.array->offset;
    return qsi_arrow_open_bytes(&column, bytes_out, false);
}

/* Opens the offsets.  REQUIRES at least one row, so that offsets exist. */
static qs_status open_map_offsets(const struct qsi_arrow_column *map,
                                  struct qsi_arrow_headers_column *headers_out,
                                  uint64_t *entries_out)
{
    struct qsi_arrow_strings places = {.layout = QSI_ARROW_OFFSETS32};
    const qsi_arrow_i32 *offsets;

    QS_DCHECK(map->rows > 0);
    QS_TRY(qsi_arrow_copy_offsets(map, &places));
    offsets = (const qsi_arrow_i32 *)places.places;
    QS_DCHECK(offsets[0] >= 0 && offsets[map->rows] >= offsets[0]);
    headers_out->places = places.places;
    headers_out->first = offsets[0];
    *entries_out = (uint64_t)(offsets[map->rows] - offsets[0]);
    return QS_OK;
}

static qs_status open_map_entries(const struct qsi_arrow_column *map,
                                  struct qsi_arrow_headers_column *headers_out, uint64_t count)
{
    struct qsi_arrow_column entries = *map;
    const uint8_t *validity;
    uint64_t validity_offset, entry;

    QS_DCHECK(headers_out->first >= 0);
    entries.part = " entries";
    entries.unit = "entry";
    entries.schema = map->schema->children[0];
    entries.array = map->array->children[0];
    if (entries.array->offset < 0 || entries.array->offset > QSI_ARROW_POSITIONS_MAX) {
        return qsi_arrow_fail(&entries, "offset %" PRId64 " is impossible", entries.array->offset);
    }
    entries.first = (uint64_t)entries.array->offset + (uint64_t)headers_out->first;
    entries.rows = count;
    QS_TRY(qsi_arrow_check_structure(&entries, 1, 1, 2));
    QS_TRY(qsi_arrow_open_validity(&entries, &validity, &validity_offset));
    entry = qsi_arrow_first_null(validity, validity_offset, count);
    if (entry < count) {
        return qsi_arrow_fail_row(map, row_of_entry(headers_out, entry), "has a null entry");
    }
    if (entries.schema->children == NULL || entries.array->children == NULL) {
        return qsi_arrow_fail(&entries, "no children");
    }
    QS_TRY(open_map_child(&entries, &headers_out->keys, 0, " key"));
    QS_TRY(open_map_child(&entries, &headers_out->values, 1, " value"));
    return check_header_names(map, headers_out, count);
}

static bool is_called(const struct ArrowSchema *schema, const char *name)
{
    return schema != NULL && schema->name != NULL && strcmp(schema->name, name) == 0;
}

static bool is_list_of_pairs(const struct ArrowSchema *schema)
{
    const struct ArrowSchema *pair;

    if (strcmp(schema->format, "+l") != 0 || schema->n_children != 1 || schema->children == NULL) {
        return false;
    }
    pair = schema->children[0];
    return pair != NULL && pair->format != NULL && strcmp(pair->format, "+s") == 0 &&
           pair->n_children == 2 && pair->children != NULL && is_called(pair->children[0], "key") &&
           is_called(pair->children[1], "value");
}

qs_status qsi_arrow_open_headers(const struct qsi_arrow_column *map,
                                 struct qsi_arrow_headers_column *headers_out)
{
    uint64_t entries = 0;

    if (strcmp(map->schema->format, "+s") == 0 && map->schema->dictionary == NULL) {
        return qsi_arrow_open_struct_headers(map, headers_out);
    }
    if ((strcmp(map->schema->format, "+m") != 0 && !is_list_of_pairs(map->schema)) ||
        map->schema->dictionary != NULL) {
        return qsi_arrow_fail_type(map, "a map of strings to strings, in pyarrow map_(string(), "
                                        "string()); or a struct, or lists of key and value");
    }
    QS_TRY(qsi_arrow_check_structure(map, 2, 2, 1));
    if (map->schema->children == NULL || map->array->children == NULL ||
        map->schema->children[0] == NULL || map->array->children[0] == NULL) {
        return qsi_arrow_fail(map, "the map's entries are missing");
    }
    QS_TRY(qsi_arrow_open_validity(map, &headers_out->validity, &headers_out->validity_offset));
    headers_out->present = true;
    if (map->rows > 0) {
        QS_TRY(open_map_offsets(map, headers_out, &entries));
    }
    return open_map_entries(map, headers_out, entries);
}
