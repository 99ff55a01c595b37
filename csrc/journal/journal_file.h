/* Names and headers of journal files (docs/FORMAT.md, "Journal file"). */
#ifndef QSI_JOURNAL_FILE_H
#define QSI_JOURNAL_FILE_H

#include "qstore/env.h"

#include "block.h"
#include "file_head.h"
#include "manifest.h"

#include <stdbool.h>
#include <stdint.h>

#define QSI_JOURNAL_PAGE_BYTES QSI_BLOCK_ALIGN
#define QSI_JOURNAL_FIELD_BYTES 80 /* used bytes of a header */
/* Pages after the header: written in turn, so that one is always whole. */
#define QSI_JOURNAL_MARKS 2
/* Bytes of a file before its first block. */
#define QSI_JOURNAL_HEADER_BYTES ((1 + QSI_JOURNAL_MARKS) * QSI_JOURNAL_PAGE_BYTES)
#define QSI_JOURNAL_FILE_BYTES_MIN (64u << 10)
#define QSI_JOURNAL_NAME_BYTES 16 /* "0000000001.jnl" and a NUL */
#define QSI_JOURNAL_PATH_BYTES 24 /* "journal/0000000001.jnl", the path in errors */

struct qsi_journal_header {
    uint8_t uuid[QSI_UUID_BYTES]; /* of the store */
    uint32_t number;
    /* Of every block in this file; also in the previous file, or in the manifest. */
    uint64_t salt;
    uint64_t next_salt; /* of the session's next file */
    uint64_t base_lsn;  /* of the first block */
    /* In units of QSI_BLOCK_ALIGN: the file is not shorter until its session is closed. */
    uint32_t pages;
    uint32_t index;   /* number of files of the session before it */
    uint64_t session; /* its number; MANIFEST has the last one */
};

void qsi_journal_name(char name_out[QSI_JOURNAL_NAME_BYTES], uint32_t number);
bool qsi_journal_number(const char *name,
                        uint32_t *number_out); /* false: not a journal file's name */
void qsi_journal_path(char path_out[QSI_JOURNAL_PATH_BYTES], uint32_t number);

/* The numbers of all journal files in dir, ascending. */
struct qsi_journal_numbers {
    uint32_t *items;
    uint32_t count;
    uint32_t capacity;
};
qs_status qsi_journal_list(struct qsi_journal_numbers *numbers_out, qs_env *env, qs_dir *dir,
                           qs_error *error) QS_MUST_CHECK;
void qsi_journal_numbers_fini(struct qsi_journal_numbers *numbers);

void qsi_journal_header_encode(uint8_t out[QSI_JOURNAL_FIELD_BYTES],
                               const struct qsi_journal_header *header);
/* The salt in a header that is not checked: to be compared with the expected one, or used if no
 * expected one is known. */
uint64_t qsi_journal_header_salt(const uint8_t in[QSI_JOURNAL_FIELD_BYTES]);
/* False: it is not a whole header of this file number and salt. */
bool qsi_journal_header_decode(struct qsi_journal_header *header_out,
                               const uint8_t in[QSI_JOURNAL_FIELD_BYTES],
                               const uint8_t uuid[QSI_UUID_BYTES], uint32_t number, uint64_t salt);

/* A mark says that the journal was durable up to an LSN.  It is in a page of its own, and survives
 * damage of blocks. */
#define QSI_JOURNAL_MARK_BYTES 32
static inline uint64_t qsi_journal_mark_at(uint64_t index)
{
    return (1 + index % QSI_JOURNAL_MARKS) * QSI_JOURNAL_PAGE_BYTES;
}
void qsi_journal_mark_encode(uint8_t out[QSI_JOURNAL_MARK_BYTES], uint64_t salt,
                             uint64_t durable_upto);
/* 0: it is not a whole mark of a file with this salt. */
uint64_t qsi_journal_mark_decode(const uint8_t in[QSI_JOURNAL_MARK_BYTES], uint64_t salt);

#endif
