/* Asking a store's owner to adopt, its answer, and taking a request back, with the n-th environment
 * call failing, in every way, and with the n-th allocation, for n = 1, 2, ... until nothing fails
 * any more; a power cut behind each.
 *
 * What must hold each time: no crash and no leak; a call that succeeded is true, also after a power
 * cut; a request that could not be made leaves nothing. */
#include "crash_faults.h"
#include "inbox_scene.h"
#include "qs_test_alloc.h"

#define N_MAX 2000

enum subject { ASKING, ANSWERING, LOOKING, TAKING_BACK, SUBJECT_COUNT };
static const char *const subject_names[] = {"asking", "answering", "looking", "taking back"};

struct trial {
    enum subject subject;
    const struct crash_fault *fault; /* NULL: the n-th allocation fails */
    uint64_t n;
    struct qs_test_alloc *alloc;
    struct scene scene;
    qs_request *request;
    qs_env *sim, *faulty;
    bool has_fired;
};

static void arm(struct trial *trial, bool is_armed)
{
    if (!is_armed) {
        trial->has_fired =
            trial->fault != NULL ? qsi_env_fault_fired(trial->faulty) : trial->alloc->has_failed;
        qsi_env_fault_arm(trial->faulty, QSI_FAULT_ANY, QSI_FAULT_EIO, 0, false);
        qs_test_alloc_arm(trial->alloc, 0, false);
    } else if (trial->fault != NULL) {
        qsi_env_fault_arm(trial->faulty, QSI_FAULT_ANY, trial->fault->how, trial->n,
                          trial->fault->is_sticky);
    } else {
        qs_test_alloc_arm(trial->alloc, trial->n, false);
    }
}

static enum asked ask_with_faults(struct trial *trial)
{
    qs_status status;

    arm(trial, true);
    status = ask(&trial->scene.env.env, false, IN_TIME_NS, &trial->request);
    arm(trial, false);
    QS_CHECK(status == QS_OK || trial->has_fired);
    if (status == QS_OK) {
        return ASKED;
    }
    /* A disk that fails for good keeps the name of what could not be taken back. */
    return trial->fault != NULL && trial->fault->is_sticky ? PERHAPS : TAKEN_BACK;
}

static enum asked answer_with_faults(struct trial *trial)
{
    qs_adoption adoption;
    uint32_t answered;
    bool is_answered;
    qs_status status;

    arm(trial, true);
    status = qs_store_take_in(trial->scene.store, &answered, QS_ERROR);
    arm(trial, false);
    QS_CHECK(status == QS_OK || trial->has_fired);
    status = qs_request_look(trial->request, &is_answered, &adoption, QS_ERROR);
    if (!is_answered) {
        QS_CHECK(status == QS_OK && trial->has_fired);
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
    arm(trial, true);
    status = qs_request_look(trial->request, &is_answered, &adoption, QS_ERROR);
    arm(trial, false);
    QS_CHECK(is_answered == (status == QS_OK) && (is_answered || trial->has_fired));
    if (!is_answered) {
        QS_CHECK_OK(qs_request_look(trial->request, &is_answered, &adoption, QS_ERROR));
    }
    QS_CHECK(is_answered && adoption.committed);
    return ADOPTED;
}

static enum asked take_back_with_faults(struct trial *trial)
{
    qs_status status;

    arm(trial, true);
    status = qs_request_take_back(trial->request, QS_ERROR);
    arm(trial, false);
    QS_CHECK(status == QS_OK || trial->has_fired);
    return status == QS_OK ? TAKEN_BACK : PERHAPS;
}

static enum asked run(struct trial *trial)
{
    qs_test_error = (qs_error){0};
    trial->request = NULL;
    if (trial->subject == ASKING) {
        return ask_with_faults(trial);
    }
    QS_CHECK_OK(ask(&trial->scene.env.env, false, IN_TIME_NS, &trial->request));
    return trial->subject == ANSWERING ? answer_with_faults(trial)
           : trial->subject == LOOKING ? look_with_faults(trial)
                                       : take_back_with_faults(trial);
}

static void check_cut(struct trial *trial, enum qsi_cut_how how, enum asked asked)
{
    qs_env *mem = qsi_env_sim_cut(trial->sim, how, trial->n);
    const char *wrong;

    QS_CHECK(mem != NULL);
    wrong = wrong_after(mem, asked, false);
    if (wrong != NULL) {
        printf("%s, %s %llu, cut %d: %s: %s\n", subject_names[trial->subject],
               trial->fault != NULL ? trial->fault->name : "allocation",
               (unsigned long long)trial->n, (int)how, wrong, qs_test_error.text);
    }
    QS_CHECK(wrong == NULL);
    qsi_env_mem_destroy(mem);
}

static bool try_once(struct trial *trial)
{
    enum asked asked;

    trial->sim = qsi_env_sim_create(trial->n + 1);
    QS_CHECK(trial->sim != NULL);
    trial->faulty = qsi_env_fault_create(trial->sim);
    QS_CHECK(trial->faulty != NULL);
    set_scene(&trial->scene, trial->faulty);
    asked = run(trial);
    check_cut(trial, QSI_CUT_KEEP_ALL, asked);
    check_cut(trial, QSI_CUT_DROP_ALL, asked);
    check_cut(trial, QSI_CUT_RANDOM, asked);
    qs_request_close(trial->request);
    die(&trial->scene);
    qsi_env_fault_destroy(trial->faulty);
    qsi_env_sim_destroy(trial->sim);
    return trial->has_fired;
}

static void sweep(enum subject subject, const struct crash_fault *fault,
                  struct qs_test_alloc *alloc)
{
    struct trial trial = {.subject = subject, .fault = fault, .alloc = alloc};
    uint64_t alive = alloc->alive;
    bool goes_on = true;

    while (goes_on && trial.n < N_MAX) {
        trial.n++;
        goes_on = try_once(&trial);
        QS_CHECK(alloc->alive == alive);
    }
    printf("%s, %s: %llu calls\n", subject_names[subject],
           fault != NULL ? fault->name : "allocation", (unsigned long long)trial.n - 1);
    QS_CHECK(trial.n < N_MAX);
}

int main(void)
{
    static struct qs_test_alloc alloc;

    qs_test_alloc_install(&alloc);
    for (int subject = 0; subject < SUBJECT_COUNT; subject++) {
        for (size_t i = 0; i < CRASH_FAULT_COUNT; i++) {
            sweep((enum subject)subject, &crash_faults[i], &alloc);
        }
        sweep((enum subject)subject, NULL, &alloc);
    }
    return 0;
}
