/* AMQP's field tables and arrays, such as the headers of a message: walking, lookup, checking and
 * writing.  Nothing allocates: names and values point into the table. */
#ifndef QSI_FIELD_TABLE_H
#define QSI_FIELD_TABLE_H

#include "slice.h"

#include <stdbool.h>
#include <stdint.h>

/* Limit for nested tables and arrays; the headers table is the first level. */
#define QSI_FIELD_DEPTH_MAX 128

/* One entry of a field table, or one element of a field array (then name is null).
 *
 *   type    t bool, b int8, B uint8, s int16, u uint16, I int32, i uint32, l int64, f float,
 *           d double, D decimal (scale octet, int32), S string, x bytes, T timestamp (u64 seconds),
 *           A array, F table, V void; the letters are RabbitMQ's, which differ from the
 *           specification's
 *   value   the bytes after the type; for S, x, A and F without the length in front */
struct qsi_field {
    struct qsi_slice name;
    struct qsi_slice value;
    uint8_t type;
};

/* An integer of 64 bits, signed or unsigned: bits in two's complement if it is negative. */
struct qsi_number {
    uint64_t bits;
    bool is_negative;
};
/* The value of an integer or a timestamp; false for other types. */
bool qsi_field_integer(const struct qsi_field *field, struct qsi_number *number_out);

/* Walks the entries of one table or array, in order; nested ones need walks of their own. */
struct qsi_field_walk {
    const uint8_t *at;
    const uint8_t *end;
    bool named;     /* a table: entries have names */
    bool malformed; /* set if the walk stopped at bytes that are no entry */
};

/* The end of a slice; an empty one may have no address. */
static inline const uint8_t *qsi_fields_end(struct qsi_slice fields)
{
    return fields.bytes > 0 ? fields.data + fields.bytes : fields.data;
}

static inline struct qsi_field_walk qsi_table_walk(struct qsi_slice table)
{
    return (struct qsi_field_walk){table.data, qsi_fields_end(table), true, false};
}

static inline struct qsi_field_walk qsi_array_walk(struct qsi_slice array)
{
    return (struct qsi_field_walk){array.data, qsi_fields_end(array), false, false};
}

/* False: the end, or malformed bytes. */
bool qsi_field_next(struct qsi_field_walk *walk, struct qsi_field *field_out);

/* Finds the first entry of a table with this name; false: there is none. */
bool qsi_table_find(struct qsi_slice table, struct qsi_slice name, struct qsi_field *field_out);

/* Whether a field table, without its 4-byte length, is well-formed down to the last nested
 * value. */
bool qsi_table_check(struct qsi_slice table);

/* The size of a table entry with a string (value null: void), and writing it.  REQUIRE a name of at
 * most 255 bytes.  put returns the end of the written bytes. */
uint64_t qsi_table_string_bytes(struct qsi_slice name, struct qsi_slice value);
uint8_t *qsi_table_string_put(uint8_t *out, struct qsi_slice name, struct qsi_slice value);

#endif
