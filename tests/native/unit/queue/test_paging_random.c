/* A queue that pages, and a plain list of messages: both are given the same random steps, and
 * compared after each.
 *
 * Jobs are begun, run and ended in different steps, with anything between; checkpoints are taken
 * as the engine does, and some time later the process dies and the queue begins again with what
 * the checkpoint named.  The seed is printed and is the first argument; the second is how many
 * rounds there are. */
#include "paging_lives.h"

static struct qs_test_alloc memory;

static void paging_step(struct run *run)
{
    uint32_t choice = below(run, 100);

    if (choice < 25) {
        advance_flush(run);
    } else if (choice < 50) {
        advance_load(run);
    } else if (choice < 65) {
        advance_write(run);
    } else if (choice < 75) {
        qsi_queue_drop_content(&run->fixture.queue.container, below(run, 200),
                               1 + below(run, 20000));
    } else if (choice < 85) {
        qsi_queue_drop_states(&run->fixture.queue.container);
    } else if (choice < 90) {
        drive(run);
    } else if (choice < 92) {
        step_rewrite(run);
    } else if (choice < 94 && run->model.count + 600 < MODEL_MAX) {
        if (!run->flushing
                 .begun) { /* the engine skips in recovery, and when it begins a checkpoint */
            step_skip(run, run->model.count + below(run, one_in(run, 4) ? 500 : 10));
        }
    } else if (choice < 96 && run->fixture.queue.container.durable) {
        step_save(run);
    } else if (choice < 97 && run->saved.exists) {
        step_crash(run);
    }
    check(run, one_in(run, 10));
}

static void round_of_steps(struct run *run, uint64_t seed, uint32_t entries, bool durable)
{
    memset(run, 0, sizeof *run);
    run->random = seed;
    start(&run->fixture, entries, durable);
    for (int step = 0; step < 6000 && run->model.count + 300 < MODEL_MAX; step++) {
        if (one_in(run, 2)) {
            random_step(run);
        } else {
            paging_step(run);
        }
    }
    finish_jobs(run);
    check(run, true);
    while (run->fixture.queue.ready_count > 0) { /* all of it comes out in the end */
        drive(run);
        step_take(run);
        check(run, false);
    }
    while (run->fixture.queue.out_count > 0) {
        step_settle(run, false);
    }
    release_all(&run->fixture, false);
    QS_CHECK(referenced_bytes(&run->fixture) == 0);
    qsi_buf_fini(&run->saved.bodies);
    qsi_buf_fini(&run->saved.carried.records);
    qsi_record_build_destroy(run->saved.carried.build);
    stop(&run->fixture);
}

int main(int argc, char **argv)
{
    static struct run run;
    uint64_t seed = qs_test_seed(argc, argv);
    uint64_t rounds = argc > 2 ? strtoull(argv[2], NULL, 0) : 12;
    const uint32_t entries[] = {64, 16, 256};
    uint64_t saves = 0, crashes = 0, loads = 0, state_loads = 0, transient_loads = 0;
    uint64_t rewrites = 0, paged = 0;

    qs_test_alloc_install(&memory);
    for (uint64_t i = 0; i < rounds; i++) {
        fprintf(stderr, "round %" PRIu64 "\n", i);
        round_of_steps(&run, seed * 1000 + i, entries[i % 3], i % 4 != 3);
        saves += run.saves;
        crashes += run.crashes;
        loads += run.loads;
        state_loads += run.state_loads;
        transient_loads += run.transient_loads;
        rewrites += run.rewrites;
        paged += run.paged_takes;
    }
    printf("%" PRIu64 " checkpoints, %" PRIu64 " crashes, %" PRIu64 " loads, %" PRIu64
           " of states, %" PRIu64 " of them with transient messages, %" PRIu64
           " rewritten, %" PRIu64 " takes found nothing in memory\n",
           saves, crashes, loads, state_loads, transient_loads, rewrites, paged);
    QS_CHECK(transient_loads > 0 || rounds < 12);
    qs_test_alloc_end(&memory);
    return 0;
}
