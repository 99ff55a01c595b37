/* Staging files and adopting them with the n-th environment call failing, in every way, and with
 * the n-th allocation, for n = 1, 2, ... until nothing fails any more; a power cut behind each.
 *
 * What must hold each time: no crash and no leak; an error means that nothing happened, or that the
 * store has failed and its key tells; a success is true, also after a power cut. */
#include "adoption_scene.h"
#include "crash_faults.h"
#include "qs_test_alloc.h"

#define N_MAX 2000

enum subject { STAGING, ADOPTING, ADOPTING_INTO_QUEUE, SUBJECT_COUNT };
static const char *const subject_names[] = {"staging", "adopting", "adopting into a queue"};

struct trial {
    enum subject subject;
    const struct crash_fault *fault; /* NULL: the n-th allocation fails */
    uint64_t n;
    struct qs_test_alloc *alloc;
    struct scene scene;
    qs_env *sim, *faulty;
    bool has_fired;
};

/* ---- the part that faults may hit ---- */

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

static qs_status run(struct trial *trial)
{
    qs_adoption adoption = {.committed = false};
    qs_status status;

    qs_test_error = (qs_error){0};
    arm(trial, true);
    if (trial->subject == STAGING) {
        status = stage_file(&trial->scene.env.env, 1);
    } else {
        status = adopt_files(trial->scene.store, &adoption);
    }
    arm(trial, false);
    QS_CHECK(status != QS_OK || trial->subject == STAGING || adoption.committed);
    QS_CHECK(status == QS_OK || trial->has_fired);
    QS_CHECK(status == QS_OK || qs_test_error.text[0] != '\0');
    return status;
}

/* ---- before and behind it ---- */

/* So that the rows do not lead to the stream alone. */
static void bind_queue(struct scene *scene)
{
    const char *const queues[] = {"s", "q"};
    qs_declare_ok ok;

    staged_exchange = "e";
    QS_CHECK_OK(qs_channel_exchange_declare(scene->channel, crash_text("e"), crash_text("fanout"),
                                            QS_DURABLE, crash_text(""), QS_ERROR));
    QS_CHECK_OK(qs_channel_queue_declare(scene->channel, crash_text("q"), QS_DURABLE,
                                         crash_text(""), &ok, QS_ERROR));
    for (int i = 0; i < 2; i++) {
        QS_CHECK_OK(qs_channel_change_binding(scene->channel, crash_text(queues[i]),
                                              crash_text("e"), crash_text(""), crash_text(""), 0,
                                              QS_ERROR));
    }
}

static void begin(struct trial *trial)
{
    qs_env *sim = qsi_env_sim_create(trial->n + 1);

    QS_CHECK(sim != NULL);
    trial->sim = sim;
    trial->faulty = qsi_env_fault_create(sim);
    QS_CHECK(trial->faulty != NULL);
    start_on(&trial->scene, trial->faulty, ADOPTION_BUDGET);
    declare(&trial->scene);
    if (trial->subject == ADOPTING_INTO_QUEUE) {
        bind_queue(&trial->scene);
    }
    QS_CHECK_OK(publish_upto(&trial->scene, 0, BEFORE));
    make_stage(&trial->scene.env.env);
    QS_CHECK_OK(stage_file(&trial->scene.env.env, 0));
    if (trial->subject != STAGING) {
        QS_CHECK_OK(stage_file(&trial->scene.env.env, 1));
    }
}

static void check_cut(struct trial *trial, enum qsi_cut_how how, const struct promise *promise)
{
    qs_env *mem = qsi_env_sim_cut(trial->sim, how, trial->n);
    const char *wrong;

    QS_CHECK(mem != NULL);
    wrong = wrong_on(mem, promise);
    if (wrong != NULL) {
        printf("%s, %s %llu, cut %d: %s: %s\n", subject_names[trial->subject],
               trial->fault != NULL ? trial->fault->name : "allocation",
               (unsigned long long)trial->n, (int)how, wrong, qs_test_error.text);
    }
    QS_CHECK(wrong == NULL);
    qsi_env_mem_destroy(mem);
}

/* What was refused is not there, and can be done now, unless the store has failed. */
static void check_here(struct trial *trial, qs_status status)
{
    qs_store *store = trial->scene.store;
    qs_adoption adoption;

    if (qs_store_sync(store, NULL) != QS_OK) {
        return; /* it has failed: what is on the disk counts */
    }
    if (status != QS_OK) {
        QS_CHECK(count_rows(store) == BEFORE);
        if (trial->subject == STAGING) { /* a disk that is gone keeps the name of what failed */
            qs_status staged = stage_file(&trial->scene.env.env, 1);
            QS_CHECK(staged == QS_OK || staged == QS_EEXIST);
        }
    }
    if (status != QS_OK || trial->subject == STAGING) {
        QS_CHECK_OK(adopt_files(store, &adoption));
        QS_CHECK(adoption.committed);
    }
    QS_CHECK(count_rows(store) == ADOPTED_END);
}

static bool try_once(struct trial *trial)
{
    struct promise promise = {.rows = BEFORE};
    qs_status status;

    begin(trial);
    status = run(trial);
    promise.is_staged = trial->subject != STAGING || status == QS_OK;
    promise.rows = trial->subject != STAGING && status == QS_OK ? ADOPTED_END : BEFORE;
    check_cut(trial, QSI_CUT_KEEP_ALL, &promise);
    check_cut(trial, QSI_CUT_DROP_ALL, &promise);
    check_cut(trial, QSI_CUT_RANDOM, &promise);
    check_here(trial, status);
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
    QS_CHECK(trial.n > 5 && trial.n < N_MAX);
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
