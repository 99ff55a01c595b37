/* Every public operation with its n-th environment call failing, in every way, and its n-th
 * allocation, for n = 1, 2, ... until nothing fails any more.
 *
 * What must hold each time: no crash and no leak; an error means that nothing happened, where the
 * call promises that; a success is true, also after a power cut right behind it; the store opens
 * again on a disk that is well, with the four sentences intact; an interrupted or short call is
 * none of the caller's business; and a disk that was full is as good as new once there is space.
 *
 * Arguments: seed, a part of the names of the operations to try. */
#include "fault_trial.h"
#include "sweep_disks.h"

#define STEP_BYTES (32u << 10) /* of space, from trial to trial */

/* ---- one case ---- */

struct trial {
    struct fault_trial base;
    const struct operation *operation;
    struct crash_model model;
    struct crash_env env;
    struct crash_work work;
};

static bool is_paged(const struct trial *trial)
{
    enum start start = trial->operation->start;

    return start == ON_CLOSED_PAGED_STORE || start == ON_CRASHED_PAGED_STORE ||
           start == ON_OPEN_PAGED_STORE;
}

static void begin(struct trial *trial)
{
    enum start start = trial->operation->start;
    const struct disk *disk = &disks[start == ON_OPEN_STORE         ? ON_CLOSED_STORE
                                     : start == ON_OPEN_PAGED_STORE ? ON_CRASHED_PAGED_STORE
                                                                    : start];
    qs_env *mem = qsi_env_mem_clone(disk->mem, 2);

    fault_begin(&trial->base, qsi_env_sim_from_mem(mem, 2));
    crash_env_init(&trial->env, trial->base.faulty, CRASH_NO_BUG);
    crash_model_copy(&trial->model, &disk->model);
    trial->work = (struct crash_work){
        .env = &trial->env, .model = &trial->model, .report = trial->base.report, .random = 11};
    if (is_paged(trial)) {
        trial->work.options = paged_options();
    }
    if (start == ON_OPEN_STORE || start == ON_OPEN_PAGED_STORE) {
        QS_CHECK(crash_open_store(&trial->work));
        crash_set_up(&trial->work); /* the transient queue */
    }
    if (trial->operation->prepare != NULL) {
        trial->operation->prepare(&trial->work);
    }
    QS_CHECK(!trial->work.is_over);
}

/* An error means that nothing happened: the model forgets that it was tried. */
static void undo(struct crash_model *model)
{
    for (int i = 0; i < CRASH_QUEUES; i++) {
        struct crash_queue *queue = &model->queues[i];

        uint32_t kept = 0;

        for (uint32_t k = 0; k < queue->count; k++) {
            struct crash_copy copy = queue->copies[k];

            copy.settle_lsn = copy.settle_lsn == CRASH_UNDER_WAY ? 0 : copy.settle_lsn;
            if (copy.publish_lsn != CRASH_UNDER_WAY) {
                queue->copies[kept++] = copy;
            }
        }
        queue->count = kept;
    }
}

/* What comes after the faults ends the same way each time; the kind of end takes turns. */
static void finish(struct trial *trial)
{
    struct crash_work *work = &trial->work;

    if (work->store == NULL) {
        crash_close_channels(work);
    } else if (trial->base.n % 2 == 0) {
        work->is_over = work->is_over || trial->base.has_fired; /* it may close in failure */
        crash_close_store(work);
    } else {
        work->is_over = trial->env.is_dead = true;
        crash_close_store(work);
    }
}

static void check_cut(struct trial *trial, enum qsi_cut_how how, const char *name)
{
    qs_env *mem = qsi_env_sim_cut(trial->base.sim, how, trial->base.n);

    trial->base.report->cut = name;
    if (is_paged(trial)) { /* by turns with as little memory, and with enough */
        crash_check_disk_as(&trial->model, trial->base.report, mem,
                            trial->base.n % 2 == 0 ? paged_options() : crash_options(),
                            trial->base.n % 3 == 0 ? trial->base.n << 8 | 1 : 0);
    } else {
        crash_check_disk(&trial->model, trial->base.report, mem);
    }
}

static void try_once(struct fault_trial *base)
{
    struct trial *trial = (struct trial *)base;

    begin(trial);
    trial->work.has_faults = true;
    fault_arm(base);
    trial->operation->run(&trial->work);
    fault_disarm(base);
    if (trial->work.is_over) {
        fault_check_error(base);
    }
    if (trial->work.is_over && trial->operation->promise == NOTHING_HAPPENED) {
        undo(&trial->model);
    }
    check_cut(trial, QSI_CUT_DROP_ALL, "all dropped behind the fault");
    check_cut(trial, QSI_CUT_RANDOM, "random behind the fault");
    finish(trial);
    check_cut(trial, QSI_CUT_KEEP_ALL, "reopened");
    check_cut(trial, QSI_CUT_RANDOM, "random after the end");
    crash_model_fini(&trial->model);
}

/* ---- a full disk ---- */

/* No space for another file is QS_ESTORE_FULL, and nobody has to open the store again for it. */
static void test_store_accepts_again_when_space_returns(struct crash_report *report)
{
    static const struct operation operation = {"publish until full", ON_OPEN_STORE,
                                               NOTHING_HAPPENED, NULL, publish_until_files_roll};
    struct trial trial = {.base = {.report = report}, .operation = &operation};
    uint64_t full_count = 0;

    for (trial.base.n = 1;; trial.base.n++) {
        bool was_full;

        begin(&trial);
        trial.work.has_faults = true;
        qsi_env_ram_limit(trial.base.sim,
                          qsi_env_ram_used(trial.base.sim) + trial.base.n * STEP_BYTES);
        publish_until_files_roll(&trial.work);
        was_full = trial.work.is_over;
        qsi_env_ram_limit(trial.base.sim, 0);
        if (was_full) {
            QS_CHECK(qs_test_error.status == QS_ESTORE_FULL);
            undo(&trial.model);
            full_count++;
            trial.work.is_over = trial.work.has_faults = false;
            publish_until_files_roll(&trial.work);
            QS_CHECK(!trial.work.is_over);
        }
        check_cut(&trial, QSI_CUT_DROP_ALL, "space returned");
        crash_close_store(&trial.work);
        check_cut(&trial, QSI_CUT_DROP_ALL, "space returned, closed");
        crash_model_fini(&trial.model);
        fault_end(&trial.base);
        if (!was_full) {
            break;
        }
    }
    printf("full disk: %" PRIu64 " times, accepts again\n", full_count);
    QS_CHECK(full_count > 0);
}

int main(int argc, char **argv)
{
    struct crash_report report = {.told_max = 60};
    uint64_t faults = 0;

    (void)qs_test_seed(argc, argv);
    qs_test_alloc_install(&fault_alloc);
    make_disk(&disks[ON_NOTHING], false, false, false);
    make_disk(&disks[ON_CLOSED_STORE], true, true, false);
    make_disk(&disks[ON_CRASHED_STORE], true, false, false);
    make_disk(&disks[ON_CLOSED_PAGED_STORE], true, true, true);
    make_disk(&disks[ON_CRASHED_PAGED_STORE], true, false, true);
    for (size_t i = 0; i < OPERATION_COUNT; i++) {
        struct trial trial = {
            .base = {.name = operations[i].name, .step = FAULT_QUICK_STEP, .report = &report},
            .operation = &operations[i]};

        faults +=
            fault_wanted(argc, argv, operations[i].name) ? fault_sweep(&trial.base, try_once) : 0;
    }
    test_store_accepts_again_when_space_returns(&report);
    for (int i = 0; i < ON_OPEN_STORE; i++) {
        qsi_env_mem_destroy(disks[i].mem);
        crash_model_fini(&disks[i].model);
    }
    fault_conclude(&report, faults);
    return 0;
}
