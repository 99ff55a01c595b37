/* Index segments while nothing fails: what was written reads back, whatever was asked for.
 *
 * Method: a model knows every message by a few numbers; each load is compared with it, field by
 * field, and each record has to pass the check that records from a file pass. */
#include "segment_fixture.h"

static void test_messages_read_back(uint32_t entries)
{
    struct fixture fixture;

    start_in_memory(&fixture, entries);
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

QS_TEST(test_mixed_messages_with_gaps_read_back_from_anywhere)
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

INDEX_TEST(test_messages_of_every_size_are_whole)
{
    static const uint32_t sizes[] = {
        0,       1, 7,  0, 4096, 1 << 20, 3, 65535, 1 << 20, (1 << 20) - 1, (1 << 20) + 1,
        3 << 20, 0, 100};
    enum { COUNT = sizeof sizes / sizeof sizes[0] };

    model_init(&model, 16, 1, UINT64_C(0x123456789ab));
    for (uint32_t i = 0; i < COUNT; i++) {
        model.messages[i] = (struct message){EMBEDDED, i, sizes[i], (uint8_t)i, 0, 1};
    }
    write_model(fixture, &model, 0, COUNT, false);
    check_all(fixture, &model, model.put, UINT64_MAX);
    check_all(fixture, &model, model.put, 1 << 20);
    check_all(fixture, &model, model.put, 0);
}

QS_TEST(test_sparse_messages_are_read_in_pieces)
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

INDEX_TEST(test_nothing_wanted_reads_nothing)
{
    uint64_t none[1] = {0};
    struct qsi_segment_load load = {.from = 3, .to = 16, .wanted = none, .bytes_max = 1};

    model_init(&model, 16, 1, 0); /* there is not even a file */
    QS_CHECK_OK(qsi_segment_load(fixture->index, &model.file, &load, QS_ERROR));
    QS_CHECK(load.chunk == NULL && load.rows == NULL && load.count == 0);
    load.from = load.to = 5;
    load.wanted = all;
    QS_CHECK_OK(qsi_segment_load(fixture->index, &model.file, &load, QS_ERROR));
    QS_CHECK(load.chunk == NULL);
    load.to = 16;
    QS_CHECK_STATUS(QS_ECORRUPT, qsi_segment_load(fixture->index, &model.file, &load, QS_ERROR));
    QS_CHECK(load.chunk == NULL && load.rows == NULL);
}

INDEX_TEST(test_message_that_was_never_written_is_a_damaged_one)
{
    struct qsi_segment_load load = {.from = 0, .to = 16, .wanted = all, .bytes_max = UINT64_MAX};

    model_init(&model, 16, 1, 0);
    model.messages[3] = small(3);
    model.messages[9] = small(9);
    write_model(fixture, &model, 0, 16, false);
    QS_CHECK_OK(qsi_segment_load(fixture->index, &model.file, &load, QS_ERROR));
    check_load(&model, &load, false);
    QS_CHECK(load.damaged_count == 14 && load.first == 0 && load.count == 16);
    load_fini(&load);
    QS_CHECK_OK(qsi_segment_check(fixture->index, &model.file, NULL, QS_ERROR));
    QS_CHECK_STATUS(QS_ECORRUPT, qsi_segment_check(fixture->index, &model.file, all, QS_ERROR));
}

/* ---- writing ---- */

INDEX_TEST(test_equal_envelopes_are_written_once)
{
    struct qsi_segment_writer *writer;
    uint8_t bytes[2][ENVELOPE_BYTES_MAX];
    const struct message one = {EMBEDDED, 1, 10, 1, 2, 3};
    const struct message other = {EMBEDDED, 2, 10, 1, 2, 4};
    struct qsi_slice first = envelope_of(&one, bytes[0]);
    struct qsi_slice second = envelope_of(&one, bytes[1]);
    uint8_t body[64];
    uint64_t heap_at;

    model_init(&model, 16, 1, 0);
    QS_CHECK_OK(qsi_segment_writer_begin(&writer, fixture->index, &model.file, false, QS_ERROR));
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
    check_all(fixture, &model, model.put, UINT64_MAX);
}

QS_TEST(test_routes_and_properties_that_are_the_same_are_said_once)
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

QS_TEST(test_many_routes_and_properties)
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

/* ---- state ---- */

static void randomize_state(uint32_t entries, uint64_t *random)
{
    for (uint32_t i = 0; i < entries; i++) {
        uint64_t r = qsi_splitmix_next(random);

        (r & 1 ? set_bit : clear_bit)(settled, i);
        (r & 2 ? set_bit : clear_bit)(seen, i);
        deliveries[i] = (uint8_t)(r >> 8);
    }
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

int main(void)
{
    memset(all, 0xff, sizeof all);
    qsi_index_close(NULL);
    for (uint32_t entries = 16; entries <= ENTRIES_MAX; entries *= 2) {
        test_messages_read_back(entries);
        test_state_reads_back(entries);
        test_rewritten_segment_has_the_live_messages(entries);
    }
    qs_test_run_all();
    return 0;
}
