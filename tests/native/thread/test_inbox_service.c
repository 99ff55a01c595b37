/* The thread that takes in what is asked of a store on a real disk: it ends when the store is
 * closed, whatever waits, and begins when there are descriptors again. */
#include "qstore/qstore.h"

#include "inbox.h"
#include "qs_test.h"
#include "qs_test_batch.h"
#include "qs_test_slices.h"

#define WAITING 4
#define SHORTAGES 2
#define PAUSE_US 200 /* between two looks */

static char folder[300], store_path[320];
static qs_env env; /* the real one, but for what a test replaces */

static qs_store *open_store(void)
{
    qs_store *store;

    QS_CHECK_OK(qs_store_open(&store, store_path, NULL, &env, QS_ERROR));
    return store;
}

/* A transaction without messages. */
static qs_request *ask(const char *key)
{
    const qs_ask wish = {.key = text(key), .timeout_ns = UINT64_C(600000000000)};
    qs_request *request;

    QS_CHECK_OK(qs_request_open(&request, store_path, &wish, NULL, QS_ERROR));
    return request;
}

static bool is_answered(qs_request *request)
{
    qs_adoption adoption;
    bool answered;

    QS_CHECK_OK(qs_request_look(request, &answered, &adoption, QS_ERROR));
    QS_CHECK(!answered || adoption.committed);
    return answered;
}

/* ---- closing ---- */

static _Atomic(qs_store *) opened;
static _Atomic int begun;

static bool is_closed_meanwhile(void)
{
    qs_store *store = opened;
    bool stops = false;

    if (store != NULL) {
        qsi_store_lock(store);
        stops = store->inbox.stops;
        qsi_store_unlock(store);
    }
    return stops;
}

static qs_status rename_while_it_is_closed(qs_env *self, qs_dir *dir, const char *from,
                                           const char *to, qs_error *error)
{
    if (strstr(from, ".ask") != NULL && strstr(to, ".own") != NULL) {
        begun += 1;
        while (!is_closed_meanwhile()) {
            usleep(PAUSE_US);
        }
    }
    return qs_env_posix()->rename(self, dir, from, to, error);
}

QS_TEST(test_a_store_closes_after_the_manifest_that_was_begun_and_leaves_the_others)
{
    static const char *const keys[WAITING] = {"0", "1", "2", "3"};
    qs_request *requests[WAITING];
    int answered = 0, taken_back = 0;

    env = *qs_env_posix();
    QS_CHECK_OK(qs_store_close(open_store(), QS_ERROR)); /* which makes the inbox */
    for (int i = 0; i < WAITING; i++) {
        requests[i] = ask(keys[i]);
    }
    env.rename = rename_while_it_is_closed;
    opened = open_store();
    while (begun == 0) {
        usleep(PAUSE_US);
    }
    QS_CHECK_OK(qs_store_close(opened, QS_ERROR));
    QS_CHECK(begun == 1);
    for (int i = 0; i < WAITING; i++) {
        qs_status status = qs_request_take_back(requests[i], QS_ERROR);
        QS_CHECK(status == QS_OK || status == QS_EWOULDBLOCK);
        taken_back += status == QS_OK;
        answered += status == QS_EWOULDBLOCK && is_answered(requests[i]);
        qs_request_close(requests[i]);
    }
    QS_CHECK(answered == 1 && taken_back == WAITING - 1);
}

/* ---- closing in the middle ---- */

#define ROWS 20

static _Atomic int staged_opens, stalls_at;
static char staged_path[320];

static void stage(void)
{
    const qs_staged_options options = {.routing_key = text("q")};
    struct qs_test_batch rows;
    qs_staged_writer *writer;

    (void)snprintf(staged_path, sizeof staged_path, "%s/a.qsb", folder);
    qs_test_batch_init(&rows);
    for (int i = 0; i < ROWS; i++) {
        memset(qs_test_batch_add(&rows, "q", 10), 'x', 10);
    }
    (void)qs_test_batch_finish(&rows);
    QS_CHECK_OK(qs_staged_writer_open(&writer, folder, "a.qsb", &options, NULL, QS_ERROR));
    QS_CHECK_OK(qs_staged_writer_put(writer, &rows.schema, &rows.array, QS_ERROR));
    QS_CHECK_OK(qs_staged_writer_close(writer, true, NULL, QS_ERROR));
    qs_test_batch_fini(&rows);
}

static qs_status open_staged_while_it_is_closed(qs_env *self, qs_dir *dir, const char *name,
                                                uint32_t flags, qs_file **file_out, qs_error *error)
{
    if (strcmp(name, "a.qsb") == 0 && ++staged_opens == stalls_at) {
        while (!is_closed_meanwhile()) {
            usleep(PAUSE_US);
        }
    }
    return qs_env_posix()->open(self, dir, name, flags, file_out, error);
}

static qs_request *ask_to_adopt(const char *key)
{
    const char *const paths[] = {staged_path};
    const qs_ask wish = {.paths = paths,
                         .path_count = 1,
                         .key = text(key),
                         .flags = QS_MANDATORY,
                         .timeout_ns = UINT64_C(600000000000)};
    qs_request *request;

    QS_CHECK_OK(qs_request_open(&request, store_path, &wish, NULL, QS_ERROR));
    return request;
}

static void wait_for_answer(qs_request *request)
{
    while (!is_answered(request)) {
        usleep(PAUSE_US);
    }
    qs_request_close(request);
}

/* Messages in its queue, which is there from then on. */
static uint32_t messages_in(qs_store *store)
{
    qs_channel *channel;
    qs_declare_ok ok;

    QS_CHECK_OK(qs_channel_open(&channel, store, QS_ERROR));
    QS_CHECK_OK(qs_channel_queue_declare(channel, text("q"), QS_DURABLE, text(""), &ok, QS_ERROR));
    qs_channel_close(channel);
    return (uint32_t)ok.message_count;
}

QS_TEST(test_a_store_that_is_closed_leaves_what_it_publishes_to_the_next_owner)
{
    qs_request *request;

    stage();
    env = *qs_env_posix();
    env.open = open_staged_while_it_is_closed;
    opened = open_store();
    (void)messages_in(opened);
    wait_for_answer(ask_to_adopt("whole"));
    stalls_at = 2 * staged_opens; /* the last time, when its rows are published */
    request = ask_to_adopt("half");
    while (staged_opens < stalls_at) {
        usleep(PAUSE_US);
    }
    QS_CHECK_OK(qs_store_close(opened, QS_ERROR));
    QS_CHECK(!is_answered(request));
    opened = open_store();
    wait_for_answer(request); /* which says that it was committed now */
    QS_CHECK(messages_in(opened) == 2 * ROWS);
    QS_CHECK_OK(qs_store_close(opened, QS_ERROR));
}

/* ---- a shortage ---- */

static _Atomic int shortages;

static qs_status open_when_there_are_descriptors(qs_env *self, qs_dir *parent, const char *name,
                                                 bool create, qs_dir **dir_out, bool *created_out,
                                                 qs_error *error)
{
    if (strcmp(name, "inbox") == 0 && shortages > 0) {
        shortages -= 1;
        return QS_EMFILE;
    }
    return qs_env_posix()->dir_open(self, parent, name, create, dir_out, created_out, error);
}

static qs_status watch_nothing(qs_env *self, qs_dir *dir, int *fd_out, qs_error *error)
{
    (void)self;
    (void)dir;
    (void)error;
    *fd_out = -1;
    return QS_EMFILE;
}

QS_TEST(test_a_store_that_was_opened_without_descriptors_adopts_when_there_are_some)
{
    qs_request *request;
    qs_store *store;

    env = *qs_env_posix();
    env.dir_open = open_when_there_are_descriptors;
    env.watch = watch_nothing;
    shortages = SHORTAGES;
    store = open_store();
    request = ask("later");
    while (!is_answered(request)) {
        usleep(PAUSE_US);
    }
    QS_CHECK(shortages == 0);
    qs_request_close(request);
    QS_CHECK_OK(qs_store_close(store, QS_ERROR));
}

int main(void)
{
    qs_test_make_dir(folder, sizeof folder);
    (void)snprintf(store_path, sizeof store_path, "%s/store", folder);
    qs_test_run_all();
    qs_test_remove_dir(folder);
    return 0;
}
