/* Transactions of a channel: what it publishes and settles waits for a commit. */
#ifndef QSTORE_TRANSACTION_H
#define QSTORE_TRANSACTION_H

#include "qstore/channel.h"

/* qs_channel_tx_select - from now on publishes and settlements of this channel wait for a commit.
 *
 * Returns: QS_PRECONDITION_FAILED (the channel is in confirm mode) */
QS_API QS_MUST_CHECK qs_status qs_channel_tx_select(qs_channel *channel, qs_error *error);

/* qs_channel_tx_begin - as qs_channel_tx_select, until qs_channel_tx_end, and in confirm mode too:
 * what is published meanwhile has no publish number, and its confirm is the commit's return.
 *
 * Returns: QS_PRECONDITION_FAILED (the channel is transactional already) */
QS_API QS_MUST_CHECK qs_status qs_channel_tx_begin(qs_channel *channel, qs_error *error);

/* qs_channel_tx_end - the channel is what it was before qs_channel_tx_begin; what was not committed
 * is dropped, as by qs_channel_tx_rollback.
 *
 * Returns: QS_OK, or the common statuses */
QS_API QS_MUST_CHECK qs_status qs_channel_tx_end(qs_channel *channel, qs_error *error);

/* qs_channel_tx_commit - every publish and settlement since the last commit, atomically.
 *
 * In:      key           not empty: recorded with the transaction
 *          flags         QS_NO_WAIT, which a commit with a key or with rejected messages answers
 *                        with QS_EWOULDBLOCK
 * Out:     repeated_out  the key was committed before: nothing is done, the buffered work is
 *          dropped
 * Returns: QS_PRECONDITION_FAILED (the channel is not transactional), QS_ESTORE_FULL (nothing
 *          happened, the transaction is still there), QS_ECORRUPT (the file that would tell of the
 *          key is damaged)
 * Blocks:  for a commit; with a key, for another one with that key, and to read from a file
 * Durable: when it returns QS_OK */
QS_API QS_MUST_CHECK qs_status qs_channel_tx_commit(qs_channel *channel, qs_slice key,
                                                    uint32_t flags, bool *repeated_out,
                                                    qs_error *error);

/* qs_channel_tx_rollback - drop every publish and settlement since the last commit.
 *
 * Returns: QS_PRECONDITION_FAILED (the channel is not transactional) */
QS_API QS_MUST_CHECK qs_status qs_channel_tx_rollback(qs_channel *channel, qs_error *error);

/* qs_channel_tx_bytes - the memory that the channel's open transaction takes until it ends.
 *
 * Messages with all that is noted of them, returned messages and settlements, as the allocator
 * sees them: some bytes in a hundred more or less.  Bodies in the message store take none.  0:
 * there is nothing to commit. */
QS_API uint64_t qs_channel_tx_bytes(qs_channel *channel);

#endif
