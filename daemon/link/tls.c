/* tls.c - loading certificates, and saying in words what is wrong with them.
 *
 * Everything a peer would hold against this site's certificate is checked here first, with the same rules: an
 * operator learns it from the command that loads the file, not from the other site's log.
 */
#include "link/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"

#define NAME_FLAGS  (X509_CHECK_FLAG_NO_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT)
#define NAMES_BYTES 160

struct sr_tls {
    unsigned refs;
    SSL_CTX *context;
    int64_t expires_s, ca_expires_s;
};

/* What is being loaded, and where to say what is wrong. */
struct loading {
    enum sr_tls_purpose purpose;
    const struct sr_tls_files *files;
    const char *own_name;
    X509_STORE *store;
    X509 *certificate;
    STACK_OF(X509) * chain;
    EVP_PKEY *key;
    int64_t ca_expires_s;
    char *text;
    size_t text_bytes;
};

static int64_t not_after(const X509 *certificate)
{
    struct tm tm;

    memset(&tm, 0, sizeof tm);
    if (!ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &tm))
        return 0;
    return (int64_t)timegm(&tm);
}

static void format_time(const ASN1_TIME *when, char *text, size_t bytes)
{
    struct tm tm;

    memset(&tm, 0, sizeof tm);
    if (!ASN1_TIME_to_tm(when, &tm) || strftime(text, bytes, "%Y-%m-%d %H:%M:%S UTC", &tm) == 0)
        snprintf(text, bytes, "an unreadable time");
}

/* The DNS names of a certificate, for people. */
static void format_names(X509 *certificate, char *text, size_t bytes)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        int length;

        if (name->type != GEN_DNS)
            continue;
        length = ASN1_STRING_length(name->d.dNSName);
        if (used + 6 > bytes)
            break;
        used += (size_t)snprintf(text + used, bytes - used, "%s\"", used ? ", " : "");
        for (int j = 0; j < length && used + 2 < bytes; j++) {
            char c = (char)ASN1_STRING_get0_data(name->d.dNSName)[j];

            text[used++] = c > ' ' && c <= '~' ? c : '?';
        }
        if (used + 1 < bytes)
            text[used++] = '"';
        text[used] = '\0';
    }
    GENERAL_NAMES_free(names);
    if (used == 0)
        snprintf(text, bytes, "no DNS name");
}

static enum sr_error open_file(struct loading *l, const char *path, FILE **file)
{
    *file = fopen(path, "re");
    if (*file)
        return SR_OK;
    snprintf(l->text, l->text_bytes, "%s: %s", path, strerror(errno));
    return errno == ENOENT ? SR_E_NOT_FOUND : sr_error_from_errno(errno);
}

static enum sr_error load_ca(struct loading *l)
{
    enum sr_error error;
    X509 *ca;
    FILE *file;
    int n = 0;

    error = open_file(l, l->files->ca, &file);
    if (error != SR_OK)
        return error;
    while ((ca = PEM_read_X509(file, NULL, NULL, NULL)) != NULL) {
        int64_t expires_s = not_after(ca);

        if (n++ == 0 || expires_s < l->ca_expires_s)
            l->ca_expires_s = expires_s;
        X509_STORE_add_cert(l->store, ca);
        X509_free(ca);
    }
    fclose(file);
    /* Reading ends with "no start line"; anything else is a damaged certificate behind a good one. */
    if (n == 0 || ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE) {
        snprintf(l->text, l->text_bytes, "%s: no CA certificate in PEM form, or a damaged one", l->files->ca);
        return SR_E_INVALID;
    }
    ERR_clear_error();
    return SR_OK;
}

static enum sr_error load_certificate(struct loading *l)
{
    enum sr_error error;
    X509 *more;
    FILE *file;

    error = open_file(l, l->files->certificate, &file);
    if (error != SR_OK)
        return error;
    l->certificate = PEM_read_X509(file, NULL, NULL, NULL);
    while (l->certificate && (more = PEM_read_X509(file, NULL, NULL, NULL)) != NULL)
        if (!sk_X509_push(l->chain, more))
            X509_free(more);
    fclose(file);
    if (!l->certificate || ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE) {
        snprintf(l->text, l->text_bytes, "%s: no certificate in PEM form, or a damaged one", l->files->certificate);
        return SR_E_INVALID;
    }
    ERR_clear_error();
    return SR_OK;
}

static int no_passphrase(char *buffer, int size, int writing, void *arg)
{
    (void)buffer;
    (void)size;
    (void)writing;
    (void)arg;
    return -1;
}

static enum sr_error load_key(struct loading *l)
{
    enum sr_error error;
    FILE *file;

    error = open_file(l, l->files->key, &file);
    if (error != SR_OK)
        return error;
    l->key = PEM_read_PrivateKey(file, NULL, no_passphrase, NULL);
    fclose(file);
    ERR_clear_error();
    if (!l->key) {
        snprintf(l->text, l->text_bytes, "%s: no private key in PEM form, a damaged one, or one with a passphrase",
                 l->files->key);
        return SR_E_INVALID;
    }
    if (X509_check_private_key(l->certificate, l->key) != 1) {
        ERR_clear_error();
        snprintf(l->text, l->text_bytes, "%s: this key does not belong to the certificate in %s", l->files->key,
                 l->files->certificate);
        return SR_E_INVALID;
    }
    return SR_OK;
}

/* Says why the certificate's chain was refused. */
static enum sr_error refuse_chain(struct loading *l, int error, X509 *at)
{
    const char *file = l->files->certificate, *whose = "";
    char when[40];

    if (at && at != l->certificate && X509_cmp(at, l->certificate) != 0)
        whose = "the CA's certificate: ";
    if (!at)
        at = l->certificate;
    switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        format_time(X509_get0_notAfter(at), when, sizeof when);
        snprintf(l->text, l->text_bytes, "%s: %scertificate has expired at %s", file, whose, when);
        break;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        format_time(X509_get0_notBefore(at), when, sizeof when);
        snprintf(l->text, l->text_bytes, "%s: %scertificate is not valid before %s", file, whose, when);
        break;
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
        snprintf(l->text, l->text_bytes, "%s: certificate was not issued by the CA in %s", file, l->files->ca);
        break;
    default:
        snprintf(l->text, l->text_bytes, "%s: %s%s", file, whose, X509_verify_cert_error_string(error));
        break;
    }
    return SR_E_INVALID;
}

static enum sr_error verify_own(struct loading *l)
{
    X509_STORE_CTX *context = X509_STORE_CTX_new();
    enum sr_error error = SR_OK;

    if (!context || !X509_STORE_CTX_init(context, l->store, l->certificate, l->chain)) {
        snprintf(l->text, l->text_bytes, "%s: no memory to check it", l->files->certificate);
        error = SR_E_NO_MEMORY;
    } else if (X509_verify_cert(context) != 1) {
        error = refuse_chain(l, X509_STORE_CTX_get_error(context), X509_STORE_CTX_get_current_cert(context));
    }
    X509_STORE_CTX_free(context);
    ERR_clear_error();
    return error;
}

static enum sr_error check_own(struct loading *l)
{
    enum sr_error error = verify_own(l);
    char names[NAMES_BYTES];

    if (error != SR_OK)
        return error;
    if (X509_check_purpose(l->certificate, X509_PURPOSE_SSL_SERVER, 0) != 1 ||
        (l->purpose == SR_TLS_PEER && X509_check_purpose(l->certificate, X509_PURPOSE_SSL_CLIENT, 0) != 1)) {
        snprintf(l->text, l->text_bytes, "%s: certificate is not for %s (extended key usage)", l->files->certificate,
                 l->purpose == SR_TLS_PEER ? "servers and clients" : "servers");
        return SR_E_INVALID;
    }
    if (l->own_name && X509_check_host(l->certificate, l->own_name, 0, NAME_FLAGS, NULL) != 1) {
        format_names(l->certificate, names, sizeof names);
        snprintf(l->text, l->text_bytes, "%s: certificate is for %s, but this site is \"%s\"", l->files->certificate,
                 names, l->own_name);
        return SR_E_IDENTITY;
    }
    return SR_OK;
}

static bool configure(struct loading *l, SSL_CTX *context)
{
    static const unsigned char session_context[] = "syncrep";

    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set1_cert_store(context, l->store);
    /* A resumed session would skip the certificate check of its day. */
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    return SSL_CTX_set_min_proto_version(context, l->purpose == SR_TLS_PEER ? TLS1_3_VERSION : TLS1_2_VERSION) &&
           SSL_CTX_set_num_tickets(context, 0) &&
           SSL_CTX_set_session_id_context(context, session_context, sizeof session_context - 1) &&
           SSL_CTX_use_certificate(context, l->certificate) && SSL_CTX_use_PrivateKey(context, l->key) &&
           SSL_CTX_set1_chain(context, l->chain);
}

static enum sr_error build(struct loading *l, struct sr_tls **tls)
{
    struct sr_tls *made = calloc(1, sizeof *made);

    if (!made)
        goto fail;
    made->refs = 1;
    made->expires_s = not_after(l->certificate);
    made->ca_expires_s = l->ca_expires_s;
    made->context = SSL_CTX_new(l->purpose == SR_TLS_PEER ? TLS_method() : TLS_server_method());
    if (!made->context)
        goto fail_made;
    if (!configure(l, made->context))
        goto fail_context;
    *tls = made;
    return SR_OK;

fail_context:
    snprintf(l->text, l->text_bytes, "%s: %s", l->files->certificate, ERR_reason_error_string(ERR_peek_last_error()));
    ERR_clear_error();
    SSL_CTX_free(made->context);
    free(made);
    return SR_E_INVALID;
fail_made:
    free(made);
fail:
    snprintf(l->text, l->text_bytes, "%s: no memory", l->files->certificate);
    return SR_E_NO_MEMORY;
}

enum sr_error sr_tls_load(enum sr_tls_purpose purpose, const struct sr_tls_files *files, const char *own_name,
                          struct sr_tls **tls, char *text, size_t text_bytes)
{
    struct loading l = {
        .purpose = purpose, .files = files, .own_name = own_name, .text = text, .text_bytes = text_bytes};
    enum sr_error error = SR_E_NO_MEMORY;

    ERR_clear_error();
    snprintf(text, text_bytes, "%s: no memory", files->certificate);
    l.store = X509_STORE_new();
    l.chain = sk_X509_new_null();
    if (l.store && l.chain)
        error = load_ca(&l);
    if (error == SR_OK)
        error = load_certificate(&l);
    if (error == SR_OK)
        error = load_key(&l);
    if (error == SR_OK)
        error = check_own(&l);
    if (error == SR_OK)
        error = build(&l, tls);
    if (error == SR_OK)
        text[0] = '\0';
    ERR_clear_error();
    EVP_PKEY_free(l.key);
    X509_free(l.certificate);
    sk_X509_pop_free(l.chain, X509_free);
    X509_STORE_free(l.store);
    return error;
}

struct sr_tls *sr_tls_ref(struct sr_tls *tls)
{
    if (tls)
        tls->refs++;
    return tls;
}

void sr_tls_unref(struct sr_tls *tls)
{
    if (!tls || --tls->refs > 0)
        return;
    SSL_CTX_free(tls->context);
    free(tls);
}

SSL_CTX *sr_tls_context(const struct sr_tls *tls)
{
    return tls->context;
}

int64_t sr_tls_expires_s(const struct sr_tls *tls)
{
    return tls->expires_s;
}

int64_t sr_tls_ca_expires_s(const struct sr_tls *tls)
{
    return tls->ca_expires_s;
}

enum sr_error sr_tls_check_name(SSL *ssl, const char *expected, char *text, size_t text_bytes)
{
    X509 *certificate = SSL_get0_peer_certificate(ssl);
    char names[NAMES_BYTES];

    if (certificate && X509_check_host(certificate, expected, 0, NAME_FLAGS, NULL) == 1)
        return SR_OK;
    if (certificate)
        format_names(certificate, names, sizeof names);
    else
        snprintf(names, sizeof names, "nobody (none was shown)");
    snprintf(text, text_bytes, "the other end's certificate is for %s, expected \"%s\"", names, expected);
    return SR_E_IDENTITY;
}

int64_t sr_tls_peer_expires_s(SSL *ssl)
{
    X509 *certificate = SSL_get0_peer_certificate(ssl);

    return certificate ? not_after(certificate) : 0;
}
