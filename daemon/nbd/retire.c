/* retire.c - an export goes to another server: clients are to get an answer to everything that they have sent by now.
 *
 * What lies in the socket is read and submitted as ever, until there is nothing more or a bound stops the reading;
 * then the connection leaves, as after a client's goodbye.  A client with a fixed depth has all of it in flight by
 * then.
 *
 * Nothing here is durable.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "nbd/nbd_internal.h"

#define RETIRE_MS 250u /* for a client that has sent half a write */

static bool half_received(const struct conn *conn)
{
    return (conn->intake == INTAKE_PAYLOAD || conn->intake == INTAKE_DRAIN) && !conn->paused;
}

/* Reads a turn; what is still there comes in the next one. */
static void turn(struct conn *conn, uint64_t now_ms, uint64_t deadline_ms)
{
    uint64_t before = conn->server->stats.requests;

    nbd_conn_enter(conn);
    if (!conn->paused)
        nbd_transmission_readable(conn);
    bool moved = conn->server->stats.requests != before;
    if (conn->phase == PHASE_TRANSMISSION && ((!moved && !half_received(conn)) || now_ms >= deadline_ms))
        nbd_conn_finish(conn);
    nbd_conn_leave(conn);
}

static bool any_left(const struct sr_nbd_server *server, const void *export)
{
    const struct conn *conn;

    TAILQ_FOREACH (conn, &server->conns, link) {
        if (conn->retiring && conn->phase == PHASE_TRANSMISSION && conn->export == export)
            return true;
    }
    return false;
}

static void read_all(struct sr_nbd_server *server, const struct retiring *retiring)
{
    struct conn *conn, *next;

    for (conn = TAILQ_FIRST(&server->conns); conn; conn = next) {
        next = TAILQ_NEXT(conn, link);
        if (conn->retiring && conn->phase == PHASE_TRANSMISSION && conn->export == retiring->export)
            turn(conn, nbd_server_now(server), retiring->deadline_ms);
    }
}

void nbd_retire_turn(struct sr_nbd_server *server)
{
    struct retiring *retiring, *next;

    for (retiring = LIST_FIRST(&server->retiring); retiring; retiring = next) {
        read_all(server, retiring);
        next = LIST_NEXT(retiring, link);
        if (any_left(server, retiring->export))
            continue;
        void *export = retiring->export;
        LIST_REMOVE(retiring, link);
        free(retiring);
        server->callbacks.retired(server->arg, export);
    }
}

void nbd_retire_forget(struct sr_nbd_server *server)
{
    struct retiring *retiring;

    while ((retiring = LIST_FIRST(&server->retiring))) {
        LIST_REMOVE(retiring, link);
        free(retiring);
    }
}

void sr_nbd_retire_export(struct sr_nbd_server *server, void *export)
{
    struct retiring *retiring = calloc(1, sizeof *retiring);
    struct conn *conn;

    SR_ASSERT(retiring != NULL && server->callbacks.retired);
    retiring->export = export;
    retiring->deadline_ms = nbd_server_now(server) + RETIRE_MS;
    LIST_INSERT_HEAD(&server->retiring, retiring, link);
    TAILQ_FOREACH (conn, &server->conns, link) {
        if (conn->phase == PHASE_TRANSMISSION && conn->export == export)
            conn->retiring = true;
    }
    nbd_server_retry_now(server);
}
