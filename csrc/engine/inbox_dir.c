/* The directory of a store's inbox, and the descriptors by which its thread is woken. */
#include "inbox_dir.h"

#include "check.h"
#include "error.h"
#include "event_fd.h"
#include "file.h"
#include "inbox_note.h"

#include <string.h>
#include <unistd.h>

qs_status qsi_inbox_make(struct qs_store *store, qs_error *error)
{
    struct qsi_inbox *inbox = &store->inbox;

    QS_ASSERT(inbox->dir == NULL);
    QS_TRY(qsi_dir_open(store->env, store->root, QSI_INBOX_DIR, &inbox->dir, error));
    if (store->env->watch(store->env, inbox->dir, &inbox->watch_fd, NULL) != QS_OK) {
        inbox->watch_fd = QSI_NO_EVENT_FD;
    }
    return QS_OK;
}

qs_status qsi_inbox_open(struct qs_store *store, qs_error *error)
{
    qs_status status;

    QS_ASSERT(!store->options.read_only);
    if (!store->options.background || store->env->watch == NULL) {
        return QS_OK;
    }
    status = qsi_event_fd_open(&store->inbox.event_fd, NULL);
    if (status != QS_OK) {
        store->inbox.event_fd = QSI_NO_EVENT_FD; /* the thread looks now and then */
    }
    status = qsi_inbox_make(store, error);
    /* A shortage does not prevent the open of the store: the thread tries again. */
    return qsi_is_shortage(status) ? QS_OK : status;
}

void qsi_inbox_record_error(struct qs_store *store, const qs_error *error)
{
    QS_ASSERT_NOT_HELD(&store->mutex);
    qsi_store_lock(store);
    memcpy(store->inbox.error, error->text, sizeof store->inbox.error);
    qsi_store_unlock(store);
}

static void close_fd(int *fd)
{
    if (*fd != QSI_NO_EVENT_FD) {
        (void)close(*fd);
    }
    *fd = QSI_NO_EVENT_FD;
}

void qsi_inbox_close(struct qs_store *store)
{
    close_fd(&store->inbox.watch_fd);
    close_fd(&store->inbox.event_fd);
    qsi_buf_fini(&store->inbox.known);
    store->env->dir_close(store->env, store->inbox.dir);
    store->inbox.dir = NULL;
}
