/* Environments for tests: memory, fault and sim (power cut).  Want of memory ends the process, but
 * for the functions with try in their names, which answer NULL. */
#ifndef QSI_ENV_TEST_H
#define QSI_ENV_TEST_H

#include "qstore/env.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- memory: files in RAM, every call succeeds, a clock that only moves when told. ---- */
qs_env *qsi_env_mem_create(uint64_t seed);
qs_env *qsi_env_mem_try_create(uint64_t seed);
void qsi_env_mem_destroy(qs_env *env); /* every handle must be closed; NULL is fine */
void qsi_env_mem_advance(qs_env *env, uint64_t ns);

/* How many bytes the files may take in all, in pages, without holes; 0, as at first: as many as
 * one likes.  What would make them more is QS_ENOSPC.  Copies have the same limit.  Takes a
 * memory or a sim environment. */
void qsi_env_ram_limit(qs_env *env, uint64_t bytes);
uint64_t qsi_env_ram_used(qs_env *env);

/* An independent copy, which costs the same whatever the sizes of the files; locks are not held in
 * it. */
qs_env *qsi_env_mem_clone(qs_env *env, uint64_t seed);

/* ---- fault: wraps any env and fails chosen calls. ---- */
/* Which calls count. */
enum qsi_fault_kind {
    QSI_FAULT_ANY,  /* all of the following */
    QSI_FAULT_OPEN, /* open, lock, dir_open, dir_open_root */
    QSI_FAULT_READ, /* read, size, dir_list */
    QSI_FAULT_WRITE,
    QSI_FAULT_SYNC,
    QSI_FAULT_DIR_SYNC, /* dir_sync, dir_sync_parent */
    QSI_FAULT_ALLOCATE, /* allocate, truncate */
    QSI_FAULT_RENAME,
    QSI_FAULT_REMOVE,
    QSI_FAULT_RANDOM,
    QSI_FAULT_CHECK_LINKED,
};

/* A way of failing that makes no sense for a call is QSI_FAULT_EIO, unless it says otherwise. */
enum qsi_fault_how {
    /* Nothing was done. */
    QSI_FAULT_EIO,
    QSI_FAULT_ENOSPC,
    /* No descriptors are left: for QSI_FAULT_OPEN. */
    QSI_FAULT_EMFILE,
    /* Half of a write lands, then EIO at the next write to that file. */
    QSI_FAULT_SHORT_EIO,
    /* Half of a transfer, success: the caller must loop.  Calls that transfer nothing pass. */
    QSI_FAULT_SHORT,
    /* QS_EINTR once, nothing done; never twice in a row, also when sticky. */
    QSI_FAULT_EINTR,
    /* A sync fails once AND what it should have made durable is dropped (over a sim; elsewhere it
     * is merely not synced); a retry succeeds. */
    QSI_FAULT_SYNC_LOST,
};
qs_env *qsi_env_fault_create(qs_env *inner);
void qsi_env_fault_destroy(qs_env *env); /* inner stays */

/* Fail the n-th (from 1) counted call from now on once; sticky: every later counted call as well.
 * n 0: off. */
void qsi_env_fault_arm(qs_env *env, enum qsi_fault_kind kind, enum qsi_fault_how how, uint64_t n,
                       bool sticky);
bool qsi_env_fault_fired(qs_env *env);
uint64_t qsi_env_fault_calls(qs_env *env); /* counted calls since arm */

/* ---- sim: files in RAM that remember what a power cut could leave. ----
 *
 * Every write since the file's last sync is kept apart, cut at 512-byte sectors; every directory
 * change since the directory's last sync likewise.  A cut decides for each on its own, except that
 * a change of names never happens without the earlier one that it builds on: a name is not taken by
 * a new file while the undone removal or renaming of its old one still holds it.
 *
 * Threads: one only. */
qs_env *qsi_env_sim_create(uint64_t seed);
qs_env *qsi_env_sim_try_create(uint64_t seed);
void qsi_env_sim_destroy(qs_env *env); /* every handle must be closed; NULL is fine */

/* How many durable-relevant steps (write, sync, allocate, truncate, rename, remove, create,
 * directory sync) happened so far; snapshots below may be taken at any step.  What changes nothing
 * (an empty write, allocating what is allocated) is no step. */
uint64_t qsi_env_sim_steps(qs_env *env);
void qsi_env_sim_advance(qs_env *env, uint64_t ns); /* the clock, which a cut keeps */

/* What happens to what was not synced. */
enum qsi_cut_how {
    QSI_CUT_KEEP_ALL, /* process death */
    QSI_CUT_DROP_ALL, /* the harshest cut */
    /* Each pending write: kept, dropped, torn at a sector, or with a garbage sector; each pending
     * directory change kept or undone, independently.  How likely each of these is differs from cut
     * to cut: mostly kept, mostly dropped, all up to one moment, all but one... */
    QSI_CUT_RANDOM,
};

/* A new memory environment (qsi_env_mem_destroy) that holds what the disk holds after a cut right
 * now.  The sim env goes on unharmed.  Equal seeds give equal disks. */
qs_env *qsi_env_sim_cut(qs_env *env, enum qsi_cut_how how, uint64_t seed);
qs_env *qsi_env_sim_try_cut(qs_env *env, enum qsi_cut_how how, uint64_t seed);

/* Called before every step with the number of steps before it: the place to take cuts from, and the
 * only calls that the hook may make with env are qsi_env_sim_cut and qsi_env_sim_steps.  NULL:
 * none. */
void qsi_env_sim_on_step(qs_env *env, void (*hook)(void *context, uint64_t step), void *context);

/* Start a sim from a memory environment (the disk after a cut; taken over, do not destroy, all
 * handles closed): for crashes during recovery. */
qs_env *qsi_env_sim_from_mem(qs_env *mem, uint64_t seed);

/* What a failed sync does: all that is pending for the file, the directory or the directory's entry
 * in its parent will never be durable, although calls still see it.  Nothing happens if env is no
 * sim. */
void qsi_env_sim_lose_file(qs_env *env, qs_file *file);
void qsi_env_sim_lose_dir(qs_env *env, qs_dir *dir);
void qsi_env_sim_lose_dir_entry(qs_env *env, qs_dir *dir);

#endif
