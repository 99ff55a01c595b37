/* A server lets other processes use a store over sockets, with AMQP 0-9-1.
 *
 * The server's threads are its own, so a caller that is busy delays no client and no heartbeat.
 * The server asks the caller for decisions: qs_server_next_question returns a client's request to
 * log in or to act, qs_server_answer grants or refuses it.  Each virtual host is a store, which
 * must stay open until qs_server_stop or qs_server_end_vhost has returned. */
#ifndef QSTORE_SERVER_H
#define QSTORE_SERVER_H

#include "qstore/store.h"

typedef struct qs_server qs_server;

#define QS_ADDRESS_BYTES 128

typedef struct qs_server_options {
    /* The most connections; further ones are closed as they come; 16384. */
    uint32_t connections_max;
    /* The most channels of a connection; 2047. */
    uint16_t channel_max;
    /* The heartbeat offered to clients, in seconds; 0: none; 60. */
    uint16_t heartbeat_s;
    /* The frame size offered to clients, 4096 at least; 131072. */
    uint32_t frame_max;
    /* Limit for bodies that have not arrived whole, in bytes, over all connections of a vhost; 0: a
     * quarter of its store's memory_budget.  Publishers beyond the limit are held back, except for
     * one at a time. */
    uint64_t unfinished_bytes_max;
    /* Limit for the memory of uncommitted transactions over all connections of a vhost; 0: a
     * quarter of its store's memory_budget.  A channel is closed with 406 when the transactions of
     * its connection take more than is left free: half of the limit, if there are no others. */
    uint64_t transaction_bytes_max;
    /* Declaring a quorum queue makes a durable classic queue, as there are no other machines;
     * false: 406. */
    bool quorum_as_classic;
    /* Each accepted connection begins with a header of the PROXY protocol, version 1 or 2, whose
     * address becomes the client's; a connection that begins otherwise is closed.  Use it only for
     * addresses that proxies alone can reach: a client can write any address into a header. */
    bool proxy_protocol;
    /* Product and version in connection.start.  The default is "RabbitMQ", as some clients ask for
     * that name before they use extensions of RabbitMQ, and the version that these extensions
     * follow.  Copied. */
    const char *product, *version;
    /* Login mechanisms in order, separated by spaces; "PLAIN AMQPLAIN".  Copied. */
    const char *mechanisms;
    /* Ask for permissions of users, too; false: each user may do everything. */
    bool asks_permissions;
    /* Called for events of connections, like the note of qs_options, until qs_server_stop has
     * returned.  The calling thread serves clients, so the function must not wait.  NULL: no
     * reports. */
    void (*note)(void *context, uint32_t level, const char *text);
    void *note_context;
} qs_server_options;

/* qs_server_options_default - fill in the default of each option, named last in the comments
 * above. */
QS_API void qs_server_options_default(qs_server_options *options_out);

/* qs_server_open - start the threads of a server.  It listens nowhere yet, and has one vhost, "/".
 *
 * In:      store    open, and not for reading only
 *          options  NULL: the defaults
 * Returns: QS_EINVAL (an option, or a store that was opened for reading only), QS_EMFILE, QS_EIO
 * Blocks:  on failure, for the threads that it has started
 * Owns:    *server_out: qs_server_close */
QS_API QS_MUST_CHECK qs_status qs_server_open(qs_server **server_out, qs_store *store,
                                              const qs_server_options *options, qs_error *error);

/* qs_server_add_vhost - serve another store as a virtual host.
 *
 * In:      name   1 to 255 bytes, not the name of another vhost; copied
 *          store  open, not for reading only, not the store of another vhost
 * Returns: QS_EINVAL (name or store), QS_EMFILE, QS_EIO, QS_EFORKED, QS_ESTORE_CLOSED (the server
 *          was stopped) */
QS_API QS_MUST_CHECK qs_status qs_server_add_vhost(qs_server *server, const char *name,
                                                   qs_store *store, qs_error *error);

/* qs_server_end_vhost - accept no more clients for a vhost, and close its connections with
 * connection.close (320).
 *
 * When this returns, the server does not use the store any more, and the name is free again.  A
 * missing vhost is fine.
 * Blocks:  as qs_server_stop, for the connections of the vhost */
QS_API void qs_server_end_vhost(qs_server *server, const char *name, uint64_t timeout_ns);

/* qs_server_listen - accept connections at an address.
 *
 * In:      address    "HOST:PORT": a name or a number, IPv6 in brackets, port 0 for any; or
 *                     "unix:PATH": a socket of mode 0600, at a free path or in place of a socket at
 *                     which nothing listens any more; or "fd:NUMBER": a listening socket, as
 *                     systemd passes it, which the server owns when this returns QS_OK
 * Out:     bound_out  the address in numbers; NUL-terminated
 * Returns: QS_EINVAL (no such address), QS_EIO (error->os_errno: it is taken, it is not this
 *          machine's, ...), QS_EMFILE, QS_ESTORE_CLOSED (the server was stopped)
 * Blocks:  to look up a name */
QS_API QS_MUST_CHECK qs_status qs_server_listen(qs_server *server, const char *address,
                                                char bound_out[QS_ADDRESS_BYTES], qs_error *error);

/* qs_server_bind - listen at an address for the caller, which accepts the connections and has the
 * server adopt them.
 *
 * In:      address    as qs_server_listen
 * Out:     bound_out  the address in numbers; NUL-terminated
 * Returns: as qs_server_listen
 * Blocks:  to look up a name
 * Owns:    the caller: *fd_out and the file of "unix:PATH" */
QS_API QS_MUST_CHECK qs_status qs_server_bind(const char *address, int *fd_out,
                                              char bound_out[QS_ADDRESS_BYTES], qs_error *error);

/* qs_server_adopt - serve a connection that the caller accepted, for example the far end of a
 * socket pair at which the caller ends TLS.
 *
 * In:      fd           a connected stream socket
 *          peer         the client's address, for texts; copied
 *          user         the user named by a certificate, for the mechanism EXTERNAL; "": none;
 *                       copied
 *          is_loopback  whether the peer counts as a client of this machine
 * Returns: QS_EINVAL (fd is no such socket), QS_EFORKED, QS_ESTORE_CLOSED (the server was stopped)
 * Blocks:  for the server's own lock alone
 * Owns:    the server: it closes fd, also when the connection is not served, because there are
 *          connections_max already or because of the status returned */
QS_API QS_MUST_CHECK qs_status qs_server_adopt(qs_server *server, int fd, const char *peer,
                                               const char *user, bool is_loopback, qs_error *error);

#define QS_PROXY_HEADER_BYTES 4096

typedef struct qs_proxy_header {
    size_t bytes;                /* of the header; the client's bytes follow; 0: it is incomplete */
    bool has_peer;               /* false: the proxy's own connection, or an unknown peer */
    bool is_loopback;            /* of the peer, seen from the proxy's machine */
    char peer[QS_ADDRESS_BYTES]; /* NUL-terminated */
} qs_proxy_header;

/* qs_proxy_header_read - read the header of the PROXY protocol at the beginning of a connection
 * that the caller accepts.
 *
 * In:      data     the bytes received so far; a header has QS_PROXY_HEADER_BYTES at most
 * Returns: QS_EINVAL (the bytes do not begin with a header), as soon as that can be seen */
QS_API QS_MUST_CHECK qs_status qs_proxy_header_read(const void *data, size_t bytes,
                                                    qs_proxy_header *header_out, qs_error *error);

enum {
    QS_MAY_LOG_IN,    /* log in as user, with mechanism and password, or certified */
    QS_MAY_ENTER,     /* enter the vhost name */
    QS_MAY_CONFIGURE, /* configure the exchange or queue name; likewise the next two */
    QS_MAY_WRITE,
    QS_MAY_READ,
};

typedef struct qs_question {
    uint64_t number; /* for the answer */
    uint32_t kind;   /* QS_MAY_* */
    bool is_loopback;
    /* Valid until the answer.  certified: the user of qs_server_adopt. */
    qs_slice mechanism, user, password, peer, certified;
    /* Of options.asks_permissions. */
    qs_slice vhost, name;
} qs_question;

/* qs_server_next_question - return the next request of a client to log in, or to do something.
 *
 * Questions about permissions come before logins; each connection remembers the answers.  At most
 * 1024 logins wait for an answer; further ones are refused.  Logins of clients that have gone are
 * not asked.
 * Returns: QS_ETIMEDOUT, QS_ESTORE_CLOSED (the server was stopped: there are no more)
 * Blocks:  up to timeout_ns
 * Threads: any number, each with its own question */
QS_API QS_MUST_CHECK qs_status qs_server_next_question(qs_server *server, uint64_t timeout_ns,
                                                       qs_question *question_out, qs_error *error);

enum { QS_ANSWER_NO, QS_ANSWER_YES, QS_ANSWER_ALL };

/* qs_server_answer - answer a question, even if its client has gone since.
 *
 * In:      number  the number of the question; each is answered once
 *          answer  QS_ANSWER_*; ALL: a permission for every other name, too
 *          user    the user's name from now on; empty: the one in the question */
QS_API void qs_server_answer(qs_server *server, uint64_t number, uint32_t answer, qs_slice user);

/* qs_server_forget_permissions - forget the permissions that were answered: connections ask
 * again. */
QS_API void qs_server_forget_permissions(qs_server *server);

/* qs_server_end_connection - close a client's connection in order, with connection.close (320).
 *
 * In:      number  qs_client.number of the connection; one that has ended is fine
 * Returns: QS_ENOMEM, QS_ESTORE_CLOSED (the server was stopped)
 * Blocks:  not for the client */
QS_API QS_MUST_CHECK qs_status qs_server_end_connection(qs_server *server, uint64_t number,
                                                        qs_error *error);

typedef struct qs_server_counts {
    uint64_t connections;             /* now */
    uint64_t connections_accepted;    /* since the server was opened, as all below */
    uint64_t connections_turned_away; /* there were connections_max, or no descriptor was left */
    uint64_t logins_refused;
    uint64_t heartbeats_missed; /* connections ended for it */
    uint64_t handovers;         /* turns of connections that had to wait, in other threads */
    uint64_t bytes_received, bytes_sent; /* of connections that have ended */
} qs_server_counts;

/* qs_server_get_counts - return counts of connections and traffic. */
QS_API void qs_server_get_counts(qs_server *server, qs_server_counts *counts_out);

/* qs_server_stop - stop listening, tell each client that the connection is closed (320), and end
 * the connections, which requeues their unacknowledged messages.
 *
 * A client that does not answer within timeout_ns is cut off.  Stopping twice is fine.
 * Blocks:  up to timeout_ns for clients, then as qs_connection_close for each connection */
QS_API void qs_server_stop(qs_server *server, uint64_t timeout_ns);

/* qs_server_close - free a server, and stop it at once if it was not stopped.  In a child of fork()
 * only memory is freed.  NULL is fine.  REQUIRES that no call on the server is running.
 *
 * Blocks:  as qs_server_stop */
QS_API void qs_server_close(qs_server *server);

#endif
