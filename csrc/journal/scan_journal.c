/* Scanning the journal, session by session. */
#include "check.h"
#include "error.h"
#include "file.h"
#include "record.h"
#include "scan_internal.h"

#include <string.h>

/* ---- the files ---- */

static qs_status list_files(struct qsi_scan *scan, qs_error *error)
{
    QS_TRY(qsi_journal_list(&scan->files, scan->env, scan->dir, error));
    if (scan->files.count > 0) {
        scan->result->highest_file = scan->files.items[scan->files.count - 1];
    }
    return QS_OK;
}

/* Adds up the sizes of the files to read, for the progress. */
static qs_status measure(struct qsi_scan *scan, qs_error *error)
{
    if (scan->options->progress == NULL || scan->manifest->session_count == 0) {
        return QS_OK;
    }
    for (uint32_t i = 0; i < scan->files.count; i++) {
        struct qsi_scan_file file = {0};
        if (scan->files.items[i] >= scan->manifest->sessions[0].first_file) {
            QS_TRY(qsi_scan_open_file(scan, &file, scan->files.items[i], error));
            qsi_scan_close_file(scan, &file);
            scan->bytes_total += file.bytes;
        }
    }
    return QS_OK;
}

/* ---- sessions ---- */

/* Measures the incomplete block after the end. */
static qs_status measure_torn(struct qsi_scan *scan, const struct qsi_scan_file *last,
                              qs_error *error)
{
    uint8_t header[QSI_BLOCK_HEADER_BYTES];
    struct qsi_scan_file file = {0};
    struct qsi_block block;
    size_t bytes = 0;
    qs_status status = qsi_scan_open_file(scan, &file, last->header.number, error);

    if (status != QS_OK) {
        return status;
    }
    status = qsi_file_read(scan->env, file.file, header, sizeof header, scan->result->end_offset,
                           &bytes, error);
    if (status == QS_OK && bytes == sizeof header &&
        qsi_block_decode(&block, header, last->header.salt)) {
        uint64_t left = file.bytes - scan->result->end_offset;
        uint64_t begun = qsi_block_bytes(block.payload_bytes);
        scan->result->torn_bytes = begun < left ? begun : left;
    }
    qsi_scan_close_file(scan, &file);
    return status;
}

/* Whether a file was cut.  Files have their full size, durably, before anything refers to them, and
 * are truncated only when their session is closed.  So a file of an open session that is shorter
 * has lost bytes. */
static bool is_cut(const struct qsi_scan_file *file)
{
    return file->bytes < (uint64_t)file->header.pages * QSI_BLOCK_ALIGN;
}

/* Salvage: counts records that existed and were not found.  The size of a missing file is unknown:
 * one record of the smallest size is counted, which shows that the session did not end here. */
static qs_status lose_rest(struct qsi_scan *scan, const struct qsi_scan_file *last,
                           uint64_t known_end, qs_error *error)
{
    uint64_t from = scan->lsn > scan->needed_from ? scan->lsn : scan->needed_from;
    uint64_t marked_upto = 0;

    if (scan->end_lsn == UINT64_MAX) {
        if (last != NULL) {
            QS_TRY(qsi_scan_marked_upto(scan, last, &marked_upto, error));
        }
        if (marked_upto <= from && (last == NULL || scan->next_file != 0 || is_cut(last))) {
            marked_upto = from + QSI_RECORD_ALIGN;
        }
    }
    known_end = marked_upto > known_end ? marked_upto : known_end;
    if (scan->lsn < known_end) {
        qsi_scan_lose(scan, known_end);
    }
    return QS_OK;
}

static qs_status end_session(struct qsi_scan *scan, const struct qsi_scan_file *last, uint32_t low,
                             uint64_t salt, qs_error *error)
{
    /* An undecided session extends at least to the checkpoint: later records must not get LSNs
     * before it. */
    uint64_t known_end = scan->end_lsn != UINT64_MAX ? scan->end_lsn : scan->needed_from;
    char path[QSI_JOURNAL_PATH_BYTES];

    if (scan->lsn == scan->end_lsn) {
        return QS_OK;
    }
    if (scan->options->salvage) {
        return lose_rest(scan, last, known_end, error);
    }
    if (scan->lsn < known_end) {
        qsi_journal_path(path, last != NULL ? last->header.number : low);
        return qsi_fail_corrupt(
            error, path, last != NULL ? scan->result->end_offset : 0,
            "the journal breaks off at LSN %llu; it was %s %llu", (unsigned long long)scan->lsn,
            scan->end_lsn != UINT64_MAX ? "closed or truncated at"
                                        : "durable when a checkpoint was made at",
            (unsigned long long)known_end);
    }
    QS_TRY(qsi_scan_check_tail(scan, last, low, salt, error));
    return last != NULL ? measure_torn(scan, last, error) : QS_OK;
}

static qs_status check_size(const struct qsi_scan *scan, const struct qsi_scan_file *file,
                            qs_error *error)
{
    if (scan->end_lsn != UINT64_MAX || scan->options->salvage || !is_cut(file)) {
        return QS_OK;
    }
    return qsi_fail_corrupt(error, file->path, file->bytes,
                            "the file has %llu bytes; it was made with %llu and not closed",
                            (unsigned long long)file->bytes,
                            (unsigned long long)file->header.pages * QSI_BLOCK_ALIGN);
}

/* Checks that the session's first file exists with its header, as it did before MANIFEST named
 * it. */
static qs_status check_first_file(struct qsi_scan *scan, uint32_t number, uint64_t salt,
                                  qs_error *error)
{
    struct qsi_scan_file file = {0};
    qs_status status;

    if (scan->end_lsn != UINT64_MAX || scan->options->salvage) {
        return QS_OK;
    }
    status = qsi_scan_open_generation(scan, &file, number, salt, error);
    if (status == QS_ENOENT || status == QS_EEMPTY) {
        return qsi_fail_corrupt(
            error, file.path, 0, "%s, and MANIFEST says that the journal begins with it",
            status == QS_ENOENT ? "the file is missing" : "the file's header is damaged");
    }
    if (status == QS_OK) {
        qsi_scan_close_file(scan, &file);
    }
    return status;
}

/* Whether the next file of an undecided session begins after the last whole block of the current
 * file.  Then the crash came before the end block was durable, unless check_tail proves damage. */
static bool is_begun_too_early(const struct qsi_scan *scan, const struct qsi_scan_file *file)
{
    return scan->end_lsn == UINT64_MAX && !scan->options->salvage && scan->next_file == 0 &&
           file->header.base_lsn > scan->lsn;
}

/* Finds the file in [low, limit) in which the session continues at scan->lsn; with salvage also a
 * later one.  QS_EEMPTY: there is none. */
static qs_status find_next_file(struct qsi_scan *scan, struct qsi_scan_file *file, uint32_t low,
                                uint32_t limit, uint64_t salt, qs_error *error)
{
    qs_status status;

    if (scan->lsn >= scan->end_lsn) {
        return QS_EEMPTY;
    }
    status = qsi_scan_find_generation(scan, file, low, limit, salt, error);
    if (status == QS_OK && is_begun_too_early(scan, file)) {
        qsi_scan_close_file(scan, file);
        status = QS_EEMPTY;
    }
    return status == QS_EEMPTY && scan->options->salvage
               ? qsi_scan_find_to_salvage(scan, file, low, limit, salt, error)
               : status;
}

static qs_status scan_session(struct qsi_scan *scan, uint32_t session, qs_error *error)
{
    const struct qsi_manifest *manifest = scan->manifest;
    bool is_last = session + 1 == manifest->session_count;
    uint32_t limit = is_last ? UINT32_MAX : manifest->sessions[session + 1].first_file;
    uint32_t low = manifest->sessions[session].first_file;
    uint64_t salt = manifest->sessions[session].salt;
    struct qsi_scan_file last = {0};
    bool any = false;

    scan->lsn = manifest->sessions[session].base_lsn;
    scan->end_lsn = !is_last                          ? manifest->sessions[session + 1].base_lsn
                    : qsi_manifest_is_ended(manifest) ? manifest->end_lsn
                                                      : UINT64_MAX;
    scan->next_file = 0;
    QS_TRY(check_first_file(scan, low, salt, error));
    for (;;) {
        struct qsi_scan_file file = {0};
        qs_status status = find_next_file(scan, &file, low, limit, salt, error);
        if (status == QS_EEMPTY) {
            return end_session(scan, any ? &last : NULL, low, salt, error);
        }
        if (status != QS_OK) {
            return status;
        }
        if (scan->options->salvage && file.header.base_lsn > scan->lsn) {
            qsi_scan_lose(scan, file.header.base_lsn);
        }
        if (file.header.base_lsn != scan->lsn) {
            qsi_scan_close_file(scan, &file);
            qsi_journal_path(file.path, any ? last.header.number : low);
            return qsi_fail_corrupt(
                error, file.path, any ? scan->result->end_offset : 0,
                "the journal breaks off at LSN %llu; its next file begins at %llu",
                (unsigned long long)scan->lsn, (unsigned long long)file.header.base_lsn);
        }
        scan->result->file_before = any ? last.header.number : 0;
        status = check_size(scan, &file, error);
        if (status == QS_OK) {
            status = qsi_scan_blocks(scan, &file, session, error);
        }
        qsi_scan_close_file(scan, &file);
        if (status != QS_OK) {
            return status;
        }
        scan->bytes_before += file.bytes;
        last = file;
        any = true;
        low = file.header.number + 1;
        salt = file.header.next_salt;
    }
}

qs_status qsi_journal_scan(qs_env *env, qs_dir *dir, const struct qsi_manifest *manifest,
                           const struct qsi_scan_options *options, qsi_scan_visitor *visit,
                           void *context, struct qsi_scan_result *result_out, qs_error *error)
{
    struct qsi_scan scan = {.env = env,
                            .dir = dir,
                            .manifest = manifest,
                            .options = options,
                            .visit = visit,
                            .context = context,
                            .result = result_out,
                            .needed_from = qsi_manifest_needed_from(manifest)};
    qs_status status;

    memset(result_out, 0, sizeof *result_out);
    status = list_files(&scan, error);
    if (status == QS_OK) {
        status = measure(&scan, error);
    }
    if (status == QS_OK && !options->salvage) {
        status = qsi_journal_check_sessions(env, dir, manifest, &scan.files, error);
    }
    for (uint32_t session = 0; status == QS_OK && session < manifest->session_count; session++) {
        status = scan_session(&scan, session, error);
    }
    if (status == QS_OK) {
        qsi_scan_report(&scan, scan.bytes_total, 0);
    }
    result_out->end_lsn = scan.lsn;
    qsi_chunk_unref(scan.arena);
    qsi_journal_numbers_fini(&scan.files);
    return status;
}
