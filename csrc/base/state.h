/* State machines: an enum that begins at 0, and the allowed next states for each state.  A step
 * that is not in the table is a broken invariant, in every build. */
#ifndef QSI_STATE_H
#define QSI_STATE_H

#include "check.h"

#include <stdbool.h>
#include <stdint.h>

#define QSI_MAY_BE(state) (1u << (state))

/* follows: an array of sets of QSI_MAY_BE, indexed by state. */
static inline bool qsi_state_may_follow(const uint32_t *follows, unsigned from, unsigned to)
{
    return (follows[from] & QSI_MAY_BE(to)) != 0;
}

#define QSI_STATE_STEP(state, next, follows)                          \
    do {                                                              \
        QS_ASSERT(qsi_state_may_follow((follows), *(state), (next))); \
        *(state) = (next);                                            \
    } while (0)

#endif
