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
#include "block.h"
#include "crash_run.h"

#define FILES_MAX 64
#define NAME_BYTES 64
#define USED_BYTES_MAX 20000 /* of a file: all their bits are flipped; of more, some */
#define COMMITS_TO_ROLL 18   /* fill the first file of a session */

#ifdef __SANITIZE_ADDRESS__
#define BYTE_STEP 13 /* bytes from one that is damaged to the next */
#define PADDING_STEP 97
#else
#define BYTE_STEP 1
#define PADDING_STEP 7
#endif

static uint64_t padding_step = PADDING_STEP;

struct damaged_file {
    const char *dir; /* "" or a directory below the store's */
    char name[NAME_BYTES];
    uint64_t bytes;
    uint64_t undecidable_from;   /* to undecidable_to: the last commit's */
    uint64_t undecidable_length; /* shorter, and something is lost that was there before it */
    uint64_t undecidable_to;
    bool is_continuation; /* a journal file that a session went on in */
};

/* A store on a disk, what it promises, and what it promises without its last commit. */
struct subject {
    const char *name;
    qs_env *mem;
    struct crash_model model;
    struct crash_model lenient;
    bool has_rolled; /* the last commit is in a file that its session went on in */
    struct damaged_file files[FILES_MAX];
    uint32_t file_count;
};

struct outcomes {
    uint64_t refused;     /* the store */
    uint64_t refused_one; /* a message */
    uint64_t harmless;
    uint64_t last_commit;
    uint64_t unseen; /* the end of a continued session, without its file's header */
    uint64_t violations;
    uint64_t disagreements; /* of verifying with opening and reading */
};

/* ---- files ---- */

struct place {
    qs_env *env;
    qs_dir *root;
    qs_dir *dir;
};

static struct place open_place(qs_env *env, const char *dir)
{
    struct place place = {.env = env};
    bool created;

    QS_CHECK_OK(env->dir_open_root(env, CRASH_PATH, false, &place.root, &created, QS_ERROR));
    if (dir[0] != '\0') {
        QS_CHECK_OK(env->dir_open(env, place.root, dir, false, &place.dir, &created, QS_ERROR));
    }
    return place;
}

static void close_place(struct place *place)
{
    place->env->dir_close(place->env, place->dir);
    place->env->dir_close(place->env, place->root);
}

static qs_dir *dir_of(const struct place *place)
{
    return place->dir != NULL ? place->dir : place->root;
}

struct listing {
    struct subject *subject;
    const char *dir;
};

static bool add_file(void *context, const char *name)
{
    struct listing *listing = context;
    struct subject *subject = listing->subject;
    struct damaged_file *file = &subject->files[subject->file_count];

    if (strchr(name, '.') != NULL || strcmp(name, "MANIFEST") == 0) { /* no directory, not LOCK */
        QS_CHECK(subject->file_count < FILES_MAX);
        file->dir = listing->dir;
        snprintf(file->name, sizeof file->name, "%s", name);
        subject->file_count++;
    }
    return true;
}

static void measure_file(qs_env *env, struct damaged_file *file)
{
    struct place place = open_place(env, file->dir);
    qs_file *handle;

    QS_CHECK_OK(env->open(env, dir_of(&place), file->name, QS_OPEN_READ, &handle, QS_ERROR));
    QS_CHECK_OK(env->size(env, handle, &file->bytes, QS_ERROR));
    env->close(env, handle);
    close_place(&place);
}

static void list_files(struct subject *subject)
{
    static const char *const dirs[] = {"", "journal", "messages", "index", "checkpoint"};

    for (int i = 0; i < 5; i++) {
        struct place place = open_place(subject->mem, dirs[i]);
        struct listing listing = {subject, dirs[i]};

        QS_CHECK_OK(
            subject->mem->dir_list(subject->mem, dir_of(&place), add_file, &listing, QS_ERROR));
        close_place(&place);
    }
    for (uint32_t i = 0; i < subject->file_count; i++) {
        measure_file(subject->mem, &subject->files[i]);
    }
}

/* ---- damage ---- */

enum damage { FLIP, TRUNCATE, DELETE };

static void flip(qs_env *env, qs_file *file, uint64_t offset, uint8_t mask)
{
    uint8_t byte;
    size_t done;
    qs_part part = {&byte, 1};

    QS_CHECK_OK(env->read(env, file, &byte, 1, offset, &done, QS_ERROR));
    byte ^= mask;
    QS_CHECK_OK(env->write(env, file, &part, 1, offset, &done, QS_ERROR));
}

static void do_damage(qs_env *env, const struct damaged_file *file, enum damage damage,
                      uint64_t offset, uint8_t mask)
{
    struct place place = open_place(env, file->dir);
    qs_file *handle = NULL;

    if (damage == DELETE) {
        QS_CHECK_OK(env->remove(env, dir_of(&place), file->name, QS_ERROR));
    } else {
        QS_CHECK_OK(env->open(env, dir_of(&place), file->name, QS_OPEN_READ | QS_OPEN_WRITE,
                              &handle, QS_ERROR));
        if (damage == FLIP) {
            flip(env, handle, offset, mask);
        } else {
            QS_CHECK_OK(env->truncate(env, handle, offset, QS_ERROR));
        }
        env->close(env, handle);
    }
    close_place(&place);
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

    QS_CHECK(env != NULL);
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
    QS_CHECK(env != NULL);
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
    struct place place = open_place(subject->mem, file->dir);
    qs_env *env = subject->mem;
    qs_file *handle;
    uint8_t byte = 0;
    size_t done;

    QS_CHECK_OK(env->open(env, dir_of(&place), file->name, QS_OPEN_READ, &handle, QS_ERROR));
    QS_CHECK_OK(env->read(env, handle, &byte, 1, offset, &done, QS_ERROR));
    env->close(env, handle);
    close_place(&place);
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

/* ---- the stores ---- */

static void publish_and_sync(struct crash_work *work, int queue, uint32_t bytes)
{
    crash_publish(work, CRASH_PLAIN_CHANNEL, &work->model->queues[queue], bytes, true);
    crash_work_sync(work);
}

/* Two sessions, so that one is decided; acks, a transaction, a fan-out, bodies in the store. */
static void fill(struct crash_work *work, uint32_t commit_count)
{
    crash_set_up(work);
    crash_bind(work, &work->model->queues[0]);
    publish_and_sync(work, 0, 40);
    publish_and_sync(work, 1, 300);
    crash_work_reopen(work);
    crash_fan_out(work, CRASH_PLAIN_CHANNEL, 60);
    crash_work_sync(work);
    crash_get(work, &work->model->queues[0], CRASH_PLAIN_CHANNEL, QS_NO_ACK);
    for (uint32_t i = 0; i < commit_count; i++) {
        publish_and_sync(work, (int)(i % 4), i % 2 == 0 ? 50 : 260);
    }
    crash_tx(work, false);
}

static void set_lazy(struct crash_work *work, struct crash_queue *queue)
{
    CRASH_CHANGE(work, queue->is_lazy, CRASH_PRESENT, "set mode",
                 qs_store_set_queue_mode(work->store, crash_queue_name(queue), true, QS_ERROR));
}

/* Segments and message files, some of them written again with what was left in them, behind a
 * checkpoint that others name or carry; then more commits. */
static void fill_checkpointed(struct crash_work *work, uint32_t commit_count)
{
    crash_set_up(work);
    set_lazy(work, &work->model->queues[0]);
    set_lazy(work, &work->model->queues[1]);
    crash_publish_rows(work, CRASH_PLAIN_CHANNEL, &work->model->queues[0], 40, 120);
    for (int i = 0; i < 20; i++) {
        crash_publish(work, CRASH_PLAIN_CHANNEL, &work->model->queues[1], 900, true);
    }
    crash_work_reopen(work);
    for (int i = 0; i < 30; i++) {
        crash_get(work, &work->model->queues[0], CRASH_PLAIN_CHANNEL, i % 8 == 7 ? 0 : QS_NO_ACK);
    }
    for (int i = 0; i < 18; i++) {
        crash_get(work, &work->model->queues[1], CRASH_PLAIN_CHANNEL, i % 8 == 3 ? 0 : QS_NO_ACK);
    }
    crash_requeue_all(work, CRASH_PLAIN_CHANNEL);
    publish_and_sync(work, 2, 60);
    crash_work_checkpoint(work);
    QS_CHECK(crash_compact(work->store, CRASH_COMPACTIONS_MAX, &(qs_status){QS_OK}));
    crash_work_checkpoint(work);
    for (uint32_t i = 0; i < commit_count; i++) {
        publish_and_sync(work, (int)(i % 4), i % 2 == 0 ? 50 : 260);
    }
    crash_get(work, &work->model->queues[0], CRASH_PLAIN_CHANNEL, QS_NO_ACK);
    crash_tx(work, false);
}

static void last_commit(struct crash_work *work)
{
    crash_publish(work, CRASH_PLAIN_CHANNEL, &work->model->queues[2], 45, true);
    crash_publish(work, CRASH_PLAIN_CHANNEL, &work->model->queues[3], 400, true);
}

/* The last commit's messages may be there or not. */
static void make_lenient(struct crash_model *lenient, const struct crash_model *model)
{
    uint64_t first_id = model->next_id - 2;

    crash_model_copy(lenient, model);
    for (int i = 0; i < CRASH_QUEUES; i++) {
        for (uint32_t k = 0; k < lenient->queues[i].count; k++) {
            if (lenient->queues[i].copies[k].id >= first_id) {
                lenient->queues[i].copies[k].publish_lsn = CRASH_UNDER_WAY;
            }
        }
    }
}

/* Tells what a commit wrote from what differs on the disk before and after it; a block or body
 * may end in zeros, which differ from nothing. */
static void note_undecidable(struct subject *subject, qs_env *before)
{
    static uint8_t old_bytes[1 << 17], new_bytes[1 << 17];

    for (uint32_t i = 0; i < subject->file_count; i++) {
        struct damaged_file *file = &subject->files[i];
        struct place old_place = open_place(before, file->dir);
        struct place new_place = open_place(subject->mem, file->dir);
        size_t old_count = 0, new_count = 0;
        qs_file *handle;

        if (before->open(before, dir_of(&old_place), file->name, QS_OPEN_READ, &handle, NULL) ==
            QS_OK) {
            before->read(before, handle, old_bytes, sizeof old_bytes, 0, &old_count, NULL);
            before->close(before, handle);
        }
        QS_CHECK_OK(subject->mem->open(subject->mem, dir_of(&new_place), file->name, QS_OPEN_READ,
                                       &handle, QS_ERROR));
        QS_CHECK_OK(subject->mem->read(subject->mem, handle, new_bytes, sizeof new_bytes, 0,
                                       &new_count, QS_ERROR));
        subject->mem->close(subject->mem, handle);
        close_place(&old_place);
        close_place(&new_place);
        file->undecidable_from = file->undecidable_length = UINT64_MAX;
        for (size_t at = 0; at < new_count; at++) {
            if (at >= old_count || old_bytes[at] != new_bytes[at]) {
                if (file->undecidable_from == UINT64_MAX) {
                    file->undecidable_from = file->undecidable_length = at;
                    /* Without the padding in front of it, what was there before is whole. */
                    while (file->undecidable_length > 0 &&
                           new_bytes[file->undecidable_length - 1] == 0) {
                        file->undecidable_length--;
                    }
                }
                file->is_continuation = subject->has_rolled && strcmp(file->dir, "journal") == 0;
                file->undecidable_to = (at / QSI_BLOCK_ALIGN + 1) * QSI_BLOCK_ALIGN;
            }
        }
    }
}

static bool has_file(const struct subject *subject, const char *dir, const char *part)
{
    for (uint32_t i = 0; i < subject->file_count; i++) {
        if (strcmp(subject->files[i].dir, dir) == 0 &&
            strstr(subject->files[i].name, part) != NULL) {
            return true;
        }
    }
    return false;
}

static void make_subject(struct subject *subject, const char *name, uint32_t commit_count,
                         bool is_closed, bool is_checkpointed)
{
    struct crash_report report = {.told_max = 10, .cut = "preparing"};
    struct crash_env env;
    struct crash_work work = {
        .env = &env, .model = &subject->model, .report = &report, .random = 5};
    qs_env *before;

    *subject = (struct subject){
        .name = name, .mem = qsi_env_mem_create(1), .has_rolled = commit_count >= COMMITS_TO_ROLL};
    crash_model_init(&subject->model);
    crash_env_init(&env, subject->mem, CRASH_NO_BUG);
    if (is_checkpointed) {
        work.options = crash_options();
        work.options.segment_entries = 16;
    }
    QS_CHECK(crash_open_store(&work));
    if (is_checkpointed) {
        fill_checkpointed(&work, commit_count);
    } else {
        fill(&work, commit_count);
    }
    before = qsi_env_mem_clone(subject->mem, 1);
    last_commit(&work);
    crash_work_sync(&work);
    QS_CHECK(!work.is_over && report.violations == 0 && before != NULL);
    env.is_dead = work.is_over = !is_closed;
    crash_close_store(&work);
    list_files(subject);
    QS_CHECK(!is_checkpointed || (has_file(subject, "index", "-00000001.seg") &&
                                  has_file(subject, "index", "-00000000.seg") &&
                                  has_file(subject, "messages", "-0001.msg")));
    make_lenient(&subject->lenient, &subject->model);
    if (is_closed) {
        for (uint32_t i = 0; i < subject->file_count; i++) {
            subject->files[i].undecidable_from = UINT64_MAX;
            subject->files[i].undecidable_length = UINT64_MAX;
        }
    } else {
        note_undecidable(subject, before);
    }
    qsi_env_mem_destroy(before);
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
