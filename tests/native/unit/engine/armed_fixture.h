/* Channels whose descriptors are watched, as an event loop does. */
#ifndef ARMED_FIXTURE_H
#define ARMED_FIXTURE_H

#include "engine_fixture.h"
#include "qs_test_batch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>

#define ANSWERS (QS_EVENT_RETURN | QS_EVENT_ACK | QS_EVENT_NACK)
#define EVENT_FDS_MAX 256
#define AWAITED -1 /* for poll: however long a thread of the store takes */

/* The descriptors that a test asked for, which it closes at its end. */
static struct {
    int fds[EVENT_FDS_MAX];
    size_t count;
} event_fds;

static inline void remember_event_fd(int event_fd)
{
    for (size_t i = 0; i < event_fds.count; i++) {
        if (event_fds.fds[i] == event_fd) {
            return;
        }
    }
    QS_CHECK(event_fds.count < EVENT_FDS_MAX);
    event_fds.fds[event_fds.count++] = event_fd;
}

/* Also a check that nobody else has closed one. */
static inline void close_event_fds(void)
{
    for (size_t i = 0; i < event_fds.count; i++) {
        QS_CHECK(close(event_fds.fds[i]) == 0);
    }
    event_fds.count = 0;
}

/* Asking is a call of the channel, which signals by itself what is due: ask before. */
static inline int event_fd_of(qs_channel *channel)
{
    int event_fd;

    QS_CHECK_OK(qs_channel_event_fd(channel, &event_fd, QS_ERROR));
    remember_event_fd(event_fd);
    return event_fd;
}

static inline bool is_signalled(int event_fd, int timeout_ms)
{
    struct pollfd watched = {.fd = event_fd, .events = POLLIN};

    return poll(&watched, 1, timeout_ms) == 1;
}

/* Listens, which makes it silent again; how often it was signalled. */
static inline unsigned long long listen_to(int event_fd)
{
    eventfd_t count = 0;

    QS_CHECK(eventfd_read(event_fd, &count) == 0);
    return count;
}

static inline void arm(qs_channel *channel, uint32_t kinds)
{
    qs_event event;

    QS_CHECK_STATUS(QS_EEMPTY, qs_channel_next_event(channel, kinds | QS_EVENT_ARM | QS_NO_WAIT, 0,
                                                     &event, QS_ERROR));
}

static inline qs_event take(qs_channel *channel, uint32_t kind)
{
    qs_event event;

    QS_CHECK_OK(qs_channel_next_event(channel, kind | QS_NO_WAIT, 0, &event, QS_ERROR));
    QS_CHECK(event.kind == kind);
    qs_message_release(&event.message);
    return event;
}

static inline qs_channel *consumer_of(struct engine *engine, const char *queue, uint32_t prefetch)
{
    qs_channel *channel;

    QS_CHECK_OK(qs_channel_open(&channel, engine->store, QS_ERROR));
    QS_CHECK_OK(qs_channel_qos(channel, prefetch, 0, 0, QS_ERROR));
    QS_CHECK_OK(qs_test_consume(channel, queue, "c", 0, NONE));
    return channel;
}

/* Threads, and a clock that stands still: what is to last a moment lasts. */
static inline void start_in_memory_with_threads(struct engine *engine)
{
    engine_init(engine, IN_MEMORY);
    engine->options.background = true;
    engine_open(engine);
}

QS_TEST_FIXTURE(run_with_threads, struct engine, start_in_memory_with_threads(&fixture),
                engine_stop(&fixture))
#define THREADS_TEST(name) QS_TEST_BY(run_with_threads, name, (struct engine * engine))

/* Each on a disk of its own. */
static inline void run_armed(engine_test *test)
{
    struct engine engine;

    engine_start(&engine, ON_DISK);
    test(&engine);
    engine_stop(&engine);
    close_event_fds();
}
#define ARMED_TEST(name) QS_TEST_BY(run_armed, name, (struct engine * engine))

#endif
