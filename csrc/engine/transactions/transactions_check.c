/* Debug builds: whether the tables of keys, the files and their counts agree. */
#include "check.h"
#include "transactions.h"

#ifndef NDEBUG

static void check_table(const struct qsi_key_table *table)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&table->notes);
    uint64_t bytes = 0;

    while (qsi_map_next(&table->notes, &cursor)) {
        const struct qsi_key_note *note = cursor.value;
        QS_DCHECK(cursor.key_bytes > 0 && cursor.key_bytes <= QSI_TRANSACTION_KEY_BYTES_MAX);
        QS_DCHECK((note->state == KEY_NOTE_NONE) == (note->lsn == 0));
        bytes += QSI_KEY_NOTE_BYTES + cursor.key_bytes;
    }
    QS_DCHECK(table->bytes == bytes);
}

static void check_run(const struct qsi_transactions *keys, const struct qsi_key_run *run)
{
    QS_DCHECK(run->reference_count > 0 && run->lsn > 0);
    QS_DCHECK(run->file.header.number < keys->next_number);
    QS_DCHECK(run->is_dead == !qsi_list_is_empty(&run->in_dead));
    qsi_key_file_memory_check(&run->file);
}

void qsi_transactions_check(const struct qs_store *store)
{
    const struct qsi_transactions *keys = store->transactions;
    uint64_t dead_bytes = 0;

    QS_ASSERT_HELD(&store->mutex);
    check_table(&keys->fresh);
    check_table(&keys->frozen);
    QS_DCHECK(keys->run_count <= QSI_KEY_RUNS_MAX && keys->generation > 0);
    for (uint32_t i = 0; i < keys->run_count; i++) {
        check_run(keys, keys->runs[i]);
        QS_DCHECK(!keys->runs[i]->is_dead);
        for (uint32_t k = 0; k < i; k++) {
            QS_DCHECK(keys->runs[k]->file.header.number != keys->runs[i]->file.header.number);
        }
    }
    for (const struct qsi_list *node = keys->dead.next; node != &keys->dead; node = node->next) {
        const struct qsi_key_run *run = QSI_LIST_OWNER(node, const struct qsi_key_run, in_dead);
        check_run(keys, run);
        QS_DCHECK(run->is_dead && run->named);
        dead_bytes += qsi_key_run_bytes(run);
    }
    QS_DCHECK(store->paging.dead_bytes >= dead_bytes);
}

#endif
