/* Failed logins by address, and the delay of the answer to the next failure. */
#ifndef QSI_FAILURES_H
#define QSI_FAILURES_H

#include <stdint.h>

#define QSI_FAILURES_ADDRESSES 1024 /* remembered at most */
#define QSI_FAILURES_ADDRESS_BYTES 16

struct qsi_failure {
    uint8_t address[QSI_FAILURES_ADDRESS_BYTES];
    uint32_t count; /* 0: unused */
    uint64_t last_ns;
};

/* Zeroed memory is an empty table. */
struct qsi_failures {
    struct qsi_failure noted[QSI_FAILURES_ADDRESSES];
};

/* Records a failed login of peer, "127.0.0.1:40000", "[::1]:40000" or "unix".  Returns the delay of
 * the answer: 0 for the first failure, 0.1 s for the second, then twice as long for each, up to 2
 * s.  A minute without a failure resets the address. */
uint64_t qsi_failures_record(struct qsi_failures *failures, const char *peer, uint64_t now_ns);

#endif
