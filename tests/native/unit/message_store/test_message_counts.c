/* Reference counts, checkpoints and giving files back.
 *
 * Method: files of 64 KiB with six bodies each; a checkpoint is a buffer, and recovery is a store
 * opened again with its records, and with references noted as a replay would. */
#include "counts_fixture.h"

#define BODY 10000u /* six fit a file */

MESSAGES_TEST(test_file_is_dead_when_nothing_counts_and_goes_with_a_durable_checkpoint)
{
    struct checkpoint checkpoint = {0};
    struct qsi_body_ref refs[8];

    for (uint32_t i = 0; i < 8; i++) {
        refs[i] = put_counted(fixture, BODY, i, 2);
    }
    qsi_message_store_add_refs(fixture->messages, &refs[0], 0, 3);
    QS_CHECK(commit(fixture, NULL) == QS_OK);
    QS_CHECK(space_of(fixture).live_bytes == 8 * qsi_body_packed_bytes(&refs[0]));
    QS_CHECK(space_of(fixture).file_count == 2 && space_of(fixture).doomed_bytes == 0);
    for (uint32_t i = 0; i < 6; i++) {
        drop(fixture, &refs[i]);
        drop(fixture, &refs[i]);
    }
    take_checkpoint(fixture, &checkpoint);
    QS_CHECK(checkpoint.count == 1); /* transient references are not recorded, and keep the file */
    QS_CHECK(exists(fixture, 1));
    for (uint32_t i = 0; i < 3; i++) {
        QS_CHECK(space_of(fixture).doomed_bytes == 0);
        qsi_message_store_drop_ref(fixture->messages, &refs[0], true);
    }
    QS_CHECK(space_of(fixture).doomed_bytes == 65536 && space_of(fixture).file_count == 1);
    QS_CHECK(get(fixture, &refs[3], 3, NULL) == QS_OK); /* doomed, and readable */
    QS_CHECK_OK(try_snapshot(fixture, &checkpoint, QS_ERROR));
    QS_CHECK(exists(fixture, 1));
    QS_CHECK_OK(qsi_message_store_unseal(fixture->messages, false, QS_ERROR));
    QS_CHECK(exists(fixture, 1) && space_of(fixture).doomed_bytes == 65536);
    take_checkpoint(fixture, &checkpoint);
    QS_CHECK(!exists(fixture, 1) && space_of(fixture).doomed_bytes == 0);
    QS_CHECK(get(fixture, &refs[3], 3, NULL) == QS_ECORRUPT);
    drop(fixture, &refs[3]); /* of a file that is gone: ignored */
    qsi_message_store_add_refs(fixture->messages, &refs[3], 1, 1);
    QS_CHECK(get(fixture, &refs[7], 7, NULL) == QS_OK);
    qsi_buf_fini(&checkpoint.records);
}

/* Sealed is what is dead when the checkpoint is taken: what dies later may be named by it. */
MESSAGES_TEST(test_file_that_dies_after_the_snapshot_waits_for_the_next)
{
    struct checkpoint checkpoint = {0};
    struct qsi_body_ref ref = put_counted(fixture, BODY, 1, 1);

    settle_all(fixture);
    QS_CHECK_OK(try_snapshot(fixture, &checkpoint, QS_ERROR));
    drop(fixture, &ref);
    QS_CHECK_OK(qsi_message_store_unseal(fixture->messages, true, QS_ERROR));
    QS_CHECK(exists(fixture, 1));
    take_checkpoint(fixture, &checkpoint);
    QS_CHECK(!exists(fixture, 1) && checkpoint.count == 0);
    qsi_buf_fini(&checkpoint.records);
}

MESSAGES_TEST(test_open_places_and_unsynced_bodies_keep_their_file)
{
    struct checkpoint checkpoint = {0};
    struct qsi_place place;
    struct qsi_place large;

    QS_CHECK(qsi_message_store_reserve(fixture->messages, 0, 40000, &place, NULL) == QS_OK);
    QS_CHECK(qsi_message_store_reserve(fixture->messages, 0, 100000, &large, NULL) == QS_OK);
    put_counted(fixture, 40000, 1, 1);
    take_checkpoint(fixture, &checkpoint);
    QS_CHECK(exists(fixture, 1) && exists(fixture, 2));
    qsi_message_store_abandon(fixture->messages, &place);
    qsi_message_store_abandon(fixture->messages, &large);
    take_checkpoint(fixture, &checkpoint);
    QS_CHECK(!exists(fixture, 1) && !exists(fixture, 2) && exists(fixture, 3));
    put(fixture, 40000, 2); /* a new file; nobody refers to the body, and a commit is to come */
    put_counted(fixture, 40000, 2, 1);
    take_checkpoint(fixture, &checkpoint);
    QS_CHECK(exists(fixture, 4));
    QS_CHECK(commit(fixture, NULL) == QS_OK);
    take_checkpoint(fixture, &checkpoint);
    QS_CHECK(!exists(fixture, 4) && exists(fixture, 3) && exists(fixture, 5));
    qsi_buf_fini(&checkpoint.records);
}

QS_TEST(test_counts_come_back_from_a_checkpoint_byte_for_byte)
{
    qs_env *env = qsi_env_mem_create(1);
    struct checkpoint before = {0};
    struct checkpoint cached = {0};
    struct checkpoint after = {0};
    struct fixture fixture;
    struct qsi_body_ref refs[6];
    struct qsi_message_space space;

    start(&fixture, env);
    for (uint32_t i = 0; i < 6; i++) {
        refs[i] = put_counted(&fixture, BODY, i, i % 3 * 20000);
    }
    settle_all(&fixture);
    take_checkpoint(&fixture, &before);
    take_checkpoint(&fixture, &cached);
    QS_CHECK(before.count == 1 && before.records.bytes == cached.records.bytes);
    QS_CHECK(memcmp(before.records.data, cached.records.data, before.records.bytes) == 0);
    space = space_of(&fixture);
    recover_from(&fixture, &before);
    QS_CHECK(memcmp(&space, &(struct qsi_message_space){1, space.live_bytes, space.total_bytes, 0},
                    sizeof space) == 0);
    QS_CHECK(space_of(&fixture).live_bytes == space.live_bytes);
    QS_CHECK(space_of(&fixture).total_bytes == space.total_bytes);
    take_checkpoint(&fixture, &after);
    QS_CHECK(after.records.bytes == before.records.bytes);
    QS_CHECK(memcmp(after.records.data, before.records.data, before.records.bytes) == 0);
    for (uint32_t i = 0; i < 6; i++) {
        QS_CHECK(get(&fixture, &refs[i], i, NULL) == QS_OK);
        for (uint32_t k = 0; k < i % 3 * 20000; k++) {
            QS_CHECK(space_of(&fixture).file_count == 1);
            drop(&fixture, &refs[i]);
        }
    }
    QS_CHECK(space_of(&fixture).file_count == 0 && space_of(&fixture).doomed_bytes > 0);
    take_checkpoint(&fixture, &after);
    QS_CHECK(after.count == 0 && !exists(&fixture, 1));
    stop(&fixture);
    qsi_buf_fini(&before.records);
    qsi_buf_fini(&cached.records);
    qsi_buf_fini(&after.records);
    qsi_env_mem_destroy(env);
}

MESSAGES_TEST(test_too_many_references_keep_a_body_for_good)
{
    struct qsi_body_ref refs[2];

    refs[0] = put_counted(fixture, BODY, 0, QSI_BODY_REFS_MAX);
    refs[1] = put_counted(fixture, BODY, 1, QSI_BODY_REFS_MAX);
    qsi_message_store_add_refs(fixture->messages, &refs[0], UINT32_MAX, UINT32_MAX);
    for (uint32_t i = 0; i < 70000; i++) {
        drop(fixture, &refs[0]);
        drop(fixture, &refs[1]);
        qsi_message_store_drop_ref(fixture->messages, &refs[0], true);
    }
    QS_CHECK(space_of(fixture).live_bytes == qsi_body_packed_bytes(&refs[0]));
    QS_CHECK(commit(fixture, NULL) == QS_OK);
}

/* ---- recovery ---- */

QS_TEST(test_replay_repeats_what_the_journal_behind_the_checkpoint_says)
{
    qs_env *env = qsi_env_mem_create(1);
    struct checkpoint checkpoint = {0};
    struct checkpoint again = {0};
    struct fixture fixture;
    struct qsi_body_ref refs[20];

    start(&fixture, env);
    for (uint32_t i = 0; i < 10; i++) {
        refs[i] = put_counted(&fixture, BODY, i, 1);
    }
    QS_CHECK(commit(&fixture, NULL) == QS_OK);
    take_checkpoint(&fixture, &checkpoint);
    for (uint32_t i = 10; i < 20; i++) {
        refs[i] = put_counted(&fixture, BODY, i, 1);
    }
    QS_CHECK(commit(&fixture, NULL) == QS_OK);
    for (int round = 0; round < 2; round++) { /* a second recovery from the same */
        restart(&fixture);
        QS_CHECK_OK(try_restore(&fixture, &checkpoint, QS_ERROR));
        for (uint32_t i = 10; i < 20; i++) {
            note_and_add(&fixture, &refs[i], 1);
        }
        for (uint32_t i = 0; i < 20; i++) {
            if (i < 6 || i >= 18 || i == 15 || i == 17) { /* all of files 1 and 4 */
                drop(&fixture, &refs[i]);
            }
        }
        QS_CHECK_OK(qsi_message_store_retain_counted(fixture.messages, QSI_RETAIN, QS_ERROR));
        QS_CHECK(round == 1 || (exists(&fixture, 1) && exists(&fixture, 4)));
        QS_CHECK_OK(qsi_message_store_trim_counted(fixture.messages, QS_ERROR));
        QS_CHECK(!exists(&fixture, 1) && !exists(&fixture, 4));
        /* Cut behind the last record that the journal names, dead or not. */
        QS_CHECK(file_bytes(&fixture, 3) == qsi_body_ref_end(&refs[17]));
        for (uint32_t i = 6; i < 15; i++) {
            QS_CHECK(get(&fixture, &refs[i], i, NULL) == QS_OK);
        }
    }
    take_checkpoint(&fixture, &again);
    QS_CHECK(again.count == 2);
    recover_from(&fixture, &again);
    QS_CHECK(space_of(&fixture).live_bytes == 10 * qsi_body_packed_bytes(&refs[0]));
    QS_CHECK(put(&fixture, BODY, 1).file ==
             4); /* names of the last session's files are forgotten */
    QS_CHECK(commit(&fixture, NULL) == QS_OK);
    stop(&fixture);
    qsi_buf_fini(&checkpoint.records);
    qsi_buf_fini(&again.records);
    qsi_env_mem_destroy(env);
}

MESSAGES_TEST(test_number_that_the_journal_names_is_not_used_again)
{
    struct qsi_body_ref ref;

    put(fixture, BODY, 1);
    QS_CHECK(commit(fixture, NULL) == QS_OK);
    restart(fixture);
    ref = (struct qsi_body_ref){.file = 41, .offset = 4096, .body_bytes = BODY};
    note_and_add(fixture, &ref, 1);
    drop(fixture, &ref);
    QS_CHECK_OK(try_finish(fixture, QS_ERROR));
    QS_CHECK(put(fixture, BODY, 1).file == 42);
    QS_CHECK(commit(fixture, NULL) == QS_OK);
}

static void check_refused(struct fixture *fixture, const char *path)
{
    QS_CHECK_STATUS(QS_ECORRUPT,
                    qsi_message_store_retain_counted(fixture->messages, QSI_RETAIN, QS_ERROR));
    QS_CHECK(strcmp(qs_test_error.path, path) == 0);
}

MESSAGES_TEST(test_missing_short_and_foreign_files_are_refused_only_when_needed)
{
    struct checkpoint checkpoint = {0};
    uint8_t header[QSI_MESSAGE_HEADER_BYTES];
    struct qsi_body_ref bad[4];
    struct qsi_body_ref ref = put_counted(fixture, BODY, 1, 1);

    settle_all(fixture);
    take_checkpoint(fixture, &checkpoint);
    bad[0] = (struct qsi_body_ref){.file = 9, .slot = 3, .offset = 40960, .body_bytes = 10};
    bad[1] = ref; /* behind the end */
    bad[1].slot = 1;
    bad[1].offset = 20480;
    bad[2] = ref; /* a slot that the offset contradicts, and one that the file is too small for */
    bad[2].slot = 2000000000;
    bad[3] = bad[2];
    bad[3].offset = UINT64_C(1) << 50;
    for (int i = 0; i < 4; i++) {
        for (int dropped = 0; dropped < 2; dropped++) {
            bool reaches = i == 1 || i == 3; /* these say that the file goes on */

            restart(fixture);
            QS_CHECK_OK(try_restore(fixture, &checkpoint, QS_ERROR));
            note_and_add(fixture, &bad[i], 2);
            drop(fixture, &bad[i]);
            if (dropped == 1) {
                drop(fixture, &bad[i]);
            }
            if (dropped == 0 || reaches) {
                check_refused(fixture,
                              i == 0 ? "messages/0000000009.msg" : "messages/0000000001.msg");
            } else {
                QS_CHECK_OK(try_finish(fixture, QS_ERROR));
            }
        }
    }
    qsi_message_header_encode(header, 1, test_uuid, 4711);
    overwrite(fixture, "0000000001.msg", 0, header, sizeof header);
    restart(fixture);
    QS_CHECK_OK(try_restore(fixture, &checkpoint, QS_ERROR));
    check_refused(fixture, "messages/0000000001.msg");
    restart(fixture);
    QS_CHECK_OK(try_restore(fixture, &checkpoint, QS_ERROR));
    drop(fixture, &ref);
    QS_CHECK_OK(try_finish(fixture, QS_ERROR)); /* damaged, and nobody needs it */
    QS_CHECK(!exists(fixture, 1));
    qsi_buf_fini(&checkpoint.records);
}

/* Earlier versions cut files behind the last live record, although the journal named more. */
MESSAGES_TEST(test_file_that_was_cut_behind_its_live_records_is_accepted)
{
    struct qsi_body_ref refs[4];

    for (uint32_t i = 0; i < 4; i++) {
        refs[i] = put(fixture, BODY, i);
    }
    QS_CHECK(commit(fixture, NULL) == QS_OK);
    restart(fixture);
    note_and_add(fixture, &refs[1], 1);
    QS_CHECK_OK(try_finish(fixture, QS_ERROR));
    for (int live = 0; live < 3; live++) {
        restart(fixture);
        for (int i = 0; i < 4; i++) {
            note_and_add(fixture, &refs[i], 1);
            if (i != live) {
                drop(fixture, &refs[i]);
            }
        }
        if (live == 2) {
            check_refused(fixture, "messages/0000000001.msg");
        } else {
            QS_CHECK_OK(try_finish(fixture, QS_ERROR));
            QS_CHECK_OK(get(fixture, &refs[live], (uint32_t)live, QS_ERROR));
            QS_CHECK(file_bytes(fixture, 1) == qsi_body_ref_end(&refs[1]));
        }
    }
}

MESSAGES_TEST(test_salvage_takes_everything_and_removes_nothing)
{
    struct checkpoint checkpoint = {0};
    struct qsi_body_ref refs[8];
    struct qsi_body_ref missing = {.file = 9, .slot = 3, .offset = 40960, .body_bytes = 10};

    for (uint32_t i = 0; i < 8; i++) {
        refs[i] = put_counted(fixture, BODY, i, 1);
    }
    QS_CHECK(commit(fixture, NULL) == QS_OK);
    restart(fixture);
    note_and_add(fixture, &refs[7], 1);
    note_and_add(fixture, &missing, 1);
    QS_CHECK_OK(qsi_message_store_retain_counted(fixture->messages, QSI_RETAIN_SALVAGE, QS_ERROR));
    QS_CHECK_OK(qsi_message_store_trim_counted(fixture->messages, QS_ERROR));
    take_checkpoint(fixture, &checkpoint);
    QS_CHECK(checkpoint.count == 1);
    QS_CHECK(file_bytes(fixture, 1) == 65536 && file_bytes(fixture, 2) == 65536);
    QS_CHECK(get(fixture, &refs[7], 7, NULL) == QS_OK);
    recover_from(fixture, &checkpoint);
    QS_CHECK(!exists(fixture, 1));
    QS_CHECK(file_bytes(fixture, 2) == qsi_body_ref_end(&refs[7]));
    QS_CHECK(get(fixture, &refs[7], 7, NULL) == QS_OK);
    qsi_buf_fini(&checkpoint.records);
}

/* Any bytes: an error or a store that can go on, and no memory that the files do not justify. */
QS_TEST(test_damaged_records_are_refused_or_harmless)
{
    qs_env *env = qsi_env_mem_create(1);
    struct checkpoint checkpoint = {0};
    struct fixture fixture;
    uint8_t record[256];
    size_t bytes;

    srand(5);
    start(&fixture, env);
    for (uint32_t i = 0; i < 6; i++) {
        put_counted(&fixture, BODY, i, i);
    }
    settle_all(&fixture);
    take_checkpoint(&fixture, &checkpoint);
    bytes = checkpoint.records.bytes;
    QS_CHECK(checkpoint.count == 1 && bytes < sizeof record);
    for (int round = 0; round < 20000; round++) {
        memcpy(record, checkpoint.records.data, bytes);
        for (int k = 0; k < 1 + round % 3; k++) {
            record[4 + rand() % (int)(bytes - 4)] ^= (uint8_t)(1 << rand() % 8);
        }
        restart(&fixture);
        if (qsi_message_store_restore(fixture.messages, record, NULL) == QS_OK) {
            qs_status status = qsi_message_store_retain_counted(fixture.messages, QSI_RETAIN, NULL);

            QS_CHECK(status == QS_OK || status == QS_ECORRUPT);
        }
    }
    stop(&fixture);
    qsi_buf_fini(&checkpoint.records);
    qsi_env_mem_destroy(env);
}
