/* A story on a disk whose power is cut before every step: each cut is held to the promise of that
 * moment. */
#ifndef CUT_STORY_H
#define CUT_STORY_H

#include "crash_run.h"

#define STORY_RANDOM_CUTS 2 /* of each step */
#define STORY_TOLD_MAX 3

struct story {
    qs_env *sim;
    uint64_t seed, states, wrong;
    const char *(*wrong_on)(qs_env *disk, const void *promise);
    const void *promise;
};

static inline void story_cut(struct story *story, enum qsi_cut_how how)
{
    qs_env *disk = qsi_env_sim_cut(story->sim, how, story->seed++);
    const char *wrong;

    story->states++;
    wrong = story->wrong_on(disk, story->promise);
    if (wrong != NULL && story->wrong++ < STORY_TOLD_MAX) {
        printf("  step %" PRIu64 ", cut %d: %s: %s\n", qsi_env_sim_steps(story->sim), (int)how,
               wrong, qs_test_error.text);
    }
    qsi_env_mem_destroy(disk);
}

static inline void story_cut_now(struct story *story)
{
    story_cut(story, QSI_CUT_KEEP_ALL);
    story_cut(story, QSI_CUT_DROP_ALL);
    for (int i = 0; i < STORY_RANDOM_CUTS; i++) {
        story_cut(story, QSI_CUT_RANDOM);
    }
}

static inline void story_on_step(void *context, uint64_t step)
{
    (void)step;
    story_cut_now(context);
}

static inline void story_begin(struct story *story, uint64_t seed,
                               const char *(*wrong_on)(qs_env *disk, const void *promise),
                               const void *promise)
{
    *story = (struct story){qsi_env_sim_create(seed), seed, 0, 0, wrong_on, promise};
}

#endif
