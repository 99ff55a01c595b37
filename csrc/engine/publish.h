/* What publishing one message, publishing a batch and committing a transaction share. */
#ifndef QSI_PUBLISH_H
#define QSI_PUBLISH_H

#include "engine.h"
#include "record.h"

/* Left free for acks and deletions when publishers fill the disk. */
#define QSI_RESERVE_BYTES_MAX (256u << 10)

/* An encoded record on its way into queues and journal.  Its destinations were looked up when it was published; they are
 * found again by queue id when it is accepted, and one deleted meanwhile is passed over. */
struct piece_destination {
    uint64_t queue_id;
    struct qsi_run *run; /* ready to be pushed */
};
struct piece {
    struct qsi_chunk *chunk; /* holds this record and nothing else */
    struct piece_destination *destinations;
    struct qsi_place *places; /* of stored bodies */
    uint32_t destination_count;
    uint32_t place_count;
    uint32_t row_count;
    bool journalled;
};
struct pieces {
    struct piece *items;
    uint32_t count;
    uint32_t capacity;
    uint64_t journal_bytes; /* of the journalled ones */
    uint64_t entry_bytes_max;
};

/* A zeroed piece behind the others; NULL: out of memory. */
struct piece *qsi_pieces_add(struct pieces *pieces);
void qsi_pieces_note_bytes(struct pieces *pieces, const struct piece *piece);
/* Frees them, and abandons their places. */
void qsi_pieces_fini(struct pieces *pieces, struct qsi_message_store *messages);
/* REQUIRES lock and room.  Memory for accepting all of them: accept cannot fail then.  extra_entries: other appends. */
qs_status qsi_pieces_reserve(struct qs_store *store, const struct pieces *pieces,
                             uint32_t extra_entries, qs_error *error) QS_MUST_CHECK;
/* REQUIRES lock.  Pushes and appends all; returns the LSN they end at, 0 if nothing was journalled.  group: as one atomic group;
 * goes_on: which the caller's next append belongs to. */
uint64_t qsi_pieces_accept(struct qs_store *store, struct pieces *pieces, bool group, bool goes_on);

qs_status qsi_check_body_bytes(const struct qs_store *store, uint64_t bytes,
                               qs_error *error) QS_MUST_CHECK;
qs_status qsi_check_names(size_t exchange_bytes, size_t key_bytes, qs_error *error) QS_MUST_CHECK;
/* Does a message of this size go to the message store? */
bool qsi_is_stored(const struct qs_store *store, uint64_t properties_bytes, uint64_t body_bytes);
uint64_t qsi_reserve_bytes(const struct qs_store *store);

/* ---- transactions (tx.c), REQUIRES lock ---- */

/* Adds the pieces to the channel's open transaction and leaves pieces empty. */
qs_status qsi_tx_take(struct qs_channel *channel, struct pieces *pieces,
                      qs_error *error) QS_MUST_CHECK;

#endif
