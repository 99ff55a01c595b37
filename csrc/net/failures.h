/* Logins that failed, by address: how long the answer to another one is kept back. */
#ifndef QSI_FAILURES_H
#define QSI_FAILURES_H

#include <stdint.h>

#define QSI_FAILURES_ADDRESSES 1024 /* that are remembered */
#define QSI_FAILURES_ADDRESS_BYTES 16

struct qsi_failure {
    uint8_t address[QSI_FAILURES_ADDRESS_BYTES];
    uint32_t count; /* 0: nothing is noted here */
    uint64_t last_ns;
};

/* Zeroed memory has none. */
struct qsi_failures {
    struct qsi_failure noted[QSI_FAILURES_ADDRESSES];
};

/* Notes one more of peer, "127.0.0.1:40000", "[::1]:40000" or "unix"; returns for how long its
 * answer is kept back: not at all for the first one, 0.1 s for the second, then twice as long for
 * each, up to 2 s.  After a minute without one an address begins anew. */
uint64_t qsi_failures_note(struct qsi_failures *failures, const char *peer, uint64_t now_ns);

#endif
