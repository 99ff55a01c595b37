/* Streams in the crash laboratory: a random workload over several streams and a queue, with a model
 * that knows what a recovery may show.
 *
 * All that a store does lies in one journal, so a recovery shows the store as it was behind some
 * call: behind the last durable one, or a later one.  The model keeps what there was behind each.
 * A recovered store must be equal to one of these in everything at once:
 *
 *   - each stream has its messages, all of them, each at its offset, whole;
 *   - times never decrease, and a message keeps the time that it was once seen with;
 *   - cursors are those of the same moment: a transaction's messages, cursors and acks are one;
 *   - the queue has what the same calls brought to it;
 *   - retention dropped what it had dropped by then, and no more.
 *
 * A run has several generations (crash_life.h has the idea): each ends with a power cut or with the
 * death of the process, and what its recovery shows is the truth for the next.  All of a run
 * follows from its seed. */
#ifndef CRASH_LOG_H
#define CRASH_LOG_H

#include "qstore/qstore.h"

#include "crash_life.h"
#include "store.h"
#include "store_stream.h"

#define LOG_STREAMS 3
#define LOG_GROUPS 3      /* the last one is a consumer that notes how far it is */
#define LOG_LIVES_MAX 64  /* of a stream: it is deleted and declared again */
#define LOG_OPS_MAX 4000  /* calls of one generation */
#define LOG_LARGE_ROWS 40 /* of up to 3,000 bytes: a batch that is a block by itself */
#define LOG_NO_CURSOR UINT64_MAX
#define LOG_EVER UINT32_MAX
#define LOG_MAX_MESSAGES 60 /* of the first stream; retention keeps at least so many */

/* What goes wrong, for the suite to find. */
enum log_bug {
    LOG_NO_BUG,
    LOG_SYNC_SWALLOWED,     /* a sync of a stream's file fails, and is taken for done */
    LOG_BLOCK_NOT_SYNCED,   /* a checkpoint counts before the blocks that it names are durable */
    LOG_NAME_NOT_SYNCED,    /* or before the names of their files are */
    LOG_SHARED_PAGE,        /* a block begins in a page with one that a checkpoint names */
    LOG_CURSOR_DIVIDED,     /* a cursor is no part of its transaction's group */
    LOG_EARLY_REMOVAL,      /* files go before the record that drops them is durable */
    LOG_TRIM_UNRECORDED,    /* messages are dropped, and the journal does not say so */
    LOG_WRITTEN_NOT_SYNCED, /* the journal names blocks that are not durable */
    LOG_WRITTEN_NAME_NOT_SYNCED, /* or in a file whose name is not */
    LOG_WRITTEN_BEHIND,          /* or behind other blocks that are not */
    LOG_BUGS,
};

struct log_row {
    uint64_t id;
    uint64_t time_us; /* 0: nobody has seen it yet */
    uint32_t body_bytes;
};

/* Of a stream from its declaration on: rows by offset.  What is behind a state's next was lost, or
 * is under way. */
struct log_life {
    struct log_row *rows;
    uint64_t count, capacity;
};

struct log_message { /* in the queue */
    uint64_t id;
    uint32_t body_bytes;
    bool is_transient;
    uint32_t published, settled; /* behind which call; LOG_EVER: it is not settled */
};

struct log_stream_state {
    uint32_t life; /* 1 + index; 0: it is not there */
    bool is_bound;
    uint64_t first, next;
    uint64_t least; /* next of the first part of a large batch that a crash may keep; or next */
    uint64_t cursors[LOG_GROUPS];
};

struct log_state {
    struct log_stream_state streams[LOG_STREAMS];
    uint64_t lsn; /* durable up to here: so is the state */
};

struct log_model {
    struct log_life lives[LOG_STREAMS][LOG_LIVES_MAX];
    struct log_message *queue;
    uint32_t queue_count, queue_capacity;
    struct log_state *states; /* [k]: behind the k-th call of the generation */
    uint32_t last;            /* the last one that came back */
    bool is_under_way;        /* states[last + 1] is that of the call at work */
    uint64_t durable_lsn;     /* as the store told last */
    uint64_t next_id;
};

/* ---- the model ---- */

void log_model_init(struct log_model *model);
void log_model_fini(struct log_model *model);
void log_model_copy(struct log_model *to, const struct log_model *from);
/* The state behind the next call, to be changed to what it will be; and the call came back. */
struct log_state *log_model_begin(struct log_model *model);
void log_model_end(struct log_model *model, uint64_t lsn);
/* One more message at the end of a stream; in the queue. */
void log_model_add(struct log_model *model, struct log_state *state, uint32_t stream, uint64_t id,
                   uint32_t body_bytes);
void log_model_add_queued(struct log_model *model, uint64_t id, uint32_t body_bytes,
                          bool is_transient);
struct log_life *log_life_of(struct log_model *model, const struct log_state *state,
                             uint32_t stream);
/* The store was closed in order: all is durable, and what was transient is gone. */
void log_model_close(struct log_model *model);

/* ---- what a store shows ---- */

/* Compares with the model; the queue's messages are out on the channel afterwards.  adopts not
 * NULL, and the process there alive: what it shows is the truth from now on, and the model has one
 * state. */
void log_check(struct log_model *model, struct crash_report *report, qs_store *store,
               qs_channel *channel, const struct crash_env *adopts);
/* Of a store that is at work: what its readers see, from some offset on, and where a time leads. */
qs_status log_check_reading(struct log_model *model, struct crash_report *report, qs_store *store,
                            uint32_t stream, uint64_t random) QS_MUST_CHECK;
qs_slice log_stream_name(uint32_t stream);

/* ---- work and runs ---- */

struct log_work {
    struct crash_env *env;
    struct log_model *model;
    struct crash_report *report;
    uint64_t random;
    enum log_bug bug;
    bool has_faults;
    bool is_over;
    qs_options options;
    qs_store *store;
    qs_channel *channel, *tx;
};
qs_options log_options(uint64_t random);
bool log_open_store(struct log_work *work);
void log_close_store(struct log_work *work);
void log_set_up(struct log_work *work);
void log_work_once(struct log_work *work);
/* Each is a call, or a few; nothing where its stream is not there. */
void log_publish(struct log_work *work);
void log_publish_batch(struct log_work *work, uint32_t only, uint32_t rows, bool is_large);
void log_transact(struct log_work *work);
void log_commit_cursor(struct log_work *work);
void log_consume(struct log_work *work);
void log_declare(struct log_work *work, uint32_t stream);
void log_delete(struct log_work *work, uint32_t stream);
void log_sync(struct log_work *work);
void log_checkpoint(struct log_work *work);
void log_flush(struct log_work *work, uint32_t streams, bool drops); /* bits; from memory, too */
void log_retain(struct log_work *work);
void log_read(struct log_work *work, uint32_t stream);
void log_publish_any_batch(struct log_work *work);
void log_get(struct log_work *work);
uint32_t log_below(struct log_work *work, uint32_t limit);
/* A call came back: the model learns what is so now, or the work is over. */
void log_end_call(struct log_work *work, qs_status status, const char *what);
bool log_done(struct log_work *work, qs_status status, const char *what);

void log_run(const struct crash_run_options *options, struct crash_report *report, uint64_t seed);

#endif
