/* An environment around another one that behaves like a broken engine, or like a process that died.
 *
 * The bugs are planted here and nowhere in the engine: what an engine would do wrong (not sync a
 * directory, confirm before the sync, use one salt for ever, try a failed sync again) looks exactly
 * like this from the disk's side.
 *
 * Threads: one only. */
#ifndef CRASH_ENV_H
#define CRASH_ENV_H

#include "qstore/env.h"

#include "splitmix.h"

#include <stdbool.h>
#include <string.h>

enum crash_bug {
    CRASH_NO_BUG,
    CRASH_NO_DIR_SYNC,     /* names are never synced */
    CRASH_NO_FILE_SYNC,    /* what is confirmed was not synced */
    CRASH_CONSTANT_RANDOM, /* every salt is the same */
    CRASH_RETRIED_SYNC,    /* a sync that failed is repeated, and the repetition believed */
    /* a checkpoint counts, and the journal goes, before its segments are durable */
    CRASH_NO_SEGMENT_SYNC,
    CRASH_NO_INDEX_DIR_SYNC,      /* likewise, their names */
    CRASH_NO_CHECKPOINT_SYNC,     /* MANIFEST names a checkpoint that is not durable */
    CRASH_NO_CHECKPOINT_DIR_SYNC, /* likewise, its name */
    CRASH_NO_STREAM_SYNC,         /* a checkpoint counts before its streams' files are durable */
    CRASH_NO_STREAM_DIR_SYNC,     /* likewise, their names */
    CRASH_STREAM_SYNC_SWALLOWED,  /* a sync of a stream's file that failed is taken for done */
    CRASH_NO_MESSAGE_SYNC, /* compaction: the new generation is not durable when the old one goes */
    /* By crash_plant, in the engine's memory: */
    CRASH_EARLY_REMOVAL,         /* what a checkpoint names is removed before the next one counts */
    CRASH_EARLY_MESSAGE_REMOVAL, /* the same of message files and their old generations */
    CRASH_COUNTED_TWICE,         /* recovery counts the references of the journal twice */
    CRASH_DROPPED_TWICE,         /* or drops them twice */
    CRASH_AREA_OVERWRITTEN,      /* a state area that a checkpoint names is written to */
    CRASH_SHARED_PAGE,           /* bodies that a checkpoint names share a page with later ones */
    /* a dead letter and the end of its message are no group (crash_removals.h) */
    CRASH_GROUP_DIVIDED,
};

enum crash_thing {
    CRASH_OTHER,
    CRASH_SEGMENT,
    CRASH_INDEX_DIR,
    CRASH_CHECKPOINT,
    CRASH_CHECKPOINT_DIR,
    CRASH_MESSAGE_FILE,
    CRASH_STREAM_FILE,
    CRASH_STREAM_DIR,
};

#define CRASH_HANDLES_MAX 512

struct crash_env {
    qs_env env;
    qs_env *inner;
    enum crash_bug bug;
    uint32_t unread_percent; /* of segments' files that are opened to be written cannot be read */
    uint64_t unread_random;
    uint64_t wall_shift_us; /* added to the wall clock; it may go back */
    bool is_dead;           /* the process is gone: nothing it still does reaches the disk */
    uint64_t syncs_begun;   /* of files */
    struct {
        const void *handle;
        enum crash_thing thing;
    } handles[CRASH_HANDLES_MAX]; /* while open, of those that are not CRASH_OTHER */
};

/* inner stays the caller's, and may be replaced while no store is open. */
void crash_env_init(struct crash_env *crash, qs_env *inner, enum crash_bug bug);

#endif
