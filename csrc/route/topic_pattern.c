/* Matches a pattern with a key, word by word.  After a mismatch it suffices to let the last '#'
 * take one more word. */
#include "topic_pattern.h"

#include <string.h>

struct words {
    struct qsi_slice text;
    uint32_t at; /* of the next word; text.bytes + 1: there is none */
};

/* An empty text has no words, in a pattern and in a key, as in a topic exchange. */
static bool has_word(const struct words *words)
{
    return words->at <= words->text.bytes && words->text.bytes > 0;
}

static struct qsi_slice word_at(const struct words *words)
{
    const uint8_t *from = words->text.data + words->at;
    uint32_t rest = words->text.bytes - words->at;
    const uint8_t *dot = rest > 0 ? memchr(from, '.', rest) : NULL;

    return qsi_slice_make(from, dot != NULL ? (uint32_t)(dot - from) : rest);
}

static void step(struct words *words)
{
    words->at += word_at(words).bytes + 1;
}

static bool is_sign(struct qsi_slice word, char sign)
{
    return word.bytes == 1 && word.data[0] == (uint8_t)sign;
}

static bool same_word(struct qsi_slice a, struct qsi_slice b)
{
    return a.bytes == b.bytes && (a.bytes == 0 || memcmp(a.data, b.data, a.bytes) == 0);
}

bool qsi_topic_pattern_matches(struct qsi_slice pattern_text, struct qsi_slice key_text)
{
    struct words pattern = {pattern_text, 0}, key = {key_text, 0};
    struct words behind_hash = pattern, taken = key; /* where to continue after a mismatch */
    bool has_hash = false;

    for (;;) {
        if (has_word(&pattern) && is_sign(word_at(&pattern), '#')) {
            step(&pattern);
            behind_hash = pattern;
            taken = key;
            has_hash = true;
        } else if (has_word(&pattern) && has_word(&key) &&
                   (is_sign(word_at(&pattern), '*') ||
                    same_word(word_at(&pattern), word_at(&key)))) {
            step(&pattern);
            step(&key);
        } else if (!has_word(&pattern) && !has_word(&key)) {
            return true;
        } else if (has_hash && has_word(&taken)) {
            step(&taken);
            key = taken;
            pattern = behind_hash;
        } else {
            return false;
        }
    }
}
