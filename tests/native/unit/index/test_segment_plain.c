/* Messages that lie side by side in their file are read to where they are needed.
 *
 * Method: a segment of such messages is loaded whole, in parts, and with gaps, and compared with
 * its model; then it is damaged, one bit at a time, and each load must have all others. */
#include "index_fixture.h"
#include "qs_test_sweep.h"

#define ENTRIES 2048u
#define SECOND 700u /* begins on a page of its own, with an envelope of its own */

static struct model model;

QS_TEST_FIXTURE(run_with_entries, struct fixture, start_in_memory(&fixture, ENTRIES),
                stop_in_memory(&fixture))
#define ENTRIES_TEST(name) QS_TEST_BY(run_with_entries, name, (struct fixture * fixture))

/* Of all lengths up to some hundreds of bytes, and one that takes several reads. */
static void write_plain(struct fixture *fixture)
{
    model_init(&model, ENTRIES, 5, 7);
    for (uint32_t i = 0; i < ENTRIES; i++) {
        model.messages[i] = (struct message){EMBEDDED, i, i % 5 == 0 ? i % 300 : 100, 1, 2, 3};
    }
    model.messages[1000].body_bytes = 300000;
    write_model(fixture, &model, 0, SECOND, false);
    write_model(fixture, &model, SECOND, ENTRIES, true);
}

static void load_and_check(struct fixture *fixture, const uint64_t *wanted, uint32_t from,
                           uint64_t bytes_max, uint32_t damaged)
{
    struct qsi_segment_load load = {
        .from = from, .to = ENTRIES, .wanted = wanted, .bytes_max = bytes_max};

    QS_CHECK_OK(qsi_segment_load(fixture->index, &model.file, &load, QS_ERROR));
    check_load(&model, &load, damaged > 0);
    QS_CHECK(load.damaged_count == damaged);
    load_fini(&load);
}

ENTRIES_TEST(test_what_lies_side_by_side_is_as_it_was_written)
{
    uint64_t wanted[ENTRIES / 64];

    write_plain(fixture);
    for (uint32_t from = 0; from < ENTRIES; from += 97) {
        load_and_check(fixture, model.put, from, UINT64_MAX, 0);
        for (uint64_t bytes_max = 1; bytes_max < 1u << 20; bytes_max = bytes_max * 3 + 1) {
            load_and_check(fixture, model.put, from, bytes_max, 0);
        }
    }
    for (uint32_t gap = 0; gap < ENTRIES; gap += 61) {
        memcpy(wanted, model.put, sizeof wanted);
        clear_bit(wanted, gap);
        load_and_check(fixture, wanted, 0, UINT64_MAX, 0);
        load_and_check(fixture, wanted, 0, 20000, 0);
    }
}

QS_TEST(test_another_envelope_among_them_is_found)
{
    struct fixture fixture;

    for (uint32_t odd = 0; odd < ENTRIES; odd += 500) {
        start_in_memory(&fixture, ENTRIES);
        model_init(&model, ENTRIES, 5, 7);
        for (uint32_t i = 0; i < ENTRIES; i++) {
            /* the same length, other bytes */
            model.messages[i] = (struct message){EMBEDDED, i, i % 200, 1, i == odd ? 42 : 2, 3};
        }
        write_model(&fixture, &model, 0, ENTRIES, false);
        load_and_check(&fixture, model.put, 0, UINT64_MAX, 0);
        load_and_check(&fixture, model.put, odd, UINT64_MAX, 0);
        stop_in_memory(&fixture);
    }
}

/* The first envelope is that of all before the second; its damage is theirs. */
ENTRIES_TEST(test_a_flipped_bit_costs_the_message_that_has_it)
{
    uint64_t slots_at = qsi_segment_slots_at(ENTRIES), heap_at;

    write_plain(fixture);
    heap_at = qsi_segment_heap_at(ENTRIES, false, ENTRIES);
    for (uint32_t slot = 0; slot < ENTRIES; slot += 41) {
        uint64_t at = slots_at + (uint64_t)slot * QSI_SLOT_BYTES + slot % QSI_SLOT_BYTES;
        flip(fixture, &model.file, at, (uint8_t)(1 << slot % 8));
        load_and_check(fixture, model.put, 0, UINT64_MAX, 1);
        flip(fixture, &model.file, at, (uint8_t)(1 << slot % 8));
    }
    for (uint64_t at = heap_at + 200; at < heap_at + 40000; at += 977) {
        flip(fixture, &model.file, at, (uint8_t)(1 << at % 8));
        load_and_check(fixture, model.put, 0, UINT64_MAX, 1);
        flip(fixture, &model.file, at, (uint8_t)(1 << at % 8));
    }
    flip(fixture, &model.file, heap_at, 1);
    load_and_check(fixture, model.put, 0, UINT64_MAX, SECOND);
}

QS_TEST(test_memory_that_runs_out_is_told_and_freed)
{
    struct fixture fixture;
    struct qs_test_alloc failing;

    qs_test_alloc_install(&failing);
    start_in_memory(&fixture, ENTRIES);
    write_plain(&fixture);
    for (struct qs_test_sweep sweep = {.memory = &failing}; qs_test_sweep_on(&sweep);) {
        struct qsi_segment_load load = {
            .from = 0, .to = ENTRIES, .wanted = model.put, .bytes_max = UINT64_MAX};
        qs_status status;

        qs_test_sweep_allocations(&sweep);
        status = qsi_segment_load(fixture.index, &model.file, &load, QS_ERROR);
        qs_test_sweep_rest(&sweep);
        QS_CHECK(status == (sweep.has_failed ? QS_ENOMEM : QS_OK));
        load_fini(&load);
    }
    stop_in_memory(&fixture);
    qs_test_alloc_end(&failing);
}
