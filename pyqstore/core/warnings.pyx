# Warnings: a thread of the engine tells what no call can.  It has no GIL and holds no lock.
from logging import getLogger

_logger = getLogger("pyqstore")


cdef void log_warning(void *context, const char *text) noexcept with gil:
    _logger.warning("%s", text.decode("utf-8", "replace"))
