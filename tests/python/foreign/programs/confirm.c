/* Publishing with confirms through rabbitmq-c: confirm.select, a publish, and the loop that reads
 * what the server answers to it: an ack, a nack, or a return and the message that comes back.
 * "==" begins a part.
 *
 *     confirm PORT
 */
#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_tcp_socket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATIENCE_S = 60 };

static void check(int good, const char *doing)
{
    if (!good) {
        printf("%s failed\n", doing);
        exit(1);
    }
}

static int print(const char *name, amqp_bytes_t text)
{
    return printf("%s=%.*s\n", name, (int)text.len, (const char *)text.bytes);
}

static amqp_connection_state_t connect_to(int port)
{
    amqp_connection_state_t conn = amqp_new_connection();
    amqp_socket_t *socket = amqp_tcp_socket_new(conn);
    check(amqp_socket_open(socket, "127.0.0.1", port) == AMQP_STATUS_OK, "connecting");
    amqp_rpc_reply_t in = amqp_login(conn, "/", 0, AMQP_DEFAULT_FRAME_SIZE, 0,
                                     AMQP_SASL_METHOD_PLAIN, "guest", "guest");
    check(in.reply_type == AMQP_RESPONSE_NORMAL, "login");
    amqp_channel_open(conn, 1);
    check(amqp_get_rpc_reply(conn).reply_type == AMQP_RESPONSE_NORMAL, "channel.open");
    amqp_confirm_select(conn, 1);
    check(amqp_get_rpc_reply(conn).reply_type == AMQP_RESPONSE_NORMAL, "confirm.select");
    return conn;
}

static void publish(amqp_connection_state_t conn, const char *key, int mandatory, int immediate)
{
    amqp_basic_properties_t props;
    props._flags = AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG;
    props.content_type = amqp_cstring_bytes("text/plain");
    props.delivery_mode = 2; /* persistent delivery mode */
    int status = amqp_basic_publish(conn, 1, amqp_empty_bytes, amqp_cstring_bytes(key), mandatory,
                                    immediate, &props, amqp_cstring_bytes("a message"));
    check(status == AMQP_STATUS_OK, "publishing");
}

static void read_returned(amqp_connection_state_t conn, const amqp_frame_t *frame)
{
    amqp_basic_return_t *returned = frame->payload.method.decoded;
    amqp_message_t message;
    printf("Return.reply_code=%d\n", returned->reply_code);
    print("Return.reply_text", returned->reply_text);
    print("Return.routing_key", returned->routing_key);
    amqp_rpc_reply_t ret = amqp_read_message(conn, frame->channel, &message, 0);
    check(ret.reply_type == AMQP_RESPONSE_NORMAL, "reading the returned message");
    print("Return.message", message.body);
    print("Return.content_type", message.properties.content_type);
    amqp_destroy_message(&message);
}

static void read_closed(const amqp_method_t *method)
{
    amqp_connection_close_t *closed = method->decoded;
    printf("Close.reply_code=%d\n", closed->reply_code);
    print("Close.reply_text", closed->reply_text);
    printf("Close.method=%s\n",
           amqp_method_name(((amqp_method_number_t)closed->class_id << 16) | closed->method_id));
}

/* Read one answer; whether it says what became of the publish. */
static int read_answer(amqp_connection_state_t conn)
{
    amqp_frame_t frame;
    struct timeval patience = {PATIENCE_S, 0};
    int status = amqp_simple_wait_frame_noblock(conn, &frame, &patience);
    check(status == AMQP_STATUS_OK, amqp_error_string2(status));
    check(frame.frame_type == AMQP_FRAME_METHOD, "reading a method");
    amqp_method_t method = frame.payload.method;
    printf("method.id=%08X,method.name=%s\n", method.id, amqp_method_name(method.id));
    int settled = 1;
    if (method.id == AMQP_BASIC_ACK_METHOD) {
        amqp_basic_ack_t *ack = method.decoded;
        printf("Ack.delivery_tag=%d\n", (int)ack->delivery_tag);
        printf("Ack.multiple=%d\n", ack->multiple);
    } else if (method.id == AMQP_BASIC_NACK_METHOD) {
        amqp_basic_nack_t *nack = method.decoded;
        printf("NAck.delivery_tag=%d\n", (int)nack->delivery_tag);
        printf("NAck.multiple=%d\n", nack->multiple);
        printf("NAck.requeue=%d\n", nack->requeue);
    } else if (method.id == AMQP_BASIC_RETURN_METHOD) {
        read_returned(conn, &frame);
        settled = 0;
    } else if (method.id == AMQP_CONNECTION_CLOSE_METHOD) {
        read_closed(&method);
    }
    amqp_maybe_release_buffers(conn);
    return settled;
}

static void publish_and_read(amqp_connection_state_t conn, const char *key, int mandatory)
{
    printf("-- to %s, mandatory=%d\n", key, mandatory);
    publish(conn, key, mandatory, 0);
    while (!read_answer(conn)) {
    }
}

static void declare(amqp_connection_state_t conn, const char *name, amqp_table_t arguments)
{
    amqp_queue_declare(conn, 1, amqp_cstring_bytes(name), 0, 1, 0, 0, arguments);
    check(amqp_get_rpc_reply(conn).reply_type == AMQP_RESPONSE_NORMAL, "queue.declare");
}

static void declare_queues(amqp_connection_state_t conn)
{
    amqp_table_entry_t entries[2];
    amqp_table_t full = {2, entries};
    entries[0].key = amqp_cstring_bytes("x-max-length");
    entries[0].value.kind = AMQP_FIELD_KIND_I32;
    entries[0].value.value.i32 = 1;
    entries[1].key = amqp_cstring_bytes("x-overflow");
    entries[1].value.kind = AMQP_FIELD_KIND_UTF8;
    entries[1].value.value.bytes = amqp_cstring_bytes("reject-publish");
    declare(conn, "kept", amqp_empty_table);
    declare(conn, "small", full);
}

int main(int argc, char **argv)
{
    check(argc == 2, "confirm PORT");
    int port = atoi(argv[1]);
    amqp_connection_state_t conn = connect_to(port);
    declare_queues(conn);
    printf("== 000 c, read acks, nacks and returns\n");
    publish_and_read(conn, "kept", 1);
    publish_and_read(conn, "nowhere", 0);
    publish_and_read(conn, "nowhere", 1);
    publish_and_read(conn, "small", 1);
    publish_and_read(conn, "small", 1); /* it is full: a nack */
    printf("kept: %d\n",
           (int)amqp_queue_delete(conn, 1, amqp_cstring_bytes("kept"), 0, 0)->message_count);
    amqp_queue_delete(conn, 1, amqp_cstring_bytes("small"), 0, 0);
    printf("== 000 c, publish with immediate\n");
    publish(conn, "kept", 0, 1);
    read_answer(conn);
    amqp_destroy_connection(conn);
    return 0;
}
