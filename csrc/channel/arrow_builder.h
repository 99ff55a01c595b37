/* The builder of a batch: its rows and columns before they are handed over. */
#ifndef QSI_ARROW_BUILDER_H
#define QSI_ARROW_BUILDER_H

#include "arrow_columns.h"
#include "chunk.h"
#include "columns.h"
#include "map.h"

#include <stdbool.h>

#define QSI_ARROW_BODY_BYTES_MAX INT32_MAX /* of a batch: its body offsets have 32 bits */
#define QSI_ARROW_ROWS_MAX INT32_MAX
/* Offsets in a record are little-endian, those of Arrow in the machine's order. */
#define QSI_ARROW_LENDS (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)

/* The kind of the batch: the bit of QS_RECEIVED_*. */
enum qsi_arrow_shape { QSI_ARROW_DELIVERED, QSI_ARROW_BROWSED, QSI_ARROW_STREAM };

enum qsi_arrow_dictionary { QSI_ARROW_EXCHANGE, QSI_ARROW_ROUTING_KEY, QSI_ARROW_DICTIONARY_COUNT };

/* The last name looked up in a dictionary: rows often repeat it. */
struct qsi_arrow_recent_name {
    int32_t code_1; /* its code + 1; 0: there is none */
    uint32_t bytes;
    uint8_t data[255];
};

/* Zeroed memory is an empty builder. */
struct qsi_arrow_builder {
    uint64_t rows;
    enum qsi_arrow_shape shape; /* set it before the first row */
    /* QS_STREAM_COLUMN_*; for QSI_ARROW_STREAM, set it before the first row. */
    uint32_t columns;
    uint64_t capacity; /* allocated rows of the following arrays, as far as wanted */
    uint64_t *tags;
    int64_t *times;       /* of a stream, us since 1970: the caller that appends rows sets them */
    uint8_t *redelivered; /* bits */
    uint8_t *unacked;     /* bits */
    uint8_t *delayed;     /* bits */
    uint32_t *delivery_counts;
    int32_t *codes[QSI_ARROW_DICTIONARY_COUNT];
    int32_t *body_offsets;
    struct qsi_buf body;
    /* The chunk of bodies that are not copied, with a reference; NULL: bodies are copied. */
    struct qsi_chunk *lender;
    const uint8_t *lent_offsets, *lent_bodies;
    struct qsi_map names[QSI_ARROW_DICTIONARY_COUNT]; /* name to code + 1 */
    struct qsi_arrow_recent_name recent[QSI_ARROW_DICTIONARY_COUNT];
    struct qsi_arrow_text entries[QSI_ARROW_DICTIONARY_COUNT];
    struct qsi_arrow_text headers;
    struct qsi_arrow_text header_keys;
    struct qsi_arrow_text header_values;
    struct qsi_arrow_text texts[QSI_COLUMN_TEXT_COUNT];
    struct qsi_arrow_number numbers[QSI_COLUMN_NUMBER_COUNT];
};

/* Common properties of deliveries that are appended together. */
struct qsi_arrow_run {
    uint64_t first_tag; /* the following rows have the following tags */
    uint32_t delivery_count;
    int32_t exchange_code;
    int32_t routing_key_code;
    bool redelivered;
    bool is_unacked;
    bool is_delayed;
    struct qsi_slice properties; /* the blob of each row */
};

/* Whether the batch has the column; only batches of streams may lack columns. */
static inline bool qsi_arrow_builder_wants(const struct qsi_arrow_builder *builder, uint32_t column)
{
    return builder->shape != QSI_ARROW_STREAM || (builder->columns & column) != 0;
}

#endif
