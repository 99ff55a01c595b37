/* The states of a store that more than one thread steps through, all of them under the lock: its
 * life, the thread that leads the journal, the thread that flushes, and the running checkpoint. */
#ifndef QSI_PHASES_H
#define QSI_PHASES_H

#include "state.h"

/* In their order. */
enum qsi_life {
    QSI_LIFE_OPENS, /* only its own threads know of the store */
    QSI_LIFE_OPEN,
    QSI_LIFE_SHUT, /* no call begins any more, and those that wait return */
    QSI_LIFE_STOPS /* its threads end, or have ended */
};

static inline void qsi_life_step(enum qsi_life *life, enum qsi_life next)
{
    static const uint32_t follows[] = {
        [QSI_LIFE_OPENS] = QSI_MAY_BE(QSI_LIFE_OPEN) | QSI_MAY_BE(QSI_LIFE_STOPS),
        [QSI_LIFE_OPEN] = QSI_MAY_BE(QSI_LIFE_SHUT),
        [QSI_LIFE_SHUT] = QSI_MAY_BE(QSI_LIFE_STOPS),
        [QSI_LIFE_STOPS] = 0,
    };

    QSI_STATE_STEP(life, next, follows);
}

/* The work of the one thread that may write the journal; it writes without the lock. */
enum qsi_lead {
    QSI_LEAD_NONE,
    QSI_LEAD_GATHERS, /* lets others add to the commit that it is about to make */
    QSI_LEAD_COMMITS, /* writes and syncs */
    QSI_LEAD_WRITES,  /* counts of deliveries, which need no sync */
    QSI_LEAD_MARKS,
    QSI_LEAD_FILLS, /* zeros ahead of the blocks */
    QSI_LEAD_COPIES /* nothing: its files are being copied */
};

static inline void qsi_lead_step(enum qsi_lead *lead, enum qsi_lead next)
{
    static const uint32_t follows[] = {
        [QSI_LEAD_NONE] = QSI_MAY_BE(QSI_LEAD_GATHERS) | QSI_MAY_BE(QSI_LEAD_WRITES) |
                          QSI_MAY_BE(QSI_LEAD_MARKS) | QSI_MAY_BE(QSI_LEAD_FILLS) |
                          QSI_MAY_BE(QSI_LEAD_COPIES),
        [QSI_LEAD_GATHERS] = QSI_MAY_BE(QSI_LEAD_COMMITS) | QSI_MAY_BE(QSI_LEAD_NONE),
        [QSI_LEAD_COMMITS] = QSI_MAY_BE(QSI_LEAD_NONE),
        [QSI_LEAD_WRITES] = QSI_MAY_BE(QSI_LEAD_NONE),
        [QSI_LEAD_MARKS] = QSI_MAY_BE(QSI_LEAD_NONE),
        [QSI_LEAD_FILLS] = QSI_MAY_BE(QSI_LEAD_NONE),
        [QSI_LEAD_COPIES] = QSI_MAY_BE(QSI_LEAD_NONE),
    };

    QSI_STATE_STEP(lead, next, follows);
}

/* The thread that moves content of queues to the disk: one at a time. */
enum qsi_flush_state {
    QSI_FLUSH_NONE,
    QSI_FLUSH_PAGES,    /* a queue's next messages to their segment */
    QSI_FLUSH_SHARES,   /* bodies that several queues have, to the message store */
    QSI_FLUSH_SNAPSHOT, /* a checkpoint: the messages that it carries */
};

static inline void qsi_flush_step(enum qsi_flush_state *flush, enum qsi_flush_state next)
{
    static const uint32_t follows[] = {
        [QSI_FLUSH_NONE] = QSI_MAY_BE(QSI_FLUSH_PAGES) | QSI_MAY_BE(QSI_FLUSH_SHARES) |
                           QSI_MAY_BE(QSI_FLUSH_SNAPSHOT),
        [QSI_FLUSH_PAGES] = QSI_MAY_BE(QSI_FLUSH_NONE),
        [QSI_FLUSH_SHARES] = QSI_MAY_BE(QSI_FLUSH_NONE),
        [QSI_FLUSH_SNAPSHOT] = QSI_MAY_BE(QSI_FLUSH_NONE),
    };

    QSI_STATE_STEP(flush, next, follows);
}

/* The running checkpoint: one at a time. */
enum qsi_checkpoint_state {
    QSI_CHECKPOINT_NONE,
    QSI_CHECKPOINT_PREPARES, /* everything before the snapshot that may take its time */
    QSI_CHECKPOINT_WAITS,    /* for its turn: no other flush begins */
    QSI_CHECKPOINT_WRITES,   /* takes the snapshot and writes it; it flushes */
    QSI_CHECKPOINT_SYNCS,    /* and is named; paging goes on */
    QSI_CHECKPOINT_TRIED,    /* it succeeded, is tried again, or given up */
    QSI_CHECKPOINT_HELD,     /* there is none, and none begins: files are being copied */
};

static inline void qsi_checkpoint_step(enum qsi_checkpoint_state *state,
                                       enum qsi_checkpoint_state next)
{
    static const uint32_t follows[] = {
        [QSI_CHECKPOINT_NONE] =
            QSI_MAY_BE(QSI_CHECKPOINT_PREPARES) | QSI_MAY_BE(QSI_CHECKPOINT_HELD),
        [QSI_CHECKPOINT_PREPARES] =
            QSI_MAY_BE(QSI_CHECKPOINT_WAITS) | QSI_MAY_BE(QSI_CHECKPOINT_TRIED),
        [QSI_CHECKPOINT_WAITS] =
            QSI_MAY_BE(QSI_CHECKPOINT_WRITES) | QSI_MAY_BE(QSI_CHECKPOINT_TRIED),
        [QSI_CHECKPOINT_WRITES] =
            QSI_MAY_BE(QSI_CHECKPOINT_SYNCS) | QSI_MAY_BE(QSI_CHECKPOINT_TRIED),
        [QSI_CHECKPOINT_SYNCS] = QSI_MAY_BE(QSI_CHECKPOINT_TRIED),
        [QSI_CHECKPOINT_TRIED] =
            QSI_MAY_BE(QSI_CHECKPOINT_PREPARES) | QSI_MAY_BE(QSI_CHECKPOINT_NONE),
        [QSI_CHECKPOINT_HELD] = QSI_MAY_BE(QSI_CHECKPOINT_NONE),
    };

    QSI_STATE_STEP(state, next, follows);
}

#endif
