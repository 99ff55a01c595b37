/* Memory of uncommitted transactions, of all sessions of a server.
 *
 * This memory is free again only after the transactions end.  If they took all of it, every
 * publisher would be held back.  A session whose transactions take more than the remaining room
 * therefore has the transaction that grew last rolled back, and its channel closed.  So one client
 * can take half of the room, a second one half of the rest, and so on.  A thousandth of the room is
 * allowed to each session in any case: small transactions work even when large ones have taken all
 * the rest.
 *
 * Messages that are returned at the commit have much less room, which all publishers of mandatory
 * messages share: a part of it is divided in the same way. */
#include "check.h"
#include "session_internal.h"

#define OWN_SHARE 1024 /* each session may take 1/1024 of the room in any case */

static enum qsi_amqp_result refuse(struct qsi_amqp_session *session, const char *what,
                                   uint64_t bytes, uint64_t bytes_max)
{
    qsi_amqp_fault_set(&session->fault, QS_PRECONDITION_FAILED,
                       "%s of this connection take %llu bytes of memory, more than is left free of "
                       "%llu for all: commit more often",
                       what, (unsigned long long)bytes, (unsigned long long)bytes_max);
    return QSI_AMQP_FAULT;
}

static void count(uint64_t *of_channel, uint64_t *of_session, uint64_t *of_all, uint64_t bytes)
{
    QS_ASSERT(*of_session >= *of_channel);
    *of_session += bytes - *of_channel;
    __atomic_add_fetch(of_all, bytes - *of_channel, __ATOMIC_RELAXED);
    *of_channel = bytes;
}

static void count_memory(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel,
                         uint64_t bytes)
{
    uint64_t unused = 0;

    count(&channel->tx_bytes, &session->tx_bytes,
          session->setup.pool != NULL ? &session->setup.pool->tx_bytes : &unused, bytes);
}

static void count_returns(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel,
                          uint64_t bytes)
{
    uint64_t unused = 0;

    count(&channel->tx_return_bytes, &session->tx_return_bytes,
          session->setup.pool != NULL ? &session->setup.pool->tx_return_bytes : &unused, bytes);
}

static bool is_too_much(uint64_t own, const uint64_t *of_all, uint64_t bytes_max)
{
    uint64_t taken = __atomic_load_n(of_all, __ATOMIC_RELAXED);

    return bytes_max > 0 && own > bytes_max / OWN_SHARE && taken + own > bytes_max;
}

enum qsi_amqp_result qsi_amqp_count_transaction(struct qsi_amqp_session *session,
                                                struct qsi_amqp_channel *channel)
{
    const struct qsi_amqp_pool *pool = session->setup.pool;
    uint64_t before = channel->tx_bytes;

    if (!channel->is_transactional) {
        return QSI_AMQP_DONE;
    }
    count_memory(session, channel, qs_channel_tx_bytes(channel->engine));
    if (channel->tx_bytes == 0 && !channel->is_committed) {
        count_returns(session, channel, 0);
    }
    if (pool == NULL || channel->tx_bytes <= before ||
        !is_too_much(session->tx_bytes, &pool->tx_bytes, pool->tx_bytes_max)) {
        return QSI_AMQP_DONE;
    }
    return refuse(session, "uncommitted transactions", session->tx_bytes, pool->tx_bytes_max);
}

enum qsi_amqp_result qsi_amqp_count_transaction_return(struct qsi_amqp_session *session,
                                                       struct qsi_amqp_channel *channel,
                                                       uint64_t bytes)
{
    const struct qsi_amqp_pool *pool = session->setup.pool;

    count_returns(session, channel, channel->tx_return_bytes + bytes);
    if (pool == NULL ||
        !is_too_much(session->tx_return_bytes, &pool->tx_return_bytes, pool->tx_return_bytes_max)) {
        return QSI_AMQP_DONE;
    }
    return refuse(session, "returned messages of uncommitted transactions",
                  session->tx_return_bytes, pool->tx_return_bytes_max);
}

void qsi_amqp_forget_transaction(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel)
{
    count_memory(session, channel, 0);
    count_returns(session, channel, 0);
}
