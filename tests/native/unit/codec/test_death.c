/* Deaths in headers, against tables written by hand, byte by byte, as RabbitMQ's clients read
 * them; and which dead letters would go round. */
#include "death.h"
#include "properties.h"
#include "qs_test.h"

#define TIME UINT64_C(0x0102030405060708)
#define LITERAL(text) qsi_slice_make(text, sizeof(text) - 1)

#define COUNT_1 \
    "\x05"      \
    "count"     \
    "l"         \
    "\0\0\0\0\0\0\0\1"
#define COUNT_2 \
    "\x05"      \
    "count"     \
    "l"         \
    "\0\0\0\0\0\0\0\2"
#define EXPIRED \
    "\x06"      \
    "reason"    \
    "S"         \
    "\0\0\0\7"  \
    "expired"
#define REJECTED \
    "\x06"       \
    "reason"     \
    "S"          \
    "\0\0\0\x08" \
    "rejected"
#define IN_Q   \
    "\x05"     \
    "queue"    \
    "S"        \
    "\0\0\0\1" \
    "q"
#define IN_P   \
    "\x05"     \
    "queue"    \
    "S"        \
    "\0\0\0\1" \
    "p"
#define AT_TIME \
    "\x04"      \
    "time"      \
    "T"         \
    "\1\2\3\4\5\6\7\x08"
#define FROM_EX \
    "\x08"      \
    "exchange"  \
    "S"         \
    "\0\0\0\2"  \
    "ex"
#define BY_KEY     \
    "\x0c"         \
    "routing-keys" \
    "A"            \
    "\0\0\0\x08"   \
    "S"            \
    "\0\0\0\3"     \
    "key"
#define LIVED_60          \
    "\x13"                \
    "original-expiration" \
    "S"                   \
    "\0\0\0\2"            \
    "60"
#define A_IS_7 \
    "\x01"     \
    "a"        \
    "I"        \
    "\0\0\0\7"
#define X_DEATH \
    "\x07"      \
    "x-death"   \
    "A"
#define FIRST_IN_Q           \
    "\x14"                   \
    "x-first-death-reason"   \
    "S"                      \
    "\0\0\0\7"               \
    "expired"                \
    "\x13"                   \
    "x-first-death-queue"    \
    "S"                      \
    "\0\0\0\1"               \
    "q"                      \
    "\x16"                   \
    "x-first-death-exchange" \
    "S"                      \
    "\0\0\0\2"               \
    "ex"

/* 15 + 19 + 12 + 14 + 16 + 26 bytes, and 27 of the expiration */
#define DEATH_IN_Q "F\0\0\0\x66" COUNT_1 EXPIRED IN_Q AT_TIME FROM_EX BY_KEY
#define DEATH_IN_Q_AFTER_60 "F\0\0\0\x81" COUNT_1 EXPIRED IN_Q AT_TIME FROM_EX BY_KEY LIVED_60
#define TWO_DEATHS_IN_Q "F\0\0\0\x66" COUNT_2 EXPIRED IN_Q AT_TIME FROM_EX BY_KEY
#define REJECT_IN_P "F\0\0\0\x67" COUNT_1 REJECTED IN_P AT_TIME FROM_EX BY_KEY

static const struct qsi_death expired_in_q = {
    .queue = {(const uint8_t *)"q", 1},
    .exchange = {(const uint8_t *)"ex", 2},
    .key = {(const uint8_t *)"key", 3},
    .reason = "expired",
    .time_s = TIME,
};

/* Properties with these headers (null: none) and this expiration. */
static struct qsi_buf encode(struct qsi_slice headers, struct qsi_slice expiration)
{
    struct qsi_properties properties = {.delivery_mode = 2};
    struct qsi_buf blob = {NULL};
    uint8_t *place;

    properties.present = qsi_property_flag(QSI_PROPERTY_DELIVERY_MODE);
    if (headers.data != NULL) {
        qsi_properties_set(&properties, QSI_PROPERTY_HEADERS, headers);
    }
    if (expiration.data != NULL) {
        qsi_properties_set(&properties, QSI_PROPERTY_EXPIRATION, expiration);
    }
    QS_CHECK_OK(qsi_buf_reserve(&blob, qsi_properties_bytes(&properties), &place));
    qsi_properties_encode(place, &properties);
    blob.bytes = qsi_properties_bytes(&properties);
    return blob;
}

static struct qsi_slice slice_of(const struct qsi_buf *buf)
{
    return qsi_slice_make(buf->data, (uint32_t)buf->bytes);
}

/* The death is told; whatever comes out is freed by the caller. */
static struct qsi_buf tell(const struct qsi_buf *blob, const struct qsi_death *death)
{
    struct qsi_buf told = {NULL};

    QS_CHECK_OK(qsi_death_write(&told, slice_of(blob), death));
    return told;
}

static void check_headers(const struct qsi_buf *blob, struct qsi_slice expected)
{
    struct qsi_properties properties;
    struct qsi_slice headers;

    QS_CHECK_OK(qsi_properties_decode(&properties, blob->data, (uint32_t)blob->bytes, QS_ERROR));
    QS_CHECK(properties.delivery_mode == 2);
    QS_CHECK(!qsi_properties_has(&properties, QSI_PROPERTY_EXPIRATION));
    headers = qsi_properties_text(&properties, QSI_PROPERTY_HEADERS);
    if (!qsi_slice_equals(headers, expected)) {
        for (uint32_t i = 0; i < headers.bytes && i < expected.bytes; i++) {
            if (headers.data[i] != expected.data[i]) {
                fprintf(stderr, "%u bytes, not %u; another one at %u\n", headers.bytes,
                        expected.bytes, i);
                break;
            }
        }
        QS_CHECK(!"headers");
    }
}

static void check_told(struct qsi_slice headers, struct qsi_slice expiration,
                       const struct qsi_death *death, struct qsi_slice expected)
{
    struct qsi_buf blob = encode(headers, expiration), told = tell(&blob, death);

    check_headers(&told, expected);
    qsi_buf_fini(&blob);
    qsi_buf_fini(&told);
}

QS_TEST(test_a_first_death_is_told)
{
    check_told(QSI_SLICE_NULL, QSI_SLICE_NULL, &expired_in_q,
               LITERAL(X_DEATH "\0\0\0\x6b" DEATH_IN_Q FIRST_IN_Q));
    check_told(LITERAL(A_IS_7), LITERAL("60"), &expired_in_q,
               LITERAL(A_IS_7 X_DEATH "\0\0\0\x86" DEATH_IN_Q_AFTER_60 FIRST_IN_Q));
}

QS_TEST(test_another_death_of_the_kind_is_counted)
{
    check_told(LITERAL(X_DEATH "\0\0\0\x6b" DEATH_IN_Q FIRST_IN_Q A_IS_7), QSI_SLICE_NULL,
               &expired_in_q, LITERAL(FIRST_IN_Q A_IS_7 X_DEATH "\0\0\0\x6b" TWO_DEATHS_IN_Q));
}

QS_TEST(test_the_latest_death_comes_first)
{
    struct qsi_death death = expired_in_q;

    death.queue = LITERAL("p");
    death.reason = "rejected";
    check_told(LITERAL(X_DEATH "\0\0\0\x6b" DEATH_IN_Q FIRST_IN_Q), QSI_SLICE_NULL, &death,
               LITERAL(FIRST_IN_Q X_DEATH "\0\0\0\xd7" REJECT_IN_P DEATH_IN_Q));
    check_told(LITERAL(FIRST_IN_Q X_DEATH "\0\0\0\xd7" REJECT_IN_P DEATH_IN_Q), QSI_SLICE_NULL,
               &expired_in_q, LITERAL(FIRST_IN_Q X_DEATH "\0\0\0\xd7" TWO_DEATHS_IN_Q REJECT_IN_P));
}

/* Their header says which keys a message came by; with a new key it says nothing any more. */
QS_TEST(test_other_routing_keys_are_told)
{
#define CC_X_7 "\2CCA\0\0\0\x0bS\0\0\0\1xI\0\0\0\7" /* what is no text is no key */
#define BY_KEY_AND_X "\x0crouting-keysA\0\0\0\x0eS\0\0\0\3keyS\0\0\0\1x"
#define DEATH_BY_BOTH "F\0\0\0\x6c" COUNT_1 EXPIRED IN_Q AT_TIME FROM_EX BY_KEY_AND_X
    struct qsi_death death = expired_in_q;

    check_told(LITERAL(CC_X_7), QSI_SLICE_NULL, &death,
               LITERAL(CC_X_7 X_DEATH "\0\0\0\x71" DEATH_BY_BOTH FIRST_IN_Q));
    death.has_new_key = true;
    check_told(LITERAL(CC_X_7), QSI_SLICE_NULL, &death,
               LITERAL(X_DEATH "\0\0\0\x71" DEATH_BY_BOTH FIRST_IN_Q));
}

QS_TEST(test_headers_that_make_no_sense_are_told_anew)
{
    check_told(LITERAL("\7x-deathI\0\0\0\7"), QSI_SLICE_NULL, &expired_in_q,
               LITERAL(X_DEATH "\0\0\0\x6b" DEATH_IN_Q FIRST_IN_Q));
}

QS_TEST(test_properties_that_are_none_are_refused)
{
    struct qsi_buf told = {NULL};

    QS_CHECK(qsi_death_write(&told, LITERAL("\xff\xff\xff"), &expired_in_q) == QS_ECORRUPT);
    QS_CHECK(told.bytes == 0);
    qsi_buf_fini(&told);
}

static bool is_cycle(struct qsi_slice headers, const char *queue)
{
    struct qsi_buf blob = encode(headers, QSI_SLICE_NULL);
    bool found =
        qsi_death_is_cycle(slice_of(&blob), qsi_slice_make(queue, (uint32_t)strlen(queue)));

    qsi_buf_fini(&blob);
    return found;
}

QS_TEST(test_what_nobody_rejected_on_the_way_goes_round)
{
    QS_CHECK(!is_cycle(QSI_SLICE_NULL, "q"));
    QS_CHECK(!is_cycle(LITERAL(A_IS_7), "q"));
    QS_CHECK(is_cycle(LITERAL(X_DEATH "\0\0\0\x6b" DEATH_IN_Q), "q"));
    QS_CHECK(!is_cycle(LITERAL(X_DEATH "\0\0\0\x6b" DEATH_IN_Q), "p"));
    QS_CHECK(!is_cycle(LITERAL(X_DEATH "\0\0\0\x6b" DEATH_IN_Q), "qq"));
    /* A reject since then, or the reject itself, is somebody's will. */
    QS_CHECK(!is_cycle(LITERAL(X_DEATH "\0\0\0\xd7" REJECT_IN_P DEATH_IN_Q), "q"));
    QS_CHECK(!is_cycle(LITERAL(X_DEATH "\0\0\0\xd7" REJECT_IN_P DEATH_IN_Q), "p"));
    QS_CHECK(is_cycle(LITERAL(X_DEATH "\0\0\0\xd7" DEATH_IN_Q REJECT_IN_P), "q"));
    QS_CHECK(!is_cycle(LITERAL(X_DEATH "\0\0\0\xd7" DEATH_IN_Q REJECT_IN_P), "p"));
}

/* Whatever stands in headers that are cut off, nothing is read past their end. */
QS_TEST(test_headers_that_are_cut_off_are_survived)
{
    static const char whole[] = CC_X_7 X_DEATH "\0\0\0\xd7" REJECT_IN_P DEATH_IN_Q;

    for (uint32_t bytes = 0; bytes < sizeof whole - 1; bytes++) {
        QS_TEST_FREED uint8_t *cut = malloc(bytes + 1);
        struct qsi_buf blob, told = {NULL};
        QS_CHECK(cut != NULL);
        memcpy(cut, whole, bytes);
        blob = encode(qsi_slice_make(cut, bytes), QSI_SLICE_NULL);
        (void)!qsi_death_write(&told, slice_of(&blob), &expired_in_q);
        (void)qsi_death_is_cycle(slice_of(&blob), LITERAL("q"));
        qsi_buf_fini(&blob);
        qsi_buf_fini(&told);
    }
}
