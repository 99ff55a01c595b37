/* What the parts of the scan share: scan.c goes through the sessions, scan_files.c finds their
 * files, scan_blocks.c reads those, scan_tail.c judges where the journal ends. */
#ifndef QSI_SCAN_INTERNAL_H
#define QSI_SCAN_INTERNAL_H

#include "scan.h"

struct qsi_scan {
    qs_env *env;
    qs_dir *dir;
    const struct qsi_manifest *manifest;
    const struct qsi_scan_options *options;
    qsi_scan_visitor *visit;
    void *context;
    struct qsi_scan_result *result;
    struct qsi_journal_numbers files; /* those there */
    struct qsi_chunk *arena;
    uint64_t needed_from; /* the checkpoint's LSN */
    uint64_t lsn;         /* of the next block */
    /* where the session is known to end: what may lie behind it was cut off once */
    uint64_t end_lsn;
    /* in which the session goes on, as the end block says that was read last; or 0 */
    uint32_t next_file;
    uint64_t bytes_total;  /* of all files that may be read */
    uint64_t bytes_before; /* of those that were read */
    uint64_t bytes_reported;
};

struct qsi_scan_file {
    struct qsi_journal_header header;
    qs_file *file;
    uint64_t bytes;
    char path[QSI_JOURNAL_PATH_BYTES];
};

/* ---- scan.c ---- */

/* bytes of the current file were read. */
void qsi_scan_report(struct qsi_scan *scan, uint64_t bytes, uint64_t bytes_min);
/* Passes over the LSNs up to lsn, which cannot be read.  What the checkpoint has is not lost with
 * them. */
void qsi_scan_lose(struct qsi_scan *scan, uint64_t lsn);

/* ---- scan_files.c ---- */

void qsi_scan_close_file(struct qsi_scan *scan, struct qsi_scan_file *file);
qs_status qsi_scan_open_file(struct qsi_scan *scan, struct qsi_scan_file *file, uint32_t number,
                             qs_error *error) QS_MUST_CHECK;

/* Opens the file with this number if its header is whole and carries the salt; QS_EEMPTY if not. */
qs_status qsi_scan_open_generation(struct qsi_scan *scan, struct qsi_scan_file *file,
                                   uint32_t number, uint64_t salt, qs_error *error) QS_MUST_CHECK;
/* The first file of [low, limit) that belongs to the generation; QS_EEMPTY: there is none. */
qs_status qsi_scan_find_generation(struct qsi_scan *scan, struct qsi_scan_file *file, uint32_t low,
                                   uint32_t limit, uint64_t salt, qs_error *error) QS_MUST_CHECK;
/* Where to go on when the next file cannot be known by its header and salt; QS_EEMPTY. */
qs_status qsi_scan_find_to_salvage(struct qsi_scan *scan, struct qsi_scan_file *file, uint32_t low,
                                   uint32_t limit, uint64_t salt, qs_error *error) QS_MUST_CHECK;

/* ---- scan_blocks.c ---- */

/* The blocks of the file from scan->lsn on, as far as they are whole. */
qs_status qsi_scan_blocks(struct qsi_scan *scan, const struct qsi_scan_file *file, uint32_t session,
                          qs_error *error) QS_MUST_CHECK;
/* Goes on at the next whole block of the file; QS_EEMPTY when there is none. */
qs_status qsi_scan_skip_damage(struct qsi_scan *scan, const struct qsi_scan_file *file,
                               uint64_t *offset_io, qs_error *error) QS_MUST_CHECK;

/* ---- scan_tail.c ---- */

/* The end of the last session: nothing may prove that there was more.  last, or NULL: the file in
 * which it ends; the next one has a number from low on, and that salt. */
qs_status qsi_scan_check_tail(struct qsi_scan *scan, const struct qsi_scan_file *last, uint32_t low,
                              uint64_t next_salt, qs_error *error) QS_MUST_CHECK;
/* How far the journal was durable for certain, by the marks of a file. */
qs_status qsi_scan_marked_upto(struct qsi_scan *scan, const struct qsi_scan_file *last,
                               uint64_t *lsn_out, qs_error *error) QS_MUST_CHECK;

#endif
