/* Timers by due time: a binary heap.
 *
 * Invariant: heap[place - 1] is the timer with that place, and no timer is due before the one at
 * half its place. */
#include "timers.h"

#include "alloc.h"
#include "check.h"

#define FIRST_CAPACITY 64

static void put(struct qsi_timers *timers, struct qsi_timer *timer, size_t place)
{
    timers->heap[place - 1] = timer;
    timer->place = place;
}

static struct qsi_timer *at(const struct qsi_timers *timers, size_t place)
{
    return timers->heap[place - 1];
}

static void move_up(struct qsi_timers *timers, struct qsi_timer *timer)
{
    size_t place = timer->place;

    while (place > 1 && at(timers, place / 2)->due_ns > timer->due_ns) {
        put(timers, at(timers, place / 2), place);
        place /= 2;
    }
    put(timers, timer, place);
}

static void move_down(struct qsi_timers *timers, struct qsi_timer *timer)
{
    size_t place = timer->place;

    for (size_t child = 2 * place; child <= timers->count; child = 2 * place) {
        if (child < timers->count && at(timers, child + 1)->due_ns < at(timers, child)->due_ns) {
            child += 1;
        }
        if (at(timers, child)->due_ns >= timer->due_ns) {
            break;
        }
        put(timers, at(timers, child), place);
        place = child;
    }
    put(timers, timer, place);
}

static void take_out(struct qsi_timers *timers, struct qsi_timer *timer)
{
    struct qsi_timer *last = at(timers, timers->count);
    size_t place = timer->place;

    timers->count -= 1;
    timer->place = 0;
    if (last != timer) {
        put(timers, last, place);
        move_up(timers, last);
        move_down(timers, last);
    }
}

void qsi_timers_fini(struct qsi_timers *timers)
{
    qsi_free(timers->heap);
    *timers = (struct qsi_timers){0};
}

qs_status qsi_timers_reserve(struct qsi_timers *timers, size_t count)
{
    size_t capacity = timers->capacity > 0 ? timers->capacity : FIRST_CAPACITY;
    struct qsi_timer **heap;

    if (count <= timers->capacity) {
        return QS_OK;
    }
    while (capacity < count) {
        capacity *= 2;
    }
    heap = qsi_realloc(timers->heap, capacity * sizeof *heap);
    if (heap == NULL) {
        return QS_ENOMEM;
    }
    timers->heap = heap;
    timers->capacity = capacity;
    return QS_OK;
}

void qsi_timers_set(struct qsi_timers *timers, struct qsi_timer *timer, uint64_t due_ns)
{
    timer->due_ns = due_ns;
    if (due_ns == QSI_TIMER_NEVER) {
        if (timer->place > 0) {
            take_out(timers, timer);
        }
        return;
    }
    if (timer->place == 0) {
        QS_ASSERT(timers->count < timers->capacity);
        timers->count += 1;
        put(timers, timer, timers->count);
    }
    move_up(timers, timer);
    move_down(timers, timer);
}

uint64_t qsi_timers_next_ns(const struct qsi_timers *timers)
{
    return timers->count > 0 ? at(timers, 1)->due_ns : QSI_TIMER_NEVER;
}

struct qsi_timer *qsi_timers_take_due(struct qsi_timers *timers, uint64_t now_ns)
{
    struct qsi_timer *first = timers->count > 0 ? at(timers, 1) : NULL;

    if (first == NULL || first->due_ns > now_ns) {
        return NULL;
    }
    take_out(timers, first);
    return first;
}
