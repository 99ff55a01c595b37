/* What the tests of reference counts, checkpoints and compaction share. */
#ifndef COUNTS_FIXTURE_H
#define COUNTS_FIXTURE_H

#include "buf.h"
#include "envelope.h"
#include "messages_fixture.h"
#include "record.h"

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
    return qsi_message_store_snapshot(fixture->messages, &out->records, &out->count, error);
}

/* Takes one that is durable at once. */
static inline void take_checkpoint(struct fixture *fixture, struct checkpoint *out)
{
    QS_CHECK_OK(try_snapshot(fixture, out, QS_ERROR));
    QS_CHECK_OK(qsi_message_store_unseal(fixture->messages, true, QS_ERROR));
}

static inline qs_status try_restore(struct fixture *fixture, const struct checkpoint *checkpoint,
                                    qs_error *error)
{
    uint32_t count = 0;

    for (size_t at = 0; at < checkpoint->records.bytes; count++) {
        const uint8_t *record = checkpoint->records.data + at;

        QS_CHECK(qsi_record_fits(record, checkpoint->records.bytes - at));
        QS_TRY(qsi_message_store_restore(fixture->messages, record, error));
        at += qsi_record_length(record);
    }
    QS_CHECK(count == checkpoint->count);
    return QS_OK;
}

/* A reference that the journal brings. */
static inline void note_and_add(struct fixture *fixture, const struct qsi_body_ref *ref,
                                uint32_t count)
{
    QS_CHECK_OK(qsi_message_store_add_reference(fixture->messages, ref, QS_ERROR));
    qsi_message_store_add_refs(fixture->messages, ref, count, 0);
}

static inline qs_status try_finish(struct fixture *fixture, qs_error *error)
{
    qs_status status = qsi_message_store_retain_counted(fixture->messages, QSI_RETAIN, error);

    return status == QS_OK ? qsi_message_store_trim_counted(fixture->messages, error) : status;
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

    qsi_message_store_add_refs(fixture->messages, &ref, durable, 0);
    return ref;
}

static inline void drop(struct fixture *fixture, const struct qsi_body_ref *ref)
{
    qsi_message_store_drop_ref(fixture->messages, ref, false);
}

/* All that is written becomes durable, every file is settled. */
static inline void settle_all(struct fixture *fixture)
{
    QS_CHECK_OK(commit(fixture, QS_ERROR));
    QS_CHECK_OK(qsi_message_store_settle(fixture->messages, QS_ERROR));
}

/* Bodies first_number, first_number + 1 ... in one pack, with a durable reference each. */
#define PACK_COUNT_MAX 64u
static inline qs_status try_put_pack(struct fixture *fixture, const uint32_t *body_bytes,
                                     uint32_t count, uint32_t first_number,
                                     struct qsi_body_ref *refs_out, qs_error *error)
{
    static uint8_t data[PACK_COUNT_MAX][2000];
    struct qsi_pack_body bodies[PACK_COUNT_MAX] = {0};
    struct qsi_place place;
    qs_status status;

    QS_CHECK(count <= PACK_COUNT_MAX);
    for (uint32_t i = 0; i < count; i++) {
        QS_CHECK(ENVELOPE_BYTES + body_bytes[i] <= sizeof data[i]);
        fill_message(data[i], body_bytes[i], first_number + i);
        bodies[i] = (struct qsi_pack_body){
            .exchange = QSI_SLICE_LITERAL("ex"),
            .key = QSI_SLICE_LITERAL("key"),
            .properties = qsi_slice_make(data[i], i % 3),
            .body = qsi_slice_make(data[i], ENVELOPE_BYTES + body_bytes[i]),
        };
    }
    status =
        qsi_message_store_write_pack(fixture->messages, bodies, count, refs_out, &place, error);
    if (status != QS_OK) {
        QS_CHECK(place.file == NULL);
        return status;
    }
    for (uint32_t i = 0; i < count; i++) {
        qsi_message_store_add_refs(fixture->messages, &refs_out[i], 1, 0);
    }
    qsi_message_store_mark(fixture->messages, &place);
    return QS_OK;
}

/* QS_OK: it was the packed message's very bytes. */
static inline qs_status get_packed(struct fixture *fixture, const struct qsi_body_ref *ref,
                                   uint32_t number, qs_error *error)
{
    static uint8_t data[4000];
    static uint8_t expected[4000];
    struct qsi_slice exchange, key, properties;
    qs_status status = qsi_message_store_read(fixture->messages, ref, data, error);

    if (status == QS_OK) {
        fill_message(expected, ref->body_bytes - ENVELOPE_BYTES, number);
        QS_CHECK(qsi_envelope_decode(data + QSI_BODY_HEADER_BYTES, ref->envelope_bytes, &exchange,
                                     &key, &properties));
        QS_CHECK(qsi_slice_equals(exchange, QSI_SLICE_LITERAL("ex")));
        QS_CHECK(qsi_slice_equals(key, QSI_SLICE_LITERAL("key")));
        QS_CHECK(memcmp(properties.data, expected, properties.bytes) == 0);
        QS_CHECK(memcmp(data + QSI_BODY_HEADER_BYTES + ref->envelope_bytes, expected,
                        ref->body_bytes) == 0);
    }
    return status;
}

static inline struct qsi_message_space space_of(struct fixture *fixture)
{
    struct qsi_message_space space;

    qsi_message_store_space(fixture->messages, &space);
    return space;
}

#endif
