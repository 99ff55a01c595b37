/* Two staged files whose adoption is asked of the stream's owner. */
#ifndef INBOX_SCENE_H
#define INBOX_SCENE_H

#define STAGE "/stage"
#include "adoption_scene.h"

#define IN_TIME_NS UINT64_C(3600000000000)

static inline qs_status ask(qs_env *env, bool forgets, uint64_t timeout_ns,
                            qs_request **request_out)
{
    const qs_slice key = adoption_key();
    const qs_ask ask = {
        .paths = staged_paths,
        .path_count = 2,
        .key = key,
        .forget = &key,
        .forget_count = forgets ? 1 : 0,
        .flags = QS_MANDATORY,
        .timeout_ns = timeout_ns,
    };

    return qs_request_open(request_out, CRASH_PATH, &ask, env, QS_ERROR);
}

/* A store with its inbox, ten rows and two staged files. */
static inline void set_scene(struct scene *scene, qs_env *env)
{
    uint32_t answered;

    start_on(scene, env, ADOPTION_BUDGET);
    declare(scene);
    QS_CHECK_OK(publish_upto(scene, 0, BEFORE));
    QS_CHECK_OK(qs_store_take_in(scene->store, &answered, QS_ERROR));
    QS_CHECK(answered == 0);
    make_stage(&scene->env.env);
    QS_CHECK_OK(stage_file(&scene->env.env, 0));
    QS_CHECK_OK(stage_file(&scene->env.env, 1));
}

/* What was promised to who asks. */
enum asked {
    PERHAPS,    /* nothing yet */
    ASKED,      /* it will be adopted */
    TAKEN_BACK, /* it will never be */
    ADOPTED,
};

static inline const char *wrong_count(enum asked asked, uint64_t before, uint64_t after)
{
    if ((before != BEFORE && before != ADOPTED_END) || after < before ||
        (after != BEFORE && after != ADOPTED_END)) {
        return "rows";
    }
    if (asked == ASKED && after != ADOPTED_END) {
        return "what was asked is not done";
    }
    if (asked == TAKEN_BACK && after != BEFORE) {
        return "what was taken back is adopted";
    }
    return asked == ADOPTED && before != ADOPTED_END ? "what was adopted is not there" : NULL;
}

/* The next owner takes in what lies there, twice. */
static inline const char *wrong_with_owner(qs_store *store, enum asked asked, bool forgets)
{
    uint64_t before = count_rows(store), after;
    const char *wrong;
    uint32_t answered;
    bool is_known;

    QS_CHECK_OK(qs_store_take_in(store, &answered, QS_ERROR));
    after = count_rows(store);
    wrong = wrong_count(asked, before, after);
    QS_CHECK_OK(qs_store_take_in(store, &answered, QS_ERROR));
    if (wrong == NULL && (answered != 0 || count_rows(store) != after)) {
        wrong = "adopted twice";
    }
    QS_CHECK_OK(qs_store_transaction_known(store, adoption_key(), &is_known, QS_ERROR));
    if (wrong == NULL && !forgets && is_known != (after == ADOPTED_END)) {
        wrong = "key and rows";
    }
    return wrong;
}

struct asked_promise {
    enum asked asked;
    bool forgets; /* the key, and so it is not known afterwards */
};

static inline const char *wrong_after(qs_env *mem, const void *promised)
{
    const struct asked_promise *promise = promised;
    const char *wrong = "opening";
    qs_options options = crash_options();
    struct crash_env env;
    qs_store *store;

    crash_env_init(&env, mem, CRASH_NO_BUG);
    if (qs_store_open(&store, CRASH_PATH, &options, &env.env, QS_ERROR) == QS_OK) {
        wrong = wrong_with_owner(store, promise->asked, promise->forgets);
        env.is_dead = true;
        (void)qs_store_close(store, NULL);
    }
    return wrong;
}

#endif
