# cython: language_level=3, binding=True, boundscheck=False, wraparound=False
"""The engine's handles: arguments to C, the GIL dropped around one call, the status to an
exception, the result back.

What a handle owes its caller beside that, since C leaves it to the caller:
- No call may be under way when a store is closed.  Every call is counted on its store while it is
  in C, and close waits for the count to reach 0, having turned later calls away.
- A channel serves one thread at a time.  A second one is told so.
- A store is of no use after fork().  A counter that the child moves tells.
"""
import os

from _capi cimport *

PASSIVE = <int>QS_PASSIVE
DURABLE = <int>QS_DURABLE
EXCLUSIVE = <int>QS_EXCLUSIVE
AUTO_DELETE = <int>QS_AUTO_DELETE
INTERNAL = <int>QS_INTERNAL
IF_UNUSED = <int>QS_IF_UNUSED
IF_EMPTY = <int>QS_IF_EMPTY
NO_ACK = <int>QS_NO_ACK
NO_SYNC = <int>QS_NO_SYNC
TO_EXCHANGE = <int>QS_TO_EXCHANGE
UNBIND = <int>QS_UNBIND
AUTO_ACK = <int>QS_AUTO_ACK

EVENT_RETURN = <int>QS_EVENT_RETURN
EVENT_ACK = <int>QS_EVENT_ACK
EVENT_NACK = <int>QS_EVENT_NACK
EVENT_DELIVERY = <int>QS_EVENT_DELIVERY
EVENT_CANCEL = <int>QS_EVENT_CANCEL
EVENT_CHANGE = <int>QS_EVENT_CHANGE
EVENT_ARM = <int>QS_EVENT_ARM
EVENT_ERROR = 0

cdef unsigned long fork_generation = 0


def _after_fork_in_child():
    global fork_generation
    fork_generation += 1


os.register_at_fork(after_in_child=_after_fork_in_child)

# Parts of one module, not modules: the C library that is linked in has state, and is there once.
# They are called .pyx because cython-lint looks only at such, and at .pxd.
include "core/convert.pyx"
include "core/message.pyx"
include "core/arrow.pyx"
include "core/listings.pyx"
include "core/progress.pyx"
include "core/notes.pyx"
include "core/store.pyx"
include "core/stream.pyx"
include "core/trace.pyx"
include "core/staged.pyx"
include "core/server.pyx"
include "core/connection.pyx"
include "core/handle.pyx"
include "core/declaring.pyx"
include "core/outcomes.pyx"
include "core/publishing.pyx"
include "core/settling.pyx"
include "core/channel.pyx"
include "core/confirm.pyx"
include "core/shovelling.pyx"
include "core/kafka.pyx"
