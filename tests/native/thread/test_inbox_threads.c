/* Threads that ask the owner of a store on a real disk to adopt, while it is closed and opened:
 * each file is adopted once, or its request was taken back. */
#include "qstore/qstore.h"

#include "qs_test.h"
#include "qs_test_batch.h"
#include "qs_test_slices.h"

#include <pthread.h>
#include <sys/stat.h>

#define THREADS 3
#define ROUNDS 8
#define ROWS 20
#define PAUSE_US 200 /* between two looks */

static char folder[300], store_path[320], staged_path[320];
static _Atomic int adopted;

static void stage(void)
{
    const qs_staged_options options = {.routing_key = text("q")};
    struct qs_test_batch rows;
    qs_staged_writer *writer;

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

/* Until there is an answer; every other request is taken back if that can be. */
static void ask(int thread, int round)
{
    char key[32];
    const char *const paths[] = {staged_path};
    qs_ask wish = {.paths = paths,
                   .path_count = 1,
                   .flags = QS_MANDATORY,
                   .timeout_ns = UINT64_C(600000000000)};
    qs_request *request;
    qs_adoption adoption;
    bool is_answered = false;
    qs_error error;

    (void)snprintf(key, sizeof key, "%d-%d", thread, round);
    wish.key = text(key);
    QS_CHECK(qs_request_open(&request, store_path, &wish, NULL, &error) == QS_OK);
    if (round % 2 == 0 && qs_request_take_back(request, &error) == QS_OK) {
        qs_request_close(request);
        return;
    }
    while (!is_answered) {
        QS_CHECK(qs_request_look(request, &is_answered, &adoption, &error) == QS_OK);
        usleep(PAUSE_US);
    }
    QS_CHECK(adoption.committed && adoption.rows == ROWS);
    adopted += 1;
    qs_request_close(request);
}

static void *run(void *argument)
{
    for (int round = 0; round < ROUNDS; round++) {
        ask((int)(intptr_t)argument, round);
    }
    return NULL;
}

static qs_store *open_store(void)
{
    qs_store *store;

    QS_CHECK_OK(qs_store_open(&store, store_path, NULL, NULL, QS_ERROR));
    return store;
}

int main(void)
{
    pthread_t threads[THREADS];
    qs_store *store;
    qs_channel *channel;
    qs_declare_ok ok;

    qs_test_make_dir(folder, sizeof folder);
    (void)snprintf(store_path, sizeof store_path, "%s/store", folder);
    (void)snprintf(staged_path, sizeof staged_path, "%s/a.qsb", folder);
    stage();
    store = open_store();
    QS_CHECK_OK(qs_channel_open(&channel, store, QS_ERROR));
    QS_CHECK_OK(qs_channel_queue_declare(channel, text("q"), QS_DURABLE, text(""), &ok, QS_ERROR));
    qs_channel_close(channel);
    for (int i = 0; i < THREADS; i++) {
        QS_CHECK(pthread_create(&threads[i], NULL, run, (void *)(intptr_t)i) == 0);
    }
    for (int i = 0; i < 5; i++) { /* it is closed whatever comes in */
        QS_CHECK_OK(qs_store_close(store, QS_ERROR));
        store = open_store();
    }
    for (int i = 0; i < THREADS; i++) {
        QS_CHECK(pthread_join(threads[i], NULL) == 0);
    }
    QS_CHECK_OK(qs_channel_open(&channel, store, QS_ERROR));
    QS_CHECK_OK(qs_channel_queue_declare(channel, text("q"), QS_PASSIVE, text(""), &ok, QS_ERROR));
    QS_CHECK(ok.message_count == (uint64_t)(ROWS * adopted));
    qs_channel_close(channel);
    QS_CHECK_OK(qs_store_close(store, QS_ERROR));
    qs_test_remove_dir(folder);
    printf("%d adopted\n", adopted);
    return 0;
}
