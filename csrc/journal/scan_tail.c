/* The end of a session that was not closed: torn by a crash, or damaged later.
 *
 * Damage leaves evidence: an end block without its next file, a mark, or a block or a file that was
 * begun when the bad place was already durable. */
#include "alloc.h"
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "scan_internal.h"

#include <string.h>

#define SEARCH_BYTES (256u << 10)

/* ---- blocks ---- */

/* Searches, from offset on, for a block header which proves that the current LSN was durable. */
static qs_status find_proof(struct qsi_scan *scan, const struct qsi_scan_file *file,
                            uint64_t offset, uint64_t salt, uint64_t *proof_out, qs_error *error)
{
    uint8_t *window = qsi_alloc(SEARCH_BYTES);
    qs_status status = QS_EEMPTY;

    if (window == NULL) {
        return qsi_fail(error, QS_ENOMEM, "search buffer");
    }
    for (; status == QS_EEMPTY && offset < file->bytes; offset += SEARCH_BYTES) {
        size_t bytes = 0;
        qs_status read =
            qsi_file_read(scan->env, file->file, window, SEARCH_BYTES, offset, &bytes, error);
        if (read != QS_OK) {
            status = read;
            break;
        }
        for (size_t at = 0; at + QSI_BLOCK_HEADER_BYTES <= bytes; at += QSI_BLOCK_ALIGN) {
            struct qsi_block block;
            if (qsi_block_decode(&block, window + at, salt) && block.durable_upto > scan->lsn) {
                *proof_out = offset + at;
                status = QS_OK;
                break;
            }
        }
    }
    qsi_free(window);
    return status;
}

/* Searches one file, whose header may be lost, for a proof. */
static qs_status check_blocks(struct qsi_scan *scan, uint32_t number, uint64_t offset,
                              uint64_t salt, const char *bad_path, uint64_t bad_offset,
                              qs_error *error)
{
    struct qsi_scan_file file = {0};
    uint64_t proof = 0;
    qs_status status = qsi_scan_open_file(scan, &file, number, error);

    if (status != QS_OK) {
        return status;
    }
    status = find_proof(scan, &file, offset, salt, &proof, error);
    qsi_scan_close_file(scan, &file);
    if (status == QS_EEMPTY) {
        return QS_OK;
    }
    if (status != QS_OK) {
        return status;
    }
    return qsi_fail_corrupt(error, bad_path, bad_offset,
                            "the journal is damaged from LSN %llu on: the block at %s:%llu was "
                            "written when this was durable",
                            (unsigned long long)scan->lsn, file.path, (unsigned long long)proof);
}

/* ---- later files ---- */

/* Whether a later file proves damage.  Its header alone proves nothing about the file before it,
 * which is synced only with its end block.  A block in it does, and so does a file after it, or one
 * of the next session. */
static bool proves_more(const struct qsi_scan *scan, const struct qsi_scan_file *last,
                        const struct qsi_journal_head *head)
{
    uint32_t index = last != NULL ? last->header.index : 0;

    return head->is_whole && head->header.base_lsn > scan->lsn &&
           (head->is_used || head->header.session > scan->manifest->session_number ||
            (head->header.session == scan->manifest->session_number &&
             head->header.index > index + 1));
}

/* Checks a later file.  Its own salt is used, because the file that names its salt may be the
 * damaged one.  No file from low on has the header of an earlier session: a reused file has a
 * number different from that in its old header. */
static qs_status check_later_file(struct qsi_scan *scan, const struct qsi_scan_file *last,
                                  uint32_t number, const char *bad_path, uint64_t bad_offset,
                                  qs_error *error)
{
    char path[QSI_JOURNAL_PATH_BYTES];
    struct qsi_journal_head head;

    QS_TRY(qsi_journal_head_read(&head, scan->env, scan->dir, number, scan->manifest->uuid, error));
    if (!proves_more(scan, last, &head)) {
        return QS_OK;
    }
    qsi_journal_path(path, number);
    return qsi_fail_corrupt(error, bad_path, bad_offset,
                            "the journal is damaged from LSN %llu on: %s was begun at LSN %llu",
                            (unsigned long long)scan->lsn, path,
                            (unsigned long long)head.header.base_lsn);
}

/* ---- marks and end blocks ---- */

qs_status qsi_scan_marked_upto(struct qsi_scan *scan, const struct qsi_scan_file *last,
                               uint64_t *lsn_out, qs_error *error)
{
    struct qsi_journal_head head;

    QS_TRY(qsi_journal_head_read(&head, scan->env, scan->dir, last->header.number,
                                 scan->manifest->uuid, error));
    *lsn_out = head.marked_upto;
    return QS_OK;
}

static qs_status check_mark(struct qsi_scan *scan, const struct qsi_scan_file *last,
                            qs_error *error)
{
    uint64_t marked_upto = 0;

    QS_TRY(qsi_scan_marked_upto(scan, last, &marked_upto, error));
    return marked_upto > scan->lsn
               ? qsi_fail_corrupt(error, last->path, scan->result->end_offset,
                                  "the journal is damaged from LSN %llu on: it was durable up to "
                                  "%llu, as a mark in the file says",
                                  (unsigned long long)scan->lsn, (unsigned long long)marked_upto)
               : QS_OK;
}

/* Reports the missing next file: the end block was written after its header was durable. */
static qs_status fail_next_file(struct qsi_scan *scan, const struct qsi_scan_file *last,
                                qs_error *error)
{
    struct qsi_scan_file next = {0};
    qs_status status = qsi_scan_open_file(scan, &next, scan->next_file, error);

    if (status == QS_OK) {
        qsi_scan_close_file(scan, &next);
    } else if (status != QS_ENOENT) {
        return status;
    }
    return qsi_fail_corrupt(
        error, next.path, 0, "%s: %s says that the journal goes on in it",
        status == QS_ENOENT ? "the file is missing" : "the file's header is damaged", last->path);
}

/* ---- all of it ---- */

qs_status qsi_scan_check_tail(struct qsi_scan *scan, const struct qsi_scan_file *last, uint32_t low,
                              uint64_t next_salt, qs_error *error)
{
    char path[QSI_JOURNAL_PATH_BYTES];
    uint64_t offset = QSI_JOURNAL_HEADER_BYTES;

    qsi_journal_path(path, low);
    if (last != NULL) {
        if (scan->next_file != 0) {
            return fail_next_file(scan, last, error);
        }
        memcpy(path, last->path, sizeof path);
        offset = scan->result->end_offset;
        QS_TRY(check_mark(scan, last, error));
        QS_TRY(check_blocks(scan, last->header.number, offset, last->header.salt, path, offset,
                            error));
    }
    for (uint32_t i = 0; i < scan->files.count; i++) {
        if (scan->files.items[i] >= low) {
            QS_TRY(check_blocks(scan, scan->files.items[i], QSI_JOURNAL_HEADER_BYTES, next_salt,
                                path, offset, error));
            QS_TRY(check_later_file(scan, last, scan->files.items[i], path, offset, error));
        }
    }
    return QS_OK;
}
