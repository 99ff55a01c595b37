/* What all files of a server use: its lock, clock, log, and the list of ready connections. */
#include "net_server.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/eventfd.h>

#define NOTE_BYTES 512

void qsi_net_lock(struct qs_server *server) QSI_UNCHECKED
{
    qsi_mutex_lock(&server->mutex);
}

void qsi_net_unlock(struct qs_server *server) QSI_UNCHECKED
{
    qsi_mutex_unlock(&server->mutex);
}

uint64_t qsi_net_now(const struct qs_server *server)
{
    return server->env->monotonic_ns(server->env);
}

void qsi_net_wake(struct qs_server *server)
{
    if (!server->is_awake) {
        server->is_awake = true;
        (void)eventfd_write(server->wake_fd, 1);
    }
}

/* Replaces control characters: with a line break in its name, a client could forge a line of the
 * log. */
static void blank_controls(char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f) {
            *text = '?';
        }
    }
}

void qsi_net_log(struct qs_server *server, uint32_t level, const char *format, ...)
{
    char text[NOTE_BYTES];
    va_list arguments;

    if (server->options.note != NULL) {
        va_start(arguments, format);
        vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        blank_controls(text);
        server->options.note(server->options.note_context, level, text);
    }
}

void qsi_net_make_ready(struct qsi_net_connection *connection)
{
    if (connection->place == QSI_NET_HERE && !connection->is_ready) {
        connection->is_ready = true;
        qsi_list_push_back(&connection->server->ready, &connection->in_queue);
    }
}
