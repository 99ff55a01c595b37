/* Headers of the PROXY protocol: what is one, what is none, and each however it comes. */
#include "qstore/codec.h"
#include "qstore/server.h"

#include "qs_test.h"

#define SIGNATURE "\r\n\r\n\0\r\nQUIT\n"
#define BYTES(text) text, sizeof(text) - 1
#define FOUR "\xcb\x00\x71\x07\xc6\x33\x64\x09\x9c\x40\x16\x28" /* 203.0.113.7:40000 */
#define SIX                                                            \
    "\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x07\x20\x01\x0d\xb8\0\0\0" \
    "\0\0\0\0\0\0\0\0\x09\x9c\x40\x16\x28"

struct good {
    const char *data;
    size_t bytes;
    const char *peer; /* NULL: the connection's own */
    bool is_loopback;
};

struct bad {
    const char *data;
    size_t bytes;
    const char *words;
};

static const struct good good[] = {
    {BYTES("PROXY TCP4 203.0.113.7 198.51.100.9 40000 5672\r\n"), "203.0.113.7:40000", false},
    {BYTES("PROXY TCP4 127.0.0.2 198.51.100.9 0 65535\r\n"), "127.0.0.2:0", true},
    {BYTES("PROXY TCP6 2001:db8::7 2001:db8::9 40000 5672\r\n"), "[2001:db8::7]:40000", false},
    {BYTES("PROXY TCP6 ::1 2001:db8::9 1 5672\r\n"), "[::1]:1", true},
    {BYTES("PROXY TCP6 ::ffff:127.0.0.1 ::1 1 5672\r\n"), "[::ffff:127.0.0.1]:1", true},
    {BYTES("PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff "
           "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n"),
     "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535", false},
    {BYTES("PROXY UNKNOWN\r\n"), NULL, false},
    {BYTES("PROXY UNKNOWN and whatever else there is\r\n"), NULL, false},
    /* The longest that there is: 107 bytes. */
    {BYTES("PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff "
           "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n"),
     NULL, false},
    {BYTES(SIGNATURE "\x21\x11\0\x0c" FOUR), "203.0.113.7:40000", false},
    {BYTES(SIGNATURE "\x21\x21\0\x24" SIX), "[2001:db8::7]:40000", false},
    {BYTES(SIGNATURE "\x21\x11\0\x0c\x7f\0\0\1\x7f\0\0\1\0\1\0\2"), "127.0.0.1:1", true},
    /* An extension that says nothing to us: of type 4, with 3 bytes. */
    {BYTES(SIGNATURE "\x21\x11\0\x12" FOUR "\4\0\3abc"), "203.0.113.7:40000", false},
    {BYTES(SIGNATURE "\x20\0\0\0"), NULL, false},
    /* A LOCAL header's addresses are those of nobody, whatever they are. */
    {BYTES(SIGNATURE "\x20\x12\0\x0c" FOUR), NULL, false},
    {BYTES(SIGNATURE "\x20\x7f\0\5hello"), NULL, false},
    {BYTES(SIGNATURE "\x21\0\0\0"), NULL, false},
    {BYTES(SIGNATURE "\x21\0\0\5hello"), NULL, false},
};

static const struct bad bad[] = {
    {BYTES("AMQP\0\0\x09\1"), "something else"},
    {BYTES("\x16\x03\x01"), "something else"},
    {BYTES("proxy TCP4"), "something else"},
    {BYTES("PROXY\tTCP4"), "something else"},
    {BYTES("PROXY \r\n"), "two addresses"},
    {BYTES("PROXY TCP4\r\n"), "two addresses"},
    {BYTES("PROXY UNKNOWNS\r\n"), "two addresses"},
    {BYTES("PROXY  TCP4 1.2.3.4 1.2.3.4 1 2\r\n"), "two addresses"},
    {BYTES("PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n"), "two addresses"},
    {BYTES("PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n"), "two addresses"},
    {BYTES("PROXY TCP4 1.2.3.4 1.2.3.4 1 2 \r\n"), "two addresses"},
    {BYTES("PROXY TCP4 1.2.3.4  1.2.3.4 1 2\r\n"), "two addresses"},
    {BYTES("PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n"), "not TCP4"},
    {BYTES("PROXY tcp4 1.2.3.4 1.2.3.4 1 2\r\n"), "not TCP4"},
    {BYTES("PROXY TCP44 1.2.3.4 1.2.3.4 1 2\r\n"), "not TCP4"},
    {BYTES("PROXY TCP4 1.2.3 1.2.3.4 1 2\r\n"), "an address"},
    {BYTES("PROXY TCP4 1.2.3.256 1.2.3.4 1 2\r\n"), "an address"},
    {BYTES("PROXY TCP4 1.2.3.04 1.2.3.4 1 2\r\n"), "an address"},
    {BYTES("PROXY TCP4 1.2.3.4 nobody 1 2\r\n"), "an address"},
    {BYTES("PROXY TCP4 ::1 ::1 1 2\r\n"), "an address"},
    {BYTES("PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n"), "an address"},
    {BYTES("PROXY TCP6 fe80::1%lo ::1 1 2\r\n"), "an address"},
    {BYTES("PROXY TCP4 1.2.3.4 1.2.3.4 65536 2\r\n"), "a port"},
    {BYTES("PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n"), "a port"},
    {BYTES("PROXY TCP4 1.2.3.4 1.2.3.4 4294967297 2\r\n"), "a port"},
    {BYTES("PROXY TCP4 1.2.3.4 1.2.3.4 01 2\r\n"), "a port"},
    {BYTES("PROXY TCP4 1.2.3.4 1.2.3.4 -1 2\r\n"), "a port"},
    {BYTES("PROXY TCP4 1.2.3.4 1.2.3.4 +1 2\r\n"), "a port"},
    {BYTES("PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n"), "LF without CR"},
    {BYTES("PROXY TCP4 1.2.3.4 1.2.3.4 1 2\rA"), "CR without LF"},
    {BYTES("PROXY TCP4 1.2.3.4\0 1.2.3.4 1 2\r\n"), "a NUL"},
    /* One byte more than the longest. */
    {BYTES("PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff  "
           "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n"),
     "107 bytes"},
    {BYTES("\r\n\r\n\0\r\nQUIT\r"), "something else"},
    {BYTES(SIGNATURE "\x11"), "version"},
    {BYTES(SIGNATURE "\x31"), "version"},
    {BYTES(SIGNATURE "\x22"), "command"},
    {BYTES(SIGNATURE "\x2f"), "command"},
    {BYTES(SIGNATURE "\x21\x12"), "datagrams"},
    {BYTES(SIGNATURE "\x21\x22"), "datagrams"},
    {BYTES(SIGNATURE "\x21\x32"), "datagrams"},
    {BYTES(SIGNATURE "\x21\x10"), "family"},
    {BYTES(SIGNATURE "\x21\x01"), "family"},
    {BYTES(SIGNATURE "\x21\x41"), "family"},
    {BYTES(SIGNATURE "\x21\x13"), "family"},
    {BYTES(SIGNATURE "\x21\x11\0\x0b"), "no room"},
    {BYTES(SIGNATURE "\x21\x21\0\x23"), "no room"},
    {BYTES(SIGNATURE "\x21\x31\0\xd7"), "no room"},
    {BYTES(SIGNATURE "\x20\0\x0f\xf1"), "4096 bytes"},
    {BYTES(SIGNATURE "\x21\x11\xff\xff"), "4096 bytes"},
    {BYTES(SIGNATURE "\x21\x11\0\x0d" FOUR "\4"), "within an extension"},
    {BYTES(SIGNATURE "\x21\x11\0\x11" FOUR "\4\0\3ab"), "within an extension"},
    {BYTES(SIGNATURE "\x21\x11\0\x13" FOUR "\3\0\4\0\0\0\0"), "checksum"},
    {BYTES(SIGNATURE "\x21\x11\0\x11" FOUR "\3\0\2\0\0"), "checksum"},
};

enum { GOOD = sizeof good / sizeof good[0], BAD = sizeof bad / sizeof bad[0], MORE = 64 };

/* At the end of a page's worth of memory of its own, so that ASan sees a read beyond it. */
static qs_status read_copy(const char *data, size_t bytes, qs_proxy_header *header)
{
    QS_TEST_FREED char *copy = malloc(bytes == 0 ? 1 : bytes);
    qs_status status;

    QS_CHECK(copy != NULL);
    memcpy(copy, data, bytes);
    status = qs_proxy_header_read(bytes == 0 ? NULL : copy, bytes, header, QS_ERROR);
    return status;
}

static void check(const struct good *one, const qs_proxy_header *header)
{
    QS_CHECK(header->bytes == one->bytes);
    QS_CHECK(header->has_peer == (one->peer != NULL));
    QS_CHECK(strcmp(header->peer, one->peer == NULL ? "" : one->peer) == 0);
    QS_CHECK(header->is_loopback == one->is_loopback);
}

QS_TEST(test_a_header_is_read_when_it_is_whole_and_not_before)
{
    qs_proxy_header header;

    for (int i = 0; i < GOOD; i++) {
        for (size_t bytes = 0; bytes < good[i].bytes; bytes++) {
            QS_CHECK_OK(read_copy(good[i].data, bytes, &header));
            QS_CHECK(header.bytes == 0);
        }
        QS_CHECK_OK(read_copy(good[i].data, good[i].bytes, &header));
        check(&good[i], &header);
    }
}

QS_TEST(test_what_lies_behind_a_header_is_left)
{
    static const char *const behind[] = {"AMQP", "\r\n\r\n", "PROXY TCP4", "\n"};
    qs_proxy_header header;
    char data[512];

    for (int i = 0; i < GOOD; i++) {
        memcpy(data, good[i].data, good[i].bytes);
        for (size_t j = 0; j < sizeof behind / sizeof behind[0]; j++) {
            memcpy(data + good[i].bytes, behind[j], strlen(behind[j]));
            QS_CHECK_OK(read_copy(data, good[i].bytes + strlen(behind[j]), &header));
            check(&good[i], &header);
        }
    }
}

/* Of each there is a byte from which on it is refused, whatever comes behind it. */
QS_TEST(test_what_is_no_header_is_refused_from_its_first_wrong_byte_on)
{
    qs_proxy_header header;
    char data[256];

    for (int i = 0; i < BAD; i++) {
        bool is_refused = false;
        for (size_t bytes = 0; bytes <= bad[i].bytes; bytes++) {
            qs_status status = read_copy(bad[i].data, bytes, &header);
            QS_CHECK(status == (is_refused ? QS_EINVAL : status));
            QS_CHECK(status == QS_EINVAL || header.bytes == 0);
            is_refused = status == QS_EINVAL;
        }
        QS_CHECK_STATUS(QS_EINVAL, read_copy(bad[i].data, bad[i].bytes, &header));
        if (strstr(qs_test_error.text, bad[i].words) == NULL) {
            fprintf(stderr, "bad[%d]: %s\n", i, qs_test_error.text);
            exit(1);
        }
        memcpy(data, bad[i].data, bad[i].bytes);
        memset(data + bad[i].bytes, 'x', MORE);
        QS_CHECK_STATUS(QS_EINVAL, read_copy(data, bad[i].bytes + MORE, &header));
    }
}

QS_TEST(test_a_client_at_a_socket_of_the_proxys_machine_has_no_address)
{
    char data[16 + 216] = SIGNATURE "\x21\x31\0\xd8/run/client";
    qs_proxy_header header;

    QS_CHECK_OK(read_copy(data, sizeof data - 1, &header));
    QS_CHECK(header.bytes == 0);
    QS_CHECK_OK(read_copy(data, sizeof data, &header));
    QS_CHECK(header.bytes == sizeof data && !header.has_peer && !header.is_loopback);
}

QS_TEST(test_a_checksum_is_compared)
{
    char data[] = SIGNATURE "\x21\x11\0\x16" FOUR "\3\0\4\0\0\0\0\4\0\0";
    size_t bytes = sizeof data - 1, at = 16 + 12 + 3;
    uint32_t sum = qs_crc32c(0, data, bytes);
    qs_proxy_header header;

    for (int i = 0; i < 4; i++) {
        data[at + (size_t)i] = (char)(sum >> (24 - 8 * i));
    }
    QS_CHECK_OK(read_copy(data, bytes, &header));
    QS_CHECK(header.bytes == bytes && strcmp(header.peer, "203.0.113.7:40000") == 0);
    for (size_t i = 16; i < bytes; i++) { /* each byte counts */
        data[i] ^= 1;
        /* But for the type that says that there is one. */
        QS_CHECK((read_copy(data, bytes, &header) == QS_EINVAL) == (i != at - 3));
        data[i] ^= 1;
    }
}

QS_TEST(test_the_longest_header_is_read)
{
    static char data[QS_PROXY_HEADER_BYTES] = SIGNATURE "\x21\x11\x0f\xf0" FOUR "\4\x0f\xe1";
    qs_proxy_header header;

    QS_CHECK_OK(read_copy(data, sizeof data - 1, &header));
    QS_CHECK(header.bytes == 0);
    QS_CHECK_OK(read_copy(data, sizeof data, &header));
    QS_CHECK(header.bytes == sizeof data);
}
