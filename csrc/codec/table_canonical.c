/* Field tables with their names in order.
 *
 * One buffer has, level by level, the places of the entries of all tables around the current one; a
 * level is a stretch of it.  A level is sorted once, when it is entered, and then written entry by
 * entry.  So a table of n entries costs n log n, for any input. */
#include "table_canonical.h"

#include "check.h"
#include "error.h"
#include "field_table.h"
#include "le.h"

#include <stdlib.h>

/* An entry of a table, or an element of an array. */
struct entry {
    struct qsi_slice name; /* null: an element of an array */
    const uint8_t *from;   /* the whole entry, with name and type */
    struct qsi_slice value;
    uint8_t type;
};

struct level {
    size_t next, end; /* the level's entries that are not written yet */
    size_t length_at; /* place of its length in out */
    bool has_length;  /* false for the outermost table */
};

struct canonical {
    struct qsi_buf *out;
    struct qsi_buf entries; /* struct entry */
    struct level open[QSI_FIELD_DEPTH_MAX];
    unsigned depth;
};

static struct entry *entry_at(const struct canonical *canonical, size_t index)
{
    return (struct entry *)(void *)canonical->entries.data + index;
}

static size_t entry_count(const struct canonical *canonical)
{
    return canonical->entries.bytes / sizeof(struct entry);
}

/* Entries with equal names keep their order. */
static int compare_entries(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    int order = qsi_slice_compare(a->name, b->name);

    return order != 0 ? order : (a->from > b->from) - (a->from < b->from);
}

/* Enters a table or an array: collects its entries in the order of writing. */
static qs_status enter(struct canonical *canonical, struct qsi_field_walk walk)
{
    struct level *level = &canonical->open[canonical->depth];
    const uint8_t *from = walk.at;
    struct qsi_field field;

    level->next = entry_count(canonical);
    while (qsi_field_next(&walk, &field)) {
        const struct entry entry = {field.name, from, field.value, field.type};
        QS_TRY(qsi_buf_append(&canonical->entries, &entry, sizeof entry));
        from = walk.at;
    }
    QS_DCHECK(!walk.malformed); /* the whole table was checked before */
    level->end = entry_count(canonical);
    if (walk.named && level->end - level->next > 1) {
        qsort(entry_at(canonical, level->next), level->end - level->next, sizeof(struct entry),
              compare_entries);
    }
    return QS_OK;
}

static bool is_nested(const struct entry *entry)
{
    return entry->type == 'F' || entry->type == 'A';
}

/* Writes the bytes of a nested value before its first entry, and enters it. */
static qs_status descend(struct canonical *canonical, struct entry entry)
{
    struct level *level;
    size_t head_bytes = (size_t)(entry.value.data - entry.from);

    QS_TRY(qsi_buf_append(canonical->out, entry.from, head_bytes));
    QS_ASSERT(canonical->depth + 1 < QSI_FIELD_DEPTH_MAX);
    level = &canonical->open[++canonical->depth];
    level->has_length = true;
    level->length_at = canonical->out->bytes - 4;
    return enter(canonical,
                 entry.type == 'F' ? qsi_table_walk(entry.value) : qsi_array_walk(entry.value));
}

/* Returns to the outer level, and sets the length: the written value may be shorter than the
 * original. */
static void ascend(struct canonical *canonical)
{
    const struct level *level = &canonical->open[canonical->depth];
    size_t first = level->length_at + 4;

    if (level->has_length) {
        qsi_put_be32(canonical->out->data + level->length_at,
                     (uint32_t)(canonical->out->bytes - first));
    }
}

static bool is_followed_by_equal(const struct canonical *canonical, const struct level *level)
{
    const struct entry *entry = entry_at(canonical, level->next);

    return !qsi_slice_is_null(entry->name) && level->next + 1 < level->end &&
           qsi_slice_equals(entry->name, entry[1].name);
}

static qs_status write_open(struct canonical *canonical)
{
    for (;;) {
        struct level *level = &canonical->open[canonical->depth];
        struct entry entry;
        if (level->next == level->end) {
            ascend(canonical);
            if (canonical->depth == 0) {
                return QS_OK;
            }
            canonical->depth -= 1;
            canonical->entries.bytes = canonical->open[canonical->depth].end * sizeof(struct entry);
            continue;
        }
        if (is_followed_by_equal(canonical, level)) {
            level->next += 1;
            continue;
        }
        entry = *entry_at(canonical, level->next);
        level->next += 1;
        if (is_nested(&entry)) {
            QS_TRY(descend(canonical, entry));
            continue;
        }
        QS_TRY(qsi_buf_append(canonical->out, entry.from,
                              (size_t)(entry.value.data + entry.value.bytes - entry.from)));
    }
}

bool qsi_table_is_canonical(struct qsi_slice table)
{
    struct qsi_field_walk walk = qsi_table_walk(table);
    struct qsi_slice last = QSI_SLICE_NULL;
    struct qsi_field field;

    while (qsi_field_next(&walk, &field)) {
        if (field.type == 'F' || field.type == 'A' ||
            (last.data != NULL && qsi_slice_compare(last, field.name) >= 0)) {
            return false;
        }
        last = field.name;
    }
    return true;
}

qs_status qsi_table_canonical(struct qsi_buf *out, struct qsi_slice table, qs_error *error)
{
    struct canonical canonical = {.out = out};
    size_t bytes_before = out->bytes;
    uint8_t *room;
    qs_status status;

    if (!qsi_table_check(table)) {
        return qsi_fail(error, QS_EINVAL, "the arguments are not an AMQP field table");
    }
    status = qsi_buf_reserve(out, table.bytes, &room);
    if (status == QS_OK) {
        status = enter(&canonical, qsi_table_walk(table));
    }
    if (status == QS_OK) {
        status = write_open(&canonical);
    }
    qsi_buf_fini(&canonical.entries);
    if (status != QS_OK) {
        out->bytes = bytes_before;
        return qsi_fail(error, QS_ENOMEM, "arguments of %u bytes", table.bytes);
    }
    QS_DCHECK(out->bytes - bytes_before <= table.bytes);
    return QS_OK;
}
