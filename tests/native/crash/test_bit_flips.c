/* Damage: every byte of every file with a bit flipped, every file cut at every length, every file
 * gone, in a store that was closed and in one that crashed.
 *
 * Either the store is refused with QS_ECORRUPT, or a single message is, both naming the file; or
 * the damage is harmless.  It never costs a confirmed message in silence and never changes one.
 *
 * One place cannot be decided by anybody: what the last commit before a crash wrote (its block, its
 * bodies, and the header of a journal file that it began).  Damage there looks exactly like a
 * commit that the crash cut off, so it may cost that commit, whole, and nothing else.  A store that
 * was closed has no such place.
 *
 * And one kind of damage leaves no trace: a journal file that a session went on in, not its first,
 * gone as a whole or with its header.  It looks like a file that was never begun.
 *
 * And verifying finds what opening the store and reading all of its messages finds, no more and no
 * less.
 *
 * Arguments: seed, step from one damaged byte of padding to the next (1: all; the default tries
 * fewer of them, which are all alike, to save time). */
#include "flip_subject.h"

#define USED_BYTES_MAX 20000 /* of a file: all their bits are flipped; of more, some */

#ifdef __SANITIZE_ADDRESS__
#define BYTE_STEP 13 /* bytes from one that is damaged to the next */
#define PADDING_STEP 97
#else
#define BYTE_STEP 1
#define PADDING_STEP 7
#endif

static uint64_t padding_step = PADDING_STEP;

struct outcomes {
    uint64_t refused;     /* the store */
    uint64_t refused_one; /* a message */
    uint64_t harmless;
    uint64_t last_commit;
    uint64_t unseen; /* the end of a continued session, without its file's header */
    uint64_t violations;
    uint64_t disagreements; /* of verifying with opening and reading */
};

/* ---- damage ---- */

enum damage { FLIP, TRUNCATE, DELETE };

static void do_damage(qs_env *env, const struct damaged_file *file, enum damage damage,
                      uint64_t offset, uint8_t mask)
{
    qs_dir *dir = qs_test_open_dir(env, CRASH_PATH, file->dir);

    if (damage == DELETE) {
        QS_CHECK_OK(env->remove(env, dir, file->name, QS_ERROR));
    } else if (damage == FLIP) {
        qs_test_flip(env, dir, file->name, offset, mask);
    } else {
        qs_test_truncate_file(env, dir, file->name, offset);
    }
    env->dir_close(env, dir);
}

/* ---- one case ---- */

/* Opens the damaged store: refused, or compared with the model.  Returns whether it was refused. */
static bool compare(qs_env *env, struct crash_model *model, struct crash_report *report)
{
    qs_options options = crash_options();
    struct crash_env alive;
    qs_store *store;
    qs_channel *channel;
    qs_status status;

    crash_env_init(&alive, env, CRASH_NO_BUG);
    report->states++;
    report->allows_refusals = true;
    report->cut = "damaged";
    qs_test_error = (qs_error){0};
    status = qs_store_open(&store, CRASH_PATH, &options, &alive.env, QS_ERROR);
    if (status == QS_OK) {
        QS_CHECK_OK(qs_channel_open(&channel, store, QS_ERROR));
        crash_model_check(model, report, store, channel);
        alive.is_dead = true;
        qs_channel_close(channel);
        qs_store_close(store, NULL);
        return false;
    }
    if ((status != QS_ECORRUPT || qs_test_error.path[0] == '\0') && status != QS_EVERSION) {
        crash_violation(report, "refused with %s, path '%s': %s", qs_status_name(status),
                        qs_test_error.path, qs_test_error.text);
    }
    return true;
}

struct verdict {
    bool is_refused;
    uint64_t refusals;
    uint64_t violations;
};

static struct verdict judge(const struct subject *subject, struct crash_model *model,
                            const struct damaged_file *file, enum damage damage, uint64_t offset,
                            uint8_t mask, uint32_t told_max)
{
    struct crash_report report = {.told_max = told_max, .step = offset};
    qs_env *env = qsi_env_mem_clone(subject->mem, 1);
    bool is_refused;

    do_damage(env, file, damage, offset, mask);
    is_refused = compare(env, model, &report);
    qsi_env_mem_destroy(env);
    return (struct verdict){is_refused, report.refusals, report.violations};
}

/* Does verifying say what opening and reading say?  Of the bits of a byte, one is asked about. */
static bool agrees(const struct subject *subject, const struct damaged_file *file,
                   enum damage damage, uint64_t offset, uint8_t mask, const struct verdict *verdict)
{
    bool is_damaged = verdict->is_refused || verdict->refusals > 0;
    qs_env *env;
    qs_verified verified;
    qs_status status;

    if (damage == FLIP && mask != 1u << (offset % 8)) {
        return true;
    }
    env = qsi_env_mem_clone(subject->mem, 1);
    do_damage(env, file, damage, offset, mask);
    status = qs_store_verify(CRASH_PATH, env, NULL, &verified, QS_ERROR);
    qsi_env_mem_destroy(env);
    return (status != QS_OK) == is_damaged;
}

/* May damage at this place cost the last commit? */
static bool is_undecidable(const struct damaged_file *file, enum damage damage, uint64_t offset)
{
    return damage == FLIP ? offset >= file->undecidable_from && offset < file->undecidable_to
                          : offset >= file->undecidable_length;
}

static void try_damage(struct subject *subject, const struct damaged_file *file, enum damage damage,
                       uint64_t offset, uint8_t mask, struct outcomes *outcomes)
{
    struct verdict verdict = judge(subject, &subject->model, file, damage, offset, mask, 0);

    if (!agrees(subject, file, damage, offset, mask, &verdict) && outcomes->disagreements++ < 5) {
        printf("%s: %s/%s, damage %d at %" PRIu64 " mask %#x: %s, %" PRIu64
               " messages refused; verifying says otherwise: %s\n",
               subject->name, file->dir, file->name, damage, offset, mask,
               verdict.is_refused ? "store refused" : "store opened", verdict.refusals,
               QS_ERROR->text);
    }

    if (verdict.violations > 0 && is_undecidable(file, damage, offset)) {
        verdict = judge(subject, &subject->lenient, file, damage, offset, mask, 0);
        if (verdict.violations == 0 && !verdict.is_refused) {
            outcomes->last_commit++;
            return;
        }
    }
    if (verdict.violations > 0 && file->is_continuation && damage != FLIP &&
        offset < QSI_BLOCK_ALIGN) {
        outcomes->unseen++;
    } else if (verdict.violations > 0) {
        if (outcomes->violations++ < 5) {
            printf("%s: %s/%s, damage %d at %" PRIu64 " mask %#x:\n", subject->name, file->dir,
                   file->name, damage, offset, mask);
            judge(subject, &subject->model, file, damage, offset, mask, 3);
        }
    } else if (verdict.is_refused) {
        outcomes->refused++;
    } else if (verdict.refusals > 0) {
        outcomes->refused_one++;
    } else {
        outcomes->harmless++;
    }
}

/* ---- all cases of a file ---- */

static bool is_zero(const struct subject *subject, const struct damaged_file *file, uint64_t offset)
{
    qs_dir *dir = qs_test_open_dir(subject->mem, CRASH_PATH, file->dir);
    uint8_t byte = 0;

    (void)qs_test_read_file(subject->mem, dir, file->name, offset, &byte, 1);
    subject->mem->dir_close(subject->mem, dir);
    return byte == 0;
}

/* Bytes that are not zero. */
static uint64_t used_bytes(const struct subject *subject, const struct damaged_file *file)
{
    uint64_t count = 0;

    for (uint64_t offset = 0; offset < file->bytes; offset++) {
        count += !is_zero(subject, file, offset);
    }
    return count;
}

/* Every bit where there is something (of some of the bytes of files with much of it), one bit of
 * a byte of padding; and every length likewise. */
static void damage_bytes(struct subject *subject, const struct damaged_file *file,
                         struct outcomes *flips, struct outcomes *truncations)
{
    uint64_t step = BYTE_STEP * (1 + used_bytes(subject, file) / USED_BYTES_MAX);

    for (uint64_t offset = 0; offset < file->bytes; offset += step) {
        bool is_padding = is_zero(subject, file, offset);

        if (is_padding && offset % padding_step != 0) {
            continue;
        }
        for (uint32_t bit = 0; bit < 8; bit++) {
            if (!is_padding || bit == offset / padding_step % 8) {
                try_damage(subject, file, FLIP, offset, (uint8_t)(1u << bit), flips);
            }
        }
        try_damage(subject, file, TRUNCATE, offset, 0, truncations);
    }
}

static void tell(const char *what, const struct outcomes *outcomes)
{
    printf("  %s: %" PRIu64 " stores refused, %" PRIu64 " with a message refused, %" PRIu64
           " harmless, %" PRIu64 " cost the last commit, %" PRIu64 " unseen, %" PRIu64
           " violations, %" PRIu64 " judged otherwise by verifying\n",
           what, outcomes->refused, outcomes->refused_one, outcomes->harmless,
           outcomes->last_commit, outcomes->unseen, outcomes->violations, outcomes->disagreements);
    fflush(stdout);
}

static uint64_t damage_all(struct subject *subject)
{
    struct outcomes flips = {0}, truncations = {0}, deletions = {0};

    printf("%s:\n", subject->name);
    for (uint32_t i = 0; i < subject->file_count; i++) {
        damage_bytes(subject, &subject->files[i], &flips, &truncations);
        try_damage(subject, &subject->files[i], DELETE, 0, 0, &deletions);
    }
    tell("bits", &flips);
    tell("lengths", &truncations);
    tell("files gone", &deletions);
    return flips.violations + truncations.violations + deletions.violations + flips.disagreements +
           truncations.disagreements + deletions.disagreements;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        uint32_t commit_count;
        bool is_closed;
        bool is_checkpointed;
    } cases[] = {
        {"closed in order", 4, true, false},
        {"crashed", 4, false, false},
        {"crashed after files rolled", COMMITS_TO_ROLL, false, false},
        {"checkpointed, closed in order", 4, true, true},
        {"checkpointed, crashed", 4, false, true},
    };
    uint64_t violations = 0;

    (void)qs_test_seed(argc, argv);
    if (argc > 2) {
        padding_step = strtoull(argv[2], NULL, 0);
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct subject subject;

        make_subject(&subject, cases[i].name, cases[i].commit_count, cases[i].is_closed,
                     cases[i].is_checkpointed);
        violations += damage_all(&subject);
        qsi_env_mem_destroy(subject.mem);
        crash_model_fini(&subject.model);
        crash_model_fini(&subject.lenient);
    }
    QS_CHECK(violations == 0);
    return 0;
}
