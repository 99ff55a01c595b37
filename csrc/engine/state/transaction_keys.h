/* Keys of committed transactions, as the store holds them: transactions.h says what becomes of
 * them. */
#ifndef QSI_TRANSACTION_KEYS_H
#define QSI_TRANSACTION_KEYS_H

#include "key_file.h"
#include "list.h"
#include "map.h"

#define QSI_KEY_RUNS_MAX 40u /* each is larger than all behind it, nearly */

struct key_table {
    struct qsi_map notes; /* key -> key_note */
    uint64_t bytes;       /* in the budget */
};

struct key_run { /* a file */
    struct qsi_list in_dead;
    struct qsi_key_file file;
    uint64_t lsn; /* all its keys are durable when this is */
    uint32_t reference_count;
    bool named;       /* by a checkpoint, perhaps one that never came to count */
    bool is_unmerged; /* it is damaged: it stays as it is */
    bool is_dead;     /* others have its keys */
    bool sealed;      /* it was dead when the checkpoint that is being made began */
};

struct transactions {
    struct qsi_key_dir dir;
    struct key_table fresh;
    struct key_table frozen;                /* is being written; does not change */
    uint64_t frozen_lsn;                    /* its keys are durable when this is */
    struct key_run *runs[QSI_KEY_RUNS_MAX]; /* oldest first */
    uint32_t run_count;
    uint64_t generation; /* of runs and frozen */
    struct qsi_list dead;
    uint64_t next_number;
    uint64_t forgotten_before_us; /* what was committed before is forgotten */
    bool is_busy; /* frozen and runs stay as they are, for whoever reads them unlocked */
    bool sweeps;  /* files hold much that is forgotten: they are to be written anew */
};

#endif
