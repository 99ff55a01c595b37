/* Memory for incomplete bodies of all sessions of a server.
 *
 * A session that finds no room is not read until there is some.  If all sessions waited for the
 * rest of their bodies, they would wait for each other.  Therefore one of them is favoured: it may
 * exceed the limit until it has no incomplete body.  It is closed when it sends nothing for a while
 * and other sessions wait. */
#include "check.h"
#include "session_internal.h"

#define SECOND_NS UINT64_C(1000000000)
#define PATIENCE_NS (10 * SECOND_NS)

static bool is_favoured(const struct qsi_amqp_session *session)
{
    return session->pooled_bytes > 0 &&
           __atomic_load_n(&session->setup.pool->favoured, __ATOMIC_RELAXED) == session;
}

static bool become_favoured(struct qsi_amqp_session *session)
{
    const struct qsi_amqp_session *favoured = NULL;

    return __atomic_compare_exchange_n(&session->setup.pool->favoured, &favoured, session, false,
                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED) ||
           favoured == session;
}

static void stop_favouring(struct qsi_amqp_session *session)
{
    const struct qsi_amqp_session *favoured = session;

    __atomic_compare_exchange_n(&session->setup.pool->favoured, &favoured, NULL, false,
                                __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static enum qsi_amqp_result fail(struct qsi_amqp_session *session, const char *why)
{
    qsi_amqp_fault_set(&session->fault, QSI_AMQP_RESOURCE_ERROR,
                       "unfinished messages of all connections take more than %llu bytes, and %s",
                       (unsigned long long)session->setup.pool->bytes_max, why);
    session->fault.class_id = 60;
    session->fault.method_id = 40;
    return QSI_AMQP_FAULT;
}

/* Handles bytes beyond the limit: only the favoured session may take them. */
static enum qsi_amqp_result go_beyond(struct qsi_amqp_session *session, uint32_t bytes)
{
    struct qsi_amqp_pool *pool = session->setup.pool;

    session->waits_for_pool = !become_favoured(session);
    if (session->waits_for_pool) {
        __atomic_store_n(&pool->asked_ns, session->now_ns, __ATOMIC_RELAXED);
        return QSI_AMQP_IS_FULL;
    }
    if (session->pooled_bytes + bytes > session->setup.limits.body_bytes_max) {
        return fail(session, "those of this one's channels more than one message may have");
    }
    __atomic_add_fetch(&pool->bytes, bytes, __ATOMIC_RELAXED);
    return QSI_AMQP_DONE;
}

enum qsi_amqp_result qsi_amqp_pool_take(struct qsi_amqp_session *session,
                                        struct qsi_amqp_content *content, uint32_t bytes)
{
    struct qsi_amqp_pool *pool = session->setup.pool;

    if (pool == NULL || pool->bytes_max == 0) {
        return QSI_AMQP_DONE;
    }
    if (__atomic_add_fetch(&pool->bytes, bytes, __ATOMIC_RELAXED) > pool->bytes_max) {
        enum qsi_amqp_result result;

        __atomic_sub_fetch(&pool->bytes, bytes, __ATOMIC_RELAXED);
        result = go_beyond(session, bytes);
        if (result != QSI_AMQP_DONE) {
            return result;
        }
    }
    session->waits_for_pool = false;
    session->pool_taken_ns = session->now_ns;
    session->pooled_bytes += bytes;
    content->pooled_bytes += bytes;
    return QSI_AMQP_DONE;
}

void qsi_amqp_pool_give_back(struct qsi_amqp_session *session, struct qsi_amqp_content *content)
{
    uint64_t bytes = content->pooled_bytes;

    if (bytes == 0) {
        return;
    }
    QS_ASSERT(session->pooled_bytes >= bytes);
    content->pooled_bytes = 0;
    session->pooled_bytes -= bytes;
    __atomic_sub_fetch(&session->setup.pool->bytes, bytes, __ATOMIC_RELAXED);
    if (session->pooled_bytes == 0) {
        stop_favouring(session);
    }
}

uint64_t qsi_amqp_pool_deadline(const struct qsi_amqp_session *session)
{
    return is_favoured(session) && session->state == QSI_AMQP_RUNNING
               ? session->pool_taken_ns + PATIENCE_NS
               : QSI_AMQP_NEVER;
}

/* Resets the client's time while the server keeps it waiting.  A client that does not read its
 * output (MUST_WRITE) gets no more time. */
void qsi_amqp_pool_pass_time(struct qsi_amqp_session *session)
{
    if (session->alarm[0] != '\0' ||
        (session->stopped != QSI_AMQP_DONE && session->stopped != QSI_AMQP_MUST_WRITE)) {
        session->pool_taken_ns = session->now_ns;
    }
}

/* A waiting session asks ten times a second, so a second without a request means that none
 * waits. */
bool qsi_amqp_pool_is_patient(struct qsi_amqp_session *session)
{
    uint64_t asked_ns;

    if (session->now_ns < qsi_amqp_pool_deadline(session)) {
        return true;
    }
    asked_ns = __atomic_load_n(&session->setup.pool->asked_ns, __ATOMIC_RELAXED);
    if (asked_ns + SECOND_NS < session->now_ns) {
        session->pool_taken_ns = session->now_ns;
        return true;
    }
    fail(session, "nothing more of this one's came for 10 s, for which others wait");
    return false;
}
