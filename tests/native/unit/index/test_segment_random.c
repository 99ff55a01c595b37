/* Index segments under random use, compared with a model.
 *
 * Method: a few segments of different queues are written, settled, rewritten, checked, loaded
 * and removed in random order; the model says what each of them has. */
#include "index_fixture.h"

#define SEGMENT_COUNT 5u
#define ENTRIES_LIMIT 1024u

struct segment {
    struct model model;
    uint64_t live[ENTRIES_LIMIT / 64];
    uint64_t settled[ENTRIES_LIMIT / 64]; /* as written last */
    uint64_t seen[ENTRIES_LIMIT / 64];
    uint8_t deliveries[ENTRIES_LIMIT];
    uint64_t expiries[ENTRIES_LIMIT];
    uint32_t sizes[ENTRIES_LIMIT];
    uint32_t columns;                /* that the state was written with */
    struct qsi_segment_file durable; /* what a checkpoint would name; queue_id 0: nothing */
    uint64_t durable_settled[ENTRIES_LIMIT / 64];
    uint32_t next; /* slot */
};

static struct segment segments[SEGMENT_COUNT];
static uint32_t entries;
static uint64_t random_state;

static uint64_t below(uint64_t limit)
{
    return qsi_splitmix_below(&random_state, limit);
}

static void reset(uint32_t which)
{
    struct segment *segment = &segments[which];
    uint64_t number = segment->model.file.number + 1;

    memset(segment, 0, sizeof *segment);
    model_init(&segment->model, entries, which + 1, number);
}

static struct message some_message(void)
{
    uint64_t r = qsi_splitmix_next(&random_state);
    uint64_t size = below(20);

    return (struct message){
        .kind = r % 10 == 0 ? STORED : EMBEDDED,
        .seed = (uint32_t)(r >> 8),
        .body_bytes = (uint32_t)below(size < 15   ? 200
                                      : size < 19 ? 5000
                                                  : 100000),
        .exchange = (uint8_t)(r >> 40 & 1),
        .key = (uint8_t)(r >> 44 & (size < 10 ? 0 : 3)),
        .properties = (uint8_t)((r >> 48 & 7) == 0),
    };
}

static void write_some(struct fixture *fixture, struct segment *segment)
{
    struct qsi_segment_file before = segment->model.file;
    uint32_t from = segment->next + (uint32_t)below(4);
    uint32_t to = from + (uint32_t)below(200);
    struct qsi_segment_writer *writer;
    bool is_given_up = below(8) == 0;

    if (segment->model.file.packed || from >= entries) {
        return;
    }
    to = to < entries ? to : entries;
    for (uint32_t slot = from; slot < to; slot++) {
        segment->model.messages[slot] = below(6) == 0 ? (struct message){NOTHING} : some_message();
    }
    if (!is_given_up) {
        write_model(fixture, &segment->model, from, to, below(2) == 0);
        for (uint32_t i = from; i < to; i++) {
            if (segment->model.messages[i].kind != NOTHING) {
                set_bit(segment->live, i);
            }
        }
        segment->next = to;
        return;
    }
    QS_CHECK_OK(
        qsi_segment_writer_begin(&writer, fixture->index, &segment->model.file, false, QS_ERROR));
    for (uint32_t slot = from; slot < to; slot++) {
        if (segment->model.messages[slot].kind != NOTHING) {
            QS_CHECK_OK(try_put(writer, slot, &segment->model.messages[slot], QS_ERROR));
        }
        segment->model.messages[slot].kind = NOTHING;
    }
    qsi_segment_writer_abandon(writer);
    QS_CHECK(memcmp(&before, &segment->model.file, sizeof before) == 0);
}

static void settle_some(struct segment *segment)
{
    uint32_t from = (uint32_t)below(entries);
    uint32_t to = from + (uint32_t)below(300);

    for (uint32_t i = from; i < to && i < entries; i++) {
        if (below(3) != 0) {
            clear_bit(segment->live, i);
        }
    }
}

/* Everything that is not live is settled, and what comes after is not. */
static void new_state(struct segment *segment)
{
    for (uint32_t i = 0; i < entries; i++) {
        (i < segment->next && !qsi_bitmap_has(segment->live, i) ? set_bit
                                                                : clear_bit)(segment->settled, i);
        (below(2) == 0 ? set_bit : clear_bit)(segment->seen, i);
        segment->deliveries[i] = (uint8_t)below(256);
        segment->expiries[i] = below(2) == 0 ? UINT64_MAX : UINT64_C(1000003) * below(1u << 30);
        segment->sizes[i] = (uint32_t)below(1u << 31);
    }
    segment->columns = (uint32_t)below(8);
}

static struct qsi_segment_state state_of(struct segment *segment)
{
    return (struct qsi_segment_state){
        segment->settled,
        segment->seen,
        (segment->columns & QSI_STATE_DELIVERIES) != 0 ? segment->deliveries : NULL,
        (segment->columns & QSI_STATE_EXPIRIES) != 0 ? segment->expiries : NULL,
        (segment->columns & QSI_STATE_SIZES) != 0 ? segment->sizes : NULL,
        NULL,
        0,
    };
}

static void write_state(struct fixture *fixture, struct segment *segment)
{
    struct qsi_segment_state state;
    uint8_t durable_area = segment->durable.generation == segment->model.file.generation
                               ? segment->durable.state_area
                               : 0;

    if (segment->model.file.heap_end == 0) {
        return;
    }
    new_state(segment);
    state = state_of(segment);
    QS_CHECK_OK(qsi_segment_write_state(fixture->index, &segment->model.file, durable_area, &state,
                                        QS_ERROR));
    QS_CHECK(durable_area == 0 || segment->model.file.state_area != durable_area);
    if (below(3) == 0) {
        segment->durable = segment->model.file;
        memcpy(segment->durable_settled, segment->settled, sizeof segment->settled);
    }
}

static void check_state(struct fixture *fixture, struct segment *segment,
                        const struct qsi_segment_file *file, const uint64_t *settled)
{
    uint64_t bits[2 * ENTRIES_LIMIT / 64];
    uint8_t counts[ENTRIES_LIMIT];
    uint64_t expiries[ENTRIES_LIMIT];
    uint32_t sizes[ENTRIES_LIMIT];
    struct qsi_segment_state state = {
        bits, bits + ENTRIES_LIMIT / 64, counts, expiries, sizes, NULL, 0};
    uint32_t has;

    QS_CHECK_OK(qsi_segment_read_state(fixture->index, file, &state, &has, QS_ERROR));
    for (uint32_t i = 0; i < entries; i++) {
        QS_CHECK(qsi_bitmap_has(bits, i) ==
                 (qsi_bitmap_has(settled, i) ||
                  (file->packed && !qsi_bitmap_has(segment->model.put, i))));
        if (file->state_area != 0 && settled == segment->settled) {
            QS_CHECK(qsi_bitmap_has(state.seen, i) == qsi_bitmap_has(segment->seen, i));
            QS_CHECK(has == segment->columns);
            QS_CHECK((has & QSI_STATE_DELIVERIES) == 0 || counts[i] == segment->deliveries[i]);
            QS_CHECK((has & QSI_STATE_EXPIRIES) == 0 || expiries[i] == segment->expiries[i]);
            QS_CHECK((has & QSI_STATE_SIZES) == 0 || sizes[i] == segment->sizes[i]);
        }
    }
}

static void rewrite(struct fixture *fixture, struct segment *segment)
{
    struct qsi_segment_state state;
    struct qsi_segment_file old = segment->model.file;
    struct qsi_segment_file to;

    if (old.heap_end == 0) {
        return;
    }
    new_state(segment);
    state = state_of(segment);
    QS_CHECK_OK(qsi_segment_rewrite(fixture->index, &old, segment->live, &state, &to, QS_ERROR));
    QS_CHECK(to.heap_end <= old.heap_end);
    segment->model.file = to;
    memcpy(segment->model.put, segment->live, sizeof segment->live);
    QS_CHECK_OK(qsi_segment_remove(fixture->index, &old, QS_ERROR));
    segment->durable = (struct qsi_segment_file){0};
}

static void load_some(struct fixture *fixture, struct segment *segment)
{
    uint64_t wanted[ENTRIES_LIMIT / 64];
    struct qsi_segment_load load = {.wanted = wanted};
    uint64_t sparse = below(4);

    for (uint32_t i = 0; i < ENTRIES_LIMIT / 64; i++) {
        wanted[i] = segment->live[i];
        for (uint64_t k = 0; k < sparse; k++) {
            wanted[i] &= qsi_splitmix_next(&random_state);
        }
    }
    load.from = (uint32_t)below(entries + 1);
    load.to = load.from + (uint32_t)below(entries - load.from + 1);
    load.bytes_max = below(3) == 0 ? UINT64_MAX : below(100000);
    QS_CHECK_OK(qsi_segment_load(fixture->index, &segment->model.file, &load, QS_ERROR));
    check_load(&segment->model, &load, false);
    QS_CHECK(load.damaged_count == 0);
    load_fini(&load);
}

struct visited {
    const struct segment *segment;
    uint32_t count;
};

static void note_visit(void *context, uint32_t slot, const struct qsi_body_ref *ref)
{
    struct visited *visited = context;
    struct qsi_body_ref expected = ref_of(&visited->segment->model.messages[slot]);

    QS_CHECK(refs_equal(ref, &expected) && qsi_bitmap_has(visited->segment->live, slot));
    visited->count++;
}

static void read_refs(struct fixture *fixture, struct segment *segment)
{
    struct visited visited = {.segment = segment};

    QS_CHECK_OK(qsi_segment_read_refs(fixture->index, &segment->model.file, segment->live,
                                      note_visit, &visited, QS_ERROR));
    for (uint32_t i = 0; i < entries; i++) {
        visited.count -=
            qsi_bitmap_has(segment->live, i) && segment->model.messages[i].kind == STORED;
    }
    QS_CHECK(visited.count == 0);
}

static void check_segment(struct fixture *fixture, struct segment *segment)
{
    check_all(fixture, &segment->model, segment->live, 1 + below(200000));
    read_refs(fixture, segment);
    if (segment->model.file.heap_end == 0) {
        return;
    }
    QS_CHECK_OK(qsi_segment_check(fixture->index, &segment->model.file, segment->live, QS_ERROR));
    QS_CHECK_OK(qsi_segment_check(fixture->index, &segment->model.file, NULL, QS_ERROR));
    check_state(fixture, segment, &segment->model.file, segment->settled);
    if (segment->durable.queue_id != 0) {
        check_state(fixture, segment, &segment->durable, segment->durable_settled);
    }
}

static bool keep_known(void *context, const struct qsi_segment_file *file)
{
    const struct qsi_segment_file *known = &segments[file->queue_id - 1].model.file;

    (void)context;
    return known->heap_end != 0 && known->number == file->number &&
           known->generation == file->generation;
}

static void step(struct fixture *fixture)
{
    uint32_t which = (uint32_t)below(SEGMENT_COUNT);
    struct segment *segment = &segments[which];
    uint64_t removed;

    switch (below(16)) {
    case 0:
        rewrite(fixture, segment);
        break;
    case 1:
        check_segment(fixture, segment);
        break;
    case 2:
        if (below(6) == 0) {
            QS_CHECK_OK(qsi_segment_remove(fixture->index, &segment->model.file, QS_ERROR));
            reset(which);
        }
        break;
    case 3:
        if (below(6) == 0) {
            reset(which); /* forgotten, and found by this: */
            QS_CHECK_OK(
                qsi_index_remove_others(fixture->index, keep_known, NULL, &removed, QS_ERROR));
        }
        break;
    case 4:
    case 5:
        write_state(fixture, segment);
        break;
    case 6:
    case 7:
        settle_some(segment);
        break;
    case 8:
    case 9:
    case 10:
        write_some(fixture, segment);
        break;
    default:
        load_some(fixture, segment);
    }
}

static void test_segments_hold_what_the_model_says(uint32_t entry_count, uint64_t seed, int steps)
{
    struct fixture fixture;

    entries = entry_count;
    random_state = seed;
    start_in_memory(&fixture, entries);
    for (uint32_t i = 0; i < SEGMENT_COUNT; i++) {
        segments[i].model.file.number = below(1000);
        reset(i);
    }
    for (int i = 0; i < steps; i++) {
        step(&fixture);
    }
    for (uint32_t i = 0; i < SEGMENT_COUNT; i++) {
        check_segment(&fixture, &segments[i]);
    }
    stop_in_memory(&fixture);
}

int main(int argc, char **argv)
{
    uint64_t seed = qs_test_seed(argc, argv);

    test_segments_hold_what_the_model_says(16, seed, 3000);
    test_segments_hold_what_the_model_says(128, seed + 1, 1500);
    test_segments_hold_what_the_model_says(ENTRIES_LIMIT, seed + 2, 1000);
    return 0;
}
