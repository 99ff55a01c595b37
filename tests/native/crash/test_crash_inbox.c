/* A power cut at every step of asking a store's owner to adopt, of its adoption and its answer, and
 * of taking a request back: what was asked is done, once; what was taken back never is.  Planted
 * bugs show that this would be seen.
 *
 * Arguments: seed. */
#include "cut_story.h"
#include "inbox_scene.h"

static struct story story;
static struct asked_promise promised;

static void begin(struct scene *scene, uint64_t seed, bool forgets)
{
    promised = (struct asked_promise){.forgets = forgets};
    story_begin(&story, seed, wrong_after, &promised);
    set_scene(scene, story.sim);
}

static void promise(enum asked asked)
{
    promised.asked = asked;
    story_cut_now(&story);
}

static void let_owner_answer(struct scene *scene, qs_request *request)
{
    qs_adoption adoption;
    uint32_t answered;
    bool is_answered;

    QS_CHECK_OK(qs_request_look(request, &is_answered, &adoption, QS_ERROR));
    QS_CHECK(!is_answered);
    QS_CHECK_OK(qs_store_take_in(scene->store, &answered, QS_ERROR));
    QS_CHECK(answered == 1);
    QS_CHECK(qs_request_take_back(request, QS_ERROR) == QS_EWOULDBLOCK);
    QS_CHECK_OK(qs_request_look(request, &is_answered, &adoption, QS_ERROR));
    QS_CHECK(is_answered && adoption.committed && adoption.rows == 2 * IN_FILE &&
             adoption.linked == 2);
    promise(ADOPTED);
    remove_staged(&scene->env.env);
    promise(ADOPTED);
}

/* Read before the owner has synced its name, as another process may. */
static void let_owner_refuse(struct scene *scene, qs_request *request)
{
    qs_adoption adoption;
    uint32_t answered;
    bool is_answered;

    remove_staged(&scene->env.env);
    promised.asked = PERHAPS;
    scene->env.bug = CRASH_NO_DIR_SYNC;
    QS_CHECK_OK(qs_store_take_in(scene->store, &answered, QS_ERROR));
    scene->env.bug = CRASH_NO_BUG;
    QS_CHECK(qs_request_look(request, &is_answered, &adoption, QS_ERROR) == QS_ENOENT);
    QS_CHECK(answered == 1 && is_answered);
    QS_CHECK_OK(stage_file(&scene->env.env, 0));
    QS_CHECK_OK(stage_file(&scene->env.env, 1));
    promise(TAKEN_BACK);
}

static void test_a_refusal_that_was_read_stays_one_after_a_power_cut(uint64_t seed)
{
    qs_request *request;
    struct scene scene;

    begin(&scene, seed, false);
    QS_CHECK_OK(ask(&scene.env.env, false, IN_TIME_NS, &request));
    let_owner_refuse(&scene, request);
    QS_CHECK(story.wrong == 0);
    qs_request_close(request);
    die(&scene);
    qsi_env_sim_destroy(story.sim);
}

/* As of an owner that died behind the adoption; the next one's answer is read before it has synced
 * the name. */
static void let_owner_answer_late(struct scene *scene, qs_request *request)
{
    qs_adoption adoption;
    uint64_t forgotten;
    uint32_t answered;
    bool is_answered;

    QS_CHECK_OK(adopt_files(scene->store, &adoption));
    promised.asked = ADOPTED;
    scene->env.bug = CRASH_NO_DIR_SYNC;
    QS_CHECK_OK(qs_store_take_in(scene->store, &answered, QS_ERROR));
    scene->env.bug = CRASH_NO_BUG;
    QS_CHECK_OK(qs_request_look(request, &is_answered, &adoption, QS_ERROR));
    QS_CHECK(answered == 1 && is_answered && !adoption.committed);
    QS_CHECK_OK(qs_store_forget_transaction(scene->store, adoption_key(), &forgotten, QS_ERROR));
    promise(ADOPTED);
}

static void
test_a_key_forgotten_after_its_answer_does_not_adopt_again_after_a_power_cut(uint64_t seed)
{
    qs_request *request;
    struct scene scene;

    begin(&scene, seed, true);
    QS_CHECK_OK(ask(&scene.env.env, false, IN_TIME_NS, &request));
    let_owner_answer_late(&scene, request);
    QS_CHECK(story.wrong == 0);
    qs_request_close(request);
    die(&scene);
    qsi_env_sim_destroy(story.sim);
}

static void let_it_be(struct scene *scene, qs_request *request, enum crash_bug bug)
{
    uint32_t answered;

    promised.asked = PERHAPS;
    scene->env.bug = bug;
    QS_CHECK_OK(qs_request_take_back(request, QS_ERROR));
    promise(TAKEN_BACK);
    QS_CHECK_OK(qs_store_take_in(scene->store, &answered, QS_ERROR));
    QS_CHECK(answered == 0);
}

static void tell_story(enum crash_bug bug, uint64_t seed, bool takes_back, bool forgets)
{
    qs_request *request;
    struct scene scene;

    begin(&scene, seed, forgets);
    scene.env.bug = takes_back ? CRASH_NO_BUG : bug;
    qsi_env_sim_on_step(story.sim, story_on_step, &story);
    QS_CHECK_OK(ask(&scene.env.env, forgets, IN_TIME_NS, &request));
    promise(ASKED);
    if (takes_back) {
        let_it_be(&scene, request, bug);
    } else {
        let_owner_answer(&scene, request);
    }
    qs_request_close(request);
    qs_channel_close(scene.channel);
    QS_CHECK_OK(qs_store_close(scene.store, QS_ERROR));
    promise(promised.asked);
    qsi_env_sim_on_step(story.sim, NULL, NULL);
    qsi_env_sim_destroy(story.sim);
}

static void catch_bug(enum crash_bug bug, const char *name, uint64_t seed, bool takes_back)
{
    uint64_t states = 0, wrong = 0;

    for (uint64_t i = 0; i < 20 && wrong == 0; i++) {
        tell_story(bug, seed + 1000 * i, takes_back, false);
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

    for (uint64_t i = 0; i < 8; i++) {
        tell_story(CRASH_NO_BUG, seed + i, i % 2 == 0, i / 2 % 2 == 0);
        printf("%llu states\n", (unsigned long long)story.states);
        QS_CHECK(story.wrong == 0 && story.states > 30);
        test_a_refusal_that_was_read_stays_one_after_a_power_cut(seed + i);
        test_a_key_forgotten_after_its_answer_does_not_adopt_again_after_a_power_cut(seed + i);
    }
    catch_bug(CRASH_NO_DIR_SYNC, "names are never synced", seed, false);
    catch_bug(CRASH_NO_DIR_SYNC, "nor is a removal", seed, true);
    catch_bug(CRASH_NO_FILE_SYNC, "files are not", seed, false);
    return 0;
}
