/* Stores on disks that are full: publishers are refused, everything else goes on, space comes
 * back, publishing resumes.
 *
 * The disk is in memory and has a limit.  It may tell what is free on it, or not, as under a
 * quota; and somebody else may fill it up behind the store's back. */
#include "engine_fixture.h"
#include "qs_test_dirs.h"

enum { SMALL = 700, LARGE = 9000, DISK = 3 << 20, EACH = 7, COUNT_MAX = 20000 };

enum drain {
    BY_ACKS,
    BY_MULTIPLE_ACKS,
    BY_GETS_WITHOUT_ACK,
    BY_REJECTS,
    BY_TRANSACTIONS,
    BY_PURGE,
    BY_DELETION,
    BY_CLOSING_AND_ACKS,
    BY_CRASH_AND_ACKS,
    BY_CHECKPOINT_AND_ACKS,
    DRAINS,
};

static const char *const drain_names[] = {
    "acks",    "multiple acks", "gets without ack",  "rejects",           "transactions",
    "a purge", "a deletion",    "close, open, acks", "crash, open, acks", "a checkpoint, acks"};

enum disk { TELLS_WHAT_IS_FREE, TELLS_NOTHING, IS_FILLED_BY_OTHERS, DISKS };

static uint32_t body_bytes(uint32_t number, bool large)
{
    return large && number % EACH == 0 ? LARGE : SMALL;
}

static qs_status try_publish(struct engine *engine, uint32_t number, bool large)
{
    QS_TEST_FREED char *body = make_body(body_bytes(number, large), number);
    qs_status status = qs_test_publish(engine->channel, "", "q", PERSISTENT, text(body), 0);

    return status;
}

/* Until the first one is refused; how many were accepted, all of them durable. */
static uint32_t fill(struct engine *engine, bool large)
{
    uint32_t count = 0;
    qs_status status;

    while ((status = try_publish(engine, count, large)) == QS_OK) {
        QS_CHECK(++count < COUNT_MAX);
    }
    if (status != QS_ESTORE_FULL) {
        fprintf(stderr, "%s after %u: %s\n", qs_status_name(status), count, qs_test_error.text);
    }
    QS_CHECK(status == QS_ESTORE_FULL);
    QS_CHECK(!stats_of(engine).failed);
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
    return count;
}

/* A file of somebody else takes all there is, up to the last page. */
static void fill_by_others(struct engine *engine)
{
    uint64_t left = DISK - qsi_env_ram_used(engine->memory);
    qs_dir *dir = qs_test_make_root(engine->memory, "others");
    qs_file *file;

    QS_CHECK_OK(engine->memory->open(engine->memory, dir, "file",
                                     QS_OPEN_WRITE | QS_OPEN_CREATE_NEW, &file, QS_ERROR));
    QS_CHECK_OK(engine->memory->allocate(engine->memory, file, left, QS_ERROR));
    engine->memory->close(engine->memory, file);
    engine->memory->dir_close(engine->memory, dir);
}

/* In order, each as it was.  Where the store could not foresee that the disk would be full, what
 * is settled may be durable only when there is space for a checkpoint. */
static void take_all(struct engine *engine, uint32_t end, bool large, enum drain how,
                     bool may_be_behind)
{
    for (uint32_t i = 0; i < end; i++) {
        QS_TEST_FREED char *body = make_body(body_bytes(i, large), i);
        uint64_t tag =
            get_flags(engine, "q", body, how == BY_GETS_WITHOUT_ACK ? QS_NO_ACK : 0).delivery_tag;
        qs_status status = QS_OK;

        if (how == BY_REJECTS) {
            status = qs_channel_nack(engine->channel, tag, 0, 0, QS_ERROR);
        } else if (how != BY_GETS_WITHOUT_ACK &&
                   (how != BY_MULTIPLE_ACKS || i % 16 == 0 || i + 1 == end)) {
            status = qs_channel_ack(engine->channel, tag, how == BY_MULTIPLE_ACKS ? QS_MULTIPLE : 0,
                                    QS_ERROR);
        }
        if (status == QS_OK && how == BY_TRANSACTIONS && (i % 8 == 0 || i + 1 == end)) {
            status = qs_test_commit(engine->channel, NONE, 0);
        }
        if (status != QS_OK) {
            fprintf(stderr, "message %u of %u, by %s: %s\n", i, end, drain_names[how],
                    qs_test_error.text);
        }
        QS_CHECK_OK(status);
        if (i % 5 == 0 && how != BY_TRANSACTIONS) { /* each commit has a page of its own */
            status = qs_store_sync(engine->store, QS_ERROR);
            if (status != QS_OK && !may_be_behind) {
                fprintf(stderr, "message %u of %u, sync: %s; %" PRIu64 " bytes used\n", i, end,
                        qs_test_error.text, qsi_env_ram_used(engine->memory));
            }
            QS_CHECK(status == QS_OK || (status == QS_ESTORE_FULL && may_be_behind));
        }
    }
    get_nothing(engine, "q");
}

static void drain(struct engine *engine, uint32_t count, bool large, enum drain how,
                  bool may_be_behind)
{
    uint64_t dropped;
    qs_status status;

    switch (how) {
    case BY_PURGE:
        QS_CHECK_OK(qs_channel_queue_purge(engine->channel, text("q"), 0, &dropped, QS_ERROR));
        QS_CHECK(dropped == count);
        return;
    case BY_DELETION:
        QS_CHECK_OK(qs_channel_queue_delete(engine->channel, text("q"), 0, &dropped, QS_ERROR));
        QS_CHECK(dropped == count);
        declare(engine, "q", QS_DURABLE);
        return;
    case BY_TRANSACTIONS:
        QS_CHECK_OK(qs_channel_tx_select(engine->channel, QS_ERROR));
        break;
    case BY_CLOSING_AND_ACKS:
        engine_reopen(engine);
        break;
    case BY_CRASH_AND_ACKS:
        engine_crash(engine);
        break;
    case BY_CHECKPOINT_AND_ACKS:
        status = qs_store_checkpoint(engine->store, QS_ERROR);
        QS_CHECK(status == QS_OK || (status == QS_ESTORE_FULL && may_be_behind));
        break;
    default:
        break;
    }
    take_all(engine, count, large, how, may_be_behind);
}

static void check_drained_store_takes_messages_again(enum disk disk, bool large, uint64_t budget,
                                                     enum drain how)
{
    struct engine engine;
    uint32_t count, wanted, again = 0;

    printf("%s, %s bodies, disk %d, budget %" PRIu64 "\n", drain_names[how],
           large ? "large" : "small", (int)disk, budget);
    engine_init(&engine, IN_MEMORY);
    qsi_env_ram_limit(engine.memory, DISK);
    if (disk == TELLS_NOTHING) {
        engine.memory->space = NULL;
    }
    engine.options.journal_file_bytes = 64u << 10;
    engine.options.message_file_bytes = 256u << 10;
    engine.options.segment_entries = 64;
    engine.options.memory_budget = budget;
    engine_open(&engine);
    declare(&engine, "q", QS_DURABLE);
    count = fill(&engine, large);
    QS_CHECK(count > 500);
    if (disk == IS_FILLED_BY_OTHERS) {
        fill_by_others(&engine);
    }
    drain(&engine, count, large, how, disk != TELLS_WHAT_IS_FREE);
    QS_CHECK(!stats_of(&engine).failed);
    if (how == BY_TRANSACTIONS) {
        engine_new_channel(&engine);
    }
    wanted = disk == TELLS_WHAT_IS_FREE ? count / 3 : count / 8;
    while (again < wanted && try_publish(&engine, again, large) == QS_OK) {
        again += 1;
    }
    if (again < wanted) {
        fprintf(stderr, "%u of %u again, after %s, disk %d, budget %" PRIu64 ": %s\n", again,
                wanted, drain_names[how], disk, budget, qs_test_error.text);
    }
    QS_CHECK(again >= wanted);
    engine_reopen(&engine);
    take_all(&engine, again, large, BY_ACKS, false);
    engine_stop(&engine);
}

/* Transactions must be journalled.  Where nobody could see that the disk would be full there may
 * be no room for them. */
static bool is_promised(enum disk disk, enum drain how)
{
    return disk == TELLS_WHAT_IS_FREE || how != BY_TRANSACTIONS;
}

int main(void)
{
    for (int disk = 0; disk < DISKS; disk++) {
        for (int how = 0; how < DRAINS; how++) {
            if (is_promised((enum disk)disk, (enum drain)how)) {
                check_drained_store_takes_messages_again((enum disk)disk, false, UINT64_C(64) << 20,
                                                         (enum drain)how);
                check_drained_store_takes_messages_again((enum disk)disk, true, UINT64_C(256) << 10,
                                                         (enum drain)how);
            }
        }
    }
    return 0;
}
