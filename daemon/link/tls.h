/* tls.h - certificates of a site, checked when they are loaded and not first when a peer refuses them.
 *
 * A struct sr_tls is one set of CA, certificate and key that was found good: immutable and reference-counted.  To
 * rotate, load a new set and hand it over; if that fails the old one is untouched.  Connections keep the set that
 * they began with.  Any one thread at a time.
 */
#ifndef SR_LINK_TLS_H
#define SR_LINK_TLS_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct sr_tls;

enum sr_tls_purpose {
    SR_TLS_PEER, /* both ends of the peer link: TLS 1.3, certificate for clients and for servers */
    SR_TLS_NBD   /* server for hosts: TLS 1.2 or 1.3, hosts must show a certificate of the CA */
};

/* PEM files.  ca may hold several certificates (old and new while a CA is replaced), certificate its chain behind the
 * first. */
struct sr_tls_files {
    const char *ca, *certificate, *key;
};

#define SR_TLS_TEXT_BYTES 512

/* Reads and checks a set; blocks on the file system.  own_name: the certificate must carry this DNS name (NULL: not
 * checked).  Refused, with text (SR_TLS_TEXT_BYTES or less) naming the file and the cause: unreadable, not PEM,
 * expired or not yet valid, key of another certificate, not issued by the CA, wrong name, not for this purpose. */
enum sr_error sr_tls_load(enum sr_tls_purpose purpose, const struct sr_tls_files *files, const char *own_name,
                          struct sr_tls **tls, char *text, size_t text_bytes);

struct sr_tls *sr_tls_ref(struct sr_tls *tls); /* returns tls; NULL stays NULL */
void sr_tls_unref(struct sr_tls *tls);         /* NULL is fine */

SSL_CTX *sr_tls_context(const struct sr_tls *tls); /* lives as long as tls, or as its own references */

/* When the site's certificate ends, and the first of the CA's; seconds since 1970. */
int64_t sr_tls_expires_s(const struct sr_tls *tls);
int64_t sr_tls_ca_expires_s(const struct sr_tls *tls);

/* After a handshake: does the other end's certificate carry the DNS name `expected`?  No wildcards, no common name.
 * SR_E_IDENTITY: it does not; text names both. */
enum sr_error sr_tls_check_name(SSL *ssl, const char *expected, char *text, size_t text_bytes);

/* When the other end's certificate ends, seconds since 1970; 0: it showed none. */
int64_t sr_tls_peer_expires_s(SSL *ssl);

#endif
