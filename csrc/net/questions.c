/* Questions to the caller: the server does not decide about logins and permissions.  Questions wait
 * for a thread of the caller, and answers for the I/O thread. */
#include "alloc.h"
#include "check.h"
#include "error.h"
#include "net_server.h"

#include <string.h>

static struct qsi_net_question *question_at(struct qsi_list *node)
{
    return QSI_LIST_OWNER(node, struct qsi_net_question, in_list);
}

/* Copies source to *room, and advances *room. */
static qs_slice keep(char **room, qs_slice source)
{
    qs_slice copy = {.data = *room, .bytes = source.bytes};

    if (source.bytes > 0) {
        memcpy(*room, source.data, source.bytes);
    }
    *room += source.bytes;
    return copy;
}

static qs_slice slice_of(const char *text)
{
    return (qs_slice){.data = text, .bytes = strlen(text)};
}

static bool is_login(const struct qsi_net_question *question)
{
    return question->asked.kind == QS_MAY_LOG_IN;
}

/* Queues a question.  Permissions have a list of their own, so clients that are logged in do not
 * wait for logins.  Each client has at most one question.  False: there are too many logins. */
static bool put(struct qs_server *server, struct qsi_net_question *question)
{
    bool has_room;

    qsi_net_lock(server);
    has_room = !is_login(question) || server->question_count < QSI_NET_QUESTIONS_MAX;
    if (has_room) {
        question->asked.number = ++server->last_question;
        qsi_list_push_back(is_login(question) ? &server->questions : &server->permissions,
                           &question->in_list);
        server->question_count += is_login(question);
        qsi_cond_signal(&server->has_questions);
    } else {
        server->counts.logins_refused += 1;
    }
    qsi_net_unlock(server);
    return has_room;
}

enum qsi_amqp_verdict qsi_net_ask(struct qsi_net_connection *connection, qs_slice mechanism,
                                  qs_slice user, qs_slice password)
{
    struct qs_server *server = connection->server;
    qs_slice peer = slice_of(connection->peer), certified = slice_of(connection->user);
    size_t bytes = mechanism.bytes + user.bytes + password.bytes + peer.bytes + certified.bytes;
    struct qsi_net_question *question = qsi_zalloc(sizeof *question + bytes);
    char *room;

    if (question == NULL) {
        return QSI_AMQP_REFUSED;
    }
    room = question->text;
    question->connection = connection->number;
    connection->has_asked = true;
    question->asked = (qs_question){.is_loopback = connection->is_loopback,
                                    .mechanism = keep(&room, mechanism),
                                    .user = keep(&room, user),
                                    .password = keep(&room, password),
                                    .peer = keep(&room, peer),
                                    .certified = keep(&room, certified)};
    if (!put(server, question)) {
        qsi_net_log(server, QS_NOTE_WARNING, "AMQP %s: login refused: %d others wait for theirs",
                    connection->peer, QSI_NET_QUESTIONS_MAX);
        qsi_free(question);
        return QSI_AMQP_REFUSED;
    }
    return QSI_AMQP_LATER;
}

/* The kind of a permission in the caller's enumeration. */
static uint32_t kind_of(enum qsi_amqp_right right)
{
    static const uint32_t kinds[] = {[QSI_AMQP_CONFIGURE] = QS_MAY_CONFIGURE,
                                     [QSI_AMQP_WRITE] = QS_MAY_WRITE,
                                     [QSI_AMQP_READ] = QS_MAY_READ,
                                     [QSI_AMQP_ENTER] = QS_MAY_ENTER};

    return kinds[right];
}

enum qsi_amqp_verdict qsi_net_ask_permission(struct qsi_net_connection *connection,
                                             enum qsi_amqp_right right, qs_slice name)
{
    qs_slice peer = slice_of(connection->peer);
    qs_slice user = slice_of(qsi_amqp_session_user(connection->session));
    qs_slice vhost = slice_of(qsi_amqp_session_vhost(connection->session));
    struct qsi_net_question *question =
        qsi_zalloc(sizeof *question + peer.bytes + user.bytes + vhost.bytes + name.bytes);
    char *room;

    if (question == NULL) {
        qsi_net_log(connection->server, QS_NOTE_WARNING,
                    "AMQP %s: out of memory to ask what user '%s' may do", connection->peer,
                    qsi_amqp_session_user(connection->session));
        return QSI_AMQP_REFUSED;
    }
    room = question->text;
    question->connection = connection->number;
    question->asked = (qs_question){.kind = kind_of(right),
                                    .is_loopback = connection->is_loopback,
                                    .user = keep(&room, user),
                                    .peer = keep(&room, peer),
                                    .vhost = keep(&room, vhost),
                                    .name = keep(&room, name)};
    (void)put(connection->server, question);
    return QSI_AMQP_LATER;
}

/* The first question that no thread has taken; NULL: none. */
static struct qsi_net_question *first_in(const struct qsi_list *list)
{
    for (struct qsi_list *node = list->next; node != list; node = node->next) {
        if (!question_at(node)->is_taken) {
            return question_at(node);
        }
    }
    return NULL;
}

static struct qsi_net_question *first_of(struct qs_server *server) QSI_REQUIRES(qsi_net_mutex)
{
    struct qsi_net_question *question = first_in(&server->permissions);

    return question != NULL ? question : first_in(&server->questions);
}

static struct qsi_net_question *find(const struct qsi_list *list, uint64_t number)
{
    for (struct qsi_list *node = list->next; node != list; node = node->next) {
        if (question_at(node)->asked.number == number) {
            return question_at(node);
        }
    }
    return NULL;
}

qs_status qs_server_next_question(qs_server *server, uint64_t timeout_ns, qs_question *question_out,
                                  qs_error *error)
{
    uint64_t now_ns = qsi_net_now(server);
    uint64_t end_ns = timeout_ns < UINT64_MAX - now_ns ? now_ns + timeout_ns : UINT64_MAX;
    struct qsi_net_question *question;
    qs_status status = QS_OK;

    qsi_net_lock(server);
    question = first_of(server);
    while (question == NULL && !server->is_stopping && now_ns < end_ns) {
        (void)qsi_cond_wait(&server->has_questions, &server->mutex,
                            end_ns == UINT64_MAX ? QSI_WAIT_FOREVER : end_ns - now_ns);
        question = first_of(server);
        now_ns = qsi_net_now(server);
    }
    if (question != NULL) {
        question->is_taken = true;
        *question_out = question->asked;
    } else {
        status = server->is_stopping ? QS_ESTORE_CLOSED : QS_ETIMEDOUT;
    }
    qsi_net_unlock(server);
    return status == QS_ESTORE_CLOSED ? qsi_fail(error, status, "the server is stopped") : status;
}

void qs_server_answer(qs_server *server, uint64_t number, uint32_t answer, qs_slice user)
{
    struct qsi_net_question *question;

    qsi_net_lock(server);
    question = find(&server->permissions, number);
    if (question == NULL) {
        question = find(&server->questions, number);
    }
    if (question != NULL) {
        question->answer = user.bytes < sizeof question->user ? answer : QS_ANSWER_NO;
        question->user_bytes = question->answer != QS_ANSWER_NO ? user.bytes : 0;
        if (question->user_bytes > 0) {
            memcpy(question->user, user.data, user.bytes);
        }
        qsi_list_remove(&question->in_list);
        server->question_count -= is_login(question);
        qsi_list_push_back(&server->answers, &question->in_list);
        server->counts.logins_refused += is_login(question) && answer == QS_ANSWER_NO;
        qsi_net_wake(server);
    }
    qsi_net_unlock(server);
}

void qs_server_forget_permissions(qs_server *server)
{
    __atomic_add_fetch(&server->rights_version, 1, __ATOMIC_RELEASE);
}

static enum qsi_amqp_verdict verdict_of(const struct qsi_net_question *question)
{
    if (question->answer == QS_ANSWER_NO) {
        return QSI_AMQP_REFUSED;
    }
    return question->answer == QS_ANSWER_ALL && !is_login(question) ? QSI_AMQP_GRANTED_ALL
                                                                    : QSI_AMQP_GRANTED;
}

/* Logs a failed login, and sets the time of its answer. */
static void record_failure(struct qsi_net_connection *connection,
                           const struct qsi_net_question *question)
{
    struct qs_server *server = connection->server;
    uint64_t now_ns = qsi_net_now(server);
    qs_slice said =
        question->asked.certified.bytes > 0 ? question->asked.certified : question->asked.user;

    connection->refuse_at_ns =
        now_ns + qsi_failures_record(&server->failures, connection->peer, now_ns);
    qsi_net_log(server, QS_NOTE_WARNING, "AMQP %s: login as '%.*s' refused", connection->peer,
                (int)said.bytes, (const char *)said.data);
}

void qsi_net_refuse_login(struct qsi_net_connection *connection)
{
    connection->refuse_at_ns = QSI_TIMER_NEVER;
    connection->has_asked = false;
    qsi_amqp_session_answer(connection->session, QSI_AMQP_REFUSED, slice_of(""));
}

static void pass_answer(struct qsi_net_connection *connection,
                        const struct qsi_net_question *question)
{
    enum qsi_amqp_verdict verdict = verdict_of(question);
    qs_slice user = {.data = question->user, .bytes = question->user_bytes};

    if (is_login(question) && verdict == QSI_AMQP_REFUSED) {
        record_failure(connection, question);
    } else {
        connection->has_asked = connection->has_asked && !is_login(question);
        qsi_amqp_session_answer(connection->session, verdict, user);
    }
    qsi_net_make_ready(connection);
}

/* A question that a thread has taken stays until it is answered. */
void qsi_net_withdraw_question(struct qsi_net_connection *connection)
{
    struct qs_server *server = connection->server;
    struct qsi_net_question *question = NULL;

    if (!connection->has_asked) {
        return;
    }
    qsi_net_lock(server);
    for (struct qsi_list *node = server->questions.next; node != &server->questions;
         node = node->next) {
        if (question_at(node)->connection == connection->number && !question_at(node)->is_taken) {
            question = question_at(node);
            qsi_list_remove(node);
            server->question_count -= 1;
            break;
        }
    }
    qsi_net_unlock(server);
    qsi_free(question);
}

static void free_all(struct qsi_list *list)
{
    while (!qsi_list_is_empty(list)) {
        struct qsi_net_question *question = question_at(list->next);
        qsi_list_remove(&question->in_list);
        qsi_free(question);
    }
}

/* Passes answers to sessions.  The client may have gone.  If a worker has the session, the answer
 * stays in the list until the worker gives it back, which wakes this thread. */
void qsi_net_take_answers(struct qs_server *server)
{
    struct qsi_list answered, early;

    qsi_list_init(&answered);
    qsi_list_init(&early);
    qsi_net_lock(server);
    while (!qsi_list_is_empty(&server->answers)) {
        struct qsi_net_question *question = question_at(server->answers.next);
        struct qsi_net_connection *connection =
            qsi_map_get_number(&server->by_number, question->connection);
        bool is_early = connection != NULL && connection->place == QSI_NET_AWAY;
        qsi_list_remove(&question->in_list);
        qsi_list_push_back(is_early ? &early : &answered, &question->in_list);
    }
    while (!qsi_list_is_empty(&early)) {
        struct qsi_list *node = early.next;
        qsi_list_remove(node);
        qsi_list_push_back(&server->answers, node);
    }
    qsi_net_unlock(server);
    for (struct qsi_list *node = answered.next; node != &answered; node = node->next) {
        struct qsi_net_question *question = question_at(node);
        struct qsi_net_connection *connection =
            qsi_map_get_number(&server->by_number, question->connection);
        if (connection != NULL && connection->place == QSI_NET_HERE) {
            pass_answer(connection, question);
        }
    }
    free_all(&answered);
}

void qsi_net_free_questions(struct qs_server *server)
{
    qsi_net_lock(server);
    free_all(&server->questions);
    free_all(&server->permissions);
    free_all(&server->answers);
    qsi_net_unlock(server);
}
