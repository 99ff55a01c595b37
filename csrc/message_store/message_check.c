/* Debug builds: checks that the counts of message files and the lists of files agree. */
#include "check.h"
#include "message_file.h"
#include "message_store.h"

#ifndef NDEBUG

static void check_counts(const struct qsi_message_file *file) QSI_REQUIRES(qsi_message_store_mutex)
{
    const struct qsi_message_counts *counts = &file->counts;
    uint32_t live = 0, durable = 0;

    for (uint32_t slot = 0; slot < counts->capacity; slot++) {
        live += qsi_counts_is_live(counts, slot) ? 1 : 0;
        durable += counts->durable[slot] > 0 ? 1 : 0;
        QS_DCHECK(slot < file->next_slot || !qsi_counts_is_live(counts, slot));
    }
    QS_DCHECK(counts->live_count == live && counts->durable_count == durable);
    QS_DCHECK(counts->durable_count <= counts->live_count);
    QS_DCHECK(counts->durable_bytes <= counts->live_bytes);
}

/* Recounts what is kept. */
static void check_doomed(const struct qsi_message_store *messages)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&messages->files);
    uint64_t bytes = 0;

    while (qsi_map_next(&messages->files, &cursor)) {
        bytes += qsi_message_file_doomed_bytes(messages, cursor.value);
    }
    for (const struct qsi_list *node = messages->replaced.next; node != &messages->replaced;
         node = node->next) {
        bytes += qsi_message_file_doomed_bytes(
            messages, QSI_LIST_OWNER(node, const struct qsi_message_file, in_replaced));
    }
    QS_DCHECK(messages->doomed_bytes == bytes);
}

static void check_file(const struct qsi_message_store *messages,
                       const struct qsi_message_file *file) QSI_REQUIRES(qsi_message_store_mutex)
{
    bool is_idle = !qsi_list_is_empty(&file->in_idle);

    check_counts(file);
    QS_DCHECK(file->refs >= file->place_count);
    QS_DCHECK(!is_idle || (file->refs == 0 && file->handle != NULL));
    QS_DCHECK(qsi_message_file_is_settled(file) || file->handle != NULL);
    QS_DCHECK(file->pack_syncs <= file->pack_marks);
    QS_DCHECK((file != messages->current && file != messages->next) ||
              !qsi_message_file_is_settled(file));
    QS_DCHECK(file->id.number < messages->next_number && !file->is_replaced);
}

void qsi_message_store_check_counts(struct qsi_message_store *messages)
{
    struct qsi_map_cursor cursor;

    qsi_message_store_lock(messages);
    cursor = qsi_map_begin(&messages->files);
    while (qsi_map_next(&messages->files, &cursor)) {
        check_file(messages, cursor.value);
    }
    for (const struct qsi_message_file *file = messages->dirty; file != NULL;
         file = file->next_dirty) {
        QS_DCHECK(file->is_dirty && file->refs > 0);
    }
    check_doomed(messages);
    qsi_message_store_unlock(messages);
}

#endif
