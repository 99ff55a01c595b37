/* Messages above the limits of their queue leave it. */
#include "enter.h"
#include "error.h"
#include "limits.h"
#include "pager.h"
#include "paging.h"
#include "queue_life.h"
#include "queue_take.h"

/* The message that would be delivered next and can be read: its segment, and its priority.  NULL:
 * there is none. */
static struct qsi_segment *find_head(struct qsi_store_queue *queue,
                                     struct qsi_store_queue **subqueue_out,
                                     struct qsi_passed *passed_out) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_segment *head = NULL;

    *passed_out = (struct qsi_passed){0};
    for (uint32_t i = 0; head == NULL && i < qsi_subqueue_count(queue); i++) {
        *subqueue_out = qsi_subqueue_at(queue, i);
        head = qsi_queue_readable_head(&(*subqueue_out)->core, passed_out);
    }
    return head;
}

/* May release the lock.  If the state cannot be read, the segment is marked as damaged. */
static qs_status bring_state(struct qs_store *store, struct qsi_store_queue *subqueue,
                             struct qsi_segment *segment, enum qsi_wait wait)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_page_in job;
    qs_status status;

    QS_TRY(qsi_check_may_wait(wait));
    if (segment->busy > 0) {
        return qsi_pager_wait(store, subqueue);
    }
    QS_TRY(qsi_page_in_state(&job, segment));
    status = qsi_pager_run_page_in(store, subqueue, &job, NULL);
    return qsi_is_unreadable(status) ? QS_OK : status;
}

/* Removes the head, which would be delivered next, until the queue is within its limits.  Messages
 * that cannot be read neither count nor leave: a caller that comes for them gets the error. */
static qs_status trim(struct qs_store *store, struct qsi_store_queue *queue, enum qsi_wait wait)
    QSI_REQUIRES(qsi_store_mutex)
{
    while (!queue->deleted && qsi_is_over(queue)) {
        struct qsi_store_queue *subqueue = queue;
        struct qsi_passed passed;
        struct qsi_segment *head = find_head(queue, &subqueue, &passed);
        uint64_t ready = qsi_ready_count(queue) - passed.messages;
        uint64_t bytes = qsi_ready_bytes(queue), max = queue->policy.messages_max;
        uint64_t excess = ready > max ? ready - max : 1;
        struct qsi_stretch stretch;
        bytes -= passed.body_bytes < bytes ? passed.body_bytes : bytes;
        if (head == NULL || !qsi_is_too_much(queue, ready, bytes)) {
            break;
        }
        QS_TRY(qsi_reserve_removals(store, 1));
        if (qsi_queue_reserve_in(&subqueue->core, head,
                                 excess < QSI_WORD_BITS ? (uint32_t)excess : QSI_WORD_BITS,
                                 &stretch) == QSI_TAKE_TAKEN) {
            qsi_add_removal(store, subqueue, &stretch, QSI_MAXLEN);
        } else {
            QS_TRY(bring_state(store, subqueue, head, wait));
        }
    }
    return QS_OK;
}

/* May release the lock, unless the caller must not wait: then the timer handles a queue whose head
 * is on the disk.  It also handles a queue for which memory or descriptors do not suffice. */
void qsi_trim(struct qs_store *store, enum qsi_wait wait)
{
    struct qsi_removals *removals = &store->removals;
    struct qsi_list later;

    QS_ASSERT_HELD(&store->mutex);
    qsi_list_init(&later);
    while (!qsi_list_is_empty(&removals->trimming)) {
        struct qsi_store_queue *queue =
            QSI_LIST_OWNER(removals->trimming.next, struct qsi_store_queue, in_trimming);
        qs_status status;
        qsi_list_remove(&queue->in_trimming);
        queue->jobs += 1;
        status = trim(store, queue, wait);
        QS_DCHECK(queue->jobs > 0);
        queue->jobs -= 1;
        if (!queue->deleted && qsi_list_is_empty(&queue->in_trimming) &&
            (status == QS_EWOULDBLOCK || qsi_is_shortage(status))) {
            qsi_list_push_back(&later, &queue->in_trimming);
        }
        qsi_free_queue_if_done(queue);
    }
    while (!qsi_list_is_empty(&later)) {
        struct qsi_list *node = later.next;
        qsi_list_remove(node);
        qsi_list_push_back(&removals->trimming, node);
    }
}
