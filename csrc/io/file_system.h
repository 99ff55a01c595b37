/* The kind of file system of a directory, by the number that statfs() returns. */
#ifndef QSI_FILE_SYSTEM_H
#define QSI_FILE_SYSTEM_H

#include "qstore/env.h"

/* A number that is not in the table becomes the name: "0x1234". */
void qsi_file_system_of(uint64_t magic, qs_file_system *system_out);

#endif
