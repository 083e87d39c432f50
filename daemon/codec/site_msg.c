/* site_msg.c - life of the messages between sites.  See site_msg.h. */
#include "codec/site_msg.h"

#include <stdlib.h>

struct sr_site_msg *sr_site_msg_new(enum sr_site_msg_type type)
{
    struct sr_site_msg *msg = calloc(1, sizeof *msg);

    if (msg)
        msg->type = type;
    return msg;
}

void sr_site_msg_free(struct sr_site_msg *msg)
{
    if (!msg)
        return;
    if (msg->type == SR_SITE_CATALOG)
        free(msg->catalog.volumes);
    free(msg);
}

const char *sr_site_msg_name(enum sr_site_msg_type type)
{
    switch (type) {
#define SR_SITE_MSG_NAME(name, number)                                                                               \
    case SR_SITE_##name:                                                                                             \
        return #name;
        SR_SITE_MSGS(SR_SITE_MSG_NAME)
#undef SR_SITE_MSG_NAME
    }
    return "unknown";
}
