from typing import Any

ffi: Any  # cffi.FFI; its compiled form has no types
lib: Any  # the functions of _ffi_cdef.h
