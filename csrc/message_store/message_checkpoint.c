/* Message files in checkpoints, and removal of files that are not needed any more.
 *
 * Invariants: a file is removed only after a checkpoint that does not name it became durable, or
 * when recovery has found that it has no references; sealed files were dead, or replaced, when the
 * running checkpoint was taken. */
#include "alloc.h"
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "message_file.h"
#include "message_store.h"
#include "message_walk.h"
#include "record.h"

#include <inttypes.h>

/* -- snapshot --------------------------------------------------------------------------------- */

static uint32_t run_length(const struct qsi_message_file *file, uint32_t slot)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    uint32_t end = slot + 1;

    while (end < file->next_slot && file->counts.durable[end] == file->counts.durable[slot]) {
        end++;
    }
    return end - slot;
}

static uint32_t count_runs(const struct qsi_message_file *file)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    uint32_t count = 0;

    for (uint32_t slot = 0; slot < file->next_slot; slot += run_length(file, slot)) {
        count++;
    }
    return count;
}

static void encode_runs(uint8_t *record, const struct qsi_message_file *file)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    uint32_t index = 0;
    uint32_t length;

    for (uint32_t slot = 0; slot < file->next_slot; slot += length) {
        length = run_length(file, slot);
        qsi_message_file_put_run(record, index, file->counts.durable[slot], length);
        index++;
    }
}

/* Bodies that compaction left out still count as live, and take no bytes. */
static uint64_t durable_bytes(const struct qsi_message_file *file)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    uint64_t room = file->end - QSI_MESSAGE_HEADER_BYTES;

    return file->counts.durable_bytes < room ? file->counts.durable_bytes : room;
}

/* Appends the record of a file. */
static qs_status encode(struct qsi_buf *out, const struct qsi_message_file *file, qs_error *error)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    const struct qsi_message_file_record record = {
        .number = file->id.number,
        .generation = file->id.generation,
        .salt = file->is_named ? file->named_salt : file->header.salt,
        .end = file->end,
        .live_bytes = durable_bytes(file),
        .slot_count = file->next_slot,
        .is_settled = file->is_final,
        .run_count = count_runs(file),
    };
    uint64_t bytes = qsi_message_file_record_bytes(record.run_count);
    uint8_t *room;

    if (bytes > UINT32_MAX) {
        return qsi_fail(error, QS_ESTORE_FULL,
                        "message file %" PRIu32 " has %" PRIu32
                        " bodies: too many for a checkpoint",
                        file->id.number, file->next_slot);
    }
    if (qsi_buf_reserve(out, (size_t)bytes, &room) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "checkpoint of message files");
    }
    qsi_message_file_record_encode(room, &record);
    encode_runs(room, file);
    out->bytes += (size_t)bytes;
    return QS_OK;
}

/* Whether to keep an encoding: it takes no more memory than the counts themselves. */
static bool is_worth_keeping(const struct qsi_message_file *file, size_t bytes)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    return file->is_final &&
           bytes <= QSI_MESSAGE_FILE_HEADER_BYTES + sizeof(uint16_t) * (size_t)file->next_slot;
}

static void keep_encoding(struct qsi_message_file *file, const uint8_t *data, size_t bytes)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    qsi_buf_clear(&file->encoded);
    if (is_worth_keeping(file, bytes)) {
        /* Without memory the file is encoded again next time. */
        file->is_encoded = qsi_buf_append(&file->encoded, data, bytes) == QS_OK;
    } else {
        qsi_buf_fini(&file->encoded);
    }
}

static qs_status append_file(struct qsi_buf *out, struct qsi_message_file *file, qs_error *error)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    size_t from = out->bytes;

    if (file->is_encoded) {
        if (qsi_buf_append(out, file->encoded.data, file->encoded.bytes) != QS_OK) {
            return qsi_fail(error, QS_ENOMEM, "checkpoint of message files");
        }
        return QS_OK;
    }
    QS_TRY(encode(out, file, error));
    keep_encoding(file, out->data + from, out->bytes - from);
    return QS_OK;
}

static qs_status append_files(struct qsi_message_store *messages, struct qsi_buf *out,
                              uint32_t *count_out, qs_error *error)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&messages->files);

    *count_out = 0;
    while (qsi_map_next(&messages->files, &cursor)) {
        struct qsi_message_file *file = cursor.value;

        if (file->counts.durable_count > 0) {
            QS_TRY(append_file(out, file, error));
            *count_out += 1;
        }
    }
    return QS_OK;
}

/* -- sealing ---------------------------------------------------------------------------------- */

static void seal(struct qsi_message_store *messages) QSI_REQUIRES(qsi_message_store_mutex)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&messages->files);

    while (qsi_map_next(&messages->files, &cursor)) {
        struct qsi_message_file *file = cursor.value;

        file->is_sealed = qsi_message_file_is_dead(messages, file);
    }
    for (struct qsi_list *node = messages->replaced.next; node != &messages->replaced;
         node = node->next) {
        QSI_LIST_OWNER(node, struct qsi_message_file, in_replaced)->is_sealed = true;
    }
}

qs_status qsi_message_store_snapshot(struct qsi_message_store *messages, struct qsi_buf *out,
                                     uint32_t *record_count_io, qs_error *error)
{
    size_t bytes_before = out->bytes;
    uint32_t count;
    qs_status status;

    qsi_message_store_lock(messages);
    status = append_files(messages, out, &count, error);
    if (status == QS_OK) {
        seal(messages);
        *record_count_io += count;
    } else {
        out->bytes = bytes_before;
    }
    qsi_message_store_unlock(messages);
    return status;
}

/* Puts a sealed file without references in front of *going_io, if it is to be removed. */
static void unseal_file(const struct qsi_message_store *messages, struct qsi_message_file *file,
                        bool durable, struct qsi_message_file **going_io)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    bool goes = file->is_sealed && durable && file->refs == 0 &&
                (file->is_replaced || qsi_message_file_is_dead(messages, file));

    file->is_sealed = false;
    if (goes) {
        file->is_going = true;
        file->next_going = *going_io;
        *going_io = file;
    }
}

static struct qsi_message_file *take_sealed(struct qsi_message_store *messages, bool durable)
{
    struct qsi_map_cursor cursor;
    struct qsi_message_file *going = NULL;

    qsi_message_store_lock(messages);
    cursor = qsi_map_begin(&messages->files);
    while (qsi_map_next(&messages->files, &cursor)) {
        unseal_file(messages, cursor.value, durable, &going);
    }
    for (struct qsi_list *node = messages->replaced.next; node != &messages->replaced;
         node = node->next) {
        unseal_file(messages, QSI_LIST_OWNER(node, struct qsi_message_file, in_replaced), durable,
                    &going);
    }
    qsi_message_store_unlock(messages);
    return going;
}

/* Removes a file of the list.  No other thread can find or use it. */
static qs_status let_go(struct qsi_message_store *messages, struct qsi_message_file *file,
                        qs_error *error)
{
    qs_status status = qsi_message_file_remove_name(messages, file->id, error);

    qsi_message_store_lock(messages);
    file->is_going = false;
    if (status == QS_OK) {
        qsi_message_table_remove(messages, file);
    }
    qsi_message_store_unlock(messages);
    if (status == QS_OK) {
        qsi_message_file_destroy(messages, file);
    }
    return status;
}

/* error is set by the first failure only. */
qs_status qsi_message_store_unseal(struct qsi_message_store *messages, bool durable,
                                   qs_error *error)
{
    struct qsi_message_file *going = take_sealed(messages, durable);
    qs_status first = QS_OK;
    bool removed = false;

    while (going != NULL) {
        struct qsi_message_file *next = going->next_going;
        qs_status status = let_go(messages, going, first == QS_OK ? error : NULL);

        removed = removed || status == QS_OK;
        first = first == QS_OK ? status : first;
        going = next;
    }
    if (removed) {
        qs_status status =
            qsi_dir_sync(messages->env, messages->dir, first == QS_OK ? error : NULL);

        first = first == QS_OK ? status : first;
    }
    return first;
}

/* -- after recovery --------------------------------------------------------------------------- */

/* Dead references extend the recorded end of a file as well, but earlier versions truncated files
 * after the last live record.  For such a file, only the live records must be there. */
static qs_status check_end(struct qsi_message_store *messages, struct qsi_message_file *file,
                           const struct qsi_message_view *view, qs_error *error)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    char path[QSI_MESSAGE_PATH_BYTES];
    bool is_there = file->counts.beyond == 0;

    if (is_there && view->bytes < file->end) {
        is_there = !file->is_named && file->id.generation == 0;
        if (is_there) {
            QS_TRY(qsi_walk_finds_live(messages, file, view, view->bytes, &is_there, error));
        }
        file->end = is_there ? view->bytes : file->end;
    }
    qsi_message_path(path, file->id);
    return is_there ? QS_OK
                    : qsi_fail_corrupt(error, path, view->bytes,
                                       "the file ends before its last live record");
}

static qs_status check_reach(struct qsi_message_store *messages, struct qsi_message_file *file,
                             const struct qsi_message_view *view, qs_error *error)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    char path[QSI_MESSAGE_PATH_BYTES];

    qsi_message_path(path, file->id);
    if (file->is_named && view->header.salt != file->named_salt) {
        return qsi_fail_corrupt(error, path, 0,
                                "not the file that the checkpoint names: another salt");
    }
    QS_TRY(check_end(messages, file, view, error));
    if (file->id.generation > 0 && view->header.table_slots < file->next_slot) {
        return qsi_fail_corrupt(error, path, view->header.table_offset,
                                "%u slots where the checkpoint names %u", view->header.table_slots,
                                file->next_slot);
    }
    return QS_OK;
}

/* A final file is only read, and may have other names: in copies of the store. */
static uint32_t open_flags(const struct qsi_message_file *file, enum qsi_retain how)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    if (file->is_final) {
        return QS_OPEN_READ | QS_OPEN_LINKED;
    }
    return how == QSI_RETAIN_JUDGE ? QS_OPEN_READ : QS_OPEN_WRITE;
}

/* REQUIRES a file with live references. */
static qs_status retain_file(struct qsi_message_store *messages, struct qsi_message_file *file,
                             enum qsi_retain how, qs_error *error)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    uint32_t flags = open_flags(file, how);
    struct qsi_message_view view;
    qs_status status;

    if (!file->is_present) {
        return qsi_message_file_fail_missing(error, file->id);
    }
    QS_TRY(qsi_message_file_open(messages, file->id, flags, &view, error));
    view.file = file;
    status = check_reach(messages, file, &view, error);
    if (status == QS_OK && flags == QS_OPEN_WRITE) {
        file->is_too_long = view.bytes > file->end;
        status = qsi_message_file_sync(messages, file->id, view.handle, error);
    }
    if (status == QS_OK) {
        file->named_salt =
            view.header.salt; /* for the next checkpoint, which does not open the file */
        file->is_named = true;
    }
    messages->env->close(messages->env, view.handle);
    return status;
}

/* Reads the salt for the next checkpoint; a file that cannot be read is not checked here. */
static void learn_salt(struct qsi_message_store *messages, struct qsi_message_file *file)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    struct qsi_message_view view;

    if (!file->is_named && qsi_message_file_open(messages, file->id, QS_OPEN_READ | QS_OPEN_LINKED,
                                                 &view, NULL) == QS_OK) {
        messages->env->close(messages->env, view.handle);
        file->named_salt = view.header.salt;
        file->is_named = true;
    }
}

/* Both functions run in a single thread, so they do not lock the mutex. */
qs_status qsi_message_store_retain_counted(struct qsi_message_store *messages, enum qsi_retain how,
                                           qs_error *error)
{
    bool salvage = how == QSI_RETAIN_SALVAGE;
    struct qsi_map_cursor cursor = qsi_map_begin(&messages->files);

    qsi_message_store_is_private(messages);
    QS_ASSERT(qsi_list_is_empty(&messages->unsettled));
    messages->keeps_files = salvage;
    while (qsi_map_next(&messages->files, &cursor)) {
        struct qsi_message_file *file = cursor.value;

        file->is_kept = salvage && file->is_present;
        if (file->is_kept) {
            learn_salt(messages, file);
        } else if (!salvage && qsi_counts_any(&file->counts)) {
            QS_TRY(retain_file(messages, file, how, error));
        }
        qsi_message_file_count_doomed(messages, file); /* its end is known now */
    }
    return QS_OK;
}

static qs_status cut_tail(struct qsi_message_store *messages, struct qsi_message_file *file,
                          qs_error *error) QSI_REQUIRES(qsi_message_store_mutex)
{
    struct qsi_message_view view;
    qs_status status;

    QS_TRY(qsi_message_file_open(messages, file->id, QS_OPEN_WRITE, &view, error));
    status = qsi_message_file_truncate(messages, file->id, view.handle, file->end, error);
    messages->env->close(messages->env, view.handle);
    if (status == QS_OK) {
        file->is_too_long = false;
        file->bytes = file->end; /* recovery may have left a handle open for reading */
    }
    return status;
}

static qs_status trim_file(struct qsi_message_store *messages, struct qsi_message_file *file,
                           bool *removed_out, qs_error *error) QSI_REQUIRES(qsi_message_store_mutex)
{
    if (qsi_counts_any(&file->counts)) {
        if (file->is_too_long) {
            QS_TRY(cut_tail(messages, file, error));
        }
        file->is_final = true;
        return QS_OK;
    }
    QS_TRY(qsi_message_file_remove_name(messages, file->id, error));
    qsi_message_table_remove(messages, file);
    qsi_message_file_destroy(messages, file);
    *removed_out = true;
    return QS_OK;
}

qs_status qsi_message_store_trim_counted(struct qsi_message_store *messages, qs_error *error)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&messages->files);
    bool removed = false;

    qsi_message_store_is_private(messages);
    QS_ASSERT(qsi_list_is_empty(&messages->unsettled));
    if (messages->keeps_files) {
        return QS_OK;
    }
    while (qsi_map_next(&messages->files, &cursor)) {
        QS_TRY(trim_file(messages, cursor.value, &removed, error));
    }
    QS_TRY(qsi_message_strays_remove(messages, &removed, error));
    return removed ? qsi_dir_sync(messages->env, messages->dir, error) : QS_OK;
}

/* -- space ------------------------------------------------------------------------------------ */

void qsi_message_store_space(struct qsi_message_store *messages, struct qsi_message_space *out)
{
    struct qsi_map_cursor cursor;

    *out = (struct qsi_message_space){0};
    qsi_message_store_lock(messages);
    out->doomed_bytes = messages->doomed_bytes;
    cursor = qsi_map_begin(&messages->files);
    while (qsi_map_next(&messages->files, &cursor)) {
        const struct qsi_message_file *file = cursor.value;

        if (!qsi_message_file_is_dead(messages, file)) {
            out->file_count++;
            out->live_bytes += file->counts.live_bytes;
            out->total_bytes += qsi_message_file_size(file);
        }
    }
    qsi_message_store_unlock(messages);
}

uint64_t qsi_message_store_doomed_bytes(const struct qsi_message_store *messages)
{
    return __atomic_load_n(&messages->doomed_bytes, __ATOMIC_RELAXED);
}

bool qsi_message_store_has_settled(struct qsi_message_store *messages, struct qsi_message_id id)
{
    const struct qsi_message_file *file;
    bool settled;

    qsi_message_store_lock(messages);
    file = qsi_message_table_find(messages, id.number);
    settled = file != NULL && file->id.generation == id.generation && file->is_final;
    qsi_message_store_unlock(messages);
    return settled;
}
