/* certificates.c - the certificates that a configuration names, checked as part of it: each fault has its place in the file.
 *
 * Apart from config/, which knows no TLS.  Nothing is kept: whoever uses a certificate loads it again. */
#include <string.h>

#include "site.h"

/* sr_tls_load begins its text with the file that is wrong. */
static const struct sr_config_place *place_of(const struct sr_config_tls *tls, const char *text)
{
    const char *files[] = {tls->key, tls->ca, tls->certificate};
    const struct sr_config_place *places[] = {&tls->key_at, &tls->ca_at, &tls->certificate_at};

    for (size_t i = 0; i < 3; i++) {
        size_t bytes = strlen(files[i]);
        if (strncmp(text, files[i], bytes) == 0 && text[bytes] == ':')
            return places[i];
    }
    return &tls->certificate_at;
}

static bool check(enum sr_tls_purpose purpose, const struct sr_config *config, const struct sr_config_tls *tls,
                  struct sr_config_faults *faults)
{
    struct sr_tls_files files = {tls->ca, tls->certificate, tls->key};
    const char *section = purpose == SR_TLS_PEER ? "tls" : "nbd.tls";
    char text[SR_TLS_TEXT_BYTES];
    struct sr_tls *loaded = NULL;

    if (!tls->certificate)
        return true;
    if (sr_tls_load(purpose, &files, purpose == SR_TLS_PEER ? config->site : NULL, &loaded, text, sizeof(text)) == SR_OK) {
        sr_tls_unref(loaded);
        return true;
    }
    sr_config_fault(faults, config->file, place_of(tls, text), "%s: %s", section, text);
    return false;
}

bool sr_certificates_check(const struct sr_config *config, struct sr_config_faults *faults)
{
    bool peer = check(SR_TLS_PEER, config, &config->tls, faults);

    return check(SR_TLS_NBD, config, &config->nbd_tls, faults) && peer;
}
