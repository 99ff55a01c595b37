/* Reading the journal: every valid block of every session after the checkpoint, in order.  Blocks
 * before it are read and checked, too, if they share a file with others.
 *
 * A torn tail, left by the last commit before a crash, ends the scan.  Damage anywhere else is
 * refused, and so is a manifest that is older than the journal.  Evidence distinguishes these cases
 * (scan_tail.c, scan_sessions.c). */
#ifndef QSI_SCAN_H
#define QSI_SCAN_H

#include "chunk.h"
#include "file_head.h"
#include "journal_file.h"

#include <stdint.h>

struct qsi_scan_block {
    struct qsi_block block;
    struct qsi_chunk *chunk; /* has the payload at data[from]; take a reference to keep it */
    uint64_t from;
    uint32_t session; /* index in the manifest */
    uint64_t offset;  /* of the block in its file (block.file_number) */
};
typedef qs_status qsi_scan_visitor(void *context, const struct qsi_scan_block *block,
                                   qs_error *error);

struct qsi_scan_result {
    uint32_t last_file;    /* the highest file number that belongs to a session; 0: none */
    uint32_t file_before;  /* the file before last_file in the same session; 0: none */
    uint32_t highest_file; /* the highest number of any journal file */
    uint64_t end_offset;   /* in last_file, after the last valid block */
    uint64_t end_lsn;
    uint64_t torn_bytes;              /* of an incomplete block after the end */
    uint64_t lost_ranges, lost_bytes; /* skipped damage after the checkpoint */
    uint64_t blocks, bytes;           /* visited */
};

struct qsi_scan_options {
    /* Skip and count damage, and visit whole blocks after it; otherwise damage is QS_ECORRUPT with
     * file and offset. */
    bool salvage;
    /* NULL, or called every few MiB, and once at the end, with the bytes read of the journal's
     * files. */
    void (*progress)(void *context, uint64_t bytes_done, uint64_t bytes_total);
    void *progress_context;
};

/* The pages of a journal file before its blocks. */
struct qsi_journal_head {
    struct qsi_journal_header header;
    uint64_t marked_upto; /* the session was durable up to here; 0: no mark */
    /* Otherwise the rest is not set: it is no header of a file of this store with this number. */
    bool is_whole;
    bool is_used; /* the file has records, from its first block on */
};
qs_status qsi_journal_head_read(struct qsi_journal_head *head_out, qs_env *env, qs_dir *dir,
                                uint32_t number, const uint8_t uuid[QSI_UUID_BYTES],
                                qs_error *error) QS_MUST_CHECK;

/* Checks that no file belongs to a session that the manifest should know and does not.  Part of
 * each scan without salvage. */
qs_status qsi_journal_check_sessions(qs_env *env, qs_dir *dir, const struct qsi_manifest *manifest,
                                     const struct qsi_journal_numbers *files,
                                     qs_error *error) QS_MUST_CHECK;
/* Call it before a scan with salvage: adds such sessions to the manifest, as far as files know
 * them. */
qs_status qsi_journal_adopt_sessions(qs_env *env, qs_dir *dir, struct qsi_manifest *manifest,
                                     qs_error *error) QS_MUST_CHECK;

/* Visits the blocks that end after the checkpoint's LSN; the first of them may begin before it.
 * Any status of the visitor except QS_OK ends the scan.  A journal that ends before the checkpoint
 * is damaged, because it was durable up to there. */
qs_status qsi_journal_scan(qs_env *env, qs_dir *dir, const struct qsi_manifest *manifest,
                           const struct qsi_scan_options *options, qsi_scan_visitor *visit,
                           void *context, struct qsi_scan_result *result_out,
                           qs_error *error) QS_MUST_CHECK;

#endif
