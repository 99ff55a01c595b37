"""Write the C source of the cffi module from its cdef file: gen_ffi.py CDEF OUT."""

import sys
from pathlib import Path

import cffi


def main(cdef_path: str, out_path: str) -> None:
    ffi = cffi.FFI()
    ffi.cdef(Path(cdef_path).read_text(encoding="utf-8"))
    ffi.set_source("pyqstore._ffi", '#include "qstore/codec.h"')
    ffi.emit_c_code(out_path)


if __name__ == "__main__":
    main(*sys.argv[1:])
