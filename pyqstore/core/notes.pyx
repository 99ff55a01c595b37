# Notes: a thread of the engine tells what no call can.  It has no GIL and holds no lock.
from logging import getLogger

_logger = getLogger("pyqstore")


cdef void log_note(void *context, uint32_t level, const char *text) noexcept with gil:
    _logger.log(level, "%s", text.decode("utf-8", "replace"))
