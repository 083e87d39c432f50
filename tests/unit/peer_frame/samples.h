/* samples.h - messages to encode: fixed ones for the golden bytes, random ones for properties. */
#ifndef SAMPLES_H
#define SAMPLES_H

#include "codec/peer_frame.h"

struct sr_uuid sample_uuid(uint8_t first); /* first, first + 1 ... */

/* The sample of a type; every field that the type carries is set. */
struct sr_peer_msg *sample_msg(enum sr_peer_msg_type type);
struct sr_site_msg *sample_site(enum sr_site_msg_type type);

struct random {
    uint64_t state;
};
uint64_t random_next(struct random *random);
uint64_t random_below(struct random *random, uint64_t n);

struct sr_peer_msg *random_msg(struct random *random);
struct sr_site_msg *random_site(struct random *random);

/* Fixed and protobuf header into out; the length. */
size_t encode_any(uint8_t *out, size_t capacity, const struct sr_uuid *collection, const struct sr_peer_msg *msg,
                  const struct sr_site_msg *site);

extern const enum sr_peer_msg_type all_peer_types[];
extern const unsigned n_peer_types;
extern const enum sr_site_msg_type all_site_types[];
extern const unsigned n_site_types;

#endif
