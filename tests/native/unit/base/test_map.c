/* The hash table against a plain array as its model, with and without memory. */
#include "hash.h"
#include "map.h"
#include "qs_test_alloc.h"

#define KEY_COUNT 500
#define STEP_COUNT 200000

static uint64_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

/* Keys of different lengths, 0 included, and with NUL bytes in them. */
static size_t make_key(unsigned number, uint8_t *key)
{
    size_t bytes = number % 20;

    memset(key, 0, bytes);
    if (bytes >= sizeof number) {
        memcpy(key + bytes - sizeof number, &number, sizeof number);
    } else {
        memset(key, (int)(number / 20), bytes);
    }
    return bytes;
}

/* Keys that are too short for their number collide on purpose: the model is by key, not by
 * number. */
static unsigned model_index(unsigned number)
{
    return number % 20 == 0 ? 0 : number;
}

static void check_walk(const struct qsi_map *map, char *const *model)
{
    struct qsi_map_cursor cursor = qsi_map_begin(map);
    size_t count = 0;
    size_t expected = 0;

    while (qsi_map_next(map, &cursor)) {
        QS_CHECK(qsi_map_get(map, cursor.key, cursor.key_bytes) == cursor.value);
        count++;
    }
    for (unsigned i = 0; i < KEY_COUNT; i++) {
        expected += model[i] != NULL;
    }
    QS_CHECK(count == expected && map->count == expected);
}

QS_SEED_TEST(test_map_agrees_with_a_model_whatever_memory_does)
{
    static char values[KEY_COUNT];
    char *model[KEY_COUNT] = {0};
    struct qs_test_alloc state;
    struct qsi_map map = {0};

    qs_test_alloc_install(&state);
    for (int step = 0; step < STEP_COUNT; step++) {
        unsigned number = (unsigned)(next_random(&seed) % KEY_COUNT);
        unsigned index = model_index(number);
        char *value = &values[next_random(&seed) % KEY_COUNT];
        uint8_t key[20];
        size_t key_bytes = make_key(number, key);

        qs_test_alloc_arm(&state, next_random(&seed) % 4, next_random(&seed) % 2 == 0);
        QS_CHECK(qsi_map_get(&map, key, key_bytes) == model[index]);
        if (next_random(&seed) % 3 != 0) {
            qs_status status = qsi_map_put(&map, key, key_bytes, value);

            QS_CHECK(status == QS_OK || (status == QS_ENOMEM && state.has_failed));
            model[index] = status == QS_OK ? value : model[index];
        } else {
            QS_CHECK(qsi_map_remove(&map, key, key_bytes) == model[index]);
            model[index] = NULL;
        }
    }
    check_walk(&map, model);
    qsi_map_fini(&map);
    QS_CHECK(state.alive == 0 && map.bucket_count == 0);
    qs_allocator_set(NULL);
}

QS_TEST(test_map_grows_on_when_only_the_table_cannot)
{
    struct qs_test_alloc state;
    struct qsi_map map = {0};
    int value;

    qs_test_alloc_install(&state);
    for (uint32_t i = 0; i < 16; i++) {
        QS_CHECK_OK(qsi_map_put(&map, &i, sizeof i, &value));
    }
    for (uint32_t i = 16; i < 100; i++) {
        qs_test_alloc_arm(&state, 1, false); /* the table comes first, the entry second */
        QS_CHECK_OK(qsi_map_put(&map, &i, sizeof i, &value));
        QS_CHECK(state.has_failed);
    }
    QS_CHECK(map.count == 100 && map.bucket_count == 16);
    for (uint32_t i = 0; i < 100; i++) {
        QS_CHECK(qsi_map_get(&map, &i, sizeof i) == &value);
    }
    qsi_map_fini(&map);
    qs_allocator_set(NULL);
}

QS_TEST(test_current_entry_may_be_removed_in_a_walk)
{
    struct qsi_map map = {0};
    struct qsi_map_cursor cursor;
    int value;
    int seen = 0;

    for (uint32_t i = 0; i < 1000; i++) {
        QS_CHECK_OK(qsi_map_put(&map, &i, sizeof i, &value));
    }
    cursor = qsi_map_begin(&map);
    while (qsi_map_next(&map, &cursor)) {
        seen++;
        QS_CHECK(qsi_map_remove(&map, cursor.key, cursor.key_bytes) == &value);
    }
    QS_CHECK(seen == 1000 && map.count == 0);
    qsi_map_fini(&map);
}

QS_TEST(test_empty_map_answers)
{
    struct qsi_map map = {0};
    struct qsi_map_cursor cursor = qsi_map_begin(&map);

    QS_CHECK(qsi_map_get(&map, "a", 1) == NULL);
    QS_CHECK(qsi_map_remove(&map, "a", 1) == NULL);
    QS_CHECK(!qsi_map_next(&map, &cursor));
    qsi_map_fini(&map);
    qsi_map_fini(NULL);
}

/* Keys that differ in a byte each, like names with a running number, must not share buckets more
 * than chance would have it: 4096 keys in 4096 buckets leave about 1507 of them empty. */
QS_TEST(test_hash_spreads_similar_keys)
{
    static uint8_t used[4096];
    int empty = 0;

    for (unsigned i = 0; i < 4096; i++) {
        char key[32];
        int key_bytes = snprintf(key, sizeof key, "queue-%010u", i);

        used[qsi_hash(key, (size_t)key_bytes) % 4096] = 1;
    }
    for (unsigned i = 0; i < 4096; i++) {
        empty += used[i] == 0;
    }
    QS_CHECK(empty > 1350 && empty < 1650);
    QS_CHECK(qsi_hash("", 0) != qsi_hash("\0", 1));
    QS_CHECK(qsi_hash("a\0", 2) != qsi_hash("a", 1));
}
