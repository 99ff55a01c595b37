/* Unacked deliveries by tag: any tags, in any order, few at a time or all.
 *
 * The random part compares with an array of flags; its seed is printed and is the first
 * argument. */
#include "qs_test_memory.h"
#include "unacked.h"

static struct qsi_queue queues[2];
static struct qsi_segment segments[4]; /* told apart by their address alone */

static uint64_t add(struct qsi_unacked *unacked, struct qsi_segment *segment, uint32_t slot,
                    uint32_t count, void *consumer)
{
    struct qsi_stretch stretch = {.segment = segment, .slot = slot, .count = count};

    QS_CHECK_OK(qsi_unacked_reserve(unacked, 1));
    return qsi_unacked_add(unacked, &queues[0].container, &stretch, consumer);
}

QS_TEST_FIXTURE(run_unacked, struct qsi_unacked, fixture = (struct qsi_unacked){0},
                qsi_unacked_fini(&fixture))
#define UNACKED_TEST(name) QS_TEST_BY(run_unacked, name, (struct qsi_unacked * unacked))

struct taken {
    uint64_t extents, tags;
    uint64_t masks[64]; /* of segment 0, by word */
    const void *consumer;
};

static void note(void *context, const struct qsi_extent *extent, uint64_t mask)
{
    struct taken *taken = context;

    QS_CHECK(mask != 0 && (extent->outstanding & mask) == 0);
    taken->extents += 1;
    taken->tags += (uint64_t)__builtin_popcountll(mask);
    taken->consumer = extent->consumer;
    if (extent->segment == &segments[0] && extent->word < 64) {
        QS_CHECK((taken->masks[extent->word] & mask) == 0);
        taken->masks[extent->word] |= mask;
    }
}

static uint64_t take(struct qsi_unacked *unacked, uint64_t first, uint64_t last,
                     struct taken *taken)
{
    uint64_t before = taken->tags;

    qsi_unacked_take(unacked, first, last, note, taken);
    return taken->tags - before;
}

UNACKED_TEST(test_tags_count_up)
{
    struct taken taken = {0};

    QS_CHECK(!qsi_unacked_has(unacked, 0) && !qsi_unacked_has(unacked, 1));
    QS_CHECK(take(unacked, 1, UINT64_MAX, &taken) == 0);
    QS_CHECK(add(unacked, &segments[0], 10, 5, NULL) == 1);
    QS_CHECK(qsi_unacked_skip(unacked, 3) == 6);
    QS_CHECK(add(unacked, &segments[0], 15, 1, NULL) == 9);
    QS_CHECK(unacked->last_tag == 9 && unacked->outstanding_count == 6);
    for (uint64_t tag = 0; tag < 12; tag++) {
        QS_CHECK(qsi_unacked_has(unacked, tag) == ((tag >= 1 && tag <= 5) || tag == 9));
    }
    QS_CHECK(!qsi_unacked_has(unacked, UINT64_MAX));
    QS_CHECK(take(unacked, 3, 3, &taken) == 1 && taken.masks[0] == UINT64_C(1) << 12);
    QS_CHECK(take(unacked, 3, 3, &taken) == 0);
    QS_CHECK(!qsi_unacked_has(unacked, 3) && unacked->outstanding_count == 5);
    QS_CHECK(take(unacked, 1, 7, &taken) == 4);
    QS_CHECK(take(unacked, 1, UINT64_MAX, &taken) == 1);
    QS_CHECK(taken.masks[0] == UINT64_C(0x3f) << 10 && unacked->outstanding_count == 0);
    QS_CHECK(unacked->count == 0 && add(unacked, &segments[0], 0, 1, NULL) == 10);
}

UNACKED_TEST(test_tags_that_are_spoken_for_can_be_taken_and_given_back)
{
    struct taken taken = {0};

    add(unacked, &segments[0], 0, 5, NULL);
    add(unacked, &segments[1], 0, 5, NULL);
    qsi_unacked_set_pending(unacked, 4, 6);
    for (uint64_t tag = 1; tag <= 10; tag++) {
        QS_CHECK(qsi_unacked_has(unacked, tag) == (tag < 4 || tag > 6));
    }
    QS_CHECK(take(unacked, 5, 5, &taken) == 1);
    qsi_unacked_give_back(unacked, 4, 6);
    QS_CHECK(qsi_unacked_has(unacked, 4) && qsi_unacked_has(unacked, 6));
    QS_CHECK(!qsi_unacked_has(unacked, 5) && unacked->outstanding_count == 9);
}

UNACKED_TEST(test_tags_that_are_spoken_for_are_not_withheld)
{
    struct taken taken = {0};

    add(unacked, &segments[0], 0, 5, NULL);
    qsi_unacked_set_pending(unacked, 2, 3);
    qsi_unacked_withhold(unacked, 1, 4, note, &taken);
    QS_CHECK(taken.masks[0] == 0x9 && unacked->withheld_count == 2);
    QS_CHECK(unacked->outstanding_count == 3 && take(unacked, 2, 3, &taken) == 2);
    qsi_unacked_take_withheld(unacked, note, &(struct taken){0});
    QS_CHECK(unacked->withheld_count == 0 && qsi_unacked_has(unacked, 5));
}

UNACKED_TEST(test_the_next_outstanding_tag_is_found_behind_what_was_settled)
{
    struct taken taken = {0};
    uint64_t tag = 0;

    QS_CHECK(!qsi_unacked_next(unacked, 1, &tag));
    for (uint32_t i = 0; i < 3; i++) {
        add(unacked, &segments[i], 0, 64, NULL);
    }
    qsi_unacked_skip(unacked, 1000);
    add(unacked, &segments[3], 0, 2, NULL);
    take(unacked, 1, 190, &taken);
    QS_CHECK(qsi_unacked_next(unacked, 1, &tag) && tag == 191);
    QS_CHECK(qsi_unacked_next(unacked, 192, &tag) && tag == 192);
    QS_CHECK(qsi_unacked_next(unacked, 193, &tag) && tag == 1193);
    take(unacked, 1193, 1193, &taken);
    QS_CHECK(qsi_unacked_next(unacked, 193, &tag) && tag == 1194);
    QS_CHECK(!qsi_unacked_next(unacked, 1195, &tag));
}

UNACKED_TEST(test_what_is_free_lies_between_what_is_spoken_for)
{
    uint64_t first, last;

    QS_CHECK(!qsi_unacked_next_free(unacked, 1, &first, &last));
    for (uint32_t i = 0; i < 3; i++) {
        add(unacked, &segments[i], 0, 10, NULL);
    }
    QS_CHECK(qsi_unacked_next_free(unacked, 1, &first, &last) && first == 1 && last == 30);
    qsi_unacked_set_pending(unacked, 8, 12);
    qsi_unacked_set_pending(unacked, 20, 20);
    qsi_unacked_set_pending(unacked, 30, 30);
    QS_CHECK(qsi_unacked_next_free(unacked, 1, &first, &last) && first == 1 && last == 7);
    QS_CHECK(qsi_unacked_next_free(unacked, 8, &first, &last) && first == 13 && last == 19);
    QS_CHECK(qsi_unacked_next_free(unacked, 20, &first, &last) && first == 21 && last == 29);
    QS_CHECK(!qsi_unacked_next_free(unacked, 30, &first, &last));
}

UNACKED_TEST(test_all_before_is_known_to_be_spoken_for)
{
    add(unacked, &segments[0], 0, 50, NULL);
    qsi_unacked_set_pending(unacked, 5, 5);
    QS_CHECK(unacked->free_from == 0);
    qsi_unacked_set_pending(unacked, 1, 10);
    QS_CHECK(unacked->free_from == 11);
    qsi_unacked_set_pending(unacked, 11, 20);
    qsi_unacked_set_pending(unacked, 30, 30);
    QS_CHECK(unacked->free_from == 21);
    qsi_unacked_give_back(unacked, 1, 10);
    QS_CHECK(unacked->free_from == 0 && qsi_unacked_has(unacked, 7));
}

UNACKED_TEST(test_neighbours_share_an_extent)
{
    int one, two;

    for (uint32_t slot = 0; slot < 64; slot++) {
        add(unacked, &segments[0], slot, 1, &one);
    }
    QS_CHECK(unacked->count == 1);
    add(unacked, &segments[0], 64, 1, &one); /* another word */
    QS_CHECK(unacked->count == 2);
    add(unacked, &segments[0], 67, 1, &one); /* not the next slot */
    QS_CHECK(unacked->count == 2);
    add(unacked, &segments[0], 66, 1, &one); /* a slot before the last */
    QS_CHECK(unacked->count == 3);
    add(unacked, &segments[0], 68, 1, &two); /* another consumer */
    QS_CHECK(unacked->count == 4);
    add(unacked, &segments[1], 69, 1, &two); /* another segment */
    QS_CHECK(unacked->count == 5);
    qsi_unacked_skip(unacked, 1); /* not the next tag */
    add(unacked, &segments[1], 70, 1, &two);
    QS_CHECK(unacked->count == 6 && unacked->outstanding_count == 70);
    QS_CHECK(qsi_unacked_stretches(unacked, 1, UINT64_MAX, false) == 7);
}

/* As one of eight consumers gets them. */
UNACKED_TEST(test_every_eighth_message_is_found_by_its_tag)
{
    struct taken taken = {0};

    for (uint32_t slot = 3; slot < 128; slot += 8) {
        add(unacked, &segments[0], slot, 1, NULL);
    }
    QS_CHECK(unacked->count == 2 && unacked->outstanding_count == 16);
    QS_CHECK(take(unacked, 2, 2, &taken) == 1 && taken.masks[0] == UINT64_C(1) << 11);
    QS_CHECK(!qsi_unacked_has(unacked, 2) && qsi_unacked_has(unacked, 3));
    QS_CHECK(take(unacked, 7, 10, &taken) == 4 && taken.extents == 3);
    QS_CHECK(taken.masks[0] == (UINT64_C(1) << 11 | UINT64_C(1) << 51 | UINT64_C(1) << 59));
    QS_CHECK(taken.masks[1] == (UINT64_C(1) << 3 | UINT64_C(1) << 11));
    QS_CHECK(qsi_unacked_stretches(unacked, 1, UINT64_MAX, false) == 11);
    QS_CHECK(take(unacked, 1, 16, &taken) == 11 && unacked->count == 0);
    QS_CHECK(taken.masks[0] == UINT64_C(0x0808080808080808));
    QS_CHECK(taken.masks[1] == UINT64_C(0x0808080808080808));
}

/* The segment that an empty extent was about may be gone, and another one may lie at its
 * address. */
UNACKED_TEST(test_an_empty_extent_is_not_continued)
{
    struct taken taken = {0};

    add(unacked, &segments[1], 0, 1, NULL);
    add(unacked, &segments[0], 0, 1, NULL);
    take(unacked, 2, 2, &taken);
    add(unacked, &segments[0], 1, 1, NULL);
    QS_CHECK(unacked->count == 3);
    QS_CHECK(take(unacked, 3, 3, &taken) == 1 && taken.masks[0] == 3);
}

UNACKED_TEST(test_stretches_bound_what_is_taken)
{
    struct taken taken = {0};

    add(unacked, &segments[0], 0, 64, NULL);
    add(unacked, &segments[0], 64, 64, NULL);
    QS_CHECK(qsi_unacked_stretches(unacked, 1, 128, false) == 2);
    QS_CHECK(qsi_unacked_stretches(unacked, 65, 128, false) == 1);
    QS_CHECK(qsi_unacked_stretches(unacked, 129, 200, false) == 0);
    for (uint64_t tag = 1; tag <= 128; tag += 2) {
        take(unacked, tag, tag, &taken);
    }
    QS_CHECK(qsi_unacked_stretches(unacked, 1, 128, false) == 64);
    QS_CHECK(qsi_unacked_stretches(unacked, 10, 20, false) == 6);
    taken.extents = 0;
    QS_CHECK(take(unacked, 10, 100, &taken) == 46 && taken.extents == 2);
    QS_CHECK(take(unacked, 1, 128, &taken) == 64 - 46);
    QS_CHECK(taken.masks[0] == UINT64_MAX && taken.masks[1] == UINT64_MAX);
}

UNACKED_TEST(test_deliveries_tell_their_consumer)
{
    struct taken taken = {0};
    int one, two;

    add(unacked, &segments[0], 0, 3, &one);
    add(unacked, &segments[0], 3, 3, &two);
    QS_CHECK(take(unacked, 2, 2, &taken) == 1 && taken.consumer == &one);
    QS_CHECK(take(unacked, 5, 5, &taken) == 1 && taken.consumer == &two);
    QS_CHECK(take(unacked, 1, 6, &taken) == 4);
}

/* One old tag must not keep what came and went behind it. */
UNACKED_TEST(test_empty_extents_are_compacted)
{
    struct taken taken = {0};

    add(unacked, &segments[1], 0, 1, NULL);
    for (uint32_t i = 0; i < 100000; i++) {
        uint64_t tag = add(unacked, &segments[2 + i % 2], i, 1, NULL);

        QS_CHECK(take(unacked, tag, tag, &taken) == 1);
        QS_CHECK(unacked->count < 200);
    }
    QS_CHECK(unacked->capacity < 1000 && qsi_unacked_has(unacked, 1));
    QS_CHECK(take(unacked, 1, 1, &taken) == 1 && unacked->count == 0);
}

/* ---- tags and flags ---- */

#define FLAGS_MAX 60000

static bool flags[FLAGS_MAX];
static uint32_t slot_of[FLAGS_MAX];

/* Each message is that of its tag, and was expected. */
static void compare(void *context, const struct qsi_extent *extent, uint64_t mask)
{
    uint64_t *count = context;

    QS_CHECK(mask != 0 && (mask & ~extent->messages) == 0);
    for (; mask != 0; mask &= mask - 1) {
        uint64_t tag = qsi_extent_tag(extent, mask);

        QS_CHECK(flags[tag] && slot_of[tag] == qsi_extent_slot(extent, mask));
        QS_CHECK(qsi_extent_message(extent, tag) == (mask & -mask));
        flags[tag] = false;
        *count += 1;
    }
}

UNACKED_TEST(test_tags_do_as_flags_do)
{
    uint64_t outstanding = 0, next = 1, taken = 0;
    uint32_t slots[4] = {0};

    memset(flags, 0, sizeof flags);
    while (next < FLAGS_MAX - 100) {
        if (qs_test_below(3) > 0) {
            uint32_t segment = qs_test_below(10) == 0 ? qs_test_below(4) : 1;
            uint32_t left = QSI_WORD_BITS - slots[segment] % QSI_WORD_BITS;
            uint32_t count = 1 + qs_test_below(left < 10 ? left : 10);

            if (qs_test_below(20) == 0) {
                QS_CHECK(qsi_unacked_skip(unacked, count) == next);
                next += count;
                continue;
            }
            QS_CHECK(add(unacked, &segments[segment], slots[segment], count, NULL) == next);
            outstanding += count;
            for (; count > 0; count--) {
                slot_of[next] = slots[segment]++;
                flags[next++] = true;
            }
            slots[segment] += qs_test_below(2) * qs_test_below(8); /* another consumer's */
        } else {
            uint64_t first = 1 + qs_test_below((uint32_t)next);
            uint64_t last = first + (qs_test_below(4) == 0 ? qs_test_below(300) : qs_test_below(3));
            uint64_t expected = 0;

            QS_CHECK(qsi_unacked_has(unacked, first) == flags[first]);
            for (uint64_t tag = first; tag <= last && tag < next; tag++) {
                expected += flags[tag];
            }
            taken = 0;
            qsi_unacked_take(unacked, first, last, compare, &taken);
            QS_CHECK(taken == expected);
            outstanding -= expected;
        }
        QS_CHECK(unacked->outstanding_count == outstanding);
        qsi_unacked_check(unacked);
    }
    for (uint64_t tag = 0; tag < next; tag++) {
        QS_CHECK(qsi_unacked_has(unacked, tag) == flags[tag]);
    }
    taken = 0;
    qsi_unacked_take(unacked, 0, UINT64_MAX, compare, &taken);
    QS_CHECK(taken == outstanding);
}

/* A million tags acked one by one in random order: finding each is a search, dropping it is not
 * a walk. */
QS_TEST(test_a_million_acks_in_any_order)
{
    enum { COUNT = 1000000 };
    struct qsi_unacked unacked = {0};
    struct taken taken = {0};
    QS_TEST_FREED uint32_t *order = malloc(COUNT * sizeof *order);

    QS_CHECK(order != NULL);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t other = qs_test_below(i + 1);

        order[i] = order[other];
        order[other] = i + 1;
        add(&unacked, &segments[1], i, 1, NULL);
    }
    QS_CHECK(unacked.count == (COUNT + 63) / 64);
    for (uint32_t i = 0; i < COUNT; i++) {
        QS_CHECK(qsi_unacked_has(&unacked, order[i]));
        take(&unacked, order[i], order[i], &taken);
    }
    QS_CHECK(taken.tags == COUNT && unacked.outstanding_count == 0 && unacked.count == 0);
    qsi_unacked_fini(&unacked);
}

UNACKED_TEST(test_reserving_may_fail_and_changes_nothing_then)
{
    struct taken taken = {0};

    qs_test_alloc_arm(&memory, 1, true);
    QS_CHECK(qsi_unacked_reserve(unacked, 1) == QS_ENOMEM);
    qs_test_alloc_arm(&memory, 0, false);
    for (uint32_t i = 0; i < 16; i++) {
        add(unacked, &segments[i % 2], i, 1, NULL);
    }
    qs_test_alloc_arm(&memory, 1, true);
    QS_CHECK(qsi_unacked_reserve(unacked, 1) == QS_ENOMEM);
    QS_CHECK(take(unacked, 1, 10, &taken) == 10);
    QS_CHECK_OK(qsi_unacked_reserve(unacked, 1)); /* the front is free again */
    qs_test_alloc_arm(&memory, 0, false);
    QS_CHECK(take(unacked, 1, 16, &taken) == 6);
}
