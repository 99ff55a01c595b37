/* The place of messages: a chunk with their records, and their rows. */
#ifndef QSI_MESSAGES_REF_H
#define QSI_MESSAGES_REF_H

#include "chunk.h"

#include <stdbool.h>
#include <stdint.h>

/* The place of some messages: one record with all of them, or one record for each. */
struct qsi_messages_ref {
    struct qsi_chunk *chunk;
    uint32_t *rows;     /* NULL: message i is row first_row + i */
    uint32_t first_row; /* 0 with rows */
    uint32_t record_at; /* of the one record; unused with single_records */
    /* rows are offsets of records of one message each, instead of rows of the one record. */
    bool single_records;
};

/* The record of message i, and its row in it. */
static inline const uint8_t *qsi_messages_ref_record(const struct qsi_messages_ref *ref, uint32_t i,
                                                     uint32_t *record_row_out)
{
    if (ref->single_records) {
        *record_row_out = 0;
        return ref->chunk->data + ref->rows[i];
    }
    *record_row_out = ref->rows != NULL ? ref->rows[i] : ref->first_row + i;
    return ref->chunk->data + ref->record_at;
}

#endif
