/* A bell: a descriptor that an event loop watches, an eventfd.  Ringing twice is ringing once. */
#ifndef QSI_BELL_H
#define QSI_BELL_H

#include "qstore/status.h"

#define QSI_NO_BELL (-1)

/* QS_EIO: no descriptor is left.  The event loop closes it, when it does not watch it any more and
 * nobody rings it any more. */
qs_status qsi_bell_open(int *bell_out, qs_error *error) QS_MUST_CHECK;
void qsi_bell_ring(int bell);

#endif
