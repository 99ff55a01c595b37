/* Inside the message store: a running compaction. */
#ifndef QSI_COMPACTION_H
#define QSI_COMPACTION_H

#include "message_copy.h"
#include "message_store.h"

#define QSI_TABLE_STEP (QSI_OUTPUT_BUFFER_BYTES / 8) /* slots of a table that fit into the buffer */

struct qsi_compaction {
    struct qsi_message_file *from; /* a reference */
    struct qsi_message_file *to;   /* not in the table before the end */
    /* A bit for each slot that was live at the beginning and is not copied yet. */
    uint8_t *wanted;
    uint8_t *was_live; /* a bit for each slot that was live at the beginning */
    uint32_t slot_count;
    uint32_t wanted_count;
    bool has_name;    /* the new file has its name in the directory */
    bool is_whole;    /* the new file is complete and durable */
    bool is_hopeless; /* the old file is not worth another try */
};

static inline bool qsi_compaction_has(const uint8_t *bits, uint32_t slot)
{
    return (bits[slot / 8] >> (slot % 8) & 1) != 0;
}

/* Copies the wanted records that are found and whole, and clears their bits; records that stay
 * wanted are lost. */
qs_status qsi_compaction_copy_live(struct qsi_message_store *messages, struct qsi_compaction *job,
                                   struct qsi_message_output *output,
                                   const struct qsi_message_view *view,
                                   qs_error *error) QS_MUST_CHECK;

#endif
