/* Asking a store's owner to adopt, its answer, and taking a request back, with the n-th environment
 * call failing, in every way, and with the n-th allocation, for n = 1, 2, ... until nothing fails
 * any more; a power cut behind each.
 *
 * What must hold each time: no crash and no leak; a call that succeeded is true, also after a power
 * cut; a request that could not be made leaves nothing. */
#include "fault_trial.h"
#include "inbox_scene.h"

enum subject { ASKING, ANSWERING, LOOKING, TAKING_BACK, SUBJECT_COUNT };
static const char *const subject_names[] = {"asking", "answering", "looking", "taking back"};

struct trial {
    struct fault_trial base;
    enum subject subject;
    struct scene scene;
    qs_request *request;
};

static enum asked ask_with_faults(struct trial *trial)
{
    qs_status status;

    fault_arm(&trial->base);
    status = ask(&trial->scene.env.env, false, IN_TIME_NS, &trial->request);
    fault_disarm(&trial->base);
    QS_CHECK(status == QS_OK || trial->base.has_fired);
    if (status == QS_OK) {
        return ASKED;
    }
    /* A disk that fails for good keeps the name of what could not be taken back. */
    return trial->base.fault != NULL && trial->base.fault->is_sticky ? PERHAPS : TAKEN_BACK;
}

static enum asked answer_with_faults(struct trial *trial)
{
    qs_adoption adoption;
    uint32_t answered;
    bool is_answered;
    qs_status status;

    fault_arm(&trial->base);
    status = qs_store_take_in(trial->scene.store, &answered, QS_ERROR);
    fault_disarm(&trial->base);
    QS_CHECK(status == QS_OK || trial->base.has_fired);
    status = qs_request_look(trial->request, &is_answered, &adoption, QS_ERROR);
    if (!is_answered) {
        QS_CHECK(status == QS_OK && trial->base.has_fired);
        status = qs_store_take_in(trial->scene.store, &answered, NULL);
        if (status != QS_OK) {
            return PERHAPS; /* the store failed */
        }
        status = qs_request_look(trial->request, &is_answered, &adoption, QS_ERROR);
        QS_CHECK(is_answered);
    }
    /* It knows what it committed, also when its answer could not be written at once. */
    QS_CHECK(status != QS_OK || adoption.committed);
    return status == QS_OK ? ADOPTED : TAKEN_BACK;
}

static enum asked look_with_faults(struct trial *trial)
{
    qs_adoption adoption;
    uint32_t answered;
    bool is_answered;
    qs_status status;

    QS_CHECK_OK(qs_store_take_in(trial->scene.store, &answered, QS_ERROR));
    fault_arm(&trial->base);
    status = qs_request_look(trial->request, &is_answered, &adoption, QS_ERROR);
    fault_disarm(&trial->base);
    QS_CHECK(is_answered == (status == QS_OK) && (is_answered || trial->base.has_fired));
    if (!is_answered) {
        QS_CHECK_OK(qs_request_look(trial->request, &is_answered, &adoption, QS_ERROR));
    }
    QS_CHECK(is_answered && adoption.committed);
    return ADOPTED;
}

static enum asked take_back_with_faults(struct trial *trial)
{
    qs_status status;

    fault_arm(&trial->base);
    status = qs_request_take_back(trial->request, QS_ERROR);
    fault_disarm(&trial->base);
    QS_CHECK(status == QS_OK || trial->base.has_fired);
    return status == QS_OK ? TAKEN_BACK : PERHAPS;
}

static enum asked run(struct trial *trial)
{
    trial->request = NULL;
    if (trial->subject == ASKING) {
        return ask_with_faults(trial);
    }
    QS_CHECK_OK(ask(&trial->scene.env.env, false, IN_TIME_NS, &trial->request));
    return trial->subject == ANSWERING ? answer_with_faults(trial)
           : trial->subject == LOOKING ? look_with_faults(trial)
                                       : take_back_with_faults(trial);
}

static void try_once(struct fault_trial *base)
{
    struct trial *trial = (struct trial *)base;
    struct asked_promise promise = {.forgets = false};

    fault_begin(base, qsi_env_sim_create(base->n + 1));
    set_scene(&trial->scene, trial->base.faulty);
    promise.asked = run(trial);
    fault_check_cuts(base, wrong_after, &promise);
    qs_request_close(trial->request);
    die(&trial->scene);
}

int main(void)
{
    struct crash_report report = {.told_max = 0};
    uint64_t faults = 0;

    qs_test_alloc_install(&fault_alloc);
    for (int subject = 0; subject < SUBJECT_COUNT; subject++) {
        struct trial trial = {.base = {.name = subject_names[subject], .step = 1, .n_least = 1},
                              .subject = (enum subject)subject};

        faults += fault_sweep(&trial.base, try_once);
    }
    fault_conclude(&report, faults);
    return 0;
}
