/* wire.c - the link between the two sites.
 *
 * Invariants
 *   L1  Messages of one direction arrive in the order in which they were sent, each at most once.
 *   L2  A cut loses everything on its way in both directions.  Each site learns of it at its own time; until then
 *       whatever it sends is lost.  A new connection comes only after both have learned.
 *   L3  Each site learns of a new connection at its own time; what the other sends before waits.
 *   L4  A message hands over its struct; the bytes of its payload are copied only when it arrives, as they would
 *       be read from the sender's memory at any time until then.
 */
#include "sim.h"

#include <string.h>

#include "base/assert.h"

bool sim_wire_quiet(const struct sim_world *world)
{
    return world->wire.lane[0].n == 0 && world->wire.lane[1].n == 0;
}

bool sim_wire_clear_since(const struct sim_world *world, uint64_t since_us)
{
    const struct sim_wire *wire = &world->wire;

    if (!wire->connected || wire->dead_us != 0 || wire->up_since_us == 0 || wire->up_since_us >= since_us)
        return false;
    for (unsigned i = 0; i < 2; i++)
        if (!world->site[i].link_up || wire->lane[i].trouble_us >= since_us ||
            world->site[i].frozen_until_us >= since_us)
            return false;
    return true;
}

static uint64_t due(struct sim_world *world, unsigned to)
{
    struct sim_lane *lane = &world->wire.lane[to];
    uint64_t at_us = world->now_us + sim_delay(&world->rng, world->params.wire_us);

    if (at_us < lane->last_due_us)
        at_us = lane->last_due_us;
    if (at_us < lane->stalled_until_us)
        at_us = lane->stalled_until_us;
    if (!world->site[to].link_up && at_us <= world->site[to].link_up_due_us)
        at_us = world->site[to].link_up_due_us + 1;
    lane->last_due_us = at_us;
    return at_us;
}

void sim_wire_send(struct sim_world *world, unsigned from, struct sr_peer_msg *msg)
{
    unsigned to = !from;
    struct sim_lane *lane = &world->wire.lane[to];

    sim_trace(world, "%u    send %s session %llu id %llu block %llu+%llu%s", from, sr_peer_msg_name(msg->type),
              (unsigned long long)msg->session, (unsigned long long)msg->id,
              (unsigned long long)(msg->offset_bytes / SR_BLOCK_BYTES),
              (unsigned long long)(msg->length_bytes / SR_BLOCK_BYTES), world->wire.connected ? "" : " (lost)");
    if (!world->site[from].link_up)
        sim_fail(world, "wire", "site %u sends %s without a link", from, sr_peer_msg_name(msg->type));
    if (msg->payload != NULL && msg->payload_offset + (uint64_t)msg->payload_bytes > msg->payload->capacity)
        sim_fail(world, "wire", "site %u sends a payload beyond its buffer", from);
    if (!world->wire.connected || !world->site[from].link_up) {
        sr_peer_msg_free(msg);
        return;
    }
    if (lane->n == SIM_MESSAGES_MAX) {
        sim_fail(world, "wire", "more than %u messages on their way to site %u", SIM_MESSAGES_MAX, to);
        sr_peer_msg_free(msg);
        return;
    }
    world->wire.pivotal |= msg->type == SR_MSG_MAP || msg->type == SR_MSG_START || msg->type == SR_MSG_STARTED ||
                           msg->type == SR_MSG_COMPLETE || msg->type == SR_MSG_COMPLETED || msg->type == SR_MSG_TAKE ||
                           msg->type == SR_MSG_TAKEN;
    lane->queue[(lane->head + lane->n++) % SIM_MESSAGES_MAX] = msg;
    world->stats->messages++;
    sim_world_push(world, SIM_EV_WIRE, to, due(world, to), world->wire.connection);
}

/* A struct and a payload of the receiver's own. */
static struct sr_peer_msg *copy(const struct sr_peer_msg *msg)
{
    struct sr_peer_msg *twin = sr_peer_msg_new(msg->type, msg->session);

    SR_ASSERT(twin != NULL);
    *twin = *msg;
    if (msg->payload == NULL)
        return twin;
    SR_ASSERT(msg->payload_bytes > 0);
    twin->payload = sr_buf_alloc(NULL, msg->payload_bytes);
    SR_ASSERT(twin->payload != NULL);
    memcpy(twin->payload->data, msg->payload->data + msg->payload_offset, msg->payload_bytes);
    twin->payload_offset = 0;
    return twin;
}

void sim_wire_deliver(struct sim_world *world, unsigned to, uint32_t connection)
{
    struct sim_lane *lane = &world->wire.lane[to];
    struct sim_site *me = &world->site[to];
    struct sr_event event = {.type = SR_EV_PEER_MSG};

    if (!world->wire.connected || connection != world->wire.connection || lane->n == 0)
        return;
    if (lane->stalled_until_us > world->now_us) {
        sim_world_push(world, SIM_EV_WIRE, to, lane->stalled_until_us, connection);
        return;
    }
    if (!me->link_up) { /* its LINK_UP was put off by a frozen process */
        uint64_t at_us = me->link_up_due_us > world->now_us ? me->link_up_due_us : world->now_us;
        sim_world_push(world, SIM_EV_WIRE, to, at_us + 1, connection);
        return;
    }
    struct sr_peer_msg *msg = lane->queue[lane->head];
    lane->head = (lane->head + 1) % SIM_MESSAGES_MAX;
    lane->n--;
    event.msg = copy(msg);
    me->met_peer = true;
    sim_trace(world, "%u receive %s session %llu id %llu", to, sr_peer_msg_name(msg->type),
              (unsigned long long)msg->session, (unsigned long long)msg->id);
    sr_peer_msg_free(msg);
    sim_world_step(world, to, &event);
}

/* ---- connections ----------------------------------------------------------------------------------------------- */

static void drop_messages(struct sim_world *world)
{
    for (unsigned to = 0; to < 2; to++) {
        struct sim_lane *lane = &world->wire.lane[to];
        for (; lane->n > 0; lane->n--, lane->head = (lane->head + 1) % SIM_MESSAGES_MAX)
            sr_peer_msg_free(lane->queue[lane->head]);
        lane->last_due_us = lane->stalled_until_us = 0;
        if (lane->trouble_us > world->now_us)
            lane->trouble_us = world->now_us;
    }
}

void sim_wire_cut(struct sim_world *world)
{
    drop_messages(world);
    world->wire.dead_us = world->wire.up_since_us = 0;
    if (!world->wire.connected)
        return;
    sim_trace(world, "  link cut");
    world->wire.connected = false;
    for (unsigned i = 0; i < 2; i++)
        if (world->site[i].up && world->site[i].link_up)
            sim_world_push(world, SIM_EV_LINK_DOWN, i,
                           world->now_us + sim_delay(&world->rng, world->params.notice_us), 0);
    sim_world_push(world, SIM_EV_CONNECT, 0, world->now_us + sim_delay(&world->rng, world->params.notice_us), 0);
}

void sim_wire_down(struct sim_world *world, unsigned site)
{
    struct sr_event event = {.type = SR_EV_LINK_DOWN};

    SR_ASSERT(world->site[site].link_up);
    world->site[site].link_up = false;
    sim_world_step(world, site, &event);
    sim_world_push(world, SIM_EV_CONNECT, 0, world->now_us + sim_delay(&world->rng, world->params.notice_us), 0);
}

void sim_wire_connect(struct sim_world *world)
{
    struct sim_wire *wire = &world->wire;

    if (wire->connected)
        return;
    for (unsigned i = 0; i < 2; i++)
        if (!world->site[i].up || world->site[i].link_up)
            return; /* its start, or its LINK_DOWN, comes back here */
    if (wire->cut_until_us > world->now_us) {
        sim_world_push(world, SIM_EV_CONNECT, 0, wire->cut_until_us, 0);
        return;
    }
    wire->connected = true;
    wire->connection++;
    sim_trace(world, "  link %u made", wire->connection);
    for (unsigned i = 0; i < 2; i++) {
        uint64_t delay_us = sim_chance(&world->rng, 300) ? 0 : sim_delay(&world->rng, world->params.wire_us);
        world->site[i].link_up_due_us = world->now_us + delay_us;
        sim_world_push(world, SIM_EV_LINK_UP, i, world->site[i].link_up_due_us, wire->connection);
    }
}

void sim_wire_up(struct sim_world *world, unsigned site, uint32_t connection)
{
    struct sr_event event = {.type = SR_EV_LINK_UP};

    if (!world->wire.connected || connection != world->wire.connection)
        return; /* cut before it was heard of */
    world->site[site].link_up = true;
    world->site[site].link_up_us = world->now_us;
    if (world->site[!site].link_up)
        world->wire.up_since_us = world->now_us;
    sim_world_step(world, site, &event);
}
