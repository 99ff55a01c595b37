/* Channel 0: the handshake, and the methods of the connection class. */
#include "check.h"
#include "field_table.h"
#include "session_internal.h"

#include <string.h>

#define START_TABLE_BYTES 1024

/* ---- connection.start ---- */

/* Writes the head of a table entry at out. */
static uint8_t *put_head(uint8_t *out, const char *name, uint8_t type)
{
    size_t bytes = strlen(name);

    *out++ = (uint8_t)bytes;
    memcpy(out, name, bytes);
    out[bytes] = type;
    return out + bytes + 1;
}

static uint8_t *put_table_bytes(uint8_t *out, uint32_t bytes)
{
    for (int shift = 24; shift >= 0; shift -= 8) {
        *out++ = (uint8_t)(bytes >> shift);
    }
    return out;
}

static uint8_t *put_capabilities(uint8_t *out)
{
    static const char *const names[] = {
        "publisher_confirms",     "exchange_exchange_bindings",   "basic.nack",
        "consumer_cancel_notify", "connection.blocked",           "consumer_priorities",
        "per_consumer_qos",       "authentication_failure_close", "direct_reply_to",
    };
    uint8_t *length, *from;

    length = put_head(out, "capabilities", 'F');
    out = from = length + 4;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        out = put_head(out, names[i], 't');
        *out++ = 1;
    }
    put_table_bytes(length, (uint32_t)(out - from));
    return out;
}

/* Writes a text of the host, which may be absent; NULL out: there was no room for an earlier
 * one. */
static uint8_t *put_text(uint8_t *out, const uint8_t *end, const char *name, const char *value)
{
    struct qsi_slice text;

    if (out == NULL || value == NULL) {
        return out;
    }
    text = qsi_slice_make(value, (uint32_t)strlen(value));
    if (qsi_table_string_bytes(qsi_slice_make(name, (uint32_t)strlen(name)), text) >
        (uint64_t)(end - out)) {
        return NULL;
    }
    return qsi_table_string_put(out, qsi_slice_make(name, (uint32_t)strlen(name)), text);
}

static void send_start(struct qsi_amqp_session *session)
{
    const struct qsi_amqp_setup *setup = &session->setup;
    uint8_t table[START_TABLE_BYTES], *out = put_capabilities(table);
    const uint8_t *end = table + sizeof table;
    struct qsi_amqp_arguments arguments = {0};

    out = put_text(out, end, "cluster_name", setup->cluster_name);
    out = put_text(out, end, "copyright", setup->copyright);
    out = put_text(out, end, "information", setup->information);
    out = put_text(out, end, "platform", setup->platform);
    out = put_text(out, end, "product", setup->product);
    out = put_text(out, end, "version", setup->version);
    QS_ASSERT(out != NULL); /* qsi_amqp_session_create limits the texts */
    arguments.number[0] = session->minor == 9 ? 0 : 8;
    arguments.number[1] = session->minor == 9 ? 9 : 0;
    arguments.table = qsi_slice_make(table, (uint32_t)(out - table));
    arguments.text[0] = qsi_slice_make(setup->mechanisms, (uint32_t)strlen(setup->mechanisms));
    arguments.text[1] = QSI_SLICE_LITERAL("en_US");
    qsi_amqp_send(session, 0, QSI_AMQP_CONNECTION_START, &arguments);
}

void qsi_amqp_handle_header(struct qsi_amqp_session *session, const uint8_t data[8])
{
    /* 0-9-1; 0-9, which is the same; and two forms of 0-8 that clients send. */
    static const uint8_t known[][4] = {{0, 0, 9, 1}, {1, 1, 0, 9}, {1, 1, 8, 0}, {1, 1, 9, 1}};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (memcmp(data, "AMQP", 4) == 0 && memcmp(data + 4, known[i], 4) == 0) {
            session->minor = i < 2 ? 9 : 8;
            session->state = QSI_AMQP_STARTING;
            send_start(session);
            return;
        }
    }
    qsi_amqp_put_bytes(&session->output, "AMQP\0\0\x09\x01", 8);
    session->counts.end = QSI_AMQP_END_HEADER;
    session->state = QSI_AMQP_ENDED;
}

/* ---- connection.start-ok ---- */

static uint8_t capabilities_of(struct qsi_slice properties)
{
    static const struct {
        const char *name;
        uint8_t flag;
    } known[] = {
        {"consumer_cancel_notify", QSI_AMQP_KNOWS_CANCEL},
        {"connection.blocked", QSI_AMQP_KNOWS_BLOCKED},
        {"authentication_failure_close", QSI_AMQP_KNOWS_REFUSAL},
    };
    struct qsi_field table, field;
    uint8_t flags = 0;

    if (!qsi_table_find(properties, QSI_SLICE_LITERAL("capabilities"), &table) ||
        table.type != 'F') {
        return 0;
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct qsi_slice name = qsi_slice_make(known[i].name, (uint32_t)strlen(known[i].name));

        if (qsi_table_find(table.value, name, &field) && field.type == 't' && *field.value.data) {
            flags |= known[i].flag;
        }
    }
    return flags;
}

/* Whether it is a word of the host's list. */
static bool is_offered(const char *mechanisms, struct qsi_slice mechanism)
{
    for (const char *word = mechanisms; *word != '\0';) {
        size_t bytes = strcspn(word, " ");

        if (bytes > 0 && bytes == mechanism.bytes && memcmp(word, mechanism.data, bytes) == 0) {
            return true;
        }
        word += bytes;
        word += strspn(word, " ");
    }
    return false;
}

/* Takes the next string, which begins with a zero octet. */
static bool take_element(struct qsi_slice *left, struct qsi_slice *element_out)
{
    const uint8_t *end;

    if (left->bytes == 0 || left->data[0] != 0) {
        return false;
    }
    *element_out = qsi_slice_make(left->data + 1, left->bytes - 1);
    end = element_out->bytes > 0 ? memchr(element_out->data, 0, element_out->bytes) : NULL;
    if (end != NULL) {
        element_out->bytes = (uint32_t)(end - element_out->data);
    }
    *left = qsi_slice_make(element_out->data + element_out->bytes,
                           left->bytes - 1 - element_out->bytes);
    return true;
}

struct credentials {
    struct qsi_slice user, password;
};

/* Takes what RabbitMQ takes: a zero, the user, a zero, the password, and nothing else. */
static bool take_plain(struct qsi_slice response, struct credentials *out)
{
    return take_element(&response, &out->user) && take_element(&response, &out->password) &&
           response.bytes == 0;
}

static bool take_amqplain(struct qsi_slice response, struct credentials *out)
{
    struct qsi_field user, password;

    if (!qsi_table_check(response) ||
        !qsi_table_find(response, QSI_SLICE_LITERAL("LOGIN"), &user) || user.type != 'S' ||
        !qsi_table_find(response, QSI_SLICE_LITERAL("PASSWORD"), &password) ||
        password.type != 'S') {
        return false;
    }
    *out = (struct credentials){user.value, password.value};
    return true;
}

static bool take_credentials(struct qsi_slice mechanism, struct qsi_slice response,
                             struct credentials *out)
{
    if (qsi_slice_equals(mechanism, QSI_SLICE_LITERAL("PLAIN"))) {
        return take_plain(response, out);
    }
    if (qsi_slice_equals(mechanism, QSI_SLICE_LITERAL("AMQPLAIN"))) {
        return take_amqplain(response, out);
    }
    *out = (struct credentials){response, QSI_SLICE_LITERAL("")};
    return qsi_slice_equals(mechanism, QSI_SLICE_LITERAL("EXTERNAL"));
}

static void send_tune(struct qsi_amqp_session *session)
{
    struct qsi_amqp_arguments arguments = {0};

    arguments.number[0] = session->setup.limits.channel_max;
    arguments.number[1] = session->setup.limits.frame_max;
    arguments.number[2] = session->setup.limits.heartbeat_s;
    qsi_amqp_send(session, 0, QSI_AMQP_CONNECTION_TUNE, &arguments);
    session->state = QSI_AMQP_TUNING;
}

static enum qsi_amqp_result refuse_login(struct qsi_amqp_session *session)
{
    if ((session->capabilities & QSI_AMQP_KNOWS_REFUSAL) == 0) {
        qsi_amqp_fall_silent(session, QSI_AMQP_END_REFUSED);
        return QSI_AMQP_DONE;
    }
    qsi_amqp_fault_set(&session->fault, QS_ACCESS_REFUSED,
                       "Login was refused using authentication mechanism %s. For details see the "
                       "broker logfile.",
                       session->mechanism);
    qsi_amqp_close_connection(session, QSI_AMQP_END_REFUSED);
    return QSI_AMQP_DONE;
}

/* Copies a name.  False: it is too long, or contains a zero, so that a different name would be kept
 * than the one in the request. */
static bool keep_name(char name_out[QSI_AMQP_NAME_BYTES], struct qsi_slice name)
{
    if (name.bytes >= QSI_AMQP_NAME_BYTES ||
        (name.bytes > 0 && memchr(name.data, 0, name.bytes) != NULL)) {
        return false;
    }
    memcpy(name_out, name.data, name.bytes);
    name_out[name.bytes] = '\0';
    return true;
}

static enum qsi_amqp_result malformed(struct qsi_amqp_session *session, const char *what)
{
    qsi_amqp_fault_set(&session->fault, QSI_AMQP_SYNTAX_ERROR, "%s", what);
    return QSI_AMQP_FAULT;
}

static enum qsi_amqp_result ask_for_login(struct qsi_amqp_session *session,
                                          const struct qsi_amqp_arguments *arguments)
{
    struct qsi_amqp_question *question = &session->question;
    struct credentials who;

    if (arguments->text[0].bytes >= sizeof session->mechanism ||
        !is_offered(session->setup.mechanisms, arguments->text[0])) {
        return malformed(session, "unknown authentication mechanism");
    }
    if (!take_credentials(arguments->text[0], arguments->text[1], &who) ||
        !keep_name(session->user, who.user)) {
        return malformed(session, "malformed response of an authentication mechanism");
    }
    memcpy(session->mechanism, arguments->text[0].data, arguments->text[0].bytes);
    session->mechanism[arguments->text[0].bytes] = '\0';
    session->capabilities = capabilities_of(arguments->table);
    /* Only listings show these: without memory they are left out. */
    (void)!qsi_buf_append(&session->client_properties, arguments->table.data,
                          arguments->table.bytes);
    *question = (struct qsi_amqp_question){.is_open = true};
    question->verdict =
        session->setup.host.authenticate(session->setup.host.context, session, session->mechanism,
                                         qsi_amqp_public(who.user), qsi_amqp_public(who.password));
    question->is_answered = question->verdict != QSI_AMQP_LATER;
    return QSI_AMQP_DONE;
}

static enum qsi_amqp_result start_ok(struct qsi_amqp_session *session,
                                     const struct qsi_amqp_arguments *arguments)
{
    enum qsi_amqp_verdict verdict;

    if (!session->question.is_open) {
        enum qsi_amqp_result result = ask_for_login(session, arguments);

        if (result != QSI_AMQP_DONE) {
            return result;
        }
    }
    if (!session->question.is_answered) {
        return QSI_AMQP_MUST_ASK;
    }
    verdict = session->question.verdict;
    session->question = (struct qsi_amqp_question){0};
    if (verdict != QSI_AMQP_GRANTED) {
        return refuse_login(session);
    }
    send_tune(session);
    return QSI_AMQP_DONE;
}

/* ---- connection.tune-ok, connection.open ---- */

static enum qsi_amqp_result tune_ok(struct qsi_amqp_session *session,
                                    const struct qsi_amqp_arguments *arguments)
{
    const struct qsi_amqp_limits *limits = &session->setup.limits;
    uint64_t channels = arguments->number[0] != 0 ? arguments->number[0] : limits->channel_max;
    uint64_t bytes = arguments->number[1] != 0 ? arguments->number[1] : limits->frame_max;

    if (channels > limits->channel_max || bytes > limits->frame_max || bytes < QSI_AMQP_FRAME_MIN) {
        qsi_amqp_fault_set(&session->fault, QS_NOT_ALLOWED,
                           "frame_max %llu or channel_max %llu is out of the offered range",
                           (unsigned long long)bytes, (unsigned long long)channels);
        return QSI_AMQP_FAULT;
    }
    session->channel_max = (uint16_t)channels;
    session->frame_max = (uint32_t)bytes;
    session->heartbeat_s = (uint16_t)arguments->number[2];
    session->last_out_ns = session->now_ns;
    session->state = QSI_AMQP_OPENING;
    return QSI_AMQP_DONE;
}

static qs_slice text_slice(const char *text)
{
    return (qs_slice){.data = text, .bytes = strlen(text)};
}

/* Describes the client to the engine, for listings; without memory the description is left out. */
static void introduce(struct qsi_amqp_session *session)
{
    const struct qsi_amqp_host *host = &session->setup.host;
    struct qsi_buf *properties = &session->client_properties;
    qs_client client = {
        .user = text_slice(session->user),
        .mechanism = text_slice(session->mechanism),
        .properties = {.data = properties->data, .bytes = properties->bytes},
        .frame_max = session->frame_max,
        .channel_max = session->channel_max,
        .heartbeat_s = session->heartbeat_s,
    };

    if (host->describe_client != NULL) {
        host->describe_client(host->context, session, &client);
        (void)!qs_connection_set_client(session->connection, &client, NULL);
    }
    qsi_buf_fini(properties);
}

static enum qsi_amqp_result open_vhost(struct qsi_amqp_session *session,
                                       const struct qsi_amqp_arguments *arguments)
{
    const struct qsi_amqp_host *host = &session->setup.host;
    struct qsi_slice vhost = arguments->text[0];
    bool is_refused = false;
    enum qsi_amqp_result result;
    qs_error error;
    qs_status status;

    if (!keep_name(session->vhost, vhost)) {
        return malformed(session, "the name of the vhost is too long, or has a NUL");
    }
    /* Set already if the host was asked whether the user may use the vhost. */
    if (session->store == NULL) {
        session->store =
            host->find_store(host->context, session, qsi_amqp_public(vhost), &is_refused);
    }
    if (session->store == NULL) {
        if (is_refused) {
            qsi_amqp_fault_set(&session->fault, QS_NOT_ALLOWED,
                               "access to vhost '%s' refused for user '%s'", session->vhost,
                               session->user);
        } else {
            qsi_amqp_fault_set(&session->fault, QS_NOT_ALLOWED, "vhost %s not found",
                               session->vhost);
        }
        return QSI_AMQP_FAULT;
    }
    result = qsi_amqp_require_vhost(session);
    if (result != QSI_AMQP_DONE) {
        return result;
    }
    status = qs_connection_open(&session->connection, session->store, &error);
    if (status != QS_OK) {
        return qsi_amqp_engine_fault(session, status, &error);
    }
    introduce(session);
    session->state = QSI_AMQP_RUNNING;
    session->until_ns = QSI_AMQP_NEVER;
    qsi_amqp_send_empty(session, 0, QSI_AMQP_CONNECTION_OPEN_OK);
    return QSI_AMQP_DONE;
}

/* ---- connection.close ---- */

/* Deletes the connection's exclusive queues before close-ok. */
static enum qsi_amqp_result close_by_client(struct qsi_amqp_session *session)
{
    if (!session->may_block && session->connection != NULL) {
        return QSI_AMQP_MUST_WAIT;
    }
    qsi_amqp_await_answers(session);
    qsi_amqp_close_channels(session);
    session->counts.end = QSI_AMQP_END_CLIENT;
    session->state = QSI_AMQP_LEAVING;
    session->until_ns = session->now_ns + session->setup.limits.close_ok_ns;
    qsi_amqp_send_empty(session, 0, QSI_AMQP_CONNECTION_CLOSE_OK);
    return QSI_AMQP_DONE;
}

static enum qsi_amqp_result unexpected_method(struct qsi_amqp_session *session)
{
    static const char *const names[] = {"handshake", "starting", "tuning", "opening", "running"};

    QS_ASSERT(session->state <= QSI_AMQP_RUNNING);
    qsi_amqp_fault_set(&session->fault, QSI_AMQP_CHANNEL_ERROR,
                       "unexpected method in connection state %s", names[session->state]);
    return QSI_AMQP_FAULT;
}

enum qsi_amqp_result qsi_amqp_handle_method0(struct qsi_amqp_session *session,
                                             enum qsi_amqp_method method,
                                             const struct qsi_amqp_arguments *arguments)
{
    static const struct {
        enum qsi_amqp_method method;
        enum qsi_amqp_state state;
        enum qsi_amqp_result (*call)(struct qsi_amqp_session *session,
                                     const struct qsi_amqp_arguments *arguments);
    } steps[] = {
        {QSI_AMQP_CONNECTION_START_OK, QSI_AMQP_STARTING, start_ok},
        {QSI_AMQP_CONNECTION_TUNE_OK, QSI_AMQP_TUNING, tune_ok},
        {QSI_AMQP_CONNECTION_OPEN, QSI_AMQP_OPENING, open_vhost},
    };

    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        if (steps[i].method == method && steps[i].state == session->state) {
            return steps[i].call(session, arguments);
        }
    }
    if (session->state == QSI_AMQP_RUNNING && method == QSI_AMQP_CONNECTION_CLOSE) {
        return close_by_client(session);
    }
    if (session->state == QSI_AMQP_RUNNING && method == QSI_AMQP_CONNECTION_UPDATE_SECRET) {
        if (qsi_amqp_output_is_full(session)) {
            return QSI_AMQP_MUST_WRITE;
        }
        qsi_amqp_send_empty(session, 0, QSI_AMQP_CONNECTION_UPDATE_SECRET_OK);
        return QSI_AMQP_DONE;
    }
    return unexpected_method(session);
}
