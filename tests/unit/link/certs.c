/* certs.c - see certs.h */
#include "certs.h"

#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void must(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "certs: %s failed\n", what);
        abort();
    }
}

void certs_make(struct certs *certs)
{
    snprintf(certs->folder, sizeof certs->folder, "/tmp/syncrep-link-XXXXXX");
    must(mkdtemp(certs->folder) != NULL, "mkdtemp");
}

void certs_remove(struct certs *certs)
{
    DIR *folder = opendir(certs->folder);
    struct dirent *entry;

    while (folder && (entry = readdir(folder)) != NULL)
        if (entry->d_name[0] != '.')
            unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder)
        closedir(folder);
    rmdir(certs->folder);
}

static void extension(X509 *certificate, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509_EXTENSION *made;

    X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
    made = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    must(made != NULL, value);
    X509_add_ext(certificate, made, -1);
    X509_EXTENSION_free(made);
}

static X509 *blank(EVP_PKEY *key, const char *common_name, long from_s, long to_s)
{
    X509 *certificate = X509_new();
    static long serial = 1000;

    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(certificate), from_s);
    X509_gmtime_adj(X509_getm_notAfter(certificate), to_s);
    X509_set_pubkey(certificate, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                               (const unsigned char *)common_name, -1, -1, 0);
    return certificate;
}

static void store(struct certs *certs, const char *name, X509 *certificate, EVP_PKEY *key, struct cert_file *file)
{
    FILE *out;

    snprintf(file->certificate, sizeof file->certificate, "%s/%s.crt", certs->folder, name);
    snprintf(file->key, sizeof file->key, "%s/%s.key", certs->folder, name);
    out = fopen(file->certificate, "w");
    must(out && PEM_write_X509(out, certificate), "writing a certificate");
    fclose(out);
    out = fopen(file->key, "w");
    must(out && PEM_write_PrivateKey(out, key, NULL, NULL, 0, NULL, NULL), "writing a key");
    fclose(out);
}

void certs_ca(struct certs *certs, const char *name, struct cert_file *file)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = blank(key, name, -3600, 864000);

    X509_set_issuer_name(certificate, X509_get_subject_name(certificate));
    extension(certificate, certificate, NID_basic_constraints, "critical,CA:TRUE");
    extension(certificate, certificate, NID_key_usage, "critical,keyCertSign,cRLSign");
    must(X509_sign(certificate, key, EVP_sha256()) > 0, "signing");
    store(certs, name, certificate, key, file);
    X509_free(certificate);
    EVP_PKEY_free(key);
}

void certs_site(struct certs *certs, const char *name, const struct cert_file *ca, const struct cert_spec *spec,
                struct cert_file *file)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    bool dated = spec->from_s != 0 || spec->to_s != 0;
    X509 *certificate = blank(key, spec->common_name ? spec->common_name : "x", dated ? spec->from_s : -3600,
                              dated ? spec->to_s : 3600);
    FILE *in = fopen(ca->certificate, "r");
    X509 *issuer = PEM_read_X509(in, NULL, NULL, NULL);
    EVP_PKEY *issuer_key;
    char text[300];

    fclose(in);
    in = fopen(ca->key, "r");
    issuer_key = PEM_read_PrivateKey(in, NULL, NULL, NULL);
    fclose(in);
    X509_set_issuer_name(certificate, X509_get_subject_name(issuer));
    extension(certificate, issuer, NID_basic_constraints, "critical,CA:FALSE");
    extension(certificate, issuer, NID_ext_key_usage, spec->server_only ? "serverAuth" : "serverAuth,clientAuth");
    if (spec->dns) {
        snprintf(text, sizeof text, "DNS:%s", spec->dns);
        extension(certificate, issuer, NID_subject_alt_name, text);
    }
    must(X509_sign(certificate, issuer_key, EVP_sha256()) > 0, "signing");
    store(certs, name, certificate, key, file);
    X509_free(certificate);
    X509_free(issuer);
    EVP_PKEY_free(key);
    EVP_PKEY_free(issuer_key);
}

struct sr_tls *certs_load(const struct cert_file *ca, const struct cert_file *site)
{
    struct sr_tls_files files = {ca->certificate, site->certificate, site->key};
    char text[SR_TLS_TEXT_BYTES];
    struct sr_tls *tls = NULL;

    if (sr_tls_load(SR_TLS_PEER, &files, NULL, &tls, text, sizeof text) != SR_OK) {
        fprintf(stderr, "certs: %s\n", text);
        abort();
    }
    return tls;
}
