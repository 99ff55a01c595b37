/* A model of index segments, and writing and loading of segments that is compared with it. */
#ifndef SEGMENT_FIXTURE_H
#define SEGMENT_FIXTURE_H

#include "index_fixture.h"

static struct model model;

static uint64_t all[WORDS_MAX];

static inline struct message small(uint32_t seed)
{
    return (struct message){EMBEDDED, seed, 100, 3, 4, 5};
}

static inline void fill_mixed(uint32_t seed)
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

static uint64_t settled[WORDS_MAX], seen[WORDS_MAX], read_settled[WORDS_MAX], read_seen[WORDS_MAX];

static uint8_t deliveries[ENTRIES_MAX], read_deliveries[ENTRIES_MAX];

static inline void check_state(struct fixture *fixture, const struct qsi_segment_file *file,
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

static inline void rewrite(struct fixture *fixture, const uint64_t *live, bool with_deliveries)
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

#endif
