/* The PROXY protocol, versions 1 and 2: a header at the beginning of a connection, in which the
 * proxy that made it names the client's address (haproxy's doc/proxy-protocol.txt).
 *
 * A pure function of the bytes, without sockets or memory.  Bytes that cannot be a header are
 * refused as soon as possible, so a connection without a header does not wait for more bytes. */
#include "qstore/codec.h"

#include "address.h"
#include "check.h"
#include "error.h"
#include "le.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#define LINE_BYTES_MAX 107 /* with its CR LF */
#define TEXT_PREFIX "PROXY "
#define TEXT_PREFIX_BYTES (sizeof TEXT_PREFIX - 1)
#define PORT_DIGITS_MAX 5
#define PORT_MAX 65535
#define FIELDS 5 /* TCP4 or TCP6, two addresses, two ports */

#define FIXED_BYTES 16 /* of version 2, before its addresses */
#define UNIX_BYTES 216 /* two paths */
#define EXTENSION_BYTES 3
#define CHECKSUM_TYPE 3
#define CHECKSUM_BYTES 4
static const uint8_t signature[] = {'\r', '\n', '\r', '\n', 0,   '\r',
                                    '\n', 'Q',  'U',  'I',  'T', '\n'};

enum { LOCAL = 0, PROXIED = 1 };
enum { UNSPECIFIED = 0x00, TCP4 = 0x11, TCP6 = 0x21, UNIX_STREAM = 0x31 };
enum { UDP4 = 0x12, UDP6 = 0x22, UNIX_DATAGRAMS = 0x32 };

static qs_status refuse(qs_error *error, const char *why)
{
    return qsi_fail(error, QS_EINVAL, "no PROXY header: %s", why);
}

static void name_peer(qs_proxy_header *header, const struct sockaddr *address)
{
    header->has_peer = true;
    header->is_loopback = qsi_address_is_loopback(address);
    qsi_address_text(header->peer, address);
}

static void name_peer_4(qs_proxy_header *header, struct in_addr host, uint16_t port)
{
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr = host, .sin_port = htons(port)};

    name_peer(header, (const void *)&four);
}

static void name_peer_6(qs_proxy_header *header, const struct in6_addr *host, uint16_t port)
{
    struct sockaddr_in6 six = {
        .sin6_family = AF_INET6, .sin6_addr = *host, .sin6_port = htons(port)};

    name_peer(header, (const void *)&six);
}

/* ---- version 1: a line ---- */

/* Splits the line in place into five fields with one space between.  False: there are more or
 * fewer, or one is empty. */
static bool split(char *line, char *fields_out[FIELDS])
{
    for (int i = 0; i < FIELDS; i++) {
        char *space = strchr(line, ' ');
        if ((space == NULL) != (i == FIELDS - 1) || line == space || *line == '\0') {
            return false;
        }
        fields_out[i] = line;
        if (space != NULL) {
            *space = '\0';
            line = space + 1;
        }
    }
    return true;
}

/* Reads a port as the protocol writes it: digits, without leading zeros. */
static bool read_port(const char *digits, uint16_t *port_out)
{
    uint32_t port = 0;

    if (strlen(digits) > PORT_DIGITS_MAX || strspn(digits, "0123456789") != strlen(digits) ||
        (digits[0] == '0' && digits[1] != '\0')) {
        return false;
    }
    for (; *digits != '\0'; digits++) {
        port = port * 10 + (uint32_t)(*digits - '0');
    }
    *port_out = (uint16_t)port;
    return port <= PORT_MAX;
}

/* The source is the client; the destination is the proxy's address, which is only checked. */
static bool read_addresses(qs_proxy_header *header, int family, char *const fields[FIELDS])
{
    struct in6_addr source, destination; /* room for both families */
    struct in_addr four;
    uint16_t port, unused;

    if (inet_pton(family, fields[1], &source) != 1 ||
        inet_pton(family, fields[2], &destination) != 1 || !read_port(fields[3], &port) ||
        !read_port(fields[4], &unused)) {
        return false;
    }
    if (family == AF_INET6) {
        name_peer_6(header, &source, port);
    } else {
        memcpy(&four, &source, sizeof four);
        name_peer_4(header, four, port);
    }
    return true;
}

/* Reads the line without its prefix and its end. */
static qs_status read_line(qs_proxy_header *header, char *line, qs_error *error)
{
    static const char unknown[] = "UNKNOWN";
    size_t unknown_bytes = sizeof unknown - 1;
    char *fields[FIELDS];
    int family;

    if (strncmp(line, unknown, unknown_bytes) == 0 &&
        (line[unknown_bytes] == '\0' || line[unknown_bytes] == ' ')) {
        return QS_OK; /* the rest is to be ignored */
    }
    if (!split(line, fields)) {
        return refuse(error, "its line is not PROXY, protocol, two addresses and two ports");
    }
    if (strcmp(fields[0], "TCP4") != 0 && strcmp(fields[0], "TCP6") != 0) {
        return refuse(error, "its protocol is not TCP4, TCP6 or UNKNOWN");
    }
    family = fields[0][3] == '4' ? AF_INET : AF_INET6;
    return read_addresses(header, family, fields)
               ? QS_OK
               : refuse(error, "its line has an address or a port that is none");
}

static qs_status read_text(qs_proxy_header *header, const uint8_t *data, size_t bytes,
                           qs_error *error)
{
    size_t seen = bytes < LINE_BYTES_MAX ? bytes : LINE_BYTES_MAX;
    const uint8_t *end = memchr(data, '\r', seen);
    size_t line_bytes = (end == NULL ? seen : (size_t)(end - data));
    char line[LINE_BYTES_MAX + 1];

    if (memchr(data, '\n', line_bytes) != NULL || memchr(data, '\0', line_bytes) != NULL) {
        return refuse(error, "its line has a LF without CR, or a NUL");
    }
    if (line_bytes + 2 > LINE_BYTES_MAX) {
        return refuse(error, "its line has more than 107 bytes");
    }
    if (end == NULL || line_bytes + 1 == bytes) {
        return QS_OK; /* the line is incomplete */
    }
    if (end[1] != '\n') {
        return refuse(error, "its line has a CR without LF");
    }
    memcpy(line, data + TEXT_PREFIX_BYTES, line_bytes - TEXT_PREFIX_BYTES);
    line[line_bytes - TEXT_PREFIX_BYTES] = '\0';
    header->bytes = line_bytes + 2;
    return read_line(header, line, error);
}

/* ---- version 2: fields of fixed size ---- */

/* Whether the checksum is right; it is computed with zeros in place of its own bytes. */
static bool has_checksum(const uint8_t *data, size_t bytes, size_t at)
{
    static const uint8_t zeros[CHECKSUM_BYTES];
    uint32_t sum = qs_crc32c(0, data, at);

    sum = qs_crc32c(sum, zeros, sizeof zeros);
    sum = qs_crc32c(sum, data + at + CHECKSUM_BYTES, bytes - at - CHECKSUM_BYTES);
    return sum == qsi_get_be32(data + at);
}

/* Checks the fields after the addresses; only the checksum is used. */
static qs_status check_extensions(const uint8_t *data, size_t bytes, size_t at, qs_error *error)
{
    while (at < bytes) {
        size_t value_bytes;
        if (bytes - at < EXTENSION_BYTES) {
            return refuse(error, "it ends within an extension");
        }
        value_bytes = qsi_get_be16(data + at + 1);
        if (bytes - at - EXTENSION_BYTES < value_bytes) {
            return refuse(error, "it ends within an extension");
        }
        if (data[at] == CHECKSUM_TYPE &&
            (value_bytes != CHECKSUM_BYTES || !has_checksum(data, bytes, at + EXTENSION_BYTES))) {
            return refuse(error, "its checksum is wrong");
        }
        at += EXTENSION_BYTES + value_bytes;
    }
    return QS_OK;
}

/* For an unknown family the length is not changed. */
static qs_status measure_addresses(uint8_t family, size_t *bytes_out, qs_error *error)
{
    switch (family) {
    case TCP4:
        *bytes_out = 2 * (sizeof(struct in_addr) + sizeof(uint16_t));
        return QS_OK;
    case TCP6:
        *bytes_out = 2 * (sizeof(struct in6_addr) + sizeof(uint16_t));
        return QS_OK;
    case UNIX_STREAM:
        *bytes_out = UNIX_BYTES;
        return QS_OK;
    case UDP4:
    case UDP6:
    case UNIX_DATAGRAMS:
        return refuse(error, "it is of datagrams, and AMQP is a stream");
    default:
        return refuse(error, "its family of addresses is unknown");
    }
}

/* Reads the complete addresses.  A client at a Unix socket of the proxy's machine has no address:
 * the peer stays the proxy's address. */
static qs_status read_addresses_2(qs_proxy_header *header, const uint8_t *data,
                                  size_t address_bytes, qs_error *error)
{
    const uint8_t *source = data + FIXED_BYTES;
    struct in_addr four;
    struct in6_addr six;

    if (data[13] == TCP4) {
        memcpy(&four, source, sizeof four);
        name_peer_4(header, four, qsi_get_be16(source + 2 * sizeof four));
    } else if (data[13] == TCP6) {
        memcpy(&six, source, sizeof six);
        name_peer_6(header, &six, qsi_get_be16(source + 2 * sizeof six));
    }
    return check_extensions(data, header->bytes, FIXED_BYTES + address_bytes, error);
}

static qs_status read_binary(qs_proxy_header *header, const uint8_t *data, size_t bytes,
                             qs_error *error)
{
    bool is_proxied = bytes > 12 && (data[12] & 0x0f) == PROXIED;
    bool has_addresses = is_proxied && bytes > 13 && data[13] != UNSPECIFIED;
    size_t address_bytes = 0;

    if (bytes > 12 && data[12] >> 4 != 2) {
        return refuse(error, "its version is not 2");
    }
    if (bytes > 12 && !is_proxied && (data[12] & 0x0f) != LOCAL) {
        return refuse(error, "its command is not LOCAL or PROXY");
    }
    if (has_addresses) {
        QS_TRY(measure_addresses(data[13], &address_bytes, error));
    }
    if (bytes < FIXED_BYTES) {
        return QS_OK;
    }
    if (FIXED_BYTES + (size_t)qsi_get_be16(data + 14) > QS_PROXY_HEADER_BYTES) {
        return refuse(error, "it has more than 4096 bytes");
    }
    if (qsi_get_be16(data + 14) < address_bytes) {
        return refuse(error, "it has no room for its addresses");
    }
    if (bytes - FIXED_BYTES < qsi_get_be16(data + 14)) {
        return QS_OK;
    }
    header->bytes = FIXED_BYTES + qsi_get_be16(data + 14);
    return has_addresses ? read_addresses_2(header, data, address_bytes, error) : QS_OK;
}

/* ---- both versions ---- */

/* Compares as far as there are bytes. */
static bool begins_with(const uint8_t *data, size_t bytes, const void *prefix, size_t prefix_bytes)
{
    return memcmp(data, prefix, bytes < prefix_bytes ? bytes : prefix_bytes) == 0;
}

qs_status qs_proxy_header_read(const void *data, size_t bytes, qs_proxy_header *header_out,
                               qs_error *error)
{
    *header_out = (qs_proxy_header){0};
    if (bytes == 0) {
        return QS_OK;
    }
    if (begins_with(data, bytes, TEXT_PREFIX, TEXT_PREFIX_BYTES)) {
        return bytes < TEXT_PREFIX_BYTES ? QS_OK : read_text(header_out, data, bytes, error);
    }
    if (begins_with(data, bytes, signature, sizeof signature)) {
        return read_binary(header_out, data, bytes, error);
    }
    return refuse(error, "the connection begins with something else");
}
