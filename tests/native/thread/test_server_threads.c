/* A server under clients that publish, consume, vanish and come again, while one thread adds and
 * ends a vhost that has clients, and another looks at its counts and then stops it: for the thread
 * sanitizer.
 *
 * Bodies are small and large, so sessions go to the workers and back.  Clients speak frames that
 * were made by hand. */
#include "qstore/qstore.h"

#include "qs_test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/time.h>

enum { CLIENTS = 6, LIVES = 8, PUBLISHES = 30, LARGE = 20000, GUESTS = 3, VISIT_BYTES = 18000 };

struct shared {
    qs_store *store;
    qs_server *server;
    uint16_t port;
    atomic_bool done;
    atomic_uint guests, served; /* the latter: guests that had all of their messages */
};

/* ---- frames ---- */

struct frames {
    uint8_t data[LARGE + 4096];
    size_t bytes;
};

static void put(struct frames *frames, const void *data, size_t bytes)
{
    QS_CHECK(frames->bytes + bytes <= sizeof frames->data);
    memcpy(frames->data + frames->bytes, data, bytes);
    frames->bytes += bytes;
}

static void put_number(struct frames *frames, uint64_t number, int bytes)
{
    while (bytes-- > 0) {
        uint8_t byte = (uint8_t)(number >> (8 * bytes));
        put(frames, &byte, 1);
    }
}

static void put_frame(struct frames *frames, uint8_t type, uint16_t channel, const void *payload,
                      size_t bytes)
{
    put_number(frames, type, 1);
    put_number(frames, channel, 2);
    put_number(frames, bytes, 4);
    put(frames, payload, bytes);
    put_number(frames, 0xce, 1);
}

#define METHOD(frames, channel, text) put_frame(frames, 1, channel, text, sizeof(text) - 1)
#define START_OK "\0\12\0\13\0\0\0\0\5PLAIN\0\0\0\14\0guest\0guest\5en_US"
#define TUNE_OK "\0\12\0\37\7\377\0\2\0\0\0\0"
#define OPEN "\0\12\0\50\1/\0\0"
#define OPEN_OTHER "\0\12\0\50\1b\0\0"
#define CHANNEL_OPEN "\0\24\0\12\0"
#define DECLARE "\0\62\0\12\0\0\1q\2\0\0\0\0"
#define CONFIRM "\0\125\0\12\0"
#define CONSUME "\0\74\0\24\0\0\1q\0\2\0\0\0\0"
#define PUBLISH "\0\74\0\50\0\0\0\1q\0"
#define ACK 0x003c0050u
#define DELIVER 0x003c003cu

static void put_publish(struct frames *frames, size_t body_bytes)
{
    static const uint8_t body[LARGE];
    struct frames header = {.bytes = 0};

    METHOD(frames, 1, PUBLISH);
    put_number(&header, 60, 2);
    put_number(&header, 0, 2);
    put_number(&header, body_bytes, 8);
    put_number(&header, 0x1000, 2); /* delivery mode 2 */
    put_number(&header, 2, 1);
    put_frame(frames, 2, 1, header.data, header.bytes);
    if (body_bytes > 0) {
        put_frame(frames, 3, 1, body, body_bytes);
    }
}

/* ---- a client ---- */

static void send_all(int fd, const struct frames *frames)
{
    QS_CHECK(send(fd, frames->data, frames->bytes, MSG_NOSIGNAL) == (ssize_t)frames->bytes);
}

static void read_all(int fd, void *data, size_t bytes)
{
    QS_CHECK(recv(fd, data, bytes, MSG_WAITALL) == (ssize_t)bytes);
}

/* The method of the next frame, or 0 of another frame. */
static uint32_t read_frame(int fd, uint8_t *payload, size_t room)
{
    uint8_t head[7];
    uint32_t bytes, method = 0;

    read_all(fd, head, sizeof head);
    memcpy(&bytes, head + 3, sizeof bytes);
    bytes = ntohl(bytes);
    QS_CHECK(bytes + 1 <= room);
    read_all(fd, payload, bytes + 1);
    if (head[0] == 1) {
        memcpy(&method, payload, sizeof method);
    }
    return ntohl(method);
}

static int connect_and_open(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    static _Thread_local uint8_t payload[LARGE + 4096];
    static _Thread_local struct frames frames;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    QS_CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    frames.bytes = 0;
    put(&frames, "AMQP\0\0\11\1", 8);
    METHOD(&frames, 0, START_OK);
    send_all(fd, &frames);
    QS_CHECK(read_frame(fd, payload, sizeof payload) == 0x000a000a);
    QS_CHECK(read_frame(fd, payload, sizeof payload) == 0x000a001e);
    frames.bytes = 0;
    METHOD(&frames, 0, TUNE_OK);
    METHOD(&frames, 0, OPEN);
    METHOD(&frames, 1, CHANNEL_OPEN);
    METHOD(&frames, 1, DECLARE);
    METHOD(&frames, 1, CONFIRM);
    METHOD(&frames, 1, CONSUME);
    send_all(fd, &frames);
    for (int i = 0; i < 5; i++) {
        QS_CHECK(read_frame(fd, payload, sizeof payload) != 0);
    }
    return fd;
}

/* Publishes, until all of it is confirmed; deliveries come in between.  Then it vanishes. */
static void live(uint16_t port, int life)
{
    static _Thread_local uint8_t payload[LARGE + 4096];
    static _Thread_local struct frames frames;
    int fd = connect_and_open(port);
    uint64_t confirmed = 0;

    for (int i = 0; i < PUBLISHES; i++) {
        frames.bytes = 0;
        put_publish(&frames, (size_t)(i * life * 97 % LARGE));
        send_all(fd, &frames);
    }
    while (confirmed < PUBLISHES) {
        if (read_frame(fd, payload, sizeof payload) == ACK) {
            confirmed = payload[11];
        }
    }
    close(fd);
}

static void *run_client(void *argument)
{
    struct shared *shared = argument;

    for (int life = 1; life <= LIVES; life++) {
        live(shared->port, life);
    }
    return NULL;
}

/* ---- a client of a vhost that comes and goes ---- */

static void put_visit(struct frames *frames)
{
    frames->bytes = 0;
    put(frames, "AMQP\0\0\11\1", 8);
    METHOD(frames, 0, START_OK);
    METHOD(frames, 0, TUNE_OK);
    METHOD(frames, 0, OPEN_OTHER);
    METHOD(frames, 1, CHANNEL_OPEN);
    METHOD(frames, 1, DECLARE);
    METHOD(frames, 1, CONSUME);
    for (size_t i = 0; i < 4; i++) {
        put_publish(frames, i * VISIT_BYTES / 6);
    }
}

/* Until it has had its messages, is cut off, or hears nothing for a while. */
static bool is_served(int fd)
{
    struct timeval patience = {.tv_usec = 500000};
    uint8_t data[4096];
    size_t total = 0;
    ssize_t bytes;

    QS_CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    while (total <= VISIT_BYTES && (bytes = recv(fd, data, sizeof data, 0)) > 0) {
        total += (size_t)bytes;
    }
    return total > VISIT_BYTES;
}

static bool is_over(struct shared *shared)
{
    return atomic_load(&shared->done) && atomic_load(&shared->served) > 0;
}

static void *run_guest(void *argument)
{
    struct shared *shared = argument;
    static _Thread_local struct frames frames;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(shared->port)};

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    put_visit(&frames);
    while (!is_over(shared)) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        QS_CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
        atomic_fetch_add(&shared->guests, 1);
        (void)send(fd, frames.data, frames.bytes, MSG_NOSIGNAL); /* it may be cut off already */
        atomic_fetch_add(&shared->served, is_served(fd));
        close(fd);
    }
    return NULL;
}

/* ---- the owner's threads ---- */

/* Its store is used no more when a vhost has ended, or closing it would fail. */
static void *run_vhosts(void *argument)
{
    struct shared *shared = argument;
    qs_options options;

    qs_options_default(&options);
    for (useconds_t round = 1; !is_over(shared); round++) {
        qs_store *store;
        QS_CHECK_OK(qs_store_open(&store, QS_PATH_MEMORY, &options, NULL, QS_ERROR));
        QS_CHECK_OK(qs_server_add_vhost(shared->server, "b", store, QS_ERROR));
        QS_CHECK(qs_server_add_vhost(shared->server, "b", store, NULL) == QS_EINVAL);
        QS_CHECK(qs_server_add_vhost(shared->server, "c", store, NULL) == QS_EINVAL);
        usleep(2000 * round); /* long enough at last for a guest to be served */
        qs_server_end_vhost(shared->server, "b", 0);
        QS_CHECK_OK(qs_store_close(store, QS_ERROR));
    }
    return NULL;
}

static void *run_logins(void *argument)
{
    struct shared *shared = argument;
    qs_question question;
    qs_slice as_asked = {NULL, 0};

    while (qs_server_next_question(shared->server, QS_FOREVER, &question, NULL) == QS_OK) {
        QS_CHECK(question.is_loopback && question.user.bytes == 5);
        qs_server_answer(shared->server, question.number, true, as_asked);
    }
    return NULL;
}

static void *run_counts(void *argument)
{
    struct shared *shared = argument;
    qs_server_counts counts;

    while (!atomic_load(&shared->done)) {
        qs_server_get_counts(shared->server, &counts);
        QS_CHECK(counts.connections <= CLIENTS * LIVES + atomic_load(&shared->guests));
        usleep(1000);
    }
    return NULL;
}

static void open_server(struct shared *shared)
{
    qs_options options;
    char bound[QS_ADDRESS_BYTES];

    qs_options_default(&options);
    QS_CHECK_OK(qs_store_open(&shared->store, QS_PATH_MEMORY, &options, NULL, QS_ERROR));
    QS_CHECK_OK(qs_server_open(&shared->server, shared->store, NULL, QS_ERROR));
    QS_CHECK_OK(qs_server_listen(shared->server, "127.0.0.1:0", bound, QS_ERROR));
    shared->port = (uint16_t)strtoul(strrchr(bound, ':') + 1, NULL, 10);
}

int main(void)
{
    static struct shared shared;
    pthread_t clients[CLIENTS], guests[GUESTS], logins, counts, vhosts;
    qs_server_counts told;
    uint64_t least = CLIENTS * LIVES + 1;

    open_server(&shared);
    QS_CHECK(pthread_create(&logins, NULL, run_logins, &shared) == 0);
    QS_CHECK(pthread_create(&counts, NULL, run_counts, &shared) == 0);
    QS_CHECK(pthread_create(&vhosts, NULL, run_vhosts, &shared) == 0);
    for (int i = 0; i < GUESTS; i++) {
        QS_CHECK(pthread_create(&guests[i], NULL, run_guest, &shared) == 0);
    }
    for (int i = 0; i < CLIENTS; i++) {
        QS_CHECK(pthread_create(&clients[i], NULL, run_client, &shared) == 0);
    }
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(clients[i], NULL);
    }
    connect_and_open(shared.port); /* one that does not hear of the end */
    atomic_store(&shared.done, true);
    for (int i = 0; i < GUESTS; i++) {
        pthread_join(guests[i], NULL);
    }
    pthread_join(vhosts, NULL);
    pthread_join(counts, NULL);
    qs_server_stop(shared.server, 0);
    pthread_join(logins, NULL);
    qs_server_get_counts(shared.server, &told);
    QS_CHECK(told.connections == 0 && told.connections_accepted >= least &&
             told.connections_accepted <= least + atomic_load(&shared.guests));
    QS_CHECK(told.handovers > 0);
    qs_server_close(shared.server);
    QS_CHECK_OK(qs_store_close(shared.store, QS_ERROR));
    return 0;
}
