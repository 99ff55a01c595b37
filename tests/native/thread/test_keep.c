/* A journal that is kept is read to its end, with the bodies that it names, whatever checkpoints
 * are made meanwhile, and only what was read goes.  Too much of it, and a full disk, end that.  The
 * disk fails at any call of a checkpoint, or has its power cut at any step of it, while the journal
 * is kept. */
#include "qstore/admin.h"
#include "qstore/codec.h"

#include "concurrent_fixture.h"
#include "crash_run.h"
#include "env_call.h"
#include "journal_file.h"
#include "le.h"
#include "qs_test_calls.h"
#include "qs_test_dirs.h"

#define MESSAGES 12
#define BODY_BYTES 1000 /* of which each is in a message file */
#define REFS 1024
#define CUTS 10 /* at each step */

static const uint8_t zeros[BODY_BYTES];
static uint8_t file_bytes[2u << 20];
static uint8_t refs[REFS * QS_BODY_REFERENCE_BYTES];

static uint64_t some_of(uint64_t count)
{
    uint64_t some = crash_state_count(0, NULL, count);

    return some > 0 ? some : 1;
}

static void publish_all(struct engine *engine, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) { /* each in a block of its own */
        qs_receipt receipt =
            publish_to(engine, "", "q", PERSISTENT, (qs_slice){zeros, sizeof zeros});

        QS_CHECK_OK(qs_store_wait_durable(engine->store, receipt.lsn, QS_FOREVER, QS_ERROR));
    }
}

static void purge(struct engine *engine)
{
    QS_CHECK_OK(qs_test_purge(engine->channel, "q"));
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
}

/* 0: it is not there. */
static size_t read_file(struct engine *engine, const char *folder, const char *name)
{
    qs_env *env = engine->env;
    qs_dir *dir = qs_test_open_dir(env, engine->path, folder);
    qs_file *file;
    size_t bytes = 0;

    if (qsi_env_open(env, dir, name, QS_OPEN_READ, &file, NULL) == QS_OK) {
        QS_CHECK_OK(qsi_file_read(env, file, file_bytes, sizeof file_bytes, 0, &bytes, QS_ERROR));
        env->close(env, file);
    }
    env->dir_close(env, dir);
    return bytes;
}

struct told {
    uint64_t bodies;
    uint64_t lsn; /* up to which all was read */
    bool is_whole;
};

static void check_bodies(struct engine *engine, uint64_t count, struct told *told)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint8_t *ref = refs + i * QS_BODY_REFERENCE_BYTES;
        size_t bytes = 32u + qsi_get_u32(ref + 16) + qsi_get_u32(ref + 20);
        QS_TEST_FREED uint8_t *data = malloc(bytes);

        QS_CHECK(data != NULL);
        QS_CHECK_STATUS(QS_EINVAL,
                        qs_store_read_body(engine->store, ref, data, bytes - 1, QS_ERROR));
        if (qs_store_read_body(engine->store, ref, data, bytes, QS_ERROR) == QS_OK) {
            QS_CHECK(memcmp(data + bytes - BODY_BYTES, zeros, BODY_BYTES) == 0);
            told->bodies += 1;
        } else {
            told->is_whole = false;
        }
    }
}

/* All of the journal from where it is kept, and the bodies that it names. */
static struct told read_kept(struct engine *engine, const qs_kept *kept)
{
    struct told told = {.lsn = kept->lsn, .is_whole = true};
    qs_journal_walk walk = {.salt = kept->file_salt,
                            .upto_lsn = kept->durable_lsn,
                            .lsn = kept->file_lsn,
                            .file = kept->file};

    size_t at = QSI_JOURNAL_HEADER_BYTES;

    while (walk.lsn < kept->durable_lsn) {
        struct qsi_journal_header header;
        char name[QSI_JOURNAL_NAME_BYTES];
        size_t bytes;

        qsi_journal_name(name, walk.file);
        bytes = read_file(engine, "journal", name);
        if (bytes < at || !qsi_journal_header_decode(&header, file_bytes, file_bytes + 16,
                                                     walk.file, walk.salt)) {
            told.is_whole = false;
            return told;
        }
        QS_CHECK_OK(
            qs_journal_walk_blocks(file_bytes + at, bytes - at, refs, REFS, &walk, QS_ERROR));
        QS_CHECK(!walk.is_elsewhere && walk.wanted_refs == 0);
        check_bodies(engine, walk.ref_count, &told);
        if (walk.walked_bytes == 0) {
            told.is_whole = false;
            return told;
        }
        at += (size_t)walk.walked_bytes;
        told.lsn = walk.lsn;
        if (walk.next_file != 0) {
            walk.file = walk.next_file;
            walk.salt = header.next_salt;
            at = QSI_JOURNAL_HEADER_BYTES;
        }
    }
    told.is_whole = told.is_whole && told.lsn == kept->durable_lsn;
    return told;
}

static qs_kept keep_from(struct engine *engine, uint64_t lsn)
{
    qs_kept kept;

    QS_CHECK_OK(qs_store_keep_from(engine->store, lsn, &kept, QS_ERROR));
    return kept;
}

static uint64_t ready_in(qs_store *store)
{
    qs_queue_status status;

    QS_CHECK_OK(qs_store_queue_status(store, text("q"), &status, QS_ERROR));
    return status.messages_ready;
}

static void begin(struct engine *engine, uint64_t bytes_max, qs_kept *kept)
{
    engine->options.embed_below = BODY_BYTES / 2;
    engine->options.journal_file_bytes = 64u << 10;
    engine->options.message_file_bytes = 64u << 10;
    engine_open(engine);
    declare(engine, "q", QS_DURABLE);
    QS_CHECK_OK(qs_store_keep(engine->store, bytes_max, kept, QS_ERROR));
}

/* ---- what is kept ---- */

QS_TEST(test_kept_journal_is_there_after_checkpoints_until_it_was_read)
{
    for (enum place place = IN_MEMORY; place <= ON_DISK; place++) {
        struct engine engine;
        struct told told;
        qs_kept kept, again;

        engine_init(&engine, place);
        begin(&engine, UINT64_MAX, &kept);
        QS_CHECK(!kept.is_lost && kept.file > 0 && kept.file_lsn <= kept.lsn);
        QS_CHECK_STATUS(QS_EEXIST, qs_store_keep(engine.store, 1, &again, QS_ERROR));
        for (int i = 0; i < 5; i++) { /* what a checkpoint finds dead goes with it */
            publish_all(&engine, 100);
            purge(&engine);
            QS_CHECK_OK(qs_store_checkpoint(engine.store, QS_ERROR));
        }
        again = keep_from(&engine, kept.lsn);
        QS_CHECK(again.file == kept.file && again.file_salt == kept.file_salt);
        told = read_kept(&engine, &again);
        QS_CHECK(told.is_whole && told.bodies == 500);
        QS_CHECK(read_file(&engine, "messages", "0000000001.msg") > 0);

        again = keep_from(&engine, told.lsn);
        QS_CHECK(again.lsn == told.lsn && !again.is_lost);
        QS_CHECK_STATUS(QS_EINVAL,
                        qs_store_keep_from(engine.store, told.lsn - 1, &again, QS_ERROR));
        QS_CHECK_STATUS(QS_EINVAL,
                        qs_store_keep_from(engine.store, told.lsn + 1, &again, QS_ERROR));
        QS_CHECK_OK(qs_store_checkpoint(engine.store, QS_ERROR));
        QS_CHECK(!read_kept(&engine, &kept).is_whole);
        QS_CHECK(read_file(&engine, "messages", "0000000001.msg") == 0);
        engine_stop(&engine);
    }
}

UNOPENED_TEST(test_nothing_is_kept_after_the_end)
{
    qs_kept kept, again;

    begin(engine, UINT64_MAX, &kept);
    publish_all(engine, 100);
    purge(engine);
    qs_store_keep_end(engine->store);
    qs_store_keep_end(engine->store);
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    again = keep_from(engine, 0);
    QS_CHECK(again.is_lost && !read_kept(engine, &kept).is_whole);
    QS_CHECK_OK(qs_store_keep(engine->store, UINT64_MAX, &kept, QS_ERROR));
    QS_CHECK(kept.lsn == again.durable_lsn && !kept.is_lost);
}

UNOPENED_TEST(test_checkpoint_ends_it_where_too_much_is_kept)
{
    qs_kept kept;

    begin(engine, 20000, &kept);
    publish_all(engine, 50);
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    QS_CHECK(!keep_from(engine, kept.lsn).is_lost);
    publish_all(engine, 200);
    purge(engine);
    QS_CHECK(!keep_from(engine, kept.lsn).is_lost);
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    QS_CHECK(keep_from(engine, kept.lsn).is_lost);
    QS_CHECK(!read_kept(engine, &kept).is_whole);
}

/* Publishers and checkpoints have the space that what is kept takes. */
UNOPENED_TEST(test_full_disk_ends_it_and_the_store_goes_on)
{
    qs_kept kept;
    uint64_t rounds = 0;

    begin(engine, UINT64_MAX, &kept);
    qsi_env_ram_limit(engine->memory, qsi_env_ram_used(engine->memory) + (4u << 20));
    while (!keep_from(engine, kept.lsn).is_lost) {
        publish_all(engine, 50);
        purge(engine);
        QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
        QS_CHECK(++rounds < 1000);
    }
    for (int i = 0; i < 100; i++) {
        publish_all(engine, 50);
        purge(engine);
        QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    }
    QS_CHECK(rounds > 2);
}

static bool has_unjournalled(struct qs_store *store, bool *is_kept_out)
{
    bool has;

    qsi_store_lock(store);
    has = store->space.unjournalled > 0;
    *is_kept_out = store->keep.is_active;
    qsi_store_unlock(store);
    return has;
}

/* Settles without room in the journal are in memory alone until the next checkpoint. */
QS_TEST(test_what_is_settled_in_memory_alone_ends_it)
{
    struct engine engine;
    char body[200];
    qs_status status;
    uint32_t count = 0;
    bool is_kept, has = false;
    qs_kept kept;

    memset(body, 'x', sizeof body);
    engine_init(&engine, IN_MEMORY);
    begin(&engine, UINT64_MAX, &kept);
    qsi_env_ram_limit(engine.memory, qsi_env_ram_used(engine.memory) + (1u << 20));
    do {
        status =
            qs_test_publish(engine.channel, "", "q", PERSISTENT, (qs_slice){body, sizeof body}, 0);
    } while (status == QS_OK && ++count < 100000);
    QS_CHECK(status == QS_ESTORE_FULL);
    qsi_env_ram_limit(engine.memory, qsi_env_ram_used(engine.memory));
    qs_store_keep_end(engine.store);
    QS_CHECK_OK(qs_store_keep(engine.store, UINT64_MAX, &kept, QS_ERROR));
    for (uint32_t i = 0; i < count && !has; i++) {
        qs_message message;

        qsi_env_ram_limit(engine.memory, qsi_env_ram_used(engine.memory)); /* others fill it */
        QS_CHECK_OK(qs_channel_get(engine.channel, text("q"), 0, &message, QS_ERROR));
        QS_CHECK_OK(qs_channel_ack(engine.channel, message.delivery_tag, 0, QS_ERROR));
        qs_message_release(&message);
        has = has_unjournalled(engine.store, &is_kept);
        QS_CHECK(!has || !is_kept);
        status = qs_store_sync(engine.store, QS_ERROR); /* a page of the journal for each */
        QS_CHECK(status == QS_OK || status == QS_ESTORE_FULL);
        kept = keep_from(&engine, kept.durable_lsn); /* all that there is was read */
    }
    QS_CHECK(has && keep_from(&engine, kept.lsn).is_lost);
    engine_stop(&engine);
}

/* Of large bodies the journal has references only. */
UNOPENED_TEST(test_dead_files_count_for_what_is_kept)
{
    qs_kept kept;
    uint64_t checkpoints;

    begin(engine, 1u << 20, &kept);
    publish_all(engine, 300);
    purge(engine);
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    kept = keep_from(engine, kept.lsn);
    QS_CHECK(!kept.is_lost && kept.durable_lsn - kept.lsn < 1u << 19);
    checkpoints = stats_of(engine).checkpoints;
    QS_CHECK(stats_of(engine).message_bytes_total > 1u << 18);
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
    QS_CHECK(stats_of(engine).checkpoints == checkpoints);
    publish_all(engine, 1500);
    purge(engine);
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    QS_CHECK(keep_from(engine, kept.lsn).is_lost);
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    QS_CHECK(stats_of(engine).message_bytes_total < 1u << 18);
}

/* ---- disks that fail, and the power ---- */

static void check_whole(qs_options options, qs_env *env, uint64_t in_queue)
{
    qs_verified verified;
    qs_store *store;

    options.create = false;
    QS_CHECK_OK(qs_store_open(&store, "store", &options, env, QS_ERROR));
    QS_CHECK(ready_in(store) == in_queue);
    QS_CHECK_OK(qs_store_close(store, QS_ERROR));
    QS_CHECK_OK(qs_store_verify("store", env, NULL, &verified, QS_ERROR));
}

/* Two checkpoints: the second one has files to give back that the first one kept. */
static qs_status work(struct engine *engine, uint64_t lsn)
{
    qs_status status = qs_store_checkpoint(engine->store, QS_ERROR);
    qs_kept kept;

    if (status == QS_OK) {
        status = qs_store_keep_from(engine->store, lsn, &kept, QS_ERROR);
    }
    return status == QS_OK ? qs_store_checkpoint(engine->store, QS_ERROR) : status;
}

static uint64_t prepare(struct engine *engine)
{
    qs_kept kept;

    begin(engine, UINT64_MAX, &kept);
    publish_all(engine, 100);
    purge(engine);
    kept = keep_from(engine, kept.lsn);
    publish_all(engine, MESSAGES);
    return kept.durable_lsn;
}

static bool work_with_a_fault(enum qsi_fault_kind kind, enum qsi_fault_how how, uint64_t at)
{
    struct engine engine;
    qs_status status;
    qs_env *faults;
    uint64_t lsn;
    bool fired;

    engine_init(&engine, IN_MEMORY);
    faults = engine_put_fault(&engine);
    lsn = prepare(&engine);
    qsi_env_fault_arm(faults, kind, how, at, false);
    status = work(&engine, lsn);
    fired = qsi_env_fault_fired(faults);
    qsi_env_fault_arm(faults, kind, how, 0, false);
    QS_CHECK(fired || status == QS_OK);
    if (status != QS_ESTORE_FAILED && qs_store_failure(engine.store, NULL) == QS_OK) {
        qs_kept kept = keep_from(&engine, lsn);

        QS_CHECK(kept.is_lost || read_kept(&engine, &kept).is_whole);
    }
    qs_channel_close(engine.channel);
    (void)qs_store_close(engine.store, NULL);
    check_whole(engine.options, faults, MESSAGES);
    engine_fini(&engine);
    return fired;
}

QS_TEST(test_disk_that_fails_costs_nothing_of_the_store)
{
    static const enum qsi_fault_kind kinds[] = {QSI_FAULT_OPEN,     QSI_FAULT_WRITE,
                                                QSI_FAULT_SYNC,     QSI_FAULT_REMOVE,
                                                QSI_FAULT_DIR_SYNC, QSI_FAULT_RENAME};
    static const enum qsi_fault_how errors[] = {QSI_FAULT_EIO, QSI_FAULT_ENOSPC};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        for (size_t j = 0; j < some_of(sizeof errors / sizeof errors[0]); j++) {
            uint64_t at = 1;

            while (work_with_a_fault(kinds[i], errors[(i + j) % 2], at)) {
                at += 1;
            }
            QS_CHECK(at > 1);
        }
    }
}

struct cuts {
    struct engine *engine;
    uint64_t taken;
};

static void cut(void *context, uint64_t step)
{
    struct cuts *cuts = context;
    uint64_t count = QSI_CUT_RANDOM + some_of(CUTS - QSI_CUT_RANDOM);

    for (uint64_t i = 0; i < count; i++) {
        enum qsi_cut_how how = i < QSI_CUT_RANDOM ? (enum qsi_cut_how)i : QSI_CUT_RANDOM;
        qs_env *disk = qsi_env_sim_cut(cuts->engine->env, how, step * CUTS + i);

        cuts->taken += 1;
        check_whole(cuts->engine->options, disk, MESSAGES);
        qsi_env_mem_destroy(disk);
    }
}

QS_TEST(test_power_cut_at_any_step_of_a_checkpoint_that_keeps_files)
{
    struct engine engine = {.path = "store"};
    struct cuts cuts = {.engine = &engine};
    uint64_t lsn;

    qs_options_default(&engine.options);
    engine.options.background = false;
    engine.env = qsi_env_sim_create(1);
    lsn = prepare(&engine);
    qsi_env_sim_on_step(engine.env, cut, &cuts);
    QS_CHECK_OK(work(&engine, lsn));
    qsi_env_sim_on_step(engine.env, NULL, NULL);
    QS_CHECK(cuts.taken > 40);
    engine_close(&engine);
    qsi_env_sim_destroy(engine.env);
}
