/* Inside the store floor: a compaction under way. */
#ifndef QSI_COMPACTION_H
#define QSI_COMPACTION_H

#include "message_copy.h"
#include "message_store.h"

#define QSI_TABLE_STEP (QSI_OUTPUT_BUFFER_BYTES / 8) /* slots of a table that the buffer takes */

struct qsi_compaction {
    struct qsi_message_file *from; /* a reference */
    struct qsi_message_file *to;   /* in no table before the end */
    uint8_t *wanted;               /* bit by slot: live at the beginning, and not copied yet */
    uint8_t *was_live;             /* bit by slot */
    uint32_t slot_count;
    uint32_t wanted_count;
    bool has_name;    /* of the new file, in the directory */
    bool is_whole;    /* the new file */
    bool is_hopeless; /* the old one */
};

static inline bool qsi_compaction_has(const uint8_t *bits, uint32_t slot)
{
    return (bits[slot / 8] >> (slot % 8) & 1) != 0;
}

/* Copies what is wanted, as far as it is there and whole: what stays wanted is lost. */
qs_status qsi_compaction_copy_live(struct qsi_message_store *store, struct qsi_compaction *job,
                                   struct qsi_message_output *output,
                                   const struct qsi_message_view *view,
                                   qs_error *error) QS_MUST_CHECK;

#endif
