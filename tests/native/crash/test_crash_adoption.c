/* A power cut at every step of staging files and of adopting them: the key and all rows are there,
 * or neither, what was promised is, and files that were staged can be adopted.  Planted bugs show
 * that this would be seen.
 *
 * Arguments: seed. */
#include "adoption_scene.h"
#include "cut_story.h"

static struct story story;
static struct promise promised;

static void promise(uint64_t rows, bool is_staged)
{
    promised = (struct promise){.rows = rows, .is_staged = is_staged};
    story_cut_now(&story);
}

static void adopt_and_go_on(struct scene *scene)
{
    qs_adoption adoption;

    QS_CHECK_OK(adopt_files(scene->store, &adoption));
    QS_CHECK(adoption.committed && adoption.rows == 2 * IN_FILE && adoption.linked == 2);
    promise(ADOPTED_END, false);
    remove_staged(&scene->env.env);
    QS_CHECK_OK(publish_upto(scene, ADOPTED_END, ROWS));
    promise(ROWS, false);
    QS_CHECK_OK(qs_store_checkpoint(scene->store, QS_ERROR));
}

/* flushes: what was published before is in the stream's file when the rows come. */
static void tell_story(enum crash_bug bug, uint64_t seed, bool flushes)
{
    struct scene scene;

    promised = (struct promise){.rows = 0};
    story_begin(&story, seed, wrong_on, &promised);
    start_on(&scene, story.sim, ADOPTION_BUDGET);
    declare(&scene);
    QS_CHECK_OK(qs_store_sync(scene.store, QS_ERROR));
    die(&scene);
    scene.env.bug = bug;
    open_store(&scene);
    QS_CHECK_OK(publish_upto(&scene, 0, BEFORE));
    if (flushes) {
        QS_CHECK_OK(qs_store_checkpoint(scene.store, QS_ERROR));
    }
    make_stage(&scene.env.env);
    qsi_env_sim_on_step(story.sim, story_on_step, &story);
    promise(BEFORE, false);
    QS_CHECK_OK(stage_file(&scene.env.env, 0));
    QS_CHECK_OK(stage_file(&scene.env.env, 1));
    promise(BEFORE, true);
    adopt_and_go_on(&scene);
    die(&scene);
    open_store(&scene);
    QS_CHECK(count_rows(scene.store) == ROWS);
    qs_channel_close(scene.channel);
    QS_CHECK_OK(qs_store_close(scene.store, QS_ERROR));
    promise(ROWS, false);
    qsi_env_sim_on_step(story.sim, NULL, NULL);
    qsi_env_sim_destroy(story.sim);
}

static void catch_bug(enum crash_bug bug, const char *name, uint64_t seed)
{
    uint64_t states = 0, wrong = 0;

    for (uint64_t i = 0; i < 20 && wrong == 0; i++) {
        tell_story(bug, seed + 1000 * i, false);
        states += story.states;
        wrong += story.wrong;
    }
    printf("%s: %s after %llu states\n", name, wrong > 0 ? "caught" : "NOT CAUGHT",
           (unsigned long long)states);
    QS_CHECK(wrong > 0);
}

int main(int argc, char **argv)
{
    uint64_t seed = qs_test_seed(argc, argv);

    for (uint64_t i = 0; i < 4; i++) {
        tell_story(CRASH_NO_BUG, seed + i, i % 2 == 0);
        printf("%llu states\n", (unsigned long long)story.states);
        QS_CHECK(story.wrong == 0 && story.states > 100);
    }
    catch_bug(CRASH_NO_DIR_SYNC, "names are never synced", seed);
    catch_bug(CRASH_NO_STREAM_DIR_SYNC, "names of streams are not", seed);
    catch_bug(CRASH_NO_FILE_SYNC, "files are not", seed);
    return 0;
}
