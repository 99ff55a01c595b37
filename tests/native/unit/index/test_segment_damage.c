/* Index segments whose files are damaged, foreign, cut, or made up.
 *
 * Method: every bit of a small file is flipped and every end is cut off, and each time all
 * functions that read are asked: what comes back is what was written, or is reported, never
 * anything else.  Files made up at random, with right checksums where that leads deeper, may
 * come back as anything that a record may be. */
#include "index_fixture.h"

#define ENTRIES 16u

static struct model model;

QS_TEST_FIXTURE(run_with_entries, struct fixture, start_in_memory(&fixture, ENTRIES),
                stop_in_memory(&fixture))
#define ENTRIES_TEST(name) QS_TEST_BY(run_with_entries, name, (struct fixture * fixture))
static uint64_t settled[1] = {0x0600}; /* and these were never put */
static uint64_t seen[1] = {0x00ff};
static uint8_t deliveries[ENTRIES] = {1, 2, 3, 4, 5, 6, 7, 8};
static uint64_t expiries[ENTRIES] = {1, UINT64_C(1) << 63, UINT64_MAX, 0, 1700000000000000};
static uint32_t sizes[ENTRIES] = {7, UINT32_MAX, 0, 1u << 31};

/* Sixteen slots but two, in two envelopes; state with all its columns. */
static void write_small(struct fixture *fixture, bool packed)
{
    struct qsi_segment_state state = {settled, seen, deliveries, expiries, sizes, NULL, 0};
    struct qsi_segment_file to;

    model_init(&model, ENTRIES, 3, 12);
    for (uint32_t i = 0; i < ENTRIES; i++) {
        if (!qsi_bitmap_has(settled, i)) {
            model.messages[i] = (struct message){i % 5 == 2 ? STORED : EMBEDDED, i, i * 3, 1,
                                                 (uint8_t)(1 + i / 8),           2};
        }
    }
    write_model(fixture, &model, 0, ENTRIES, false);
    if (packed) {
        QS_CHECK_OK(
            qsi_segment_rewrite(fixture->index, &model.file, model.put, &state, &to, QS_ERROR));
        QS_CHECK_OK(qsi_segment_remove(fixture->index, &model.file, QS_ERROR));
        model.file = to;
    } else {
        QS_CHECK_OK(qsi_segment_write_state(fixture->index, &model.file, 0, &state, QS_ERROR));
    }
}

static bool is_answer(qs_status status)
{
    return status == QS_OK || status == QS_ECORRUPT;
}

static void expect_ref(void *context, uint32_t slot, const struct qsi_body_ref *ref)
{
    struct qsi_body_ref expected = ref_of(&model.messages[slot]);

    (void)context;
    QS_CHECK(model.messages[slot].kind == STORED && refs_equal(ref, &expected));
}

struct answers {
    qs_status load, state, refs, check;
    uint32_t damaged_count;
};

static struct answers ask_all(struct fixture *fixture)
{
    struct answers answers = {QS_OK, QS_OK, QS_OK, QS_OK, 0};
    struct qsi_segment_load load = {
        .from = 0, .to = ENTRIES, .wanted = model.put, .bytes_max = UINT64_MAX};
    uint64_t bits[2];
    uint8_t counts[ENTRIES];
    uint64_t times[ENTRIES];
    uint32_t lengths[ENTRIES];
    struct qsi_segment_state state = {bits, bits + 1, counts, times, lengths, NULL, 0};
    uint32_t has;

    answers.load = qsi_segment_load(fixture->index, &model.file, &load, QS_ERROR);
    QS_CHECK(is_answer(answers.load) && (answers.load == QS_OK) == (load.chunk != NULL));
    if (answers.load == QS_OK) {
        check_load(&model, &load, true);
        answers.damaged_count = load.damaged_count;
    }
    load_fini(&load);
    answers.state = qsi_segment_read_state(fixture->index, &model.file, &state, &has, QS_ERROR);
    QS_CHECK(is_answer(answers.state));
    if (answers.state == QS_OK) {
        QS_CHECK(bits[0] == settled[0] && bits[1] == seen[0] &&
                 has == (QSI_STATE_DELIVERIES | QSI_STATE_EXPIRIES | QSI_STATE_SIZES));
        QS_CHECK(memcmp(counts, deliveries, sizeof counts) == 0);
        QS_CHECK(memcmp(times, expiries, sizeof times) == 0);
        QS_CHECK(memcmp(lengths, sizes, sizeof lengths) == 0);
    }
    answers.refs =
        qsi_segment_read_refs(fixture->index, &model.file, model.put, expect_ref, NULL, QS_ERROR);
    answers.check = qsi_segment_check(fixture->index, &model.file, model.put, QS_ERROR);
    QS_CHECK(is_answer(answers.refs) && is_answer(answers.check));
    return answers;
}

/* Where a byte of the file belongs. */
enum part { HEADER, STATE, SLOT, HEAP, DEAD };

static enum part part_of(uint64_t at)
{
    const struct qsi_segment_file *file = &model.file;
    uint64_t state_at = qsi_segment_state_at(ENTRIES, file->state_area);
    uint64_t slots_at = qsi_segment_slots_at(ENTRIES);

    if (at < qsi_segment_header_bytes(ENTRIES)) {
        return HEADER;
    }
    if (at >= state_at && at < state_at + 64 + 16 + 13 * ENTRIES) {
        return STATE;
    }
    if (at >= slots_at && at < slots_at + file->slot_count * QSI_SLOT_BYTES) {
        return file->packed || qsi_bitmap_has(model.put, (uint32_t)((at - slots_at) / 32)) ? SLOT
                                                                                           : DEAD;
    }
    return at >= qsi_segment_heap_at(ENTRIES, file->packed, file->slot_count) ? HEAP : DEAD;
}

static void check_flip(struct fixture *fixture, uint64_t at)
{
    struct answers answers = ask_all(fixture);
    enum part part = part_of(at);

    QS_CHECK((answers.load == QS_OK) == (part != HEADER));
    QS_CHECK((answers.state == QS_OK) == (part != HEADER && part != STATE));
    QS_CHECK((answers.refs == QS_OK) == (part != HEADER && part != SLOT));
    QS_CHECK((answers.check == QS_OK) == (part == DEAD));
    QS_CHECK(part != SLOT || answers.damaged_count == 1);
    QS_CHECK((answers.damaged_count > 0) == (part == SLOT || part == HEAP));
}

QS_BOOL_TEST(test_every_flipped_bit_is_found, packed)
{
    struct fixture fixture;

    start_in_memory(&fixture, ENTRIES);
    write_small(&fixture, packed);
    QS_CHECK(file_bytes(&fixture, &model.file) == model.file.heap_end);
    QS_CHECK(ask_all(&fixture).check == QS_OK);
    for (uint64_t at = 0; at < model.file.heap_end; at++) {
        /* Of the zeros in between, some will do. */
        if (part_of(at) == DEAD && at % 61 != 0) {
            continue;
        }
        for (int bit = 0; bit < 8; bit += part_of(at) == HEADER && at >= 256 ? 5 : 1) {
            flip(&fixture, &model.file, at, (uint8_t)(1 << bit));
            check_flip(&fixture, at);
            flip(&fixture, &model.file, at, (uint8_t)(1 << bit));
        }
    }
    QS_CHECK(ask_all(&fixture).check == QS_OK);
    stop_in_memory(&fixture);
}

QS_BOOL_TEST(test_every_end_cut_off_is_found, packed)
{
    struct fixture fixture;
    qs_file *handle;

    start_in_memory(&fixture, ENTRIES);
    write_small(&fixture, packed);
    QS_CHECK(ask_all(&fixture).load == QS_OK);
    handle = open_file(&fixture, &model.file, QS_OPEN_WRITE);
    for (uint64_t bytes = model.file.heap_end; bytes-- > 0;) {
        struct answers answers;

        QS_CHECK_OK(fixture.env->truncate(fixture.env, handle, bytes, QS_ERROR));
        answers = ask_all(&fixture);
        QS_CHECK(answers.load == QS_ECORRUPT && answers.state == QS_ECORRUPT);
        QS_CHECK(answers.refs == QS_ECORRUPT && answers.check == QS_ECORRUPT);
    }
    fixture.env->close(fixture.env, handle);
    stop_in_memory(&fixture);
}

static void check_refused(struct fixture *fixture, const struct qsi_segment_file *file)
{
    struct qsi_segment_file before = model.file;
    struct qsi_segment_file to;
    struct qsi_segment_writer *writer;
    struct qsi_segment_state state = {settled, seen, NULL, NULL, NULL, NULL, 0};
    struct answers answers;

    model.file = *file;
    answers = ask_all(fixture);
    QS_CHECK(answers.load == QS_ECORRUPT && answers.state == QS_ECORRUPT);
    QS_CHECK(answers.refs == QS_ECORRUPT && answers.check == QS_ECORRUPT);
    QS_CHECK_STATUS(QS_ECORRUPT,
                    qsi_segment_rewrite(fixture->index, file, model.put, &state, &to, QS_ERROR));
    QS_CHECK_STATUS(QS_ECORRUPT,
                    qsi_segment_write_state(fixture->index, &model.file, 0, &state, QS_ERROR));
    QS_CHECK_STATUS(QS_ECORRUPT, qsi_segment_sync(fixture->index, file, QS_ERROR));
    if (!file->packed && file->heap_end != 0) {
        QS_CHECK_STATUS(QS_ECORRUPT, qsi_segment_writer_begin(&writer, fixture->index, &model.file,
                                                              false, QS_ERROR));
        QS_CHECK(writer == NULL);
    }
    QS_CHECK(memcmp(&model.file, file, sizeof *file) == 0);
    model.file = before;
}

QS_BOOL_TEST(test_description_that_does_not_fit_is_refused, packed)
{
    struct fixture fixture;
    struct qsi_segment_file file;

    start_in_memory(&fixture, ENTRIES);
    write_small(&fixture, packed);
    for (int what = 0; what < 11; what++) {
        file = model.file;
        switch (what) {
        case 0:
            file.queue_id++;
            break;
        case 1:
            file.number++;
            break;
        case 2:
            file.generation++;
            break;
        case 3:
            file.salt ^= 1;
            break;
        case 4:
            file.heap_end++;
            break;
        case 5:
            file.heap_end = UINT64_MAX;
            break;
        case 6:
            file.heap_end = qsi_segment_heap_at(ENTRIES, packed, file.slot_count) - 1;
            break;
        case 7:
            file.slot_count--;
            break;
        case 8:
            file.slot_count = UINT32_MAX;
            break;
        case 9:
            file.state_area = 3;
            break;
        case 10:
            file.packed = !file.packed;
            break;
        }
        check_refused(&fixture, &file);
    }
    QS_CHECK(ask_all(&fixture).check == QS_OK);
    stop_in_memory(&fixture);
}

static void copy_over(struct fixture *fixture, const struct qsi_segment_file *from,
                      const struct qsi_segment_file *to)
{
    static uint8_t bytes[65536];

    overwrite(fixture, to, 0, bytes, read_at(fixture, from, 0, bytes, sizeof bytes));
}

ENTRIES_TEST(test_another_segment_in_its_place_is_refused)
{
    struct qsi_segment_file other;

    write_small(fixture, false);
    other = model.file;
    QS_CHECK_OK(qsi_segment_remove(fixture->index, &other, QS_ERROR));
    write_small(fixture, false);
    QS_CHECK(model.file.salt != other.salt);
    check_refused(fixture, &other); /* of an earlier life, as a crash might bring back */
    model_init(&model, ENTRIES, 3, 13);
    model.messages[0] = (struct message){.kind = EMBEDDED};
    write_model(fixture, &model, 0, ENTRIES, false);
    other.number = 12;
    copy_over(fixture, &other, &model.file);
    check_refused(fixture, &model.file);
}

ENTRIES_TEST(test_another_store_or_version_or_no_segment_is_refused)
{
    uint8_t header[4096];
    uint8_t garbage[300];

    write_small(fixture, false);
    qsi_index_close(fixture->index);
    QS_CHECK_OK(qsi_index_open(&fixture->index, fixture->env, fixture->dir,
                               (const uint8_t *)"another's uuid..", ENTRIES, QS_ERROR));
    check_refused(fixture, &model.file);
    qsi_index_close(fixture->index);
    QS_CHECK_OK(
        qsi_index_open(&fixture->index, fixture->env, fixture->dir, test_uuid, 32, QS_ERROR));
    QS_CHECK_STATUS(QS_ECORRUPT, qsi_segment_check(fixture->index, &model.file, NULL, QS_ERROR));
    qsi_index_close(fixture->index);
    QS_CHECK_OK(
        qsi_index_open(&fixture->index, fixture->env, fixture->dir, test_uuid, ENTRIES, QS_ERROR));
    QS_CHECK(read_at(fixture, &model.file, 0, header, sizeof header) == sizeof header);
    for (uint32_t at = 8; at <= 12; at += 4) {
        header[at] ^= 2;
        qsi_put_u32(header + 4092, qs_crc32c(0, header, 4092));
        overwrite(fixture, &model.file, 0, header, sizeof header);
        QS_CHECK_STATUS(QS_EVERSION,
                        qsi_segment_check(fixture->index, &model.file, NULL, QS_ERROR));
        header[at] ^= 2;
    }
    memset(garbage, 'x', sizeof garbage);
    overwrite(fixture, &model.file, 0, garbage, sizeof garbage);
    check_refused(fixture, &model.file);
    QS_CHECK_OK(qsi_segment_remove(fixture->index, &model.file, QS_ERROR));
    check_refused(fixture, &model.file);
}

/* ---- made up ---- */

static void count_ref(void *context, uint32_t slot, const struct qsi_body_ref *ref)
{
    QS_CHECK(slot < ENTRIES && ref->offset % 8 == 0);
    ++*(uint32_t *)context;
}

/* Anything goes, but it goes without a crash, and a record is a record. */
static void survive(struct fixture *fixture, uint64_t *random, bool has_slots_only)
{
    struct qsi_segment_load load = {.from = (uint32_t)qsi_splitmix_below(random, ENTRIES),
                                    .to = ENTRIES,
                                    .wanted = model.put,
                                    .bytes_max = qsi_splitmix_next(random) >> random[0] % 64};
    uint64_t bits[2];
    uint8_t counts[ENTRIES];
    struct qsi_segment_state state = {bits, bits + 1, counts, NULL, NULL, NULL, 0};
    struct qsi_segment_file to;
    uint32_t count = 0;
    uint32_t has;
    qs_status status = qsi_segment_load(fixture->index, &model.file, &load, QS_ERROR);

    /* A slot may lose its own message, not the others. */
    QS_CHECK(status == QS_OK || (status == QS_ECORRUPT && !has_slots_only));
    if (load.chunk != NULL) {
        QS_CHECK_STATUS(load.damaged_count == 0 ? QS_OK : QS_ECORRUPT,
                        qsi_messages_check(load.chunk->data, QS_ERROR));
        QS_CHECK(qsi_record_length(load.chunk->data) == load.chunk->used);
    }
    load_fini(&load);
    QS_CHECK(
        is_answer(qsi_segment_read_state(fixture->index, &model.file, &state, &has, QS_ERROR)));
    QS_CHECK(is_answer(qsi_segment_read_refs(fixture->index, &model.file, model.put, count_ref,
                                             &count, QS_ERROR)));
    QS_CHECK(is_answer(qsi_segment_check(fixture->index, &model.file, NULL, QS_ERROR)));
    status = qsi_segment_rewrite(fixture->index, &model.file, model.put, NULL, &to, QS_ERROR);
    QS_CHECK(status == QS_OK || (status == QS_ECORRUPT && !has_slots_only));
    if (status == QS_OK) {
        QS_CHECK_OK(qsi_segment_remove(fixture->index, &to, QS_ERROR));
    }
}

static uint64_t some_offset(uint64_t *random, uint64_t heap_at)
{
    uint64_t end = model.file.heap_end;

    switch (qsi_splitmix_below(random, 8)) {
    case 0:
        return qsi_splitmix_next(random);
    case 1:
        return end - qsi_splitmix_below(random, 3);
    case 2:
        return heap_at - qsi_splitmix_below(random, 3);
    default:
        return heap_at + qsi_splitmix_below(random, end - heap_at + 1);
    }
}

static uint32_t some_bytes(uint64_t *random)
{
    uint64_t r = qsi_splitmix_next(random);

    return r % 8 == 0 ? (uint32_t)(r >> 32) : (uint32_t)(r >> 32) % 400;
}

/* A slot with a right check that says anything, and often a right checksum of what it names. */
static void make_up_slot(struct fixture *fixture, uint64_t *random, uint32_t slot, uint32_t place)
{
    static uint8_t bytes[65536];
    uint64_t heap_at = qsi_segment_heap_at(ENTRIES, model.file.packed, model.file.slot_count);
    uint32_t identity =
        qsi_slot_identity(qsi_slot_seed(&model.file), model.file.number * ENTRIES + slot);
    uint32_t kind = (uint32_t)qsi_splitmix_below(random, 20);
    struct qsi_slot fields = {.where = some_offset(random, heap_at),
                              .back = some_bytes(random),
                              .envelope_bytes = some_bytes(random) % 40,
                              .body_bytes = some_bytes(random),
                              .kind = (uint8_t)(kind < 4 ? kind : 1)};
    uint64_t envelope_at = fields.where - fields.back;
    uint8_t encoded[QSI_SLOT_BYTES];

    if (qsi_splitmix_below(random, 2) == 0 && fields.where <= sizeof bytes) {
        fields.back = (uint32_t)(fields.where - heap_at); /* where there is an envelope */
        envelope_at = heap_at;
    }
    if (fields.where < sizeof bytes && envelope_at < sizeof bytes) {
        memset(bytes, 0, sizeof bytes);
        read_at(fixture, &model.file, 0, bytes, sizeof bytes);
        if (envelope_at == heap_at) {
            struct message message = {EMBEDDED, 0, 0, 1, 1, 2};
            uint8_t envelope[ENVELOPE_BYTES_MAX];

            fields.envelope_bytes = envelope_of(&message, envelope).bytes;
        }
        if (envelope_at + fields.envelope_bytes <= sizeof bytes &&
            fields.where + fields.body_bytes <= sizeof bytes) {
            fields.crc = qs_crc32c(qs_crc32c(identity, bytes + envelope_at, fields.envelope_bytes),
                                   bytes + fields.where, fields.body_bytes);
        }
    }
    qsi_slot_encode(encoded, &fields, identity);
    overwrite(fixture, &model.file, qsi_segment_slots_at(ENTRIES) + place * 32ull, encoded, 32);
}

QS_SEED_TEST(test_slots_that_are_made_up_do_no_harm)
{
    struct fixture fixture;
    uint64_t random = seed;

    start_in_memory(&fixture, ENTRIES);
    for (int round = 0; round < 3000; round++) {
        uint32_t place = 0;

        if (round % 50 == 0) {
            write_small(&fixture, round % 100 == 0);
        }
        for (uint32_t slot = 0; slot < ENTRIES; slot++) {
            if (!model.file.packed || qsi_bitmap_has(model.put, slot)) {
                if (qsi_splitmix_below(&random, 3) == 0) {
                    make_up_slot(&fixture, &random, slot, place);
                }
                place++;
            }
        }
        survive(&fixture, &random, true);
        if (round % 50 == 49) {
            QS_CHECK_OK(qsi_segment_remove(fixture.index, &model.file, QS_ERROR));
        }
    }
    stop_in_memory(&fixture);
}

QS_SEED_TEST(test_random_bytes_do_no_harm)
{
    struct fixture fixture;
    uint64_t random = seed;
    uint8_t bytes[600];

    start_in_memory(&fixture, ENTRIES);
    for (int round = 0; round < 1500; round++) {
        struct qsi_segment_file whole;
        uint64_t count = 1 + qsi_splitmix_below(&random, sizeof bytes);
        uint64_t at;

        write_small(&fixture, round % 2 == 0);
        whole = model.file;
        /* Behind the header, mostly: before it, everything ends there. */
        at = round % 9 == 0 ? 0 : 4096;
        at += qsi_splitmix_below(&random, model.file.heap_end - count - at);
        for (uint64_t i = 0; i < count; i++) {
            bytes[i] = (uint8_t)qsi_splitmix_next(&random);
        }
        overwrite(&fixture, &model.file, at, bytes, (size_t)count);
        if (round % 3 == 0) {
            model.file.heap_end -= qsi_splitmix_below(&random, 300);
        }
        if (round % 5 == 0) {
            model.file.state_area = (uint8_t)qsi_splitmix_below(&random, 4);
        }
        survive(&fixture, &random, false);
        QS_CHECK_OK(qsi_segment_remove(fixture.index, &whole, QS_ERROR));
    }
    stop_in_memory(&fixture);
}
