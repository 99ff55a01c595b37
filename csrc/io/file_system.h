/* What kind of file system a directory lies in, by the number that statfs() tells. */
#ifndef QSI_FILE_SYSTEM_H
#define QSI_FILE_SYSTEM_H

#include "qstore/env.h"

/* The number that no table has is told as such: "0x1234". */
void qsi_file_system_of(uint64_t magic, qs_file_system *system_out);

#endif
