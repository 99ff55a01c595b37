/* The thread of a store's inbox.  It sleeps until a file comes. */
#include "check.h"
#include "drain.h"
#include "event_fd.h"
#include "inbox.h"
#include "inbox_dir.h"

#include <poll.h>

#define WITHOUT_WATCH_MS 250
#define PERHAPS_WATCHED_MS 2000
#define RETRY_MS 1000
#define NS_PER_MS 1000000u

/* How long to sleep, unless a file comes.  Changes that another machine makes are not reported
 * here, nor, perhaps, those of a process that shows the same files under another path. */
static int idle_ms(const struct qs_store *store)
{
    qs_file_system system = {.kind = QS_FS_LOCAL};

    if (store->env->file_system != NULL) {
        store->env->file_system(store->env, store->inbox.dir, &system);
    }
    if (store->inbox.watch_fd == QSI_NO_EVENT_FD || system.kind == QS_FS_NETWORK) {
        return WITHOUT_WATCH_MS;
    }
    return system.kind == QS_FS_UNKNOWN ? PERHAPS_WATCHED_MS : -1;
}

static void wait_for_more(const struct qsi_inbox *inbox, int timeout_ms)
{
    struct pollfd fds[2] = {{.fd = inbox->event_fd, .events = POLLIN},
                            {.fd = inbox->watch_fd, .events = POLLIN}};

    QS_DCHECK(timeout_ms >= 0 || inbox->event_fd != QSI_NO_EVENT_FD);
    (void)poll(fds, 2, timeout_ms);
    qsi_event_fd_read(inbox->event_fd);
    qsi_drain_fd(inbox->watch_fd);
}

/* Whether it continues.  *takes_out: the store is open. */
static bool goes_on(struct qs_store *store, bool *takes_out)
{
    bool stops;

    qsi_store_lock(store);
    stops = store->inbox.stops;
    *takes_out = store->life == QSI_LIFE_OPEN && !store->failed;
    qsi_store_unlock(store);
    return !stops;
}

/* As idle_ms. */
static int take_in(struct qs_store *store)
{
    uint64_t again_ns, again_ms;
    qs_error error = {0};
    uint32_t answered;
    int sleep_ms;

    if ((store->inbox.dir == NULL && qsi_inbox_make(store, &error) != QS_OK) ||
        qsi_inbox_take_in(store, QSI_INBOX_WHEN_DUE, &answered, &again_ns, &error) != QS_OK) {
        qsi_inbox_record_error(store, &error);
        return RETRY_MS;
    }
    sleep_ms = idle_ms(store);
    if (again_ns == UINT64_MAX) {
        return sleep_ms;
    }
    again_ms = again_ns / NS_PER_MS + 1;
    return sleep_ms < 0 || again_ms < (uint64_t)sleep_ms ? (int)again_ms : sleep_ms;
}

static void *run_inbox(void *argument)
{
    struct qs_store *store = argument;
    bool takes;

    while (goes_on(store, &takes)) {
        int timeout_ms = takes ? take_in(store) : -1; /* what changes that rings */
        if (store->inbox.event_fd == QSI_NO_EVENT_FD) {
            timeout_ms = WITHOUT_WATCH_MS;
        }
        wait_for_more(&store->inbox, timeout_ms);
    }
    return NULL;
}

qs_status qsi_inbox_start(struct qs_store *store, qs_error *error)
{
    QS_ASSERT(!store->inbox.is_running);
    if (store->env->watch == NULL) {
        return QS_OK;
    }
    QS_TRY(qsi_thread_start(&store->inbox.thread, "qs-inbox", run_inbox, store, error));
    store->inbox.is_running = true;
    return QS_OK;
}

void qsi_inbox_ring(struct qs_store *store)
{
    if (store->inbox.event_fd != QSI_NO_EVENT_FD) {
        qsi_event_fd_signal(store->inbox.event_fd);
    }
}

void qsi_inbox_stop(struct qs_store *store)
{
    bool is_running;

    QS_ASSERT_NOT_HELD(&store->mutex);
    qsi_store_lock(store);
    store->inbox.stops = true;
    is_running = store->inbox.is_running;
    store->inbox.is_running = false;
    qsi_store_unlock(store);
    qsi_inbox_ring(store);
    if (is_running) {
        pthread_join(store->inbox.thread, NULL);
    }
}
