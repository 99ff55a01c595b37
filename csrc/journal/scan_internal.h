/* Declarations shared by the parts of the scan: scan_journal.c goes through the sessions,
 * scan_files.c finds their files, scan_blocks.c reads blocks, scan_tail.c checks the end of the
 * journal. */
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
    struct qsi_journal_numbers files; /* existing files */
    struct qsi_chunk *arena;
    uint64_t needed_from; /* the checkpoint's LSN */
    uint64_t lsn;         /* of the next block */
    /* The known end of the session: later bytes were cut off by an earlier open. */
    uint64_t end_lsn;
    /* The session's next file, according to the end block that was read last; or 0. */
    uint32_t next_file;
    uint64_t bytes_total;  /* of all files to read */
    uint64_t bytes_before; /* of the files read so far */
    uint64_t bytes_reported;
};

struct qsi_scan_file {
    struct qsi_journal_header header;
    qs_file *file;
    uint64_t bytes;
    char path[QSI_JOURNAL_PATH_BYTES];
};

/* ---- scan_files.c ---- */

void qsi_scan_close_file(struct qsi_scan *scan, struct qsi_scan_file *file);
qs_status qsi_scan_open_file(struct qsi_scan *scan, struct qsi_scan_file *file, uint32_t number,
                             qs_error *error) QS_MUST_CHECK;

/* Opens the file with this number if its header is whole and has the salt; QS_EEMPTY if not. */
qs_status qsi_scan_open_generation(struct qsi_scan *scan, struct qsi_scan_file *file,
                                   uint32_t number, uint64_t salt, qs_error *error) QS_MUST_CHECK;
/* Finds the first file in [low, limit) with this salt; QS_EEMPTY: there is none. */
qs_status qsi_scan_find_generation(struct qsi_scan *scan, struct qsi_scan_file *file, uint32_t low,
                                   uint32_t limit, uint64_t salt, qs_error *error) QS_MUST_CHECK;
/* Finds where to continue if no file has the right header and salt; QS_EEMPTY. */
qs_status qsi_scan_find_to_salvage(struct qsi_scan *scan, struct qsi_scan_file *file, uint32_t low,
                                   uint32_t limit, uint64_t salt, qs_error *error) QS_MUST_CHECK;

/* ---- scan_blocks.c ---- */

/* Reports progress if at least bytes_min were read since the last report.  bytes: those read so far
 * of the current file. */
void qsi_scan_report(struct qsi_scan *scan, uint64_t bytes, uint64_t bytes_min);
/* Skips the LSNs up to lsn, which cannot be read.  LSNs before the checkpoint do not count as
 * lost. */
void qsi_scan_lose(struct qsi_scan *scan, uint64_t lsn);
/* Visits the blocks of the file from scan->lsn on, up to the first one that is not whole. */
qs_status qsi_scan_blocks(struct qsi_scan *scan, const struct qsi_scan_file *file, uint32_t session,
                          qs_error *error) QS_MUST_CHECK;
/* Continues at the next whole block of the file; QS_EEMPTY: there is none. */
qs_status qsi_scan_skip_damage(struct qsi_scan *scan, const struct qsi_scan_file *file,
                               uint64_t *offset_io, qs_error *error) QS_MUST_CHECK;

/* ---- scan_tail.c ---- */

/* Checks the end of the last session: QS_ECORRUPT if there is proof that the journal was longer.
 * last: the file in which it ends, or NULL; the next file has a number of at least low, and the
 * salt next_salt. */
qs_status qsi_scan_check_tail(struct qsi_scan *scan, const struct qsi_scan_file *last, uint32_t low,
                              uint64_t next_salt, qs_error *error) QS_MUST_CHECK;
/* The LSN up to which the journal was certainly durable, according to the file's marks. */
qs_status qsi_scan_marked_upto(struct qsi_scan *scan, const struct qsi_scan_file *last,
                               uint64_t *lsn_out, qs_error *error) QS_MUST_CHECK;

#endif
