/* certs.h - certificates for tests, good and bad ones, in a folder of their own. */
#ifndef CERTS_H
#define CERTS_H

#include <stdbool.h>

#include "link/tls.h"

struct certs {
    char folder[64];
};

struct cert_file {
    char certificate[128], key[128];
};

struct cert_spec {
    const char *dns;         /* NULL: none */
    const char *common_name; /* NULL: "x" */
    long from_s, to_s;       /* from now; both 0: an hour around now */
    bool server_only;
};

void certs_make(struct certs *certs); /* mkdtemp */
void certs_remove(struct certs *certs);

/* FOLDER/name.crt and .key; the paths are in *file. */
void certs_ca(struct certs *certs, const char *name, struct cert_file *file);
void certs_site(struct certs *certs, const char *name, const struct cert_file *ca, const struct cert_spec *spec,
                struct cert_file *file);

/* Loads; the test fails if that does not work. */
struct sr_tls *certs_load(const struct cert_file *ca, const struct cert_file *site);

#endif
