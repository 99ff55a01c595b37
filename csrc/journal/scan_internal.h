/* What the parts of the scan share: scan.c reads, scan_tail.c judges where the journal ends. */
#ifndef QSI_SCAN_INTERNAL_H
#define QSI_SCAN_INTERNAL_H

#include "scan.h"

struct scan {
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
    uint64_t
        end_lsn; /* where the session is known to end: what may lie behind it was cut off once */
    uint32_t
        next_file; /* in which the session goes on, as the end block says that was read last; or 0 */
    uint64_t bytes_total;  /* of all files that may be read */
    uint64_t bytes_before; /* of those that were read */
    uint64_t bytes_reported;
};

struct scan_file {
    struct qsi_journal_header header;
    qs_file *file;
    uint64_t bytes;
    char path[QSI_JOURNAL_PATH_BYTES];
};

/* ---- scan.c ---- */

void qsi_scan_close_file(struct scan *scan, struct scan_file *file);
qs_status qsi_scan_open_file(struct scan *scan, struct scan_file *file, uint32_t number,
                             qs_error *error) QS_MUST_CHECK;

/* ---- scan_tail.c ---- */

/* The end of the last session: nothing may prove that there was more.  last, or NULL: the file in
 * which it ends; the next one has a number from low on, and that salt. */
qs_status qsi_scan_check_tail(struct scan *scan, const struct scan_file *last, uint32_t low,
                              uint64_t next_salt, qs_error *error) QS_MUST_CHECK;
/* How far the journal was durable for certain, by the marks of a file. */
qs_status qsi_scan_marked_upto(struct scan *scan, const struct scan_file *last, uint64_t *lsn_out,
                               qs_error *error) QS_MUST_CHECK;

#endif
