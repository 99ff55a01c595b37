/* Failed logins.
 *
 * A client that tries passwords waits longer and longer; one that mistypes once does not notice.  A
 * successful login is never delayed, so failures of an address cannot lock out any user.
 *
 * The table has fewer entries than there are addresses.  One IPv6 client can use any of the 2^64
 * addresses of its network, so a network is one entry.  If the table is full, the entry with the
 * oldest failure is replaced: its delay is the closest to expiry. */
#include "failures.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <string.h>

#define FORGET_NS UINT64_C(60000000000)
#define FIRST_DELAY_NS UINT64_C(100000000)
#define DELAY_NS_MAX UINT64_C(2000000000)
#define DELAYS 5 /* shorter than DELAY_NS_MAX */
#define NETWORK_BYTES 8

/* Copies the host of "HOST:PORT", without brackets and the name of an interface. */
static bool host_of(char host_out[INET6_ADDRSTRLEN], const char *peer)
{
    const char *end = strrchr(peer, ':'), *interface = strchr(peer, '%');
    bool has_brackets = *peer == '[';
    size_t bytes;

    if (end == NULL) {
        return false;
    }
    peer += has_brackets;
    end = interface != NULL ? interface : end - has_brackets;
    bytes = end > peer ? (size_t)(end - peer) : 0;
    if (bytes == 0 || bytes >= INET6_ADDRSTRLEN) {
        return false;
    }
    memcpy(host_out, peer, bytes);
    host_out[bytes] = '\0';
    return true;
}

/* Maps an IPv4 address to its IPv6 form, and an IPv6 address to its network; anything else is all
 * zeros. */
static void address_of(uint8_t address_out[QSI_FAILURES_ADDRESS_BYTES], const char *peer)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    char host[INET6_ADDRSTRLEN];
    uint8_t six[QSI_FAILURES_ADDRESS_BYTES];

    memset(address_out, 0, QSI_FAILURES_ADDRESS_BYTES);
    if (!host_of(host, peer)) {
        return;
    }
    if (inet_pton(AF_INET, host, address_out + sizeof mapped) == 1) {
        memcpy(address_out, mapped, sizeof mapped);
    } else if (inet_pton(AF_INET6, host, six) == 1) {
        memcpy(address_out, six,
               memcmp(six, mapped, sizeof mapped) == 0 ? sizeof six : NETWORK_BYTES);
    }
}

static bool is_over(const struct qsi_failure *failure, uint64_t now_ns)
{
    return failure->count == 0 || now_ns - failure->last_ns >= FORGET_NS;
}

/* Returns the entry of the address, or a new one for it. */
static struct qsi_failure *place_of(struct qsi_failures *failures,
                                    const uint8_t address[QSI_FAILURES_ADDRESS_BYTES])
{
    struct qsi_failure *oldest = &failures->noted[0];

    for (int i = 0; i < QSI_FAILURES_ADDRESSES; i++) {
        struct qsi_failure *failure = &failures->noted[i];

        if (failure->count > 0 &&
            memcmp(failure->address, address, QSI_FAILURES_ADDRESS_BYTES) == 0) {
            return failure;
        }
        if (oldest->count > 0 && (failure->count == 0 || failure->last_ns < oldest->last_ns)) {
            oldest = failure;
        }
    }
    oldest->count = 0;
    memcpy(oldest->address, address, QSI_FAILURES_ADDRESS_BYTES);
    return oldest;
}

uint64_t qsi_failures_record(struct qsi_failures *failures, const char *peer, uint64_t now_ns)
{
    uint8_t address[QSI_FAILURES_ADDRESS_BYTES];
    struct qsi_failure *failure;

    address_of(address, peer);
    failure = place_of(failures, address);
    failure->count = is_over(failure, now_ns) ? 1 : failure->count + 1;
    failure->last_ns = now_ns;
    if (failure->count == 1) {
        return 0;
    }
    return failure->count - 2 < DELAYS ? FIRST_DELAY_NS << (failure->count - 2) : DELAY_NS_MAX;
}
