/* Where messages are: a chunk of memory with their records, and which rows of them. */
#ifndef QSI_MESSAGES_REF_H
#define QSI_MESSAGES_REF_H

#include "chunk.h"

#include <stdbool.h>
#include <stdint.h>

/* Where the records of some messages are: one that has them all, or one for each. */
struct qsi_messages_ref {
    struct qsi_chunk *chunk;
    uint32_t *rows;     /* NULL: message i is row first_row + i */
    uint32_t first_row; /* 0 where there are rows */
    uint32_t record_at; /* of the one record, unless single_records */
    /* Rows are offsets of records of one message each, else rows of the one record. */
    bool single_records;
};

/* Where message i is: the record, and the row in it. */
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
