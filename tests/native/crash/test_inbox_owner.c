/* What an owner does with its inbox when time passes, when its disk fails, and with what it cannot
 * read.
 *
 * Arguments: seed. */
#include "qstore/codec.h"

#include "alloc.h"
#include "error.h"
#include "file.h"
#include "inbox.h"
#include "inbox_note.h"
#include "inbox_scene.h"
#include "le.h"

#define MINUTE_NS UINT64_C(60000000000)

static struct scene scene;
static qs_env *sim, *faulty;

static void begin(void)
{
    sim = qsi_env_sim_create(1);
    faulty = qsi_env_fault_create(sim);
    set_scene(&scene, faulty);
}

static void end(void)
{
    die(&scene);
    qsi_env_fault_destroy(faulty);
    qsi_env_sim_destroy(sim);
}

static void run_between(void (*test)(void))
{
    begin();
    test();
    end();
}
#define OWNER_TEST(name) QS_TEST_BY(run_between, name, (void))

static qs_request *ask_under(const char *key, uint64_t timeout_ns)
{
    const qs_ask ask = {
        .paths = staged_paths,
        .path_count = 2,
        .key = text(key),
        .flags = QS_MANDATORY,
        .timeout_ns = timeout_ns,
    };
    qs_request *request;

    QS_CHECK_OK(qs_request_open(&request, CRASH_PATH, &ask, &scene.env.env, QS_ERROR));
    return request;
}

static uint32_t take_in(void)
{
    uint32_t answered;

    QS_CHECK_OK(qs_store_take_in(scene.store, &answered, QS_ERROR));
    return answered;
}

static qs_dir *open_inbox(void)
{
    return qs_test_open_dir(sim, CRASH_PATH, "inbox");
}

static void make_file(qs_dir *dir, const char *name)
{
    qs_file *file;

    QS_CHECK_OK(sim->open(sim, dir, name, QS_OPEN_WRITE | QS_OPEN_CREATE_NEW, &file, QS_ERROR));
    sim->close(sim, file);
}

/* ---- time ---- */

static void let_two_minutes_pass(void *context, uint64_t step)
{
    (void)context;
    (void)step;
    qsi_env_sim_advance(sim, 2 * MINUTE_NS);
}

OWNER_TEST(test_a_manifest_that_expired_while_another_was_adopted_is_not_begun)
{
    qs_request *patient, *hasty;
    qs_adoption adoption;
    bool is_answered;

    patient = ask_under("patient", 10000 * MINUTE_NS);
    hasty = ask_under("hasty", MINUTE_NS);
    qsi_env_sim_on_step(sim, let_two_minutes_pass, NULL);
    QS_CHECK(take_in() == 1);
    qsi_env_sim_on_step(sim, NULL, NULL);
    QS_CHECK_OK(qs_request_look(patient, &is_answered, &adoption, QS_ERROR));
    QS_CHECK(is_answered && adoption.committed);
    QS_CHECK(qs_request_look(hasty, &is_answered, &adoption, QS_ERROR) == QS_ETIMEDOUT);
    QS_CHECK(is_answered && count_rows(scene.store) == ADOPTED_END);
    qs_request_close(patient);
    qs_request_close(hasty);
}

OWNER_TEST(test_who_asks_a_day_after_its_answer_went_is_not_told_that_nothing_changed)
{
    qs_adoption adoption;
    bool is_answered;
    qs_request *request = ask_under("slow", MINUTE_NS);

    QS_CHECK(take_in() == 1);
    qsi_env_sim_advance(sim, 2 * 24 * 60 * MINUTE_NS);
    QS_CHECK(take_in() == 0);
    QS_CHECK(qs_request_look(request, &is_answered, &adoption, QS_ERROR) == QS_ESTORE_FAILED);
    QS_CHECK(is_answered && count_rows(scene.store) == ADOPTED_END);
    qs_request_close(request);
}

/* ---- a disk that fails ---- */

OWNER_TEST(test_a_store_that_fails_leaves_what_it_did_not_begin_with)
{
    qs_request *requests[2];
    uint32_t answered, taken_back = 0;
    qs_status status;

    requests[0] = ask_under("first", MINUTE_NS);
    requests[1] = ask_under("second", MINUTE_NS);
    qsi_env_fault_arm(faulty, QSI_FAULT_SYNC, QSI_FAULT_EIO, 1, true);
    status = qs_store_take_in(scene.store, &answered, QS_ERROR);
    QS_CHECK(answered == 0);
    qsi_env_fault_arm(faulty, QSI_FAULT_ANY, QSI_FAULT_EIO, 0, false);
    QS_CHECK(qs_store_sync(scene.store, QS_ERROR) == QS_ESTORE_FAILED);
    for (int i = 0; i < 2; i++) {
        status = qs_request_take_back(requests[i], QS_ERROR);
        QS_CHECK(status == QS_OK || status == QS_EWOULDBLOCK);
        taken_back += status == QS_OK;
        qs_request_close(requests[i]);
    }
    QS_CHECK(taken_back == 1);
    QS_CHECK(qs_store_take_in(scene.store, &answered, QS_ERROR) == QS_ESTORE_FAILED);
}

static qs_status fail_to_sync(qs_env *env, qs_dir *dir, qs_error *error)
{
    (void)env;
    (void)dir;
    (void)error;
    return QS_EIO;
}

static qs_status fail_to_remove(qs_env *env, qs_dir *dir, const char *name, qs_error *error)
{
    (void)name;
    return fail_to_sync(env, dir, error);
}

OWNER_TEST(test_a_manifest_that_cannot_be_taken_back_is_not_told_to_have_failed)
{
    qs_request *request;
    qs_env healthy = scene.env.env;

    scene.env.env.dir_sync = fail_to_sync;
    scene.env.env.remove = fail_to_remove;
    request = ask_under("key", MINUTE_NS);
    QS_CHECK(qs_request_take_back(request, QS_ERROR) == QS_EIO);
    scene.env.env = healthy;
    QS_CHECK_OK(qs_request_take_back(request, QS_ERROR));
    QS_CHECK(take_in() == 0);
    qs_request_close(request);
}

static bool find_manifest(void *context, const char *name)
{
    (void)snprintf(context, QS_NAME_BYTES_MAX, "%s", name);
    return true;
}

/* Another owner begins with what was asked. */
static void let_an_owner_begin(void)
{
    char asked[QS_NAME_BYTES_MAX] = "", owned[QS_NAME_BYTES_MAX];
    qs_dir *inbox = open_inbox();

    QS_CHECK_OK(sim->dir_list(sim, inbox, find_manifest, asked, QS_ERROR));
    (void)snprintf(owned, sizeof owned, "%.33s.own", asked);
    QS_CHECK_OK(sim->rename(sim, inbox, asked, owned, QS_ERROR));
    QS_CHECK_OK(sim->dir_sync(sim, inbox, QS_ERROR));
    sim->dir_close(sim, inbox);
}

/* An owner began with what was asked, adopted it, and died. */
static void let_an_owner_die(void)
{
    qs_adoption adoption;

    let_an_owner_begin();
    QS_CHECK_OK(adopt_files(scene.store, &adoption));
    QS_CHECK(adoption.committed);
}

OWNER_TEST(test_a_committed_manifest_that_cannot_be_read_is_not_answered_as_failed)
{
    qs_request *request;
    qs_adoption adoption;
    uint32_t answered;
    bool is_answered;

    QS_CHECK_OK(ask(&scene.env.env, false, IN_TIME_NS, &request));
    let_an_owner_die();
    qsi_env_fault_arm(faulty, QSI_FAULT_READ, QSI_FAULT_EIO, 2, true); /* the list is the first */
    QS_CHECK_OK(qs_store_take_in(scene.store, &answered, QS_ERROR));
    QS_CHECK(qsi_env_fault_fired(faulty));
    qsi_env_fault_arm(faulty, QSI_FAULT_ANY, QSI_FAULT_EIO, 0, false);
    QS_CHECK_OK(qs_request_look(request, &is_answered, &adoption, QS_ERROR));
    QS_CHECK(!is_answered && answered == 0);
    QS_CHECK(take_in() == 1);
    QS_CHECK_OK(qs_request_look(request, &is_answered, &adoption, QS_ERROR));
    QS_CHECK(is_answered && !adoption.committed);
    qs_request_close(request);
}

/* The one note in the inbox. */
static void damage_note(void)
{
    char name[QS_NAME_BYTES_MAX] = "";
    qs_dir *inbox = open_inbox();
    uint8_t *data;
    size_t bytes;

    QS_CHECK_OK(sim->dir_list(sim, inbox, find_manifest, name, QS_ERROR));
    QS_CHECK_OK(qsi_file_load(sim, inbox, name, 1 << 20, &data, &bytes, QS_ERROR));
    data[bytes - 10] ^= 1;
    QS_CHECK_OK(qsi_file_replace(sim, inbox, name, data, bytes, QS_ERROR));
    qsi_free(data);
    sim->dir_close(sim, inbox);
}

OWNER_TEST(test_a_manifest_damaged_behind_its_beginning_is_not_told_to_have_failed)
{
    qs_request *request;
    qs_adoption adoption;
    bool is_answered;

    QS_CHECK_OK(ask(&scene.env.env, false, IN_TIME_NS, &request));
    let_an_owner_die();
    damage_note();
    QS_CHECK(take_in() == 1);
    QS_CHECK(qs_request_look(request, &is_answered, &adoption, QS_ERROR) == QS_ESTORE_FAILED);
    QS_CHECK(is_answered && strstr(qs_test_error.text, "is not known") != NULL);
    QS_CHECK(count_rows(scene.store) == ADOPTED_END);
    qs_request_close(request);
}

OWNER_TEST(test_a_manifest_damaged_before_its_beginning_is_refused)
{
    qs_request *request;
    qs_adoption adoption;
    bool is_answered;

    QS_CHECK_OK(ask(&scene.env.env, false, IN_TIME_NS, &request));
    damage_note();
    QS_CHECK(take_in() == 1);
    QS_CHECK(qs_request_look(request, &is_answered, &adoption, QS_ERROR) == QS_ECORRUPT);
    QS_CHECK(is_answered && strstr(qs_test_error.text, "not known") == NULL);
    QS_CHECK(count_rows(scene.store) == BEFORE);
    qs_request_close(request);
}

OWNER_TEST(test_a_directory_named_like_a_note_costs_no_write)
{
    qs_dir *inbox, *made;
    uint64_t steps;
    bool created;

    inbox = open_inbox();
    QS_CHECK_OK(sim->dir_open(sim, inbox, "0fffffffffffffff-0000000000000001.own", true, &made,
                              &created, QS_ERROR));
    sim->dir_close(sim, made);
    sim->dir_close(sim, inbox);
    steps = qsi_env_sim_steps(sim);
    QS_CHECK(take_in() == 0 && qsi_env_sim_steps(sim) == steps);
}

static qs_status (*rename_behind)(qs_env *env, qs_dir *dir, const char *from, const char *to,
                                  qs_error *error);

static qs_status fail_to_rename_what_expires_first(qs_env *env, qs_dir *dir, const char *from,
                                                   const char *to, qs_error *error)
{
    static char first[QS_NAME_BYTES_MAX];

    if (strstr(from, ".own.tmp") != NULL && (first[0] == 0 || strcmp(first, to) == 0)) {
        (void)snprintf(first, sizeof first, "%s", to);
        return qsi_fail(error, QS_ENOSPC, "there is no room");
    }
    return rename_behind(env, dir, from, to, error);
}

static void check_stats(uint64_t adopted, uint64_t refused, uint64_t failing, const char *error)
{
    qs_stats stats;

    qs_store_stats(scene.store, &stats);
    QS_CHECK(stats.inbox_adopted == adopted && stats.inbox_refused == refused);
    QS_CHECK(stats.inbox_failing == failing && !stats.inbox_adopting);
    QS_CHECK(error == NULL ? stats.inbox_error[0] == 0 : strstr(stats.inbox_error, error) != NULL);
}

OWNER_TEST(test_an_answer_that_cannot_be_written_does_not_keep_others_from_theirs)
{
    qs_request *first, *second;
    qs_adoption adoption;
    bool is_answered;

    first = ask_under("key", MINUTE_NS);
    second = ask_under("another key", 2 * MINUTE_NS);
    rename_behind = scene.env.env.rename;
    scene.env.env.rename = fail_to_rename_what_expires_first;
    QS_CHECK(take_in() == 1);
    QS_CHECK_OK(qs_request_look(second, &is_answered, &adoption, QS_ERROR));
    QS_CHECK(is_answered && adoption.committed);
    QS_CHECK(take_in() == 0);
    check_stats(1, 0, 1, "there is no room");
    QS_CHECK_OK(qs_request_look(first, &is_answered, &adoption, QS_ERROR));
    QS_CHECK(!is_answered);
    scene.env.env.rename = rename_behind;
    QS_CHECK(take_in() == 1);
    check_stats(2, 0, 0, "there is no room");
    QS_CHECK_OK(qs_request_look(first, &is_answered, &adoption, QS_ERROR));
    QS_CHECK(is_answered && adoption.committed && adoption.rows == 2 * IN_FILE);
    qs_request_close(first);
    qs_request_close(second);
}

OWNER_TEST(test_a_refusal_is_shown_in_the_numbers_of_the_store)
{
    qs_request *request;

    check_stats(0, 0, 0, NULL);
    remove_staged(sim);
    request = ask_under("key", MINUTE_NS);
    QS_CHECK(take_in() == 1);
    check_stats(0, 1, 0, "a.qsb");
    qs_request_close(request);
}

OWNER_TEST(test_an_inbox_that_cannot_be_listed_is_shown_as_failing)
{
    uint32_t answered;

    qsi_env_fault_arm(faulty, QSI_FAULT_ANY, QSI_FAULT_EIO, 1, true);
    QS_CHECK(qs_store_take_in(scene.store, &answered, QS_ERROR) != QS_OK);
    qsi_env_fault_arm(faulty, QSI_FAULT_ANY, QSI_FAULT_EIO, 0, false);
    check_stats(0, 0, 1, NULL);
    QS_CHECK(take_in() == 0);
    check_stats(0, 0, 0, NULL);
}

static uint32_t opens;
static qs_status (*open_behind)(qs_env *env, qs_dir *dir, const char *name, uint32_t flags,
                                qs_file **file_out, qs_error *error);

static qs_status fail_to_open_owned(qs_env *env, qs_dir *dir, const char *name, uint32_t flags,
                                    qs_file **file_out, qs_error *error)
{
    if (strstr(name, ".own") == NULL) {
        return open_behind(env, dir, name, flags, file_out, error);
    }
    opens++;
    return QS_EIO;
}

/* As the store's thread looks.  How often it tried to open what it cannot read. */
static uint32_t opens_of_a_look(uint64_t *again_ns_out)
{
    uint32_t answered;

    opens = 0;
    QS_CHECK_OK(
        qsi_inbox_take_in(scene.store, QSI_INBOX_WHEN_DUE, &answered, again_ns_out, QS_ERROR));
    QS_CHECK(answered == 0);
    return opens;
}

OWNER_TEST(test_a_name_that_cannot_be_read_is_tried_less_and_less_often)
{
    uint64_t again_ns, last_ns = 0;
    qs_dir *inbox = open_inbox();

    make_file(inbox, "0fffffffffffffff-0000000000000001.own");
    open_behind = scene.env.env.open;
    scene.env.env.open = fail_to_open_owned;
    for (int i = 0; i < 8; i++) {
        QS_CHECK(opens_of_a_look(&again_ns) == 1);
        QS_CHECK(again_ns >= last_ns && again_ns <= MINUTE_NS);
        QS_CHECK(i == 0 || i > 5 || again_ns > last_ns);
        last_ns = again_ns;
        QS_CHECK(opens_of_a_look(&again_ns) == 0 && again_ns <= last_ns);
        qsi_env_sim_advance(sim, again_ns);
    }
    scene.env.env.open = open_behind;
    sim->dir_close(sim, inbox);
}

/* ---- what others left ---- */

static uint64_t reads;
static qs_status (*read_behind)(qs_env *env, qs_file *file, void *data, size_t bytes,
                                uint64_t offset, size_t *bytes_out, qs_error *error);

static qs_status count_read(qs_env *env, qs_file *file, void *data, size_t bytes, uint64_t offset,
                            size_t *bytes_out, qs_error *error)
{
    reads++;
    return read_behind(env, file, data, bytes, offset, bytes_out, error);
}

static uint64_t reads_of_a_look(void)
{
    reads = 0;
    QS_CHECK(take_in() == 0);
    return reads;
}

OWNER_TEST(test_answers_that_nobody_fetches_are_read_once)
{
    qs_request *requests[3];

    for (int i = 0; i < 3; i++) {
        requests[i] = ask_under((const char *const[]){"a", "b", "c"}[i], MINUTE_NS);
    }
    QS_CHECK(take_in() == 3);
    read_behind = scene.env.env.read;
    scene.env.env.read = count_read;
    QS_CHECK(reads_of_a_look() >= 3);
    QS_CHECK(reads_of_a_look() == 0);
    scene.env.env.read = read_behind;
    qsi_env_sim_advance(sim, 2 * 24 * 60 * MINUTE_NS);
    QS_CHECK(take_in() == 0);
    for (int i = 0; i < 3; i++) {
        qs_adoption adoption;
        bool is_answered;
        qs_status status = qs_request_look(requests[i], &is_answered, &adoption, QS_ERROR);
        QS_CHECK(is_answered && status == QS_ESTORE_FAILED); /* it is gone */
        qs_request_close(requests[i]);
    }
}

static bool is_there(qs_dir *dir, const char *name)
{
    qs_file *file;
    bool is = sim->open(sim, dir, name, QS_OPEN_READ, &file, NULL) == QS_OK;

    if (is) {
        sim->close(sim, file);
    }
    return is;
}

OWNER_TEST(test_a_file_of_another_name_is_left_alone)
{
    static const char *const others[] = {
        "0000000000000001-0000000000000001",      "0000000000000001-0000000000000001.keep",
        "0000000000000001-0000000000000001.tmp",  "0000000000000001-0000000000000001.own.old",
        "0000000000000001-0000000000000001x.own", "notes",
    };
    static const char half[] = "0000000000000001-0000000000000001.own.tmp";
    qs_dir *inbox = open_inbox();

    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        make_file(inbox, others[i]);
    }
    make_file(inbox, half);
    qsi_env_sim_advance(sim, 2 * 24 * 60 * MINUTE_NS);
    QS_CHECK(take_in() == 0);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        QS_CHECK(is_there(inbox, others[i]));
    }
    QS_CHECK(!is_there(inbox, half));
    sim->dir_close(sim, inbox);
}

/* With a checksum that is right. */
static void change(uint8_t *data, size_t bytes, uint64_t *random)
{
    for (uint64_t i = 0; i <= qsi_splitmix_below(random, 3); i++) {
        data[8 + qsi_splitmix_below(random, bytes - 12)] =
            (uint8_t)(qsi_splitmix_below(random, 2) == 0 ? 0 : qsi_splitmix_below(random, 256));
    }
    qsi_put_u32(data + bytes - 4, qs_crc32c(0, data, bytes - 4));
}

static size_t bytes_in(const struct qsi_inbox_note *note)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < qsi_inbox_string_count(note); i++) {
        bytes += strnlen(note->strings[i].data, note->strings[i].bytes + 1);
    }
    return bytes;
}

QS_SEED_TEST(test_a_note_of_any_bytes_is_read_or_refused)
{
    char name[QS_NAME_BYTES_MAX] = "";
    uint8_t *whole, changed[4096];
    size_t bytes, read = 0, refused = 0;
    qs_request *request;
    qs_dir *inbox;

    begin();
    request = ask_under("key", MINUTE_NS);
    inbox = open_inbox();
    QS_CHECK_OK(sim->dir_list(sim, inbox, find_manifest, name, QS_ERROR));
    QS_CHECK_OK(qsi_file_load(sim, inbox, name, sizeof changed, &whole, &bytes, QS_ERROR));
    for (int i = 0; i < 5000; i++) {
        size_t kept = bytes - (i % 4 == 0 ? qsi_splitmix_below(&seed, bytes - 12) : 0);
        struct qsi_inbox_note note;
        qs_status status;
        memcpy(changed, whole, kept);
        change(changed, kept, &seed);
        QS_CHECK_OK(qsi_file_replace(sim, inbox, "note", changed, kept, QS_ERROR));
        status = qsi_inbox_note_load(&note, sim, inbox, "note", QS_ERROR);
        if (status == QS_OK) {
            read++;
            QS_CHECK(bytes_in(&note) < bytes);
            qsi_inbox_note_fini(&note);
        } else {
            refused++;
            QS_CHECK(status == QS_ECORRUPT);
        }
    }
    QS_CHECK(read > 100 && refused > 100);
    qsi_free(whole);
    sim->dir_close(sim, inbox);
    qs_request_close(request);
    end();
}

OWNER_TEST(test_an_answer_tells_the_damaged_file_and_place)
{
    qs_request *request;
    qs_adoption adoption;
    qs_error direct = {0}, told = {0};
    bool is_answered;
    qs_dir *dir = qs_test_open_dir(sim, STAGE, "");

    QS_CHECK_OK(sim->remove(sim, dir, "a.qsb", QS_ERROR));
    make_file(dir, "a.qsb");
    sim->dir_close(sim, dir);
    QS_CHECK(qs_store_adopt(scene.store, staged_paths, 2, text("key"), 0, &adoption, &direct) ==
             QS_ECORRUPT);
    request = ask_under("key", MINUTE_NS);
    QS_CHECK(take_in() == 1);
    QS_CHECK(qs_request_look(request, &is_answered, &adoption, &told) == QS_ECORRUPT);
    QS_CHECK(is_answered && told.path[0] != 0 && strcmp(told.path, direct.path) == 0);
    QS_CHECK(told.offset == direct.offset && strcmp(told.text, direct.text) == 0);
    qs_request_close(request);
}
