/* Staging files and adopting them with the n-th environment call failing, in every way, and with
 * the n-th allocation, for n = 1, 2, ... until nothing fails any more; a power cut behind each.
 *
 * What must hold each time: no crash and no leak; an error means that nothing happened, or that the
 * store has failed and its key tells; a success is true, also after a power cut. */
#include "adoption_scene.h"
#include "fault_trial.h"
#include "qs_test_calls.h"

enum subject { STAGING, ADOPTING, ADOPTING_INTO_QUEUE, SUBJECT_COUNT };
static const char *const subject_names[] = {"staging", "adopting", "adopting into a queue"};

struct trial {
    struct fault_trial base;
    enum subject subject;
    struct scene scene;
};

/* ---- the part that faults may hit ---- */

static qs_status run(struct trial *trial)
{
    qs_adoption adoption = {.committed = false};
    qs_status status;

    fault_arm(&trial->base);
    if (trial->subject == STAGING) {
        status = stage_file(&trial->scene.env.env, 1);
    } else {
        status = adopt_files(trial->scene.store, &adoption);
    }
    fault_disarm(&trial->base);
    QS_CHECK(status != QS_OK || trial->subject == STAGING || adoption.committed);
    QS_CHECK(status == QS_OK || trial->base.has_fired);
    QS_CHECK(status == QS_OK || qs_test_error.text[0] != '\0');
    return status;
}

/* ---- before and behind it ---- */

/* So that the rows do not lead to the stream alone. */
static void bind_queue(struct scene *scene)
{
    const char *const queues[] = {"s", "q"};

    staged_exchange = "e";
    QS_CHECK_OK(qs_test_declare_exchange(scene->channel, "e", "fanout", QS_DURABLE));
    qs_test_declare(scene->channel, "q", QS_DURABLE, NULL);
    for (int i = 0; i < 2; i++) {
        QS_CHECK_OK(qs_test_bind(scene->channel, queues[i], "e", "", 0));
    }
}

static void begin(struct trial *trial)
{
    fault_begin(&trial->base, qsi_env_sim_create(trial->base.n + 1));
    start_on(&trial->scene, trial->base.faulty, ADOPTION_BUDGET);
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

static void try_once(struct fault_trial *base)
{
    struct trial *trial = (struct trial *)base;
    struct promise promise = {.rows = BEFORE};
    qs_status status;

    begin(trial);
    status = run(trial);
    promise.is_staged = trial->subject != STAGING || status == QS_OK;
    promise.rows = trial->subject != STAGING && status == QS_OK ? ADOPTED_END : BEFORE;
    fault_check_cuts(base, wrong_on, &promise);
    check_here(trial, status);
    die(&trial->scene);
}

int main(void)
{
    struct crash_report report = {.told_max = 0};
    uint64_t faults = 0;

    qs_test_alloc_install(&fault_alloc);
    for (int subject = 0; subject < SUBJECT_COUNT; subject++) {
        struct trial trial = {.base = {.name = subject_names[subject], .step = 1, .n_least = 5},
                              .subject = (enum subject)subject};

        faults += fault_sweep(&trial.base, try_once);
    }
    fault_conclude(&report, faults);
    return 0;
}
