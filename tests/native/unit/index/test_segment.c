/* Index segments while nothing fails: what was written reads back, whatever was asked for.
 *
 * Method: a model knows every message by a few numbers; each load is compared with it, field by
 * field, and each record has to pass the check that records from a file pass. */
#include "index_fixture.h"

static struct model model;
static uint64_t all[WORDS_MAX];

static struct message small(uint32_t seed)
{
    return (struct message){EMBEDDED, seed, 100, 3, 4, 5};
}

static void test_messages_read_back(uint32_t entries)
{
    struct fixture fixture;

    start_in_memory(&fixture, entries);
    QS_CHECK(qsi_index_entries(fixture.index) == entries);
    model_init(&model, entries, 7, 3);
    for (uint32_t i = 0; i < entries; i++) {
        model.messages[i] = small(i);
    }
    write_model(&fixture, &model, 0, entries, false);
    QS_CHECK(model.file.slot_count == entries && !model.file.packed);
    QS_CHECK(file_bytes(&fixture, &model.file) == model.file.heap_end);
    check_all(&fixture, &model, model.put, UINT64_MAX);
    check_all(&fixture, &model, model.put, 10000);
    QS_CHECK_OK(qsi_segment_check(fixture.index, &model.file, NULL, QS_ERROR));
    QS_CHECK_OK(qsi_segment_check(fixture.index, &model.file, model.put, QS_ERROR));
    stop_in_memory(&fixture);
}

static void fill_mixed(uint32_t seed)
{
    uint64_t random = seed;

    for (uint32_t i = 0; i < model.entries; i++) {
        uint64_t r = qsi_splitmix_next(&random);

        model.messages[i] = (struct message){
            .kind = r % 8 == 0   ? NOTHING
                    : r % 4 == 1 ? STORED
                                 : EMBEDDED,
            .seed = (uint32_t)r,
            .body_bytes = (uint32_t)(r >> 32 & 0xff) * (r % 3 != 0),
            .exchange = (uint8_t)(r >> 40 & 1),
            .key = (uint8_t)(r >> 44 & 7),
            .properties = (uint8_t)((r >> 48 & 15) == 0),
        };
    }
}

static void test_mixed_messages_with_gaps_read_back_from_anywhere(void)
{
    struct fixture fixture;
    uint64_t random = 5;

    start_in_memory(&fixture, 256);
    for (uint32_t round = 0; round < 50; round++) {
        uint64_t wanted[4];

        model_init(&model, 256, round, round * 1000);
        fill_mixed(round);
        write_model(&fixture, &model, 0, 128, round % 2 == 0);
        write_model(&fixture, &model, 128, 130, round % 3 == 0);
        write_model(&fixture, &model, 130, 256, round % 5 == 0);
        check_all(&fixture, &model, model.put, UINT64_MAX);
        check_all(&fixture, &model, model.put, 1);
        for (int i = 0; i < 4; i++) {
            wanted[i] = model.put[i] & qsi_splitmix_next(&random) & qsi_splitmix_next(&random);
        }
        check_all(&fixture, &model, wanted, 300);
        QS_CHECK_OK(qsi_segment_check(fixture.index, &model.file, NULL, QS_ERROR));
    }
    stop_in_memory(&fixture);
}

static void test_messages_of_every_size_are_whole(void)
{
    static const uint32_t sizes[] = {
        0,       1, 7,  0, 4096, 1 << 20, 3, 65535, 1 << 20, (1 << 20) - 1, (1 << 20) + 1,
        3 << 20, 0, 100};
    enum { COUNT = sizeof sizes / sizeof sizes[0] };
    struct fixture fixture;

    start_in_memory(&fixture, 16);
    model_init(&model, 16, 1, UINT64_C(0x123456789ab));
    for (uint32_t i = 0; i < COUNT; i++) {
        model.messages[i] = (struct message){EMBEDDED, i, sizes[i], (uint8_t)i, 0, 1};
    }
    write_model(&fixture, &model, 0, COUNT, false);
    check_all(&fixture, &model, model.put, UINT64_MAX);
    check_all(&fixture, &model, model.put, 1 << 20);
    check_all(&fixture, &model, model.put, 0);
    stop_in_memory(&fixture);
}

static void test_sparse_messages_are_read_in_pieces(void)
{
    struct fixture fixture;
    uint64_t wanted[2] = {0};

    start_in_memory(&fixture, 128);
    model_init(&model, 128, 1, 0);
    for (uint32_t i = 0; i < 128; i++) {
        model.messages[i] = (struct message){EMBEDDED, i, i % 3 == 0 ? 70000 : 30000, 1, 1, 1};
    }
    write_model(&fixture, &model, 0, 128, false);
    for (uint32_t step = 1; step < 60; step += 3) {
        memset(wanted, 0, sizeof wanted);
        for (uint32_t i = step / 2; i < 128; i += step) {
            set_bit(wanted, i);
        }
        check_all(&fixture, &model, wanted, UINT64_MAX);
    }
    stop_in_memory(&fixture);
}

static void test_nothing_wanted_reads_nothing(void)
{
    struct fixture fixture;
    uint64_t none[1] = {0};
    struct qsi_segment_load load = {.from = 3, .to = 16, .wanted = none, .bytes_max = 1};

    start_in_memory(&fixture, 16);
    model_init(&model, 16, 1, 0); /* there is not even a file */
    QS_CHECK_OK(qsi_segment_load(fixture.index, &model.file, &load, QS_ERROR));
    QS_CHECK(load.chunk == NULL && load.rows == NULL && load.count == 0);
    load.from = load.to = 5;
    load.wanted = all;
    QS_CHECK_OK(qsi_segment_load(fixture.index, &model.file, &load, QS_ERROR));
    QS_CHECK(load.chunk == NULL);
    load.to = 16;
    QS_CHECK_STATUS(QS_ECORRUPT, qsi_segment_load(fixture.index, &model.file, &load, QS_ERROR));
    QS_CHECK(load.chunk == NULL && load.rows == NULL);
    stop_in_memory(&fixture);
}

static void test_message_that_was_never_written_is_a_damaged_one(void)
{
    struct fixture fixture;
    struct qsi_segment_load load = {.from = 0, .to = 16, .wanted = all, .bytes_max = UINT64_MAX};

    start_in_memory(&fixture, 16);
    model_init(&model, 16, 1, 0);
    model.messages[3] = small(3);
    model.messages[9] = small(9);
    write_model(&fixture, &model, 0, 16, false);
    QS_CHECK_OK(qsi_segment_load(fixture.index, &model.file, &load, QS_ERROR));
    check_load(&model, &load, false);
    QS_CHECK(load.damaged_count == 14 && load.first == 0 && load.count == 16);
    load_fini(&load);
    QS_CHECK_OK(qsi_segment_check(fixture.index, &model.file, NULL, QS_ERROR));
    QS_CHECK_STATUS(QS_ECORRUPT, qsi_segment_check(fixture.index, &model.file, all, QS_ERROR));
    stop_in_memory(&fixture);
}

/* ---- writing ---- */

static void test_equal_envelopes_are_written_once(void)
{
    struct fixture fixture;
    struct qsi_segment_writer *writer;
    uint8_t bytes[2][ENVELOPE_BYTES_MAX];
    const struct message one = {EMBEDDED, 1, 10, 1, 2, 3};
    const struct message other = {EMBEDDED, 2, 10, 1, 2, 4};
    struct qsi_slice first = envelope_of(&one, bytes[0]);
    struct qsi_slice second = envelope_of(&one, bytes[1]);
    uint8_t body[64];
    uint64_t heap_at;

    start_in_memory(&fixture, 16);
    model_init(&model, 16, 1, 0);
    QS_CHECK_OK(qsi_segment_writer_begin(&writer, fixture.index, &model.file, false, QS_ERROR));
    heap_at = model.file.heap_end;
    for (uint32_t i = 0; i < 6; i++) {
        model.messages[i] = i < 5 ? one : other;
        QS_CHECK_OK(qsi_segment_put_embedded(writer, i,
                                             i == 5       ? envelope_of(&other, bytes[1])
                                             : i % 3 == 0 ? first
                                                          : second,
                                             body_of(&model.messages[i], body), QS_ERROR));
        set_bit(model.put, i);
    }
    QS_CHECK_OK(qsi_segment_writer_end(writer, QS_ERROR));
    QS_CHECK(model.file.heap_end - heap_at == 60 + 2 * (uint64_t)first.bytes + 1);
    check_all(&fixture, &model, model.put, UINT64_MAX);
    stop_in_memory(&fixture);
}

static void test_routes_and_properties_that_are_the_same_are_said_once(void)
{
    struct fixture fixture;
    struct qsi_segment_load load = {.from = 0, .to = 64, .wanted = model.put, .bytes_max = 1 << 20};
    struct qsi_messages view;

    start_in_memory(&fixture, 64);
    model_init(&model, 64, 1, 0);
    for (uint32_t i = 0; i < 64; i++) {
        model.messages[i] = (struct message){EMBEDDED, i, 10, (uint8_t)(i % 4), 7, 9};
    }
    write_model(&fixture, &model, 0, 64, false);
    QS_CHECK_OK(qsi_segment_load(fixture.index, &model.file, &load, QS_ERROR));
    check_load(&model, &load, false);
    qsi_messages_view(&view, load.chunk->data);
    QS_CHECK(view.route_count == 4 && view.row_route_width == 1 && view.flags == 0);
    load_fini(&load);
    load.to = 1;
    QS_CHECK_OK(qsi_segment_load(fixture.index, &model.file, &load, QS_ERROR));
    qsi_messages_view(&view, load.chunk->data);
    QS_CHECK(view.route_count == 1 && view.row_route_width == 0);
    load_fini(&load);
    stop_in_memory(&fixture);
}

static void test_many_routes_and_properties(void)
{
    struct fixture fixture;
    uint8_t envelope[ENVELOPE_BYTES_MAX];
    struct qsi_segment_load load = {
        .from = 0, .to = ENTRIES_MAX, .wanted = all, .bytes_max = UINT64_MAX};
    struct qsi_segment_writer *writer;
    struct qsi_messages view;

    start_in_memory(&fixture, ENTRIES_MAX);
    model_init(&model, ENTRIES_MAX, 1, 0);
    QS_CHECK_OK(qsi_segment_writer_begin(&writer, fixture.index, &model.file, false, QS_ERROR));
    for (uint32_t i = 0; i < ENTRIES_MAX; i++) {
        uint8_t key[4];

        qsi_put_u32(key, i);
        /* The place is the same each time, and so is the length: for the writer that would be
         * the same envelope. */
        uint8_t *out = envelope + i % 2 * 100;
        qsi_envelope_encode(out, qsi_slice_make("", 0), qsi_slice_make(key, 4),
                            qsi_slice_make(key, 4));
        QS_CHECK_OK(qsi_segment_put_embedded(writer, i, qsi_slice_make(out, 14),
                                             qsi_slice_make(NULL, 0), QS_ERROR));
    }
    QS_CHECK_OK(qsi_segment_writer_end(writer, QS_ERROR));
    QS_CHECK_OK(qsi_segment_load(fixture.index, &model.file, &load, QS_ERROR));
    QS_CHECK_OK(qsi_messages_check(load.chunk->data, QS_ERROR));
    qsi_messages_view(&view, load.chunk->data);
    QS_CHECK(view.row_count == ENTRIES_MAX && view.route_count == ENTRIES_MAX);
    for (uint32_t i = 0; i < ENTRIES_MAX; i++) {
        struct qsi_route_view route = qsi_messages_route(&view, qsi_messages_row_route(&view, i));

        QS_CHECK(route.key.bytes == 4 && qsi_get_u32(route.key.data) == i);
        QS_CHECK(qsi_get_u32(qsi_messages_properties(&view, i).data) == i);
        QS_CHECK(qsi_messages_body(&view, i).bytes == 0);
    }
    load_fini(&load);
    stop_in_memory(&fixture);
}

static void test_later_writer_leaves_earlier_slots_and_pages_alone(void)
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

static void test_aligned_writer_without_bodies_moves_nothing(void)
{
    struct fixture fixture;
    uint64_t heap_end;

    start_in_memory(&fixture, 16);
    model_init(&model, 16, 1, 0);
    model.messages[0] = small(0);
    model.messages[1] = (struct message){.kind = STORED, .seed = 9};
    write_model(&fixture, &model, 0, 1, true);
    heap_end = model.file.heap_end;
    QS_CHECK(heap_end % 4096 != 0);
    write_model(&fixture, &model, 1, 2, true);
    write_model(&fixture, &model, 2, 2, true);
    QS_CHECK(model.file.heap_end == heap_end);
    check_all(&fixture, &model, model.put, UINT64_MAX);
    stop_in_memory(&fixture);
}

static void test_segment_of_references_alone(void)
{
    struct fixture fixture;

    start_in_memory(&fixture, 16);
    model_init(&model, 16, 1, 0);
    model.messages[5] = (struct message){.kind = STORED, .seed = 9};
    model.messages[7] = (struct message){.kind = STORED, .seed = 11};
    write_model(&fixture, &model, 0, 16, false);
    check_all(&fixture, &model, model.put, UINT64_MAX);
    QS_CHECK_OK(qsi_segment_check(fixture.index, &model.file, NULL, QS_ERROR));
    stop_in_memory(&fixture);
}

static void test_abandoned_writer_leaves_what_was_there(void)
{
    struct fixture fixture;
    struct qsi_segment_writer *writer;
    struct qsi_segment_file before;

    start_in_memory(&fixture, 16);
    model_init(&model, 16, 1, 0);
    before = model.file;
    QS_CHECK_OK(qsi_segment_writer_begin(&writer, fixture.index, &model.file, false, QS_ERROR));
    QS_CHECK(model.file.heap_end > 0 && model.file.slot_count == 16);
    QS_CHECK_OK(try_put(writer, 2, &(struct message){.kind = EMBEDDED}, QS_ERROR));
    qsi_segment_writer_abandon(writer);
    QS_CHECK(memcmp(&before, &model.file, sizeof before) == 0 && !exists(&fixture, &model.file));
    model.messages[1] = small(1);
    write_model(&fixture, &model, 0, 4, false);
    before = model.file;
    QS_CHECK_OK(qsi_segment_writer_begin(&writer, fixture.index, &model.file, false, QS_ERROR));
    QS_CHECK_OK(try_put(writer, 2, &(struct message){.kind = EMBEDDED}, QS_ERROR));
    qsi_segment_writer_abandon(writer);
    qsi_segment_writer_abandon(NULL);
    QS_CHECK(memcmp(&before, &model.file, sizeof before) == 0);
    check_all(&fixture, &model, model.put, UINT64_MAX);
    stop_in_memory(&fixture);
}

static void test_name_that_a_crash_left_is_taken_over(void)
{
    struct fixture fixture;
    struct qsi_segment_file forgotten;

    start_in_memory(&fixture, 16);
    model_init(&model, 16, 1, 0);
    model.messages[1] = small(1);
    write_model(&fixture, &model, 0, 4, false);
    forgotten = model.file;
    model_init(&model, 16, 1, 0);
    model.messages[2] = small(2);
    write_model(&fixture, &model, 0, 4, false);
    QS_CHECK(forgotten.salt != model.file.salt);
    check_all(&fixture, &model, model.put, UINT64_MAX);
    QS_CHECK_STATUS(QS_ECORRUPT, qsi_segment_check(fixture.index, &forgotten, NULL, QS_ERROR));
    stop_in_memory(&fixture);
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

static void test_references_are_visited(void)
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

static void test_names_are_parsed_strictly(void)
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

static void test_others_are_removed_and_strangers_are_not(void)
{
    struct fixture fixture;
    struct qsi_segment_file files[10];
    uint32_t asked = 0;
    uint64_t removed;
    qs_file *stranger;

    start_in_memory(&fixture, 16);
    for (uint32_t i = 0; i < 10; i++) {
        model_init(&model, 16, 5, i);
        model.messages[1] = small(i);
        write_model(&fixture, &model, 0, 16, false);
        files[i] = model.file;
    }
    QS_CHECK_OK(fixture.env->open(fixture.env, fixture.dir, "stranger.seg",
                                  QS_OPEN_WRITE | QS_OPEN_CREATE_NEW, &stranger, QS_ERROR));
    fixture.env->close(fixture.env, stranger);
    QS_CHECK_OK(qsi_index_remove_others(fixture.index, keep_odd, &asked, &removed, QS_ERROR));
    QS_CHECK(asked == 15 && removed == 5); /* what is to go is asked about once more */
    for (uint32_t i = 0; i < 10; i++) {
        QS_CHECK(exists(&fixture, &files[i]) == (i % 2 == 1));
    }
    QS_CHECK_OK(fixture.env->remove(fixture.env, fixture.dir, "stranger.seg", QS_ERROR));
    QS_CHECK_OK(qsi_segment_remove(fixture.index, &files[1], QS_ERROR));
    QS_CHECK_OK(qsi_segment_remove(fixture.index, &files[1], QS_ERROR));
    QS_CHECK(!exists(&fixture, &files[1]));
    QS_CHECK_STATUS(QS_ECORRUPT, qsi_segment_check(fixture.index, &files[1], NULL, QS_ERROR));
    QS_CHECK(qsi_segment_disk_bytes(fixture.index, &(struct qsi_segment_file){0}) == 0);
    QS_CHECK(qsi_segment_disk_bytes(fixture.index, &files[3]) > 100);
    QS_CHECK(qsi_segment_disk_bytes(fixture.index, &files[3]) <= files[3].heap_end);
    stop_in_memory(&fixture);
}

/* ---- state ---- */

static uint64_t settled[WORDS_MAX], seen[WORDS_MAX], read_settled[WORDS_MAX], read_seen[WORDS_MAX];
static uint8_t deliveries[ENTRIES_MAX], read_deliveries[ENTRIES_MAX];

static void randomize_state(uint32_t entries, uint64_t *random)
{
    for (uint32_t i = 0; i < entries; i++) {
        uint64_t r = qsi_splitmix_next(random);

        (r & 1 ? set_bit : clear_bit)(settled, i);
        (r & 2 ? set_bit : clear_bit)(seen, i);
        deliveries[i] = (uint8_t)(r >> 8);
    }
}

static void check_state(struct fixture *fixture, const struct qsi_segment_file *file,
                        uint32_t entries, bool with_deliveries)
{
    struct qsi_segment_state state = {read_settled, read_seen, read_deliveries, NULL, NULL,
                                      NULL,         0};
    uint32_t has;

    memset(read_deliveries, 0xee, sizeof read_deliveries);
    QS_CHECK_OK(qsi_segment_read_state(fixture->index, file, &state, &has, QS_ERROR));
    QS_CHECK(has == with_deliveries);
    QS_CHECK(memcmp(settled, read_settled, qsi_bitmap_words(entries) * 8) == 0);
    QS_CHECK(memcmp(seen, read_seen, qsi_bitmap_words(entries) * 8) == 0);
    QS_CHECK(has ? memcmp(deliveries, read_deliveries, entries) == 0 : read_deliveries[0] == 0xee);
    state.deliveries = NULL;
    QS_CHECK_OK(qsi_segment_read_state(fixture->index, file, &state, &has, QS_ERROR));
    QS_CHECK(has == with_deliveries && state.deliveries == NULL);
    state.wanted = QSI_STATE_DELIVERIES | QSI_STATE_EXPIRIES | QSI_STATE_SIZES;
    QS_CHECK_OK(qsi_segment_read_state(fixture->index, file, &state, &has, QS_ERROR));
    QS_CHECK(state.expiries == NULL && state.sizes == NULL); /* the file has none */
    QS_CHECK((state.deliveries != NULL) == with_deliveries);
    QS_CHECK(!has || memcmp(deliveries, state.deliveries, entries) == 0);
    qsi_free(state.deliveries);
}

static void test_state_reads_back(uint32_t entries)
{
    struct fixture fixture;
    uint64_t random = entries;
    struct qsi_segment_file durable;
    struct qsi_segment_state state = {settled, seen, deliveries, NULL, NULL, NULL, 0};

    start_in_memory(&fixture, entries);
    model_init(&model, entries, 1, 0);
    model.messages[1] = small(1);
    memset(settled, 0, sizeof settled);
    memset(seen, 0, sizeof seen);
    write_model(&fixture, &model, 0, entries, false);
    QS_CHECK(model.file.state_area == 0);
    check_state(&fixture, &model.file, entries, false);
    for (int round = 0; round < 4; round++) {
        randomize_state(entries, &random);
        state.deliveries = round % 2 == 0 ? deliveries : NULL;
        QS_CHECK_OK(qsi_segment_write_state(fixture.index, &model.file, 0, &state, QS_ERROR));
        QS_CHECK(model.file.state_area == 1);
        check_state(&fixture, &model.file, entries, round % 2 == 0);
    }
    durable = model.file;
    for (int round = 0; round < 3; round++) {
        randomize_state(entries, &random);
        QS_CHECK_OK(qsi_segment_write_state(fixture.index, &model.file, durable.state_area, &state,
                                            QS_ERROR));
        QS_CHECK(model.file.state_area == 3 - durable.state_area);
        check_state(&fixture, &model.file, entries, state.deliveries != NULL);
        state.deliveries = round == 1 ? deliveries : NULL;
    }
    durable = model.file; /* area 2 */
    randomize_state(entries, &random);
    QS_CHECK_OK(qsi_segment_write_state(fixture.index, &model.file, 2, &state, QS_ERROR));
    QS_CHECK(model.file.state_area == 1);
    QS_CHECK_OK(qsi_segment_check(fixture.index, &durable, model.put, QS_ERROR));
    check_state(&fixture, &model.file, entries, state.deliveries != NULL);
    /* The other area is whole, but it is not the one that was meant. */
    durable.state_area = 1;
    QS_CHECK_STATUS(QS_ECORRUPT, qsi_segment_check(fixture.index, &durable, model.put, QS_ERROR));
    check_all(&fixture, &model, model.put, UINT64_MAX);
    stop_in_memory(&fixture);
}

/* ---- rewriting ---- */

static void rewrite(struct fixture *fixture, const uint64_t *live, bool with_deliveries)
{
    struct qsi_segment_file to;
    struct qsi_segment_file from = model.file;
    struct qsi_segment_state state = {
        settled, seen, with_deliveries ? deliveries : NULL, NULL, NULL, NULL, 0};

    QS_CHECK_OK(qsi_segment_rewrite(fixture->index, &model.file, live, &state, &to, QS_ERROR));
    QS_CHECK(memcmp(&from, &model.file, sizeof from) == 0 && exists(fixture, &from));
    QS_CHECK(to.packed && to.generation == from.generation + 1 && to.state_area == 1);
    QS_CHECK(to.queue_id == from.queue_id && to.number == from.number && to.salt != from.salt);
    QS_CHECK(file_bytes(fixture, &to) == to.heap_end);
    model.file = to;
}

static void test_rewritten_segment_has_the_live_messages(uint32_t entries)
{
    struct fixture fixture;
    uint64_t random = entries;
    uint32_t words = qsi_bitmap_words(entries);

    start_in_memory(&fixture, entries);
    model_init(&model, entries, 9, 77);
    fill_mixed(entries);
    write_model(&fixture, &model, 0, entries, false);
    for (uint32_t round = 0; round < 5; round++) {
        struct qsi_segment_file from = model.file;

        for (uint32_t i = 0; i < words; i++) {
            model.put[i] &= round == 0 ? UINT64_MAX : round == 4 ? 0 : qsi_splitmix_next(&random);
        }
        randomize_state(entries, &random);
        for (uint32_t i = 0; i < entries; i++) {
            (qsi_bitmap_has(model.put, i) ? clear_bit : set_bit)(settled, i);
        }
        rewrite(&fixture, model.put, round % 2 == 0);
        check_state(&fixture, &model.file, entries, round % 2 == 0);
        check_all(&fixture, &model, model.put, UINT64_MAX);
        check_all(&fixture, &model, model.put, 5000);
        QS_CHECK_OK(qsi_segment_check(fixture.index, &model.file, NULL, QS_ERROR));
        QS_CHECK_OK(qsi_segment_check(fixture.index, &model.file, model.put, QS_ERROR));
        QS_CHECK_OK(qsi_segment_check(fixture.index, &from, model.put, QS_ERROR));
        QS_CHECK_OK(qsi_segment_remove(fixture.index, &from, QS_ERROR));
    }
    QS_CHECK(model.file.slot_count == 0);
    stop_in_memory(&fixture);
}

static void test_packed_segment_without_state_lacks_what_is_settled(void)
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

static void test_rewritten_damage_is_still_damage(void)
{
    struct fixture fixture;
    uint64_t slots_at = qsi_segment_slots_at(16);
    uint64_t wanted[1] = {0xffff};
    struct qsi_segment_load load = {.from = 0, .to = 16, .wanted = wanted, .bytes_max = 1 << 20};

    start_in_memory(&fixture, 16);
    model_init(&model, 16, 9, 77);
    for (uint32_t i = 0; i < 15; i++) {
        model.messages[i] = small(i);
    }
    model.messages[9] = (struct message){.kind = STORED, .seed = 5};
    write_model(&fixture, &model, 0, 16, false); /* slot 15 was never written */
    flip(&fixture, &model.file, slots_at + 3 * 32 + 10, 1);
    flip(&fixture, &model.file, slots_at + 4 * 32 + 29, 128);
    flip(&fixture, &model.file, slots_at + 9 * 32, 2);
    flip(&fixture, &model.file, model.file.heap_end - 150, 8); /* in the body of 13 */
    for (uint32_t i = 0; i < 16; i++) {
        if (i == 3 || i == 4 || i == 9 || i == 13 || i == 15) {
            model.messages[i].kind = DAMAGED;
        }
    }
    for (int round = 0; round < 4; round++) {
        QS_CHECK_OK(qsi_segment_load(fixture.index, &model.file, &load, QS_ERROR));
        check_load(&model, &load, false);
        QS_CHECK(load.damaged_count == 5 && load.has_stored);
        load_fini(&load);
        QS_CHECK_STATUS(QS_ECORRUPT,
                        qsi_segment_check(fixture.index, &model.file, wanted, QS_ERROR));
        rewrite(&fixture, wanted, false);
        QS_CHECK(model.file.slot_count == 16);
    }
    stop_in_memory(&fixture);
}

static void test_syncs(void)
{
    struct fixture fixture;

    start_in_memory(&fixture, 16);
    model_init(&model, 16, 9, 77);
    model.messages[0] = small(0);
    QS_CHECK_STATUS(QS_ECORRUPT, qsi_segment_sync(fixture.index, &model.file, QS_ERROR));
    write_model(&fixture, &model, 0, 16, false);
    QS_CHECK_OK(qsi_segment_sync(fixture.index, &model.file, QS_ERROR));
    QS_CHECK_OK(qsi_index_sync(fixture.index, QS_ERROR));
    stop_in_memory(&fixture);
}

static void test_on_a_real_disk(void)
{
    struct fixture fixture = {.env = qs_env_posix()};
    char path[256];
    bool created;

    qs_test_make_dir(path, sizeof path);
    QS_CHECK_OK(
        fixture.env->dir_open_root(fixture.env, path, true, &fixture.dir, &created, QS_ERROR));
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
    for (uint32_t entries = 16; entries <= ENTRIES_MAX; entries *= 2) {
        test_messages_read_back(entries);
        test_state_reads_back(entries);
        test_rewritten_segment_has_the_live_messages(entries);
    }
    test_mixed_messages_with_gaps_read_back_from_anywhere();
    test_messages_of_every_size_are_whole();
    test_sparse_messages_are_read_in_pieces();
    test_nothing_wanted_reads_nothing();
    test_message_that_was_never_written_is_a_damaged_one();
    test_equal_envelopes_are_written_once();
    test_routes_and_properties_that_are_the_same_are_said_once();
    test_many_routes_and_properties();
    test_later_writer_leaves_earlier_slots_and_pages_alone();
    test_aligned_writer_without_bodies_moves_nothing();
    test_segment_of_references_alone();
    test_abandoned_writer_leaves_what_was_there();
    test_name_that_a_crash_left_is_taken_over();
    test_references_are_visited();
    test_names_are_parsed_strictly();
    test_others_are_removed_and_strangers_are_not();
    test_packed_segment_without_state_lacks_what_is_settled();
    test_rewritten_damage_is_still_damage();
    test_syncs();
    test_on_a_real_disk();
    return 0;
}
