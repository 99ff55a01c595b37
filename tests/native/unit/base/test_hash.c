/* SipHash-1-3 against vectors, and names that collided under the hash without a key that was here
 * before. */
#include "hash.h"
#include "map.h"
#include "qs_test.h"

#define NAME_COUNT 10000u
#define CHAIN_MAX 12 /* of as many names as buckets a random function has 8 or so */

/* Of the bytes 0, 1, 2 ... under the key 00 01 ... 0f: those of 0 to 23 bytes.  The first is the
 * published one; all were computed by another implementation, which agrees with the published
 * vectors of SipHash-2-4 and with CPython's hash. */
static const uint64_t vectors[] = {
    UINT64_C(0xabac0158050fc4dc), UINT64_C(0xc9f49bf37d57ca93), UINT64_C(0x82cb9b024dc7d44d),
    UINT64_C(0x8bf80ab8e7ddf7fb), UINT64_C(0xcf75576088d38328), UINT64_C(0xdef9d52f49533b67),
    UINT64_C(0xc50d2b50c59f22a7), UINT64_C(0xd3927d989bb11140), UINT64_C(0x369095118d299a8e),
    UINT64_C(0x25a48eb36c063de4), UINT64_C(0x79de85ee92ff097f), UINT64_C(0x70c118c1f94dc352),
    UINT64_C(0x78a384b157b4d9a2), UINT64_C(0x306f760c1229ffa7), UINT64_C(0x605aa111c0f95d34),
    UINT64_C(0xd320d86d2a519956), UINT64_C(0xcc4fdd1a7d908b66), UINT64_C(0x9cf2689063dbd80c),
    UINT64_C(0x8ffc389cb473e63e), UINT64_C(0xf21f9de58d297d1c), UINT64_C(0xc0dc2f46a6cce040),
    UINT64_C(0xb992abfe2b45f844), UINT64_C(0x7ffe7b9ba320872e), UINT64_C(0x525a0e7fdae6c123),
};
#define VECTOR_OF_63 UINT64_C(0x9d199062b7bbb3a8)

QS_TEST(test_hash_is_siphash_1_3)
{
    uint8_t data[63];

    for (uint8_t i = 0; i < sizeof data; i++) {
        data[i] = i;
    }
    qsi_hash_set_key(data);
    for (size_t bytes = 0; bytes < sizeof vectors / sizeof vectors[0]; bytes++) {
        QS_CHECK(qsi_hash(data, bytes) == vectors[bytes]);
        QS_CHECK(qsi_hash(data, bytes) == qsi_hash(data, bytes));
    }
    QS_CHECK(qsi_hash(data, sizeof data) == VECTOR_OF_63);
}

/* Exactly as many bytes as there are are read: the sanitizer sees one more. */
QS_TEST(test_hash_reads_no_byte_beyond_the_name)
{
    for (size_t bytes = 0; bytes < 40; bytes++) {
        QS_TEST_FREED uint8_t *name = malloc(bytes > 0 ? bytes : 1);

        memset(name, 7, bytes);
        (void)qsi_hash(bytes > 0 ? name : NULL, bytes);
    }
}

/* ---- the hash that was here before ---- */

static uint64_t old_round(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ (hash >> 29);
}

static uint64_t old_state(const uint64_t words[2])
{
    return old_round(old_round(old_round(UINT64_C(0x243f6a8885a308d3), 16), words[0]), words[1]);
}

/* Two words of which the second undoes what the first did. */
static void make_colliding_name(uint64_t name_out[2], uint64_t number)
{
    name_out[0] = UINT64_C(0x6b63617474610000) + number;
    name_out[1] = old_round(old_round(UINT64_C(0x243f6a8885a308d3), 16), name_out[0]) ^ 1;
}

static unsigned longest_chain(uint64_t names[][2])
{
    static unsigned counts[16384];
    unsigned longest = 0;

    memset(counts, 0, sizeof counts);
    for (size_t i = 0; i < NAME_COUNT; i++) {
        unsigned *count = &counts[qsi_hash(names[i], 16) % 16384];

        *count += 1;
        longest = *count > longest ? *count : longest;
    }
    return longest;
}

QS_TEST(test_names_made_to_collide_without_a_key_do_not_under_any_key)
{
    static uint64_t names[NAME_COUNT][2];
    uint8_t key[QSI_HASH_KEY_BYTES] = {0};

    for (size_t i = 0; i < NAME_COUNT; i++) {
        make_colliding_name(names[i], i);
        QS_CHECK(old_state(names[i]) == old_state(names[0]));
    }
    for (uint8_t i = 0; i < 20; i++) {
        key[i % sizeof key] ^= (uint8_t)(1 + i);
        qsi_hash_set_key(key);
        QS_CHECK(longest_chain(names) <= CHAIN_MAX);
    }
}

QS_TEST(test_another_key_gives_other_hashes)
{
    uint8_t key[QSI_HASH_KEY_BYTES] = {0};
    uint64_t before;

    qsi_hash_set_key(key);
    before = qsi_hash("name", 4);
    for (size_t i = 0; i < sizeof key; i++) {
        key[i] = 1;
        qsi_hash_set_key(key);
        QS_CHECK(qsi_hash("name", 4) != before);
        key[i] = 0;
    }
}

/* ---- what is seen ---- */

static void check_order(uint8_t key_byte)
{
    static const char *const names[] = {"orders", "", "a", "invoices", "letters", "b", "x"};
    uint8_t key[QSI_HASH_KEY_BYTES] = {key_byte};
    struct qsi_map map = {0};
    struct qsi_map_cursor cursor;
    static char value;

    qsi_hash_set_key(key);
    for (size_t i = 0; i < 7; i++) {
        QS_CHECK_OK(qsi_map_put(&map, names[i], strlen(names[i]), &value));
    }
    QS_CHECK_OK(qsi_map_put(&map, "a", 1, &value)); /* stays in place */
    QS_CHECK(qsi_map_remove(&map, "orders", 6) == &value);
    QS_CHECK(qsi_map_remove(&map, "x", 1) == &value);
    QS_CHECK_OK(qsi_map_put(&map, "orders", 6, &value)); /* comes last */
    cursor = qsi_map_begin(&map);
    for (size_t i = 1; i < 7; i++) {
        const char *name = names[i == 6 ? 0 : i];

        QS_CHECK(qsi_map_next(&map, &cursor));
        QS_CHECK(cursor.key_bytes == strlen(name) &&
                 memcmp(cursor.key, name, cursor.key_bytes) == 0);
    }
    QS_CHECK(!qsi_map_next(&map, &cursor));
    qsi_map_fini(&map);
}

QS_TEST(test_order_of_a_walk_does_not_depend_on_the_key)
{
    for (int key_byte = 0; key_byte < 50; key_byte++) {
        check_order((uint8_t)key_byte);
    }
}

QS_TEST(test_numbers_are_found_replaced_and_removed)
{
    struct qsi_map map = {0};
    char values[2];

    QS_CHECK(qsi_map_get_number(&map, 1) == NULL && qsi_map_remove_number(&map, 1) == NULL);
    for (uint64_t number = 0; number < 5000; number++) {
        QS_CHECK_OK(qsi_map_put_number(&map, number << 20, &values[0]));
    }
    QS_CHECK_OK(qsi_map_put_number(&map, 7 << 20, &values[1]));
    QS_CHECK(map.count == 5000);
    for (uint64_t number = 0; number < 5000; number++) {
        QS_CHECK(qsi_map_get_number(&map, number << 20) == &values[number == 7]);
        QS_CHECK(qsi_map_get_number(&map, (number << 20) + 1) == NULL);
    }
    QS_CHECK(qsi_map_remove_number(&map, 7 << 20) == &values[1]);
    QS_CHECK(qsi_map_get_number(&map, 7 << 20) == NULL && map.count == 4999);
    qsi_map_fini(&map);
}
