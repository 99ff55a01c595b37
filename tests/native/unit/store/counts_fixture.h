/* What the tests of reference counts, checkpoints and compaction share. */
#ifndef COUNTS_FIXTURE_H
#define COUNTS_FIXTURE_H

#include "buf.h"
#include "record.h"
#include "store_fixture.h"

/* A checkpoint: the records and their number.  Zeroed memory is an empty one. */
struct checkpoint {
    struct qsi_buf records;
    uint32_t count;
};

static inline qs_status try_snapshot(struct fixture *fixture, struct checkpoint *out,
                                     qs_error *error)
{
    qsi_buf_clear(&out->records);
    out->count = 0;
    return qsi_message_store_snapshot(fixture->store, &out->records, &out->count, error);
}

/* Takes one that is durable at once. */
static inline void take_checkpoint(struct fixture *fixture, struct checkpoint *out)
{
    QS_CHECK_OK(try_snapshot(fixture, out, QS_ERROR));
    QS_CHECK_OK(qsi_message_store_unseal(fixture->store, true, QS_ERROR));
}

static inline qs_status try_restore(struct fixture *fixture, const struct checkpoint *checkpoint,
                                    qs_error *error)
{
    uint32_t count = 0;

    for (size_t at = 0; at < checkpoint->records.bytes; count++) {
        const uint8_t *record = checkpoint->records.data + at;
        qs_status status;

        QS_CHECK(qsi_record_fits(record, checkpoint->records.bytes - at));
        status = qsi_message_store_restore(fixture->store, record, error);
        if (status != QS_OK) {
            return status;
        }
        at += qsi_record_length(record);
    }
    QS_CHECK(count == checkpoint->count);
    return QS_OK;
}

static inline qs_status try_finish(struct fixture *fixture, qs_error *error)
{
    qs_status status = qsi_message_store_retain_counted(fixture->store, false, error);

    return status == QS_OK ? qsi_message_store_trim_counted(fixture->store, error) : status;
}

/* Closes, opens and recovers from a checkpoint behind which the journal says nothing. */
static inline void recover_from(struct fixture *fixture, const struct checkpoint *checkpoint)
{
    restart(fixture);
    QS_CHECK_OK(try_restore(fixture, checkpoint, QS_ERROR));
    QS_CHECK_OK(try_finish(fixture, QS_ERROR));
}

/* Body number, with so many durable references, durable itself. */
static inline struct qsi_body_ref put_counted(struct fixture *fixture, uint32_t body_bytes,
                                              uint32_t number, uint32_t durable)
{
    struct qsi_body_ref ref = put(fixture, body_bytes, number);

    qsi_message_store_add_refs(fixture->store, &ref, durable, 0);
    return ref;
}

static inline void drop(struct fixture *fixture, const struct qsi_body_ref *ref)
{
    qsi_message_store_drop_ref(fixture->store, ref, false);
}

/* All that is written becomes durable, every file is settled. */
static inline void settle_all(struct fixture *fixture)
{
    QS_CHECK_OK(commit(fixture, QS_ERROR));
    QS_CHECK_OK(qsi_message_store_settle(fixture->store, QS_ERROR));
}

static inline struct qsi_message_space space_of(struct fixture *fixture)
{
    struct qsi_message_space space;

    qsi_message_store_space(fixture->store, &space);
    return space;
}

#endif
