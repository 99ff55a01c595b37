/* A server: other processes use a store over sockets, with AMQP 0-9-1.
 *
 * The server's threads are its own, so a caller that is busy delays no client and no heartbeat.
 * What is policy it asks: qs_server_next_question tells who wants to come in, qs_server_answer says
 * whether they may.  Each virtual host is a store, which must stay open until qs_server_stop or
 * qs_server_end_vhost has returned. */
#ifndef QSTORE_SERVER_H
#define QSTORE_SERVER_H

#include "qstore/store.h"

typedef struct qs_server qs_server;

#define QS_ADDRESS_BYTES 128

typedef struct qs_server_options {
    /* More are closed as they come; 16384. */
    uint32_t connections_max;
    /* Of a connection; 2047. */
    uint16_t channel_max;
    /* Offered, in seconds; 0: no heartbeats; 60. */
    uint16_t heartbeat_s;
    /* Offered; 4096 at least; 131072. */
    uint32_t frame_max;
    /* Bytes of bodies that have not come whole, of all connections of a vhost together; 0: a
     * quarter of its store's memory_budget.  Publishers beyond it are held back, except for one at
     * a time. */
    uint64_t unfinished_bytes_max;
    /* Memory of transactions that were not committed, of all connections of a vhost together; 0: a
     * quarter of its store's memory_budget.  A channel is closed with 406 when those of its
     * connection take more than is left free: half of it, if there are no others. */
    uint64_t transaction_bytes_max;
    /* Declares of a quorum queue make a durable classic one, as there are no other machines; false:
     * 406. */
    bool quorum_as_classic;
    /* Each connection that the server accepts begins with a header of the PROXY protocol, version 1
     * or 2: its address is the client's from then on, and what begins otherwise is closed.  For
     * addresses that proxies alone can reach: a client can write any address into a header. */
    bool proxy_protocol;
    /* What connection.start says; "RabbitMQ", as some clients ask for that name before they use
     * what RabbitMQ does in its own way, and the version whose ways these are.  Copied. */
    const char *product, *version;
    /* In order, with spaces between; "PLAIN AMQPLAIN".  Copied. */
    const char *mechanisms;
    /* Is what users may do asked for, too?  false: each may do everything. */
    bool asks_permissions;
    /* Called with what happens to connections, as the note of qs_options: from a thread of the
     * server, which must not be kept waiting, until qs_server_stop has returned.  NULL: there are
     * no reports. */
    void (*note)(void *context, uint32_t level, const char *text);
    void *note_context;
} qs_server_options;

/* qs_server_options_default - the values that stand behind each option above. */
QS_API void qs_server_options_default(qs_server_options *options_out);

/* qs_server_open - start a server's threads.  It listens nowhere yet, and its one vhost is "/".
 *
 * In:      store    open, and not for reading only
 *          options  NULL: the defaults
 * Returns: QS_EINVAL (an option, or a store that was opened for reading only), QS_EMFILE, QS_EIO
 * Blocks:  when it fails, for the threads that it has started
 * Owns:    *server_out: qs_server_close */
QS_API QS_MUST_CHECK qs_status qs_server_open(qs_server **server_out, qs_store *store,
                                              const qs_server_options *options, qs_error *error);

/* qs_server_add_vhost - serve another store, as a virtual host.
 *
 * In:      name   1 to 255 bytes, not that of another one; copied
 *          store  open, not for reading only, not that of another vhost
 * Returns: QS_EINVAL (name or store), QS_EMFILE, QS_EIO, QS_EFORKED, QS_ESTORE_CLOSED (the server
 *          was stopped) */
QS_API QS_MUST_CHECK qs_status qs_server_add_vhost(qs_server *server, const char *name,
                                                   qs_store *store, qs_error *error);

/* qs_server_end_vhost - take no more clients into a vhost, and end the connections of those in it;
 * they hear of it (320).
 *
 * When this returns the server uses its store no more, and the name is free again.  One that there
 * is not is fine.
 * Blocks:  as qs_server_stop, for its own connections */
QS_API void qs_server_end_vhost(qs_server *server, const char *name, uint64_t timeout_ns);

/* qs_server_listen - accept connections at an address.
 *
 * In:      address    "HOST:PORT", a name or a number, IPv6 in brackets, port 0 for any; or
 *                     "unix:PATH", of mode 0600, where nothing is or a socket at which nothing
 *                     listens any more; or "fd:NUMBER", a socket that listens already, as systemd
 *                     passes it: the server's when this returns QS_OK
 * Out:     bound_out  the address in numbers; NUL-terminated
 * Returns: QS_EINVAL (no such address), QS_EIO (error->os_errno: it is taken, it is not this
 *          machine's, ...), QS_EMFILE, QS_ESTORE_CLOSED (the server was stopped)
 * Blocks:  to look up a name */
QS_API QS_MUST_CHECK qs_status qs_server_listen(qs_server *server, const char *address,
                                                char bound_out[QS_ADDRESS_BYTES], qs_error *error);

/* qs_server_bind - listen at an address for the caller, who accepts connections, and has the server
 * adopt what lies behind them.
 *
 * In:      address    as qs_server_listen
 * Out:     bound_out  the address in numbers; NUL-terminated
 * Returns: as qs_server_listen
 * Blocks:  to look up a name
 * Owns:    *fd_out is the caller's, as is the file of "unix:PATH" */
QS_API QS_MUST_CHECK qs_status qs_server_bind(const char *address, int *fd_out,
                                              char bound_out[QS_ADDRESS_BYTES], qs_error *error);

/* qs_server_adopt - serve a connection that the caller accepted, as the other end of a pair behind
 * which TLS ends.
 *
 * In:      fd           a connected stream socket
 *          peer         who is behind it, for texts; copied
 *          user         whom a certificate names, "" for none: of mechanism EXTERNAL; copied
 *          is_loopback  does the peer count as one of this machine
 * Returns: QS_EINVAL (fd is none), QS_EFORKED, QS_ESTORE_CLOSED (the server was stopped)
 * Blocks:  for nothing but the server's own lock
 * Owns:    fd is the server's, which closes it, also when it is not served: there are
 *          connections_max already, or what was returned */
QS_API QS_MUST_CHECK qs_status qs_server_adopt(qs_server *server, int fd, const char *peer,
                                               const char *user, bool is_loopback, qs_error *error);

#define QS_PROXY_HEADER_BYTES 4096

typedef struct qs_proxy_header {
    size_t bytes;     /* what comes behind them is the client's; 0: more of it must come */
    bool has_peer;    /* false: the connection is the proxy's own, or whose it is is not known */
    bool is_loopback; /* of the peer, seen from the proxy's machine */
    char peer[QS_ADDRESS_BYTES]; /* NUL-terminated */
} qs_proxy_header;

/* qs_proxy_header_read - the header of the PROXY protocol that a connection begins with, for those
 * that the caller accepts.
 *
 * In:      data     what has come; a header has QS_PROXY_HEADER_BYTES at most
 * Returns: QS_EINVAL (it does not begin with a header), as soon as that can be seen */
QS_API QS_MUST_CHECK qs_status qs_proxy_header_read(const void *data, size_t bytes,
                                                    qs_proxy_header *header_out, qs_error *error);

enum {
    QS_MAY_LOG_IN,    /* the user: it has mechanism and password, or certified */
    QS_MAY_ENTER,     /* the vhost that name is */
    QS_MAY_CONFIGURE, /* the exchange or queue of that name, as the next two */
    QS_MAY_WRITE,
    QS_MAY_READ,
};

typedef struct qs_question {
    uint64_t number; /* for the answer */
    uint32_t kind;   /* QS_MAY_* */
    bool is_loopback;
    /* Until the answer.  certified: the user of qs_server_adopt. */
    qs_slice mechanism, user, password, peer, certified;
    /* Of options.asks_permissions. */
    qs_slice vhost, name;
} qs_question;

/* qs_server_next_question - who wants to come in, or to do what?
 *
 * What users may do is asked before who may come in, and is remembered by each connection.  1024
 * logins wait for an answer at most: who comes then is refused.  Those of clients that have
 * gone before are not asked.
 * Returns: QS_ETIMEDOUT, QS_ESTORE_CLOSED (the server was stopped: there are no more)
 * Blocks:  up to timeout_ns
 * Threads: any number, each with a question of its own */
QS_API QS_MUST_CHECK qs_status qs_server_next_question(qs_server *server, uint64_t timeout_ns,
                                                       qs_question *question_out, qs_error *error);

enum { QS_ANSWER_NO, QS_ANSWER_YES, QS_ANSWER_ALL };

/* qs_server_answer - may they?  A question whose client has gone since is answered all the same.
 *
 * In:      number  of a question; each is answered once
 *          answer  QS_ANSWER_*; ALL: also every other name, for what may be done
 *          user    who it is from now on; empty: as the question has it */
QS_API void qs_server_answer(qs_server *server, uint64_t number, uint32_t answer, qs_slice user);

/* qs_server_forget_permissions - what was answered may be no longer so: connections ask again. */
QS_API void qs_server_forget_permissions(qs_server *server);

/* qs_server_end_connection - end a client's connection in order; it hears of it (320).
 *
 * In:      number  qs_client.number of the connection; one that there is not any more is fine
 * Returns: QS_ENOMEM, QS_ESTORE_CLOSED (the server was stopped)
 * Blocks:  not for the client */
QS_API QS_MUST_CHECK qs_status qs_server_end_connection(qs_server *server, uint64_t number,
                                                        qs_error *error);

typedef struct qs_server_counts {
    uint64_t connections;             /* now */
    uint64_t connections_accepted;    /* since it was opened, as all of these */
    uint64_t connections_turned_away; /* there were connections_max, or no descriptor was left */
    uint64_t logins_refused;
    uint64_t heartbeats_missed; /* connections ended for it */
    uint64_t handovers;         /* turns of connections that had to wait, in other threads */
    uint64_t bytes_received, bytes_sent; /* of connections that have ended */
} qs_server_counts;

/* qs_server_get_counts - what there is and was. */
QS_API void qs_server_get_counts(qs_server *server, qs_server_counts *counts_out);

/* qs_server_stop - listen no more, tell each client that the connection is closed (320), and end
 * the connections, which puts back what they hold.
 *
 * Who does not answer within timeout_ns is cut off.  Stopping twice is fine.
 * Blocks:  up to timeout_ns for clients, then as qs_connection_close for each connection */
QS_API void qs_server_stop(qs_server *server, uint64_t timeout_ns);

/* qs_server_close - stop it at once if it was not stopped, and free it.  In a child of fork() only
 * memory is freed.  NULL is fine.  REQUIRES that no call on it is under way.
 *
 * Blocks:  as qs_server_stop */
QS_API void qs_server_close(qs_server *server);

#endif
