/* The message store while nothing fails: places, files, reads, space, recovery.
 *
 * Method: a store in the memory environment with files of 64 KiB and two handles, so that a
 * dozen bodies cross every boundary. */
#include "counts_fixture.h"

#include <pthread.h>

MESSAGES_TEST(test_body_reads_back_before_and_after_sync_and_reopen)
{
    struct qsi_body decoded;
    uint8_t encoded[QSI_BODY_REF_BYTES];
    struct qsi_body_ref ref = put(fixture, 5000, 7);

    QS_CHECK(ref.file == 1 && ref.slot == 0 && ref.offset == QSI_MESSAGE_HEADER_BYTES);
    QS_CHECK(get(fixture, &ref, 7, NULL) == QS_OK);
    QS_CHECK(commit(fixture, NULL) == QS_OK);
    QS_CHECK(get(fixture, &ref, 7, NULL) == QS_OK);
    qsi_body_ref_encode(encoded, &ref);
    qsi_body_decode(&decoded, qsi_slice_make(encoded, sizeof encoded));
    QS_CHECK(decoded.kind == QSI_BODY_STORED);
    restart(fixture);
    QS_CHECK(get(fixture, &decoded.ref, 7, NULL) == QS_OK);
    QS_CHECK(qsi_message_store_check(fixture->messages, &decoded.ref, NULL) == QS_OK);
    QS_CHECK(qsi_message_store_locate(fixture->messages, &decoded.ref, NULL) == QS_OK);
}

MESSAGES_TEST(test_bodies_of_any_size_are_whole)
{
    static const uint32_t sizes[] = {0, 1, 7, 8, 9, 39, 40, 41, 4096, 32768, 40000, 61000};
    enum { COUNT = sizeof sizes / sizeof sizes[0] };
    struct qsi_body_ref refs[COUNT];

    for (uint32_t i = 0; i < COUNT; i++) {
        refs[i] = put(fixture, sizes[i], i);
        QS_CHECK(refs[i].offset % QSI_BODY_ALIGNMENT == 0);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        QS_CHECK(get(fixture, &refs[i], i, NULL) == QS_OK);
        QS_CHECK(qsi_message_store_check(fixture->messages, &refs[i], NULL) == QS_OK);
    }
    QS_CHECK(commit(fixture, NULL) == QS_OK);
}

MESSAGES_TEST(test_full_file_is_followed_by_the_next)
{
    struct qsi_body_ref refs[20];

    for (uint32_t i = 0; i < 20; i++) {
        refs[i] = put(fixture, 10000, i);
    }
    QS_CHECK(refs[5].file == 1 && refs[5].slot == 5);
    QS_CHECK(refs[6].file == 2 && refs[6].slot == 0);
    QS_CHECK(refs[6].offset == QSI_MESSAGE_HEADER_BYTES);
    QS_CHECK(refs[19].file == 4);
    for (uint32_t i = 0; i < 20; i++) {
        QS_CHECK(get(fixture, &refs[i], i, NULL) == QS_OK);
    }
    QS_CHECK(qsi_message_store_bytes_written(fixture->messages) == 20 * 10240);
    QS_CHECK(commit(fixture, NULL) == QS_OK);
}

MESSAGES_TEST(test_record_larger_than_a_file_gets_a_file_of_its_own)
{
    struct qsi_body_ref large;
    struct qsi_body_ref behind;
    struct qsi_body_ref small = put(fixture, 5000, 1);

    large = put(fixture, 200000, 2);
    behind = put(fixture, 5000, 3);
    QS_CHECK(small.file == 1 && large.file == 2 && behind.file == 1);
    QS_CHECK(file_bytes(fixture, 2) == qsi_body_ref_end(&large));
    QS_CHECK(commit(fixture, NULL) == QS_OK);
    QS_CHECK(get(fixture, &large, 2, NULL) == QS_OK);
    restart(fixture);
    QS_CHECK(get(fixture, &large, 2, NULL) == QS_OK);
    QS_CHECK(qsi_message_store_check(fixture->messages, &large, NULL) == QS_OK);
    QS_CHECK(get(fixture, &behind, 3, NULL) == QS_OK);
}

MESSAGES_TEST(test_places_are_disjoint_and_may_be_written_in_any_order)
{
    static uint8_t data[3][1024];
    struct qsi_place places[3];
    struct qsi_body_ref refs[3];

    for (uint32_t i = 0; i < 3; i++) {
        QS_CHECK(qsi_message_store_reserve(fixture->messages, ENVELOPE_BYTES, 1000, &places[i],
                                           NULL) == QS_OK);
        QS_CHECK(places[i].slot == i);
        QS_CHECK(i == 0 || places[i].offset > places[i - 1].offset + 1000);
    }
    for (uint32_t i = 3; i-- > 0;) {
        const qs_part part = {data[i], ENVELOPE_BYTES + 1000};

        fill_message(data[i], 1000, i);
        QS_CHECK(qsi_message_store_write(fixture->messages, &places[i], &part, 1, &refs[i], NULL) ==
                 QS_OK);
    }
    qsi_message_store_mark(fixture->messages, &places[2]);
    qsi_message_store_abandon(fixture->messages, &places[1]);
    qsi_message_store_abandon(fixture->messages, &places[1]);
    qsi_message_store_mark(fixture->messages, &places[0]);
    for (uint32_t i = 0; i < 3; i++) {
        QS_CHECK(get(fixture, &refs[i], i, NULL) == QS_OK);
    }
    QS_CHECK(commit(fixture, NULL) == QS_OK);
}

MESSAGES_TEST(test_set_holds_each_file_marked_since_the_last_one)
{
    struct qsi_dirty_set set;

    qsi_message_store_dirty_take(fixture->messages, &set);
    QS_CHECK(set.count == 0 && set.first == NULL);
    QS_CHECK(qsi_message_store_sync(fixture->messages, &set, NULL) == QS_OK);
    for (uint32_t i = 0; i < 8; i++) {
        put(fixture, 10000, i);
    }
    qsi_message_store_dirty_take(fixture->messages, &set);
    QS_CHECK(set.count == 2);
    put(fixture, 100, 9); /* while the set is out */
    QS_CHECK(qsi_message_store_sync(fixture->messages, &set, NULL) == QS_OK);
    QS_CHECK(set.count == 0);
    qsi_message_store_dirty_take(fixture->messages, &set);
    QS_CHECK(set.count == 1);
    qsi_message_store_release(fixture->messages, &set);
    qsi_message_store_dirty_take(fixture->messages, &set);
    QS_CHECK(set.count == 0);
}

MESSAGES_TEST(test_reopened_store_never_writes_to_an_old_file)
{
    struct qsi_body_ref old = put(fixture, 100, 1);

    QS_CHECK(commit(fixture, NULL) == QS_OK);
    restart(fixture);
    QS_CHECK(put(fixture, 100, 2).file == 2);
    QS_CHECK(commit(fixture, NULL) == QS_OK);
    QS_CHECK(get(fixture, &old, 1, NULL) == QS_OK);
    create_file(fixture, "0000000041.msg"); /* a leftover without even a header */
    restart(fixture);
    QS_CHECK(put(fixture, 100, 3).file == 42);
    QS_CHECK(commit(fixture, NULL) == QS_OK);
}

MESSAGES_TEST(test_recovery_cuts_tails_removes_the_rest_and_leaves_strangers_alone)
{
    static const char *const strangers[] = {
        "1.msg",           "0000000000.msg", "0000000002.msg.tmp",
        "00000000002.msg", "9999999999.msg", "notes"};
    struct qsi_body_ref refs[14];
    qs_file *file;

    for (uint32_t i = 0; i < 14; i++) {
        refs[i] = put(fixture, 10000, i);
    }
    QS_CHECK(commit(fixture, NULL) == QS_OK);
    for (size_t i = 0; i < sizeof strangers / sizeof strangers[0]; i++) {
        create_file(fixture, strangers[i]);
    }
    restart(fixture);
    QS_CHECK(get(fixture, &refs[3], 3, NULL) == QS_OK); /* its handle stays open over the cut */
    note_and_add(fixture, &refs[12], 1);
    note_and_add(fixture, &refs[3], 1);
    note_and_add(fixture, &refs[1], 1); /* of the same file, and not its end */
    QS_CHECK_OK(try_finish(fixture, QS_ERROR));
    QS_CHECK(file_bytes(fixture, 1) == qsi_body_ref_end(&refs[3]));
    QS_CHECK(!exists(fixture, 2));
    QS_CHECK(file_bytes(fixture, 3) == qsi_body_ref_end(&refs[12]));
    QS_CHECK(get(fixture, &refs[3], 3, NULL) == QS_OK);
    QS_CHECK(get(fixture, &refs[12], 12, NULL) == QS_OK);
    QS_CHECK(get(fixture, &refs[4], 4, NULL) == QS_ECORRUPT);
    QS_CHECK(get(fixture, &refs[6], 6, NULL) == QS_ECORRUPT);
    QS_CHECK(put(fixture, 100, 1).file == 4);
    QS_CHECK(commit(fixture, NULL) == QS_OK);
    for (size_t i = 0; i < sizeof strangers / sizeof strangers[0]; i++) {
        QS_CHECK(fixture->env->open(fixture->env, fixture->dir, strangers[i], QS_OPEN_READ, &file,
                                    NULL) == QS_OK);
        fixture->env->close(fixture->env, file);
    }
}

MESSAGES_TEST(test_maintenance_makes_the_next_file_and_settles_full_ones)
{
    struct qsi_body_ref last;

    QS_CHECK(!qsi_message_store_needs_maintenance(fixture->messages));
    QS_CHECK(qsi_message_store_maintain(fixture->messages, NULL) == QS_OK);
    QS_CHECK(!exists(fixture, 1));
    put(fixture, 10000, 1);
    QS_CHECK(!qsi_message_store_needs_maintenance(fixture->messages));
    put(fixture, 40000, 2);
    QS_CHECK(qsi_message_store_needs_maintenance(fixture->messages));
    QS_CHECK(qsi_message_store_maintain(fixture->messages, NULL) == QS_OK);
    QS_CHECK(exists(fixture, 2));
    QS_CHECK(!qsi_message_store_needs_maintenance(fixture->messages));
    QS_CHECK(put(fixture, 40000, 3).file == 2);
    QS_CHECK(file_bytes(fixture, 1) == 65536);
    QS_CHECK(commit(fixture, NULL) == QS_OK);
    QS_CHECK(qsi_message_store_maintain(fixture->messages, NULL) == QS_OK);
    QS_CHECK(file_bytes(fixture, 1) == QSI_MESSAGE_HEADER_BYTES + 10240 + 40448);
    QS_CHECK(exists(fixture, 3));
    last = put(fixture, 10000, 4);
    QS_CHECK(commit(fixture, NULL) == QS_OK);
    QS_CHECK(qsi_message_store_settle(fixture->messages, NULL) == QS_OK);
    QS_CHECK(!exists(fixture, 3)); /* made ahead and not used */
    QS_CHECK(file_bytes(fixture, 2) == qsi_body_ref_end(&last));
    QS_CHECK(get(fixture, &last, 4, NULL) == QS_OK);
    QS_CHECK(put(fixture, 100, 5).file == 4);
    QS_CHECK(commit(fixture, NULL) == QS_OK);
}

MESSAGES_TEST(test_full_file_with_unsynced_bodies_is_not_settled)
{
    struct qsi_dirty_set set;
    struct qsi_place place;

    put(fixture, 40000, 1);
    QS_CHECK(qsi_message_store_reserve(fixture->messages, 0, 10, &place, NULL) == QS_OK);
    put(fixture, 40000, 2);
    QS_CHECK(qsi_message_store_maintain(fixture->messages, NULL) == QS_OK);
    QS_CHECK(file_bytes(fixture, 1) == 65536);
    qsi_message_store_dirty_take(fixture->messages, &set);
    QS_CHECK(qsi_message_store_maintain(fixture->messages, NULL) == QS_OK);
    QS_CHECK(file_bytes(fixture, 1) == 65536);
    QS_CHECK(qsi_message_store_sync(fixture->messages, &set, NULL) == QS_OK);
    QS_CHECK(qsi_message_store_maintain(fixture->messages, NULL) == QS_OK);
    QS_CHECK(file_bytes(fixture, 1) == 65536); /* the place is still open */
    qsi_message_store_abandon(fixture->messages, &place);
    QS_CHECK(qsi_message_store_maintain(fixture->messages, NULL) == QS_OK);
    QS_CHECK(file_bytes(fixture, 1) < 65536);
}

MESSAGES_TEST(test_removed_file_is_gone_and_its_number_not_used_again)
{
    struct checkpoint checkpoint = {0};
    struct qsi_body_ref refs[8];
    qs_error error;

    for (uint32_t i = 0; i < 8; i++) {
        refs[i] = put_counted(fixture, 10000, i, 1);
    }
    QS_CHECK(commit(fixture, NULL) == QS_OK);
    QS_CHECK(qsi_message_store_maintain(fixture->messages, NULL) == QS_OK);
    QS_CHECK(get(fixture, &refs[0], 0, NULL) == QS_OK);
    for (uint32_t i = 0; i < 8; i++) {
        if (refs[i].file == 1) {
            drop(fixture, &refs[i]);
        }
    }
    take_checkpoint(fixture, &checkpoint);
    QS_CHECK(!exists(fixture, 1));
    QS_CHECK(get(fixture, &refs[0], 0, &error) == QS_ECORRUPT);
    QS_CHECK(strcmp(error.path, "messages/0000000001.msg") == 0);
    QS_CHECK(get(fixture, &refs[7], 7, NULL) == QS_OK);
    qsi_buf_fini(&checkpoint.records);
}

#define WRITER_COUNT 4
#define BODIES_PER_WRITER 200

struct shared {
    struct fixture *fixture;
    pthread_mutex_t owner; /* what the engine's lock is */
    int writers_left;
};

struct writer {
    struct shared *shared;
    uint32_t first_number;
};

static void write_one(struct shared *shared, uint32_t number)
{
    uint8_t data[3000 + ENVELOPE_BYTES];
    uint8_t back[QSI_BODY_HEADER_BYTES + sizeof data];
    uint32_t body_bytes = 1000 + number % 2000;
    const qs_part part = {data, ENVELOPE_BYTES + body_bytes};
    struct qsi_message_store *store = shared->fixture->messages;
    struct qsi_place place;
    struct qsi_body_ref ref;

    fill_message(data, body_bytes, number);
    pthread_mutex_lock(&shared->owner);
    QS_CHECK(qsi_message_store_reserve(store, ENVELOPE_BYTES, body_bytes, &place, NULL) == QS_OK);
    pthread_mutex_unlock(&shared->owner);
    QS_CHECK(qsi_message_store_write(store, &place, &part, 1, &ref, NULL) == QS_OK);
    pthread_mutex_lock(&shared->owner);
    qsi_message_store_mark(store, &place);
    pthread_mutex_unlock(&shared->owner);
    QS_CHECK(qsi_message_store_read(store, &ref, back, NULL) == QS_OK);
    QS_CHECK(memcmp(back + QSI_BODY_HEADER_BYTES, data, part.bytes) == 0);
}

static void *run_writer(void *context)
{
    struct writer *writer = context;

    for (uint32_t i = 0; i < BODIES_PER_WRITER; i++) {
        write_one(writer->shared, writer->first_number + i);
    }
    pthread_mutex_lock(&writer->shared->owner);
    writer->shared->writers_left--;
    pthread_mutex_unlock(&writer->shared->owner);
    return NULL;
}

/* The committer and the maintainer in one. */
static void commit_until_done(struct shared *shared)
{
    struct qsi_message_store *store = shared->fixture->messages;
    bool done = false;

    while (!done) {
        struct qsi_dirty_set set;

        pthread_mutex_lock(&shared->owner);
        done = shared->writers_left == 0;
        qsi_message_store_dirty_take(store, &set);
        pthread_mutex_unlock(&shared->owner);
        QS_CHECK(qsi_message_store_sync(store, &set, NULL) == QS_OK);
        QS_CHECK(qsi_message_store_maintain(store, NULL) == QS_OK);
    }
}

MESSAGES_TEST(test_threads_write_read_commit_and_maintain_at_once)
{
    struct shared shared = {.fixture = fixture, .writers_left = WRITER_COUNT};
    struct writer writers[WRITER_COUNT];
    pthread_t threads[WRITER_COUNT];

    pthread_mutex_init(&shared.owner, NULL);
    for (uint32_t i = 0; i < WRITER_COUNT; i++) {
        writers[i] = (struct writer){&shared, i * BODIES_PER_WRITER};
        QS_CHECK(pthread_create(&threads[i], NULL, run_writer, &writers[i]) == 0);
    }
    commit_until_done(&shared);
    for (uint32_t i = 0; i < WRITER_COUNT; i++) {
        pthread_join(threads[i], NULL);
    }
    pthread_mutex_destroy(&shared.owner);
    QS_CHECK(qsi_message_store_settle(fixture->messages, NULL) == QS_OK);
}
