/* Index segments as files: writers one after another, rewriting, names, syncs, a real disk.
 *
 * Method: as in test_segment.c. */
#include "qs_test_dirs.h"
#include "segment_fixture.h"

QS_TEST(test_later_writer_leaves_earlier_slots_and_pages_alone)
{
    struct fixture fixture;
    uint8_t before[8192];
    uint8_t after[8192];
    struct qsi_segment_file file;
    uint64_t slots_at = qsi_segment_slots_at(64);

    start_in_memory(&fixture, 64);
    model_init(&model, 64, 1, 0);
    for (uint32_t i = 0; i < 64; i += 2) {
        model.messages[i] = small(i);
    }
    write_model(&fixture, &model, 0, 20, false);
    file = model.file;
    QS_CHECK(file.heap_end % 4096 != 0);
    QS_CHECK(read_at(&fixture, &file, slots_at, before, 20 * 32) == 20 * 32);
    QS_CHECK(read_at(&fixture, &file, file.heap_end - 1000, before + 4096, 1000) == 1000);
    write_model(&fixture, &model, 20, 64, true);
    QS_CHECK(read_at(&fixture, &file, slots_at, after, 20 * 32) == 20 * 32);
    QS_CHECK(read_at(&fixture, &file, file.heap_end - 1000, after + 4096, 4096) == 4096);
    QS_CHECK(memcmp(before, after, 20 * 32) == 0 && memcmp(before + 4096, after + 4096, 1000) == 0);
    /* The rest of the page is as it was: nothing. */
    for (uint64_t i = file.heap_end; i % 4096 != 0; i++) {
        QS_CHECK(after[4096 + 1000 + (i - file.heap_end)] == 0);
    }
    check_all(&fixture, &model, model.put, UINT64_MAX);
    /* What is settled between two slots may have been garbage. */
    memset(after, 0xff, sizeof after);
    overwrite(&fixture, &model.file, slots_at + 62 * 32 + 32, after, 32);
    QS_CHECK(!qsi_bitmap_has(model.put, 63));
    QS_CHECK_OK(qsi_segment_check(fixture.index, &model.file, model.put, QS_ERROR));
    stop_in_memory(&fixture);
}

INDEX_TEST(test_aligned_writer_without_bodies_moves_nothing)
{
    uint64_t heap_end;

    model_init(&model, 16, 1, 0);
    model.messages[0] = small(0);
    model.messages[1] = (struct message){.kind = STORED, .seed = 9};
    write_model(fixture, &model, 0, 1, true);
    heap_end = model.file.heap_end;
    QS_CHECK(heap_end % 4096 != 0);
    write_model(fixture, &model, 1, 2, true);
    write_model(fixture, &model, 2, 2, true);
    QS_CHECK(model.file.heap_end == heap_end);
    check_all(fixture, &model, model.put, UINT64_MAX);
}

INDEX_TEST(test_segment_of_references_alone)
{
    model_init(&model, 16, 1, 0);
    model.messages[5] = (struct message){.kind = STORED, .seed = 9};
    model.messages[7] = (struct message){.kind = STORED, .seed = 11};
    write_model(fixture, &model, 0, 16, false);
    check_all(fixture, &model, model.put, UINT64_MAX);
    QS_CHECK_OK(qsi_segment_check(fixture->index, &model.file, NULL, QS_ERROR));
}

INDEX_TEST(test_abandoned_writer_leaves_what_was_there)
{
    struct qsi_segment_writer *writer;
    struct qsi_segment_file before;

    model_init(&model, 16, 1, 0);
    before = model.file;
    QS_CHECK_OK(qsi_segment_writer_begin(&writer, fixture->index, &model.file, false, QS_ERROR));
    QS_CHECK(model.file.heap_end > 0 && model.file.slot_count == 16);
    QS_CHECK_OK(try_put(writer, 2, &(struct message){.kind = EMBEDDED}, QS_ERROR));
    qsi_segment_writer_abandon(writer);
    QS_CHECK(memcmp(&before, &model.file, sizeof before) == 0 && !exists(fixture, &model.file));
    model.messages[1] = small(1);
    write_model(fixture, &model, 0, 4, false);
    before = model.file;
    QS_CHECK_OK(qsi_segment_writer_begin(&writer, fixture->index, &model.file, false, QS_ERROR));
    QS_CHECK_OK(try_put(writer, 2, &(struct message){.kind = EMBEDDED}, QS_ERROR));
    qsi_segment_writer_abandon(writer);
    qsi_segment_writer_abandon(NULL);
    QS_CHECK(memcmp(&before, &model.file, sizeof before) == 0);
    check_all(fixture, &model, model.put, UINT64_MAX);
}

INDEX_TEST(test_name_that_a_crash_left_is_taken_over)
{
    struct qsi_segment_file forgotten;

    model_init(&model, 16, 1, 0);
    model.messages[1] = small(1);
    write_model(fixture, &model, 0, 4, false);
    forgotten = model.file;
    model_init(&model, 16, 1, 0);
    model.messages[2] = small(2);
    write_model(fixture, &model, 0, 4, false);
    QS_CHECK(forgotten.salt != model.file.salt);
    check_all(fixture, &model, model.put, UINT64_MAX);
    QS_CHECK_STATUS(QS_ECORRUPT, qsi_segment_check(fixture->index, &forgotten, NULL, QS_ERROR));
}

/* ---- references ---- */

struct visited {
    uint32_t count;
    uint64_t slots[WORDS_MAX];
};

static void note_visit(void *context, uint32_t slot, const struct qsi_body_ref *ref)
{
    struct visited *visited = context;
    struct qsi_body_ref expected = ref_of(&model.messages[slot]);

    QS_CHECK(model.messages[slot].kind == STORED && refs_equal(ref, &expected));
    QS_CHECK(!qsi_bitmap_has(visited->slots, slot));
    set_bit(visited->slots, slot);
    visited->count++;
}

QS_TEST(test_references_are_visited)
{
    struct fixture fixture;
    struct visited visited = {0};
    uint64_t none[4] = {0};
    uint32_t stored = 0;
    uint32_t embedded = 0;

    start_in_memory(&fixture, 256);
    model_init(&model, 256, 1, 8);
    fill_mixed(3);
    for (uint32_t i = 0; i < 256; i++) {
        stored += model.messages[i].kind == STORED;
        embedded = model.messages[i].kind == EMBEDDED ? i : embedded;
    }
    write_model(&fixture, &model, 0, 256, false);
    QS_CHECK_OK(qsi_segment_read_refs(fixture.index, &model.file, model.put, note_visit, &visited,
                                      QS_ERROR));
    QS_CHECK(visited.count == stored && stored > 20);
    QS_CHECK_OK(
        qsi_segment_read_refs(fixture.index, &model.file, none, note_visit, &visited, QS_ERROR));
    QS_CHECK(visited.count == stored);
    /* One slot is damaged: the others are visited all the same. */
    flip(&fixture, &model.file, qsi_segment_slots_at(256) + embedded * 32 + 9, 4);
    memset(&visited, 0, sizeof visited);
    QS_CHECK_STATUS(QS_ECORRUPT, qsi_segment_read_refs(fixture.index, &model.file, model.put,
                                                       note_visit, &visited, QS_ERROR));
    QS_CHECK(visited.count == stored);
    QS_CHECK(qs_test_error.offset == qsi_segment_slots_at(256) + embedded * 32);
    QS_CHECK(strstr(qs_test_error.text, "index/0000000000000001-000000000008-00000000.seg") !=
             NULL);
    stop_in_memory(&fixture);
}

/* ---- names and removal ---- */

QS_TEST(test_names_are_parsed_strictly)
{
    static const char *const bad[] = {
        "",
        "0000000000000007-000000000000-00000000.seg.tmp",
        "0000000000000007-000000000000-00000000.se",
        "0000000000000007-000000000000-0000000.seg",
        "000000000000007-000000000000-00000000.seg",
        "00000000000000007-000000000000-00000000.seg",
        "0000000000000007-0000000000000-00000000.seg",
        "0000000000000007-00000000000-00000000.seg",
        "000000000000000A-000000000000-00000000.seg",
        "0000000000000007-000000000000-100000000.seg",
        "0000000000000007_000000000000-00000000.seg",
        " 000000000000007-000000000000-00000000.seg",
        "0000000000000007--000000000000-00000000.seg",
    };
    const struct qsi_segment_file files[] = {
        {.queue_id = 7},
        {.queue_id = UINT64_MAX, .number = UINT64_MAX, .generation = UINT32_MAX},
        {.queue_id = 0xabc, .number = UINT64_C(0xfffffffffff0), .generation = 0x1f},
        {.number = UINT64_C(0x1000000000000)},
    };
    char text[QSI_SEGMENT_PATH_BYTES];
    struct qsi_segment_file file;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        QS_CHECK(!qsi_segment_name_parse(&file, bad[i]));
    }
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        qsi_segment_name(text, &files[i]);
        QS_CHECK(strlen(text) <= QS_NAME_BYTES_MAX && qsi_segment_name_parse(&file, text));
        QS_CHECK(file.queue_id == files[i].queue_id && file.number == files[i].number &&
                 file.generation == files[i].generation);
    }
    qsi_segment_path(text, &files[0]);
    QS_CHECK(strcmp(text, "index/0000000000000007-000000000000-00000000.seg") == 0);
}

static bool keep_odd(void *context, const struct qsi_segment_file *file)
{
    ++*(uint32_t *)context;
    QS_CHECK(file->generation == 0 && file->heap_end == 0);
    return file->number % 2 == 1;
}

INDEX_TEST(test_others_are_removed_and_strangers_are_not)
{
    struct qsi_segment_file files[10];
    uint32_t asked = 0;
    uint64_t removed;
    qs_file *stranger;

    for (uint32_t i = 0; i < 10; i++) {
        model_init(&model, 16, 5, i);
        model.messages[1] = small(i);
        write_model(fixture, &model, 0, 16, false);
        files[i] = model.file;
    }
    QS_CHECK_OK(fixture->env->open(fixture->env, fixture->dir, "stranger.seg",
                                   QS_OPEN_WRITE | QS_OPEN_CREATE_NEW, &stranger, QS_ERROR));
    fixture->env->close(fixture->env, stranger);
    QS_CHECK_OK(qsi_index_remove_others(fixture->index, keep_odd, &asked, &removed, QS_ERROR));
    QS_CHECK(asked == 15 && removed == 5); /* what is to go is asked about once more */
    for (uint32_t i = 0; i < 10; i++) {
        QS_CHECK(exists(fixture, &files[i]) == (i % 2 == 1));
    }
    QS_CHECK_OK(fixture->env->remove(fixture->env, fixture->dir, "stranger.seg", QS_ERROR));
    QS_CHECK_OK(qsi_segment_remove(fixture->index, &files[1], QS_ERROR));
    QS_CHECK_OK(qsi_segment_remove(fixture->index, &files[1], QS_ERROR));
    QS_CHECK(!exists(fixture, &files[1]));
    QS_CHECK_STATUS(QS_ECORRUPT, qsi_segment_check(fixture->index, &files[1], NULL, QS_ERROR));
    QS_CHECK(qsi_segment_disk_bytes(fixture->index, &(struct qsi_segment_file){0}) == 0);
    QS_CHECK(qsi_segment_disk_bytes(fixture->index, &files[3]) > 100);
    QS_CHECK(qsi_segment_disk_bytes(fixture->index, &files[3]) <= files[3].heap_end);
}

/* ---- rewriting ---- */

QS_TEST(test_packed_segment_without_state_lacks_what_is_settled)
{
    struct fixture fixture;
    struct qsi_segment_file to;

    start_in_memory(&fixture, 64);
    model_init(&model, 64, 9, 77);
    fill_mixed(1);
    write_model(&fixture, &model, 0, 64, false);
    QS_CHECK_OK(qsi_segment_rewrite(fixture.index, &model.file, model.put, NULL, &to, QS_ERROR));
    QS_CHECK(to.state_area == 0);
    settled[0] = ~model.put[0];
    seen[0] = 0;
    check_state(&fixture, &to, 64, false);
    stop_in_memory(&fixture);
}

INDEX_TEST(test_rewritten_damage_is_still_damage)
{
    uint64_t slots_at = qsi_segment_slots_at(16);
    uint64_t wanted[1] = {0xffff};
    struct qsi_segment_load load = {.from = 0, .to = 16, .wanted = wanted, .bytes_max = 1 << 20};

    model_init(&model, 16, 9, 77);
    for (uint32_t i = 0; i < 15; i++) {
        model.messages[i] = small(i);
    }
    model.messages[9] = (struct message){.kind = STORED, .seed = 5};
    write_model(fixture, &model, 0, 16, false); /* slot 15 was never written */
    flip(fixture, &model.file, slots_at + 3 * 32 + 10, 1);
    flip(fixture, &model.file, slots_at + 4 * 32 + 29, 128);
    flip(fixture, &model.file, slots_at + 9 * 32, 2);
    flip(fixture, &model.file, model.file.heap_end - 150, 8); /* in the body of 13 */
    for (uint32_t i = 0; i < 16; i++) {
        if (i == 3 || i == 4 || i == 9 || i == 13 || i == 15) {
            model.messages[i].kind = DAMAGED;
        }
    }
    for (int round = 0; round < 4; round++) {
        QS_CHECK_OK(qsi_segment_load(fixture->index, &model.file, &load, QS_ERROR));
        check_load(&model, &load, false);
        QS_CHECK(load.damaged_count == 5 && load.has_stored);
        load_fini(&load);
        QS_CHECK_STATUS(QS_ECORRUPT,
                        qsi_segment_check(fixture->index, &model.file, wanted, QS_ERROR));
        rewrite(fixture, wanted, false);
        QS_CHECK(model.file.slot_count == 16);
    }
}

INDEX_TEST(test_syncs)
{
    model_init(&model, 16, 9, 77);
    model.messages[0] = small(0);
    QS_CHECK_STATUS(QS_ECORRUPT, qsi_segment_sync(fixture->index, &model.file, QS_ERROR));
    write_model(fixture, &model, 0, 16, false);
    QS_CHECK_OK(qsi_segment_sync(fixture->index, &model.file, QS_ERROR));
    QS_CHECK_OK(qsi_index_sync(fixture->index, QS_ERROR));
}

QS_TEST(test_on_a_real_disk)
{
    struct fixture fixture = {.env = qs_env_posix()};
    char path[256];

    qs_test_make_dir(path, sizeof path);
    fixture.dir = qs_test_make_root(fixture.env, path);
    QS_CHECK_OK(
        qsi_index_open(&fixture.index, fixture.env, fixture.dir, test_uuid, 4096, QS_ERROR));
    model_init(&model, 4096, 1, 1);
    fill_mixed(8);
    write_model(&fixture, &model, 0, 4096, true);
    QS_CHECK_OK(qsi_segment_sync(fixture.index, &model.file, QS_ERROR));
    check_all(&fixture, &model, model.put, 100000);
    rewrite(&fixture, model.put, true);
    check_all(&fixture, &model, model.put, 100000);
    stop(&fixture);
    qs_test_remove_dir(path);
}

int main(void)
{
    memset(all, 0xff, sizeof all);
    qsi_index_close(NULL);
    qs_test_run_all();
    return 0;
}
