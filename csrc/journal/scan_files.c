/* The files of a scan: opened by number, found by the salt that the previous file names. */
#include "check.h"
#include "env_call.h"
#include "file.h"
#include "scan_internal.h"

void qsi_scan_close_file(struct qsi_scan *scan, struct qsi_scan_file *file)
{
    scan->env->close(scan->env, file->file);
    file->file = NULL;
}

qs_status qsi_scan_open_file(struct qsi_scan *scan, struct qsi_scan_file *file, uint32_t number,
                             qs_error *error)
{
    char name[QSI_JOURNAL_NAME_BYTES];
    qs_status status;

    qsi_journal_name(name, number);
    qsi_journal_path(file->path, number);
    status = qsi_env_open(scan->env, scan->dir, name, QS_OPEN_READ, &file->file, error);
    if (status != QS_OK) {
        return status;
    }
    status = qsi_env_size(scan->env, file->file, &file->bytes, error);
    if (status != QS_OK) {
        qsi_scan_close_file(scan, file);
    }
    return status;
}

qs_status qsi_scan_open_generation(struct qsi_scan *scan, struct qsi_scan_file *file,
                                   uint32_t number, uint64_t salt, qs_error *error)
{
    uint8_t page[QSI_JOURNAL_PAGE_BYTES];
    size_t bytes = 0;
    qs_status status = qsi_scan_open_file(scan, file, number, error);

    if (status != QS_OK) {
        return status;
    }
    status = qsi_file_read(scan->env, file->file, page, sizeof page, 0, &bytes, error);
    if (status == QS_OK &&
        (bytes < sizeof page ||
         !qsi_journal_header_decode(&file->header, page, scan->manifest->uuid, number, salt))) {
        status = QS_EEMPTY;
    }
    if (status != QS_OK) {
        qsi_scan_close_file(scan, file);
    }
    return status;
}

/* Finds a file by its own salt, because the header that named it is lost: only for salvage. */
static qs_status find_orphan(struct qsi_scan *scan, struct qsi_scan_file *file, uint32_t low,
                             uint32_t limit, qs_error *error)
{
    for (uint32_t i = 0; i < scan->files.count; i++) {
        uint8_t page[QSI_JOURNAL_PAGE_BYTES];
        size_t bytes = 0;
        qs_status status;
        if (scan->files.items[i] < low || scan->files.items[i] >= limit) {
            continue;
        }
        status = qsi_scan_open_file(scan, file, scan->files.items[i], error);
        if (status == QS_OK) {
            status = qsi_file_read(scan->env, file->file, page, sizeof page, 0, &bytes, error);
            if (status == QS_OK && bytes == sizeof page &&
                qsi_journal_header_decode(&file->header, page, scan->manifest->uuid,
                                          scan->files.items[i], qsi_journal_header_salt(page)) &&
                file->header.base_lsn >= scan->lsn && file->header.base_lsn < scan->end_lsn) {
                return QS_OK;
            }
            qsi_scan_close_file(scan, file);
        }
        if (status != QS_OK) {
            return status;
        }
    }
    return QS_EEMPTY;
}

qs_status qsi_scan_find_generation(struct qsi_scan *scan, struct qsi_scan_file *file, uint32_t low,
                                   uint32_t limit, uint64_t salt, qs_error *error)
{
    for (uint32_t i = 0; i < scan->files.count; i++) {
        qs_status status;
        if (scan->files.items[i] < low || scan->files.items[i] >= limit) {
            continue;
        }
        status = qsi_scan_open_generation(scan, file, scan->files.items[i], salt, error);
        if (status != QS_EEMPTY) {
            return status;
        }
    }
    return QS_EEMPTY;
}

/* Finds a file with a damaged header and whole blocks, which have the expected salt. */
static qs_status find_headerless(struct qsi_scan *scan, struct qsi_scan_file *file, uint32_t low,
                                 uint32_t limit, uint64_t salt, qs_error *error)
{
    struct qsi_scan_result result = *scan->result;
    uint64_t lsn = scan->lsn;

    for (uint32_t i = 0; i < scan->files.count; i++) {
        uint64_t offset = 0;
        qs_status status;
        if (scan->files.items[i] < low || scan->files.items[i] >= limit) {
            continue;
        }
        QS_TRY(qsi_scan_open_file(scan, file, scan->files.items[i], error));
        file->header = (struct qsi_journal_header){
            .number = scan->files.items[i], .salt = salt, .base_lsn = lsn};
        status = qsi_scan_skip_damage(scan, file, &offset, error);
        *scan->result = result; /* this was only a test */
        scan->lsn = lsn;
        if (status != QS_EEMPTY) {
            if (status != QS_OK) {
                qsi_scan_close_file(scan, file);
            }
            return status;
        }
        qsi_scan_close_file(scan, file);
    }
    return QS_EEMPTY;
}

qs_status qsi_scan_find_to_salvage(struct qsi_scan *scan, struct qsi_scan_file *file, uint32_t low,
                                   uint32_t limit, uint64_t salt, qs_error *error)
{
    qs_status status = find_headerless(scan, file, low, limit, salt, error);

    return status == QS_EEMPTY ? find_orphan(scan, file, low, limit, error) : status;
}
