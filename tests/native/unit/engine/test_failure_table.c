/* The table of failures, row by row: a caller of the row meets each error that the simulated disk
 * has for it, and the store does what the table says.
 *
 * Method: an operation of each row runs once with one call of the environment failing, or with a
 * damaged file in its way; in memory, without threads. */
#include "commit.h"
#include "engine_damage.h"
#include "enter.h"
#include "failure.h"
#include "pager_steps.h"
#include "qs_test_batch.h"
#include "qs_test_calls.h"
#include "transactions.h"

#define FILE_BYTES (1u << 20) /* of the journal */
#define DIRECT_ROWS 60
#define DIRECT_ROW_BYTES 2000

enum error_class { SHORTAGE, DAMAGE, OTHER, ERROR_CLASSES };

static const qs_status statuses[ERROR_CLASSES] = {QS_ENOSPC, QS_ECORRUPT, QS_EIO};

/* ---- operations: the first call that may fail is one of the row ---- */

static struct qsi_store_queue *find_queue(struct engine *engine, const char *name)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&engine->store->queues_by_id);
    struct qsi_store_queue *queue;

    do {
        QS_CHECK(qsi_map_next(&engine->store->queues_by_id, &cursor));
        queue = cursor.value;
    } while (queue->name.bytes != strlen(name) ||
             memcmp(queue->name.data, name, queue->name.bytes) != 0);
    return queue;
}

static void publish_one(struct engine *engine)
{
    publish(engine, "q", "waits for its commit");
}

static qs_status sync_store(struct engine *engine)
{
    return qs_store_sync(engine->store, QS_ERROR);
}

static void sync_one(struct engine *engine)
{
    publish_one(engine);
    QS_CHECK_OK(sync_store(engine));
}

static qs_status mark(struct engine *engine)
{
    qs_status status;

    qsi_store_lock(engine->store);
    qsi_commit_mark(engine->store);
    status = qsi_store_check_failed(engine->store, QS_ERROR);
    qsi_store_unlock(engine->store);
    return status;
}

static void publish_counted(struct engine *engine)
{
    qs_test_declare_with(engine->channel, "counted", QS_DURABLE, "x-delivery-limit=5");
    publish(engine, "counted", "x");
    QS_CHECK_OK(sync_store(engine));
}

/* Its count is written first. */
static qs_status get_counted(struct engine *engine)
{
    qs_message message = {0};
    qs_status status = qs_channel_get(engine->channel, text("counted"), 0, &message, QS_ERROR);

    qs_message_release(&message);
    return status;
}

/* More than its file has room for. */
static void append_much(struct engine *engine)
{
    struct qs_store *store = engine->store;

    qsi_store_lock(store);
    for (int i = 0; i < 3; i++) {
        struct qsi_chunk *chunk = qsi_chunk_create(FILE_BYTES / 2);
        QS_CHECK(chunk != NULL && qsi_journal_reserve(store->journal, 1) == QS_OK);
        memset(chunk->data, 0, FILE_BYTES / 2);
        chunk->used = FILE_BYTES / 2;
        qsi_store_append(store, chunk, 0, chunk->used, 1, false);
        qsi_chunk_unref(chunk);
    }
    qsi_store_unlock(store);
}

/* The messages leave memory. */
static qs_status page(struct engine *engine)
{
    qs_status status;

    qsi_store_lock(engine->store);
    status = qsi_pager_settle_queue(engine->store, find_queue(engine, "q"));
    qsi_store_unlock(engine->store);
    return status;
}

/* Most of it is in a segment, which has room for the rest. */
static void page_and_publish(struct engine *engine)
{
    publish_one(engine);
    QS_CHECK_OK(page(engine));
    publish_one(engine);
    QS_CHECK_OK(sync_store(engine));
}

static void commit_key(struct engine *engine, const char *key)
{
    QS_CHECK_OK(qs_test_commit(engine->channel, text(key), 0));
}

static qs_status spill(struct engine *engine)
{
    qs_status status;

    qsi_store_lock(engine->store);
    status = qsi_transactions_spill(engine->store, QS_ERROR);
    qsi_store_unlock(engine->store);
    return status;
}

/* One is in a file, which is to be merged with the other. */
static void commit_keys(struct engine *engine)
{
    QS_CHECK_OK(qs_channel_tx_select(engine->channel, QS_ERROR));
    commit_key(engine, "first");
    QS_CHECK_OK(spill(engine));
    commit_key(engine, "second");
}

static qs_status publish_directly(struct engine *engine)
{
    struct qs_test_batch rows;
    qs_receipt receipt;
    qs_status status;
    qs_batch batch;

    qs_test_batch_init(&rows);
    for (uint32_t i = 0; i < DIRECT_ROWS; i++) {
        memset(qs_test_batch_add(&rows, "s", DIRECT_ROW_BYTES), (int)i, DIRECT_ROW_BYTES);
    }
    batch = qs_test_batch_finish(&rows);
    status = qs_channel_publish_batch(engine->channel, &batch, &receipt, QS_ERROR);
    qs_test_batch_fini(&rows);
    return status;
}

static void begin_file(struct engine *engine)
{
    QS_CHECK_OK(publish_directly(engine));
    QS_CHECK_OK(sync_store(engine));
}

static qs_status make_checkpoint(struct engine *engine)
{
    return qs_store_checkpoint(engine->store, QS_ERROR);
}

static void damage_segments(struct engine *engine)
{
    damage_segment(engine, 0, FILE_GONE);
}

static void renew_version(struct engine *engine)
{
    damage_version(engine, "-000000000000-");
}

static void damage_keys(struct engine *engine)
{
    damage_file(engine, "checkpoint", ".key", true);
}

static void damage_stream(struct engine *engine)
{
    damage_file(engine, "streams", ".str", false);
}

/* ---- rows and errors ---- */

static const struct caller {
    const char *name;
    enum qsi_disk_use use;
    void (*prepare)(struct engine *engine);
    qs_status (*run)(struct engine *engine);
    void (*damage)(struct engine *engine); /* NULL: it opens no file that was there */
    const char *kinds;                     /* of calls that are the row's: letters of faults */
} callers[] = {
    {"commit", QSI_USE_COMMIT, publish_one, sync_store, NULL, "wsSl"},
    {"count of deliveries", QSI_USE_COMMIT, publish_counted, get_counted, NULL, "w"},
    {"mark", QSI_USE_COMMIT, sync_one, mark, NULL, "wsS"},
    {"next file", QSI_USE_NEXT_FILE, append_much, sync_store, NULL, "a"},
    {"paging", QSI_USE_PAGING, page_and_publish, page, damage_segments, "wo"},
    {"paging of another version", QSI_USE_PAGING, page_and_publish, page, renew_version, ""},
    {"keys", QSI_USE_REWRITING, commit_keys, spill, damage_keys, "wos"},
    {"direct", QSI_USE_DIRECT, begin_file, publish_directly, damage_stream, "wo"},
    {"checkpoint", QSI_USE_CHECKPOINT, page_and_publish, make_checkpoint, damage_segments, "wosdr"},
};
#define CALLERS (sizeof callers / sizeof callers[0])

static const struct fault {
    char letter;
    enum error_class error_class;
    enum qsi_fault_kind kind;
    enum qsi_fault_how how;
} faults[] = {
    {'w', OTHER, QSI_FAULT_WRITE, QSI_FAULT_EIO},
    {'s', OTHER, QSI_FAULT_SYNC, QSI_FAULT_EIO},
    {'S', OTHER, QSI_FAULT_SYNC, QSI_FAULT_ENOSPC}, /* may not be repeated: it is no shortage */
    {'d', OTHER, QSI_FAULT_DIR_SYNC, QSI_FAULT_EIO},
    {'r', OTHER, QSI_FAULT_RENAME, QSI_FAULT_EIO},
    {'l', OTHER, QSI_FAULT_CHECK_LINKED, QSI_FAULT_EIO},
    {'a', OTHER, QSI_FAULT_ALLOCATE, QSI_FAULT_EIO},
    {'w', SHORTAGE, QSI_FAULT_WRITE, QSI_FAULT_ENOSPC},
    {'o', SHORTAGE, QSI_FAULT_OPEN, QSI_FAULT_EMFILE},
    {'a', SHORTAGE, QSI_FAULT_ALLOCATE, QSI_FAULT_ENOSPC},
};

static void declare_as(struct engine *engine, const char *queue, const char *argument,
                       const char *value)
{
    struct qs_test_fields arguments = {.used = 0};

    qs_test_put_text(&arguments, argument, value);
    qs_test_declare(engine->channel, queue, QS_DURABLE, &arguments);
}

static void start(struct engine *engine, const struct caller *caller)
{
    engine_init(engine, IN_MEMORY);
    engine_put_fault(engine);
    engine->options.journal_file_bytes = FILE_BYTES;
    engine->options.checkpoint_bytes = 0;
    engine_open(engine);
    declare_as(engine, "q", "x-queue-mode", "lazy");
    declare(engine, "other", QS_DURABLE);
    declare_as(engine, "s", "x-queue-type", "stream");
    caller->prepare(engine);
}

/* However the store is by now. */
static void stop(struct engine *engine)
{
    qs_channel_close(engine->channel);
    (void)!qs_store_close(engine->store, NULL);
    engine_fini(engine);
}

static qs_status publish_to_other(struct engine *engine)
{
    return qs_test_publish(engine->channel, "", "other", PERSISTENT, text("x"), 0);
}

/* ---- what the table promises ---- */

static void check_consequence(struct engine *engine, const struct caller *caller,
                              enum qsi_consequence consequence, qs_status status)
{
    bool known;

    QS_CHECK(stats_of(engine).failed == (consequence == QSI_FAILS_STORE));
    switch (consequence) {
    case QSI_GOES_ON:
        QS_CHECK(!"an error has a consequence");
        break;
    case QSI_FAILS_STORE:
        QS_CHECK(status != QS_OK);
        QS_CHECK_STATUS(QS_ESTORE_FAILED, publish_to_other(engine));
        QS_CHECK_STATUS(QS_ESTORE_FAILED, sync_store(engine));
        return;
    case QSI_TRIES_AGAIN:
        QS_CHECK_OK(caller->run(engine));
        break;
    case QSI_LEAVES_FILE:
        QS_CHECK(status == QS_OK);
        QS_CHECK_OK(caller->run(engine));
        break;
    case QSI_HOLDS_UP:
        QS_CHECK_STATUS(QS_ECORRUPT, caller->run(engine));
        break;
    case QSI_USES_JOURNAL:
        QS_CHECK(status == QS_OK);
        break;
    case QSI_TELLS_READERS:
        QS_CHECK_STATUS(QS_ECORRUPT,
                        qs_store_transaction_known(engine->store, text("first"), &known, QS_ERROR));
        QS_CHECK(is_known(engine->store, text("second")));
        break;
    }
    QS_CHECK_OK(publish_to_other(engine));
    QS_CHECK_OK(sync_store(engine));
}

/* A batch that the journal took is in it. */
static void check_journal(struct engine *engine, enum qsi_consequence consequence, uint64_t before)
{
    if (consequence == QSI_USES_JOURNAL) {
        QS_CHECK(stats_of(engine).appended_lsn - before > DIRECT_ROWS * DIRECT_ROW_BYTES);
    }
}

static void run(const struct caller *caller, enum error_class error_class,
                const struct fault *fault)
{
    enum qsi_consequence consequence = qsi_consequence_of(caller->use, statuses[error_class]);
    struct engine engine;
    uint64_t before;
    qs_status status;

    printf("%s, %s\n", caller->name,
           fault == NULL ? "damage" : qs_status_name(statuses[error_class]));
    start(&engine, caller);
    before = stats_of(&engine).appended_lsn;
    if (fault == NULL) {
        caller->damage(&engine);
    } else {
        qsi_env_fault_arm(engine.env, fault->kind, fault->how, 1, false);
    }
    status = caller->run(&engine);
    QS_CHECK(fault == NULL || qsi_env_fault_fired(engine.env));
    qsi_env_fault_arm(engine.env, QSI_FAULT_ANY, QSI_FAULT_EIO, 0, false);
    check_journal(&engine, consequence, before);
    check_consequence(&engine, caller, consequence, status);
    stop(&engine);
}

/* Its errors of each class. */
static void test_caller(const struct caller *caller, int tried[QSI_DISK_USES][ERROR_CLASSES])
{
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        if (strchr(caller->kinds, faults[i].letter) != NULL) {
            run(caller, faults[i].error_class, &faults[i]);
            tried[caller->use][faults[i].error_class] += 1;
        }
    }
    if (caller->damage != NULL) {
        run(caller, DAMAGE, NULL);
    }
}

QS_TEST(test_each_row_has_its_consequence_at_a_caller)
{
    int tried[QSI_DISK_USES][ERROR_CLASSES] = {0};

    for (size_t i = 0; i < CALLERS; i++) {
        test_caller(&callers[i], tried);
    }
    for (int use = 0; use < QSI_DISK_USES; use++) {
        QS_CHECK(tried[use][SHORTAGE] > 0 && tried[use][OTHER] > 0);
    }
}

/* The wait for the next journal file ends: it is the commit that fails then. */
QS_TEST(test_a_shortage_that_lasts_fails_the_commit)
{
    static const struct caller shortage = {.prepare = append_much};
    struct engine engine;

    start(&engine, &shortage);
    qsi_env_fault_arm(engine.env, QSI_FAULT_ALLOCATE, QSI_FAULT_ENOSPC, 1, true);
    QS_CHECK(sync_store(&engine) != QS_OK && stats_of(&engine).failed);
    stop(&engine);
}

/* ---- the function ---- */

QS_TEST(test_each_status_belongs_to_one_class)
{
    static const qs_status shortages[] = {QS_ENOMEM, QS_ENOSPC, QS_EMFILE, QS_ESTORE_FULL};
    static const qs_status others[] = {QS_EIO, QS_ENOENT, QS_EEXIST, QS_ESTORE_FAILED};

    for (int i = 0; i < QSI_DISK_USES; i++) {
        enum qsi_disk_use use = (enum qsi_disk_use)i;
        QS_CHECK(qsi_consequence_of(use, QS_OK) == QSI_GOES_ON);
        QS_CHECK(qsi_consequence_of(use, QS_EVERSION) == qsi_consequence_of(use, QS_ECORRUPT));
        for (int k = 0; k < 4; k++) {
            QS_CHECK(qsi_consequence_of(use, shortages[k]) == qsi_consequence_of(use, QS_ENOSPC));
            QS_CHECK(qsi_consequence_of(use, others[k]) == QSI_FAILS_STORE);
        }
    }
}

QS_TEST(test_what_is_unreadable_is_passed_over_unless_the_store_is_verified)
{
    static struct qs_store store;

    for (int i = 0; i < 2; i++) {
        store.judges = i == 1;
        QS_CHECK(qsi_pass_over(&store, QS_OK) == QS_OK);
        QS_CHECK(qsi_pass_over(&store, QS_ECORRUPT) == QS_OK);
        QS_CHECK(qsi_pass_over(&store, QS_EIO) == (store.judges ? QS_EIO : QS_OK));
        QS_CHECK(qsi_pass_over(&store, QS_ENOMEM) == QS_ENOMEM);
    }
}
