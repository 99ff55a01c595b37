/* Waking: the committer, the timer, and threads that wait for events or for readers. */
#include "wake.h"

void qsi_commit_wake(struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    if (store->commit.committer_sleeps) {
        store->commit.committer_sleeps = false;
        /* Not a signal: a leader that gathers for commit_delay_us waits here too, and would take
         * it. */
        qsi_cond_broadcast(&store->commit.work);
    }
}

void qsi_commit_expedite(struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    store->commit.is_awaited = true;
    store->commit.committer_sleeps = false;
    qsi_cond_broadcast(&store->commit.work); /* as above */
}

void qsi_wake_timer(struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    store->removals.is_woken = true;
    qsi_cond_signal(&store->removals.due);
}

/* ---- threads that wait ---- */

void qsi_waiter_sleep(struct qs_store *store, struct qsi_waiter *waiter, uint64_t timeout_ns)
{
    QS_ASSERT_HELD(&store->mutex);
    qsi_cond_init(&waiter->woken);
    qsi_cond_wait(&waiter->woken, &store->mutex, timeout_ns);
    qsi_cond_fini(&waiter->woken);
}

void qsi_waiter_wake(struct qs_store *store, struct qsi_waiter *waiter)
{
    QS_ASSERT_HELD(&store->mutex);
    if (waiter != NULL) {
        store->events.woken_count += 1;
        qsi_cond_signal(&waiter->woken);
    }
}

void qsi_line_join(struct qs_store *store, struct qsi_store_queue *queue, struct qsi_in_line *place,
                   struct qsi_waiter *waiter)
{
    QS_ASSERT_HELD(&store->mutex);
    place->waiter = waiter;
    place->is_woken = false;
    qsi_list_push_back(&queue->waiting, &place->in_queue);
    store->events.armed_count += 1;
}

void qsi_line_leave(struct qs_store *store, struct qsi_in_line *place)
{
    QS_ASSERT_HELD(&store->mutex);
    if (!qsi_list_is_empty(&place->in_queue)) {
        QS_DCHECK(store->events.armed_count > 0);
        qsi_list_remove(&place->in_queue);
        store->events.armed_count -= 1;
    }
}

static struct qsi_in_line *place_of(struct qsi_list *node)
{
    return QSI_LIST_OWNER(node, struct qsi_in_line, in_queue);
}

void qsi_line_wake_next(struct qs_store *store, struct qsi_store_queue *queue, uint64_t count)
{
    struct qsi_list *node = queue->waiting.next;

    for (; node != &queue->waiting && place_of(node)->is_woken; node = node->next) {
        count -= count > 0 ? 1 : 0;
    }
    if (node != &queue->waiting && count > 0) {
        place_of(node)->is_woken = true;
        qsi_waiter_wake(store, place_of(node)->waiter);
    }
}

void qsi_line_wake_all(struct qs_store *store, struct qsi_store_queue *queue)
{
    while (!qsi_list_is_empty(&queue->waiting)) {
        struct qsi_in_line *place = place_of(queue->waiting.next);
        qsi_line_leave(store, place);
        qsi_waiter_wake(store, place->waiter);
    }
}

void qsi_reader_end(struct qs_store *store, uint32_t reader)
{
    QS_ASSERT_HELD(&store->mutex);
    QS_ASSERT(store->paging.readers.count[reader] > 0);
    store->paging.readers.count[reader] -= 1;
    if (store->paging.readers.count[reader] == 0) {
        qsi_cond_broadcast(&store->paging.done);
    }
}
