/* The reading side of the journal: every valid block of every session behind the checkpoint, in order.  Blocks before it are read and
 * checked as well where they share a file with others.
 *
 * A torn tail (what the last commit before a crash left behind) ends the scan; damage anywhere else is refused.  The two are told apart by
 * evidence: a later block, or a later file, that was written when the bad place was durable already. */
#ifndef QSI_SCAN_H
#define QSI_SCAN_H

#include "chunk.h"
#include "journal_file.h"

#include <stdint.h>

struct qsi_scan_block {
    struct qsi_block block;
    struct qsi_chunk *chunk; /* holds the payload at data[from]; ref it to keep it */
    uint64_t from;
    uint32_t session; /* index in the manifest */
    uint64_t offset;  /* of the block in its file (block.file_number) */
};
typedef qs_status qsi_scan_visitor(void *context, const struct qsi_scan_block *block,
                                   qs_error *error);

struct qsi_scan_result {
    uint32_t last_file;    /* the highest file number that belongs to a session; 0: none */
    uint32_t highest_file; /* the highest number there is, of a session or not */
    uint64_t end_offset;   /* behind the last valid block there */
    uint64_t end_lsn;
    uint64_t torn_bytes;              /* of a begun block behind the end */
    uint64_t lost_ranges, lost_bytes; /* damage that was passed over, behind the checkpoint */
    uint64_t blocks, bytes;           /* visited */
};

struct qsi_scan_options {
    /* Damage is passed over and counted, and what is whole behind it is visited; else it is QS_ECORRUPT with file and offset. */
    bool salvage;
    /* NULL, or told every few MiB, and once at the end, how much of the journal's files was read. */
    void (*progress)(void *context, uint64_t bytes_done, uint64_t bytes_total);
    void *progress_context;
};

/* Visits the blocks that end behind the checkpoint's LSN; the first of them may begin before it.  Whatever the visitor returns but
 * QS_OK ends the scan.  A journal that ends before the checkpoint is damaged: it was durable to there. */
qs_status qsi_journal_scan(qs_env *env, qs_dir *dir, const struct qsi_manifest *manifest,
                           const struct qsi_scan_options *options, qsi_scan_visitor *visit,
                           void *context, struct qsi_scan_result *result_out,
                           qs_error *error) QS_MUST_CHECK;

#endif
