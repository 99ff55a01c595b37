/* Records: what a commit block is made of (docs/FORMAT.md, "Records").
 *
 * Every record begins with {bytes u32, type u8, flags u8, u16} and is a multiple of 8 bytes
 * long.  The readers here take bytes whose block checksum was right, and check them all the
 * same: a record is data from a file. */
#ifndef QSI_RECORD_H
#define QSI_RECORD_H

#include "qstore/status.h"

#include "body_ref.h"
#include "le.h"
#include "slice.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum qsi_record_type {
    QSI_RECORD_MESSAGES = 1,
    QSI_RECORD_SETTLE = 2,
    QSI_RECORD_EXCHANGE_DECLARE = 3,
    QSI_RECORD_EXCHANGE_DELETE = 4,
    QSI_RECORD_QUEUE_DECLARE = 5,
    QSI_RECORD_QUEUE_DELETE = 6,
    QSI_RECORD_BIND = 7,
    QSI_RECORD_UNBIND = 8,
    QSI_RECORD_TRANSACTION = 9,
    QSI_RECORD_QUEUE_MODE = 10,
    QSI_RECORD_EXCHANGE_BIND = 11, /* exchange to exchange */
    QSI_RECORD_EXCHANGE_UNBIND = 12,
    QSI_RECORD_PRIORITY_QUEUE_DECLARE = 13, /* of a queue with priorities */
    QSI_RECORD_TRANSACTION_FORGET = 14,
    /* in checkpoints only */
    QSI_RECORD_MESSAGE_FILE = 16,
    QSI_RECORD_QUEUE_STATE = 17,
    QSI_RECORD_STORE_STATE = 18,
    QSI_RECORD_KEY_FILE = 19,
    QSI_RECORD_FORMER_FILE = 20,
};

#define QSI_RECORD_ALIGN 8
#define QSI_RECORD_HEAD_BYTES 8

static inline uint64_t qsi_record_align(uint64_t bytes)
{
    return (bytes + QSI_RECORD_ALIGN - 1) & ~(uint64_t)(QSI_RECORD_ALIGN - 1);
}
static inline uint32_t qsi_record_length(const uint8_t *record)
{
    return qsi_get_u32(record);
}
static inline uint8_t qsi_record_type(const uint8_t *record)
{
    return record[4];
}
/* The record at the start of at[0, bytes): false when its length is impossible. */
bool qsi_record_fits(const uint8_t *at, uint64_t bytes);

/* ---- messages ----
 *
 * One record holds a batch of messages, column by column, each body once however many queues
 * take it.  The rows' order is the publish order.  A destination is a queue and the sequence of
 * the first row that goes there; the following rows that go there count up from it.  A route is
 * an exchange, a routing key and the destinations they lead to; a row names its route.  One
 * published message is a batch of one row. */

#define QSI_MESSAGES_HEADER_BYTES 48
#define QSI_MESSAGES_DESTINATION_BYTES 24
#define QSI_NO_EXPIRATION UINT32_MAX /* ms: the row lives as long as its queue lets it */

enum {
    QSI_MESSAGES_PROPERTIES_PER_ROW = 1, /* else one blob serves all rows */
    QSI_MESSAGES_HAS_STORED =
        2, /* a bitmap tells the rows whose body cell is a message store reference */
    QSI_MESSAGES_HAS_TRANSIENT =
        4, /* rows with delivery mode 1 are among them and end with the process */
    QSI_MESSAGES_HAS_EXPIRATION = 8, /* a column tells how long each row lives, by its properties */
    QSI_MESSAGES_HAS_DUE = 16,       /* a column tells when each row may be delivered */
    QSI_MESSAGES_ALIGNED = 32, /* columns begin at multiples of QSI_MESSAGES_ALIGN_TO: Arrow's */
};
#define QSI_MESSAGES_FLAGS 63 /* all of them */
#define QSI_MESSAGES_ALIGN_TO 64u
/* A record of several rows has aligned columns from this size on: gaps are about a hundred
 * bytes. */
#define QSI_MESSAGES_ALIGN_FROM (16u << 10)

/* Sizes a record is laid out from; qsi_messages_layout fills the rest. */
struct qsi_messages_layout {
    uint32_t row_count;
    uint32_t route_count;
    uint32_t destination_count;
    uint64_t routes_bytes;     /* sum of qsi_route_bytes() */
    uint64_t properties_bytes; /* all blobs together */
    uint64_t bodies_bytes;     /* all body cells together */
    uint8_t flags;             /* of ALIGNED: asked for; filled in where the record is long */
    /* filled in: */
    uint8_t row_route_width; /* 0 with one route, else 1, 2 or 4 */
    uint64_t routes_at, row_routes_at, expirations_at, dues_at, properties_at, bodies_at,
        record_bytes;
};
/* One route's bytes in the record. */
static inline uint64_t qsi_route_bytes(uint32_t exchange_bytes, uint32_t key_bytes,
                                       uint32_t destination_count)
{
    return 8 + 4 * (uint64_t)destination_count + exchange_bytes + key_bytes;
}
/* The one place that decides whether columns are aligned.  QS_EINVAL: the record would pass 4
 * GiB. */
qs_status qsi_messages_layout(struct qsi_messages_layout *layout, qs_error *error) QS_MUST_CHECK;

/* Writes header and empty sections' frames into layout->record_bytes bytes at record, padding
 * included. */
void qsi_messages_begin(uint8_t *record, const struct qsi_messages_layout *layout);

/* A view of a record; pointers into it. */
struct qsi_messages {
    const uint8_t *record;
    uint32_t row_count;
    uint32_t route_count;
    uint32_t destination_count;
    uint8_t flags;
    uint8_t row_route_width;
    const uint8_t *destinations;
    const uint8_t *routes; /* route_count offsets u32 from the record's start, then the routes */
    const uint8_t *row_routes;  /* row_count codes of row_route_width bytes */
    const uint8_t *expirations; /* row_count of u32 ms, or NULL */
    const uint8_t *dues;        /* row_count of u64 us, or NULL */
    /* PER_ROW: row_count + 1 offsets u32, then blobs; else length u32, then the blob */
    const uint8_t *properties;
    const uint8_t *stored;       /* bitmap, or NULL */
    const uint8_t *body_offsets; /* row_count + 1 of u32 */
    const uint8_t *bodies;
};
/* REQUIRES a record that was written by this process or has passed qsi_messages_check. */
void qsi_messages_view(struct qsi_messages *view_out, const uint8_t *record);
/* Every count, offset and index of a record from a file, and that each stored body is a
 * reference.  QS_ECORRUPT tells what is wrong. */
qs_status qsi_messages_check(const uint8_t *record, qs_error *error) QS_MUST_CHECK;

/* Writers for the sections of a record in the making. */
static inline void qsi_messages_put_destination(uint8_t *record, uint32_t index, uint64_t queue_id,
                                                uint64_t first_seq, uint32_t row_count)
{
    uint8_t *at =
        record + QSI_MESSAGES_HEADER_BYTES + (size_t)index * QSI_MESSAGES_DESTINATION_BYTES;

    qsi_put_u64(at, queue_id);
    qsi_put_u64(at + 8, first_seq);
    qsi_put_u32(at + 16, row_count);
    qsi_put_u32(at + 20, 0);
}
/* When the messages were published, in us since 1970; 0 where nobody asks. */
static inline void qsi_messages_put_time(uint8_t *record, uint64_t time_us)
{
    qsi_put_u64(record + 40, time_us);
}
static inline uint64_t qsi_messages_time(const uint8_t *record)
{
    return qsi_get_u64(record + 40);
}
static inline bool qsi_messages_has_expiration(const uint8_t *record)
{
    return (record[5] & QSI_MESSAGES_HAS_EXPIRATION) != 0;
}
static inline bool qsi_messages_has_due(const uint8_t *record)
{
    return (record[5] & QSI_MESSAGES_HAS_DUE) != 0;
}
/* Does a column say something of its rows' times? */
static inline bool qsi_messages_has_times(const uint8_t *record)
{
    return (record[5] & (QSI_MESSAGES_HAS_EXPIRATION | QSI_MESSAGES_HAS_DUE)) != 0;
}
/* REQUIRES the column. */
static inline void qsi_messages_put_expiration(uint8_t *record,
                                               const struct qsi_messages_layout *layout,
                                               uint32_t row, uint32_t ms)
{
    qsi_put_u32(record + layout->expirations_at + 4 * (size_t)row, ms);
}
/* REQUIRES the column.  0: at once. */
static inline void qsi_messages_put_due(uint8_t *record, const struct qsi_messages_layout *layout,
                                        uint32_t row, uint64_t due_us)
{
    qsi_put_u64(record + layout->dues_at + 8 * (size_t)row, due_us);
}
/* Routes are written in order; *at_io starts at 0 and counts the bytes of routes written so far. */
void qsi_messages_put_route(uint8_t *record, const struct qsi_messages_layout *layout,
                            uint32_t index, uint64_t *at_io, struct qsi_slice exchange,
                            struct qsi_slice key, const uint32_t *destinations,
                            uint32_t destination_count);
void qsi_messages_put_row_routes(uint8_t *record, const struct qsi_messages_layout *layout,
                                 const uint32_t *codes);
static inline uint8_t *qsi_messages_properties_place(uint8_t *record,
                                                     const struct qsi_messages_layout *layout)
{
    return record + layout->properties_at;
}
uint8_t *qsi_messages_stored_place(uint8_t *record,
                                   const struct qsi_messages_layout *layout); /* the bitmap */
uint8_t *qsi_messages_body_offsets_place(uint8_t *record, const struct qsi_messages_layout *layout);
uint8_t *qsi_messages_bodies_place(uint8_t *record, const struct qsi_messages_layout *layout);

static inline uint32_t qsi_messages_expiration(const struct qsi_messages *view, uint32_t row)
{
    return view->expirations != NULL ? qsi_get_u32(view->expirations + 4 * (size_t)row)
                                     : QSI_NO_EXPIRATION;
}
/* 0: at once. */
static inline uint64_t qsi_messages_due(const struct qsi_messages *view, uint32_t row)
{
    return view->dues != NULL ? qsi_get_u64(view->dues + 8 * (size_t)row) : 0;
}

struct qsi_route_view {
    struct qsi_slice exchange;
    struct qsi_slice key;
    uint32_t destination_count;
    const uint8_t *destinations; /* u32 indexes */
};
static inline uint32_t qsi_messages_row_route(const struct qsi_messages *view, uint32_t row)
{
    switch (view->row_route_width) {
    case 0:
        return 0;
    case 1:
        return view->row_routes[row];
    case 2:
        return qsi_get_u16(view->row_routes + 2 * (size_t)row);
    default:
        return qsi_get_u32(view->row_routes + 4 * (size_t)row);
    }
}
static inline struct qsi_route_view qsi_messages_route(const struct qsi_messages *view,
                                                       uint32_t route)
{
    const uint8_t *at = view->record + qsi_get_u32(view->routes + 4 * (size_t)route);
    uint32_t count = qsi_get_u32(at);
    uint8_t exchange_bytes = at[4];
    uint8_t key_bytes = at[5];
    const uint8_t *names = at + 8 + 4 * (size_t)count;

    return (struct qsi_route_view){
        .exchange = qsi_slice_make(names, exchange_bytes),
        .key = qsi_slice_make(names + exchange_bytes, key_bytes),
        .destination_count = count,
        .destinations = at + 8,
    };
}
static inline struct qsi_slice qsi_messages_properties(const struct qsi_messages *view,
                                                       uint32_t row)
{
    if ((view->flags & QSI_MESSAGES_PROPERTIES_PER_ROW) == 0) {
        return qsi_slice_make(view->properties + 4, qsi_get_u32(view->properties));
    }
    const uint8_t *offsets = view->properties + 4 * (size_t)row;
    const uint8_t *blobs = view->properties + 4 * ((size_t)view->row_count + 1);
    uint32_t from = qsi_get_u32(offsets);
    return qsi_slice_make(blobs + from, qsi_get_u32(offsets + 4) - from);
}
static inline bool qsi_messages_is_stored(const struct qsi_messages *view, uint32_t row)
{
    return view->stored != NULL && (view->stored[row / 8] >> (row % 8) & 1) != 0;
}
/* The body, or what stands there of a stored one. */
static inline struct qsi_slice qsi_messages_body(const struct qsi_messages *view, uint32_t row)
{
    uint32_t from = qsi_get_u32(view->body_offsets + 4 * (size_t)row);

    return qsi_slice_make(view->bodies + from,
                          qsi_get_u32(view->body_offsets + 4 * (size_t)row + 4) - from);
}
/* REQUIRES qsi_messages_is_stored. */
static inline void qsi_messages_stored_body(const struct qsi_messages *view, uint32_t row,
                                            struct qsi_stored_body *stored_out)
{
    qsi_stored_body_decode(stored_out, qsi_messages_body(view, row));
}
/* The same, of a record that has passed qsi_messages_check: no message in it is known to be
 * damaged. */
struct qsi_body_ref qsi_messages_body_ref(const struct qsi_messages *view, uint32_t row);
/* How many bytes the body has, wherever it is; 0 of a damaged one. */
uint32_t qsi_messages_body_bytes(const struct qsi_messages *view, uint32_t row);
static inline uint64_t qsi_messages_destination_queue(const struct qsi_messages *view,
                                                      uint32_t index)
{
    return qsi_get_u64(view->destinations + (size_t)index * QSI_MESSAGES_DESTINATION_BYTES);
}
static inline uint64_t qsi_messages_destination_seq(const struct qsi_messages *view, uint32_t index)
{
    return qsi_get_u64(view->destinations + (size_t)index * QSI_MESSAGES_DESTINATION_BYTES + 8);
}
static inline uint32_t qsi_messages_destination_rows(const struct qsi_messages *view,
                                                     uint32_t index)
{
    return qsi_get_u32(view->destinations + (size_t)index * QSI_MESSAGES_DESTINATION_BYTES + 16);
}

/* ---- settle: what became of delivered messages ---- */

#define QSI_SETTLE_BYTES 32
#define QSI_SETTLE_BYTES_MAX 40
enum qsi_settle_kind {
    QSI_SETTLE_ACK = 1,
    QSI_SETTLE_REQUEUE = 2,     /* counts a delivery */
    QSI_SETTLE_REQUEUE_DUE = 3, /* requeued, to be delivered later; counts a delivery */
    QSI_SETTLE_DUE = 4,         /* the same without counting a delivery */
    QSI_SETTLE_DELIVER = 5,     /* counts a delivery, before anybody has the message */
    QSI_SETTLE_TAKE_BACK = 6,   /* nobody had the message: counts a delivery less */
};
struct qsi_settle {
    uint64_t queue_id;
    uint64_t first_seq;
    uint32_t count;
    uint8_t kind;
    uint64_t due_us; /* of the kinds that have it, else 0 */
};
static inline bool qsi_settle_has_due(uint8_t kind)
{
    return kind == QSI_SETTLE_REQUEUE_DUE || kind == QSI_SETTLE_DUE;
}
static inline bool qsi_settle_requeues(uint8_t kind)
{
    return kind == QSI_SETTLE_REQUEUE || kind == QSI_SETTLE_REQUEUE_DUE;
}
static inline uint32_t qsi_settle_record_bytes(uint8_t kind)
{
    return qsi_settle_has_due(kind) ? QSI_SETTLE_BYTES_MAX : QSI_SETTLE_BYTES;
}
/* qsi_settle_record_bytes() bytes. */
void qsi_settle_encode(uint8_t *record_out, const struct qsi_settle *settle);
qs_status qsi_settle_decode(struct qsi_settle *settle_out, const uint8_t *record,
                            qs_error *error) QS_MUST_CHECK;

/* ---- message file: the references to its bodies, at a checkpoint ---- */

#define QSI_MESSAGE_FILE_HEADER_BYTES 48
#define QSI_MESSAGE_FILE_RUN_BYTES 8

enum {
    QSI_MESSAGE_FILE_SETTLED = 1, /* synced, and truncated for good */
};

/* Consecutive slots with the same count are a run. */
struct qsi_message_file_record {
    uint32_t number;
    uint32_t generation;
    uint64_t salt;
    uint64_t end;        /* how far records reach; of later generations, the size */
    uint64_t live_bytes; /* of bodies with a count, packed */
    uint32_t slot_count;
    bool is_settled;
    uint32_t run_count;
    const uint8_t *runs; /* count u32, length u32 each; decoded: inside the record */
};
/* 4 GiB and more do not fit a record: check before encoding. */
uint64_t qsi_message_file_record_bytes(uint32_t run_count);
/* All but the runs. */
void qsi_message_file_record_encode(uint8_t *record_out,
                                    const struct qsi_message_file_record *file);
static inline void qsi_message_file_put_run(uint8_t *record, uint32_t index, uint32_t count,
                                            uint32_t length)
{
    uint8_t *at =
        record + QSI_MESSAGE_FILE_HEADER_BYTES + (size_t)index * QSI_MESSAGE_FILE_RUN_BYTES;

    qsi_put_u32(at, count);
    qsi_put_u32(at + 4, length);
}
static inline void qsi_message_file_run(const struct qsi_message_file_record *file, uint32_t index,
                                        uint32_t *count_out, uint32_t *length_out)
{
    const uint8_t *at = file->runs + (size_t)index * QSI_MESSAGE_FILE_RUN_BYTES;

    *count_out = qsi_get_u32(at);
    *length_out = qsi_get_u32(at + 4);
}
/* Checks everything that a record can say about itself. */
qs_status qsi_message_file_record_decode(struct qsi_message_file_record *file_out,
                                         const uint8_t *record, qs_error *error) QS_MUST_CHECK;

/* ---- topology and transactions: a number and up to four strings ----
 *
 *   EXCHANGE_DECLARE  flags; name, type, arguments        EXCHANGE_DELETE  name
 *   QUEUE_DECLARE     flags, queue id; name, arguments    QUEUE_DELETE     queue id
 *   BIND, UNBIND      queue id; exchange, key, arguments  TRANSACTION      wall time in us; key
 *   EXCHANGE_BIND, EXCHANGE_UNBIND      source, key, arguments, destination
 *   PRIORITY_QUEUE_DECLARE              as QUEUE_DECLARE
 *   TRANSACTION_FORGET                  key; or no key, and all committed before that wall time in
 *                                       us */
#define QSI_TOPOLOGY_STRINGS 4
struct qsi_topology {
    uint8_t type;
    uint32_t flags; /* QS_DURABLE ... */
    uint64_t number;
    struct qsi_slice strings[QSI_TOPOLOGY_STRINGS];
};
uint64_t qsi_topology_bytes(const struct qsi_topology *topology);
void qsi_topology_encode(uint8_t *record_out, const struct qsi_topology *topology);
qs_status qsi_topology_decode(struct qsi_topology *topology_out, const uint8_t *record,
                              qs_error *error) QS_MUST_CHECK;

/* Each priority of a queue has an id of its own: the queue's, with the priority in the highest
 * byte.  Priority 0 is the queue. */
#define QSI_PRIORITY_SHIFT 56
static inline uint64_t qsi_subqueue_id(uint64_t queue_id, uint8_t priority)
{
    return queue_id | (uint64_t)priority << QSI_PRIORITY_SHIFT;
}
static inline uint8_t qsi_priority_in(uint64_t id)
{
    return (uint8_t)(id >> QSI_PRIORITY_SHIFT);
}
static inline uint64_t qsi_queue_in(uint64_t id)
{
    return id & ((UINT64_C(1) << QSI_PRIORITY_SHIFT) - 1);
}

#endif
