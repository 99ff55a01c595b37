/* Transactions of a channel: its publishes and settlements wait for a commit. */
#ifndef QSTORE_TRANSACTION_H
#define QSTORE_TRANSACTION_H

#include "qstore/channel.h"

/* qs_channel_tx_select - make a channel transactional: its publishes and settlements wait for a
 * commit from now on.
 *
 * Returns: QS_PRECONDITION_FAILED (the channel is in confirm mode) */
QS_API QS_MUST_CHECK qs_status qs_channel_tx_select(qs_channel *channel, qs_error *error);

/* qs_channel_tx_begin - make a channel transactional until qs_channel_tx_end, in confirm mode too:
 * messages published meanwhile have no publish number, and the return of the commit confirms them.
 *
 * Returns: QS_PRECONDITION_FAILED (the channel is transactional already) */
QS_API QS_MUST_CHECK qs_status qs_channel_tx_begin(qs_channel *channel, qs_error *error);

/* qs_channel_tx_end - return the channel to its mode before qs_channel_tx_begin; uncommitted work
 * is dropped, as by qs_channel_tx_rollback.
 *
 * Returns: QS_OK, or the common statuses */
QS_API QS_MUST_CHECK qs_status qs_channel_tx_end(qs_channel *channel, qs_error *error);

/* qs_channel_tx_commit - commit every publish and settlement since the last commit, atomically.
 *
 * In:      key           not empty: recorded with the transaction
 *          flags         QS_NO_WAIT, which a commit with a key or with rejected messages answers
 *                        with QS_EWOULDBLOCK
 * Out:     repeated_out  the key was committed before: nothing is done, the buffered work is
 *          dropped
 * Returns: QS_PRECONDITION_FAILED (the channel is not transactional), QS_ESTORE_FULL (nothing
 *          happened, the transaction is still there), QS_ECORRUPT (the file that may have the key
 *          is damaged)
 * Blocks:  for a commit; with a key, for another one with that key, and to read from a file
 * Durable: when it returns QS_OK */
QS_API QS_MUST_CHECK qs_status qs_channel_tx_commit(qs_channel *channel, qs_slice key,
                                                    uint32_t flags, bool *repeated_out,
                                                    qs_error *error);

/* qs_channel_tx_rollback - drop every publish and settlement since the last commit.
 *
 * Returns: QS_PRECONDITION_FAILED (the channel is not transactional) */
QS_API QS_MUST_CHECK qs_status qs_channel_tx_rollback(qs_channel *channel, qs_error *error);

/* qs_channel_tx_bytes - the memory of the channel's open transaction.
 *
 * It counts messages with the records about them, returned messages and settlements, as the
 * allocator sees them, to within some percent.  Bodies in the message store take none.  0: there is
 * nothing to commit. */
QS_API uint64_t qs_channel_tx_bytes(qs_channel *channel);

#endif
