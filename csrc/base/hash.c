/* SipHash-1-3 (Aumasson and Bernstein): one round for each word of 8 bytes, three at the end.
 *
 * Words are read in the machine's byte order, which on a little-endian machine gives the published
 * vectors. */
#include "hash.h"

#include <string.h>

#define WORD_BYTES sizeof(uint64_t)

/* The initial state, computed from the key. */
struct state {
    uint64_t a, b, c, d;
};

#define STATE_OF_KEY(low, high)                \
    {                                          \
        (low) ^ UINT64_C(0x736f6d6570736575),  \
        (high) ^ UINT64_C(0x646f72616e646f6d), \
        (low) ^ UINT64_C(0x6c7967656e657261),  \
        (high) ^ UINT64_C(0x7465646279746573), \
    }

static struct state initial = STATE_OF_KEY(0, 0);

void qsi_hash_set_key(const uint8_t key[QSI_HASH_KEY_BYTES])
{
    uint64_t low, high;

    memcpy(&low, key, sizeof low);
    memcpy(&high, key + sizeof low, sizeof high);
    initial = (struct state)STATE_OF_KEY(low, high);
}

static inline uint64_t rotate(uint64_t word, unsigned bits)
{
    return word << bits | word >> (64 - bits);
}

static inline struct state round_of(struct state s)
{
    s.a += s.b;
    s.c += s.d;
    s.b = rotate(s.b, 13) ^ s.a;
    s.d = rotate(s.d, 16) ^ s.c;
    s.a = rotate(s.a, 32) + s.d;
    s.c += s.b;
    s.d = rotate(s.d, 21) ^ s.a;
    s.b = rotate(s.b, 17) ^ s.c;
    s.c = rotate(s.c, 32);
    return s;
}

static inline struct state take_word(struct state s, uint64_t word)
{
    s.d ^= word;
    s = round_of(s);
    s.a ^= word;
    return s;
}

static inline uint64_t load_word(const uint8_t *data)
{
    uint64_t word;

    memcpy(&word, data, sizeof word);
    return word;
}

/* Loads fewer than 8 bytes as a word, with two or three reads that may overlap instead of one per
 * byte. */
static inline uint64_t load_short(const uint8_t *data, size_t bytes)
{
    uint32_t first, last;

    if (bytes >= sizeof first) {
        memcpy(&first, data, sizeof first);
        memcpy(&last, data + bytes - sizeof last, sizeof last);
        return first | (uint64_t)last << 8 * (bytes - sizeof last);
    }
    if (bytes == 0) {
        return 0;
    }
    return data[0] | (uint64_t)data[bytes / 2] << 8 * (bytes / 2) |
           (uint64_t)data[bytes - 1] << 8 * (bytes - 1);
}

/* Loads the bytes after the last whole word. */
static inline uint64_t load_rest(const uint8_t *data, size_t bytes)
{
    size_t rest = bytes % WORD_BYTES;

    if (bytes < WORD_BYTES) {
        return load_short(data, bytes);
    }
    return rest == 0 ? 0 : load_word(data + bytes - WORD_BYTES) >> 8 * (WORD_BYTES - rest);
}

uint64_t qsi_hash(const void *data, size_t bytes)
{
    const uint8_t *at = data;
    struct state s = initial;

    for (size_t done = 0; done + WORD_BYTES <= bytes; done += WORD_BYTES) {
        s = take_word(s, load_word(at + done));
    }
    s = take_word(s, load_rest(at, bytes) | (uint64_t)bytes << 56);
    s.c ^= 0xff;
    s = round_of(round_of(round_of(s)));
    return s.a ^ s.b ^ s.c ^ s.d;
}
