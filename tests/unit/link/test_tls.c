/* test_tls.c - a bad set of certificates is refused when it is loaded, with the file and the cause.
 *
 * "link_tls --load CA CERT KEY NAME" loads one set: test_make_certs uses it on what deploy/make-certs made.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ends.h"

static struct certs certs;
static struct cert_file ca, other_ca, good;

static struct sr_tls *load(enum sr_tls_purpose purpose, const char *ca_file, const char *certificate, const char *key,
                           const char *name, char *text)
{
    struct sr_tls_files files = {ca_file, certificate, key};
    struct sr_tls *tls = NULL;
    enum sr_error error = sr_tls_load(purpose, &files, name, &tls, text, SR_TLS_TEXT_BYTES);

    assert_int_equal(error == SR_OK, tls != NULL);
    return tls;
}

static void refused(const char *ca_file, const char *certificate, const char *key, const char *name, const char *file,
                    const char *cause)
{
    char text[SR_TLS_TEXT_BYTES];

    assert_null(load(SR_TLS_PEER, ca_file, certificate, key, name, text));
    if (strncmp(text, file, strlen(file)) != 0 || !strstr(text, cause))
        fail_msg("expected \"%s: ... %s\", got \"%s\"", file, cause, text);
}

static void test_good_set(void **state)
{
    char text[SR_TLS_TEXT_BYTES];
    struct sr_tls *tls = load(SR_TLS_PEER, ca.certificate, good.certificate, good.key, "site-a", text);

    (void)state;
    assert_non_null(tls);
    assert_true(llabs(sr_tls_expires_s(tls) - (time(NULL) + 3600)) < 60);
    assert_true(llabs(sr_tls_ca_expires_s(tls) - (time(NULL) + 864000)) < 60);
    assert_int_equal(SSL_CTX_get_min_proto_version(sr_tls_context(tls)), TLS1_3_VERSION);
    sr_tls_unref(tls);
    tls = load(SR_TLS_NBD, ca.certificate, good.certificate, good.key, NULL, text);
    assert_non_null(tls);
    sr_tls_unref(tls);
}

static void test_missing_and_damaged_files(void **state)
{
    char missing[150], junk[150], half[150], text[3000];
    FILE *file;
    size_t bytes;

    (void)state;
    snprintf(missing, sizeof missing, "%s/missing", certs.folder);
    snprintf(junk, sizeof junk, "%s/junk", certs.folder);
    snprintf(half, sizeof half, "%s/half", certs.folder);
    file = fopen(junk, "w");
    fputs("not PEM at all\n", file);
    fclose(file);
    refused(missing, good.certificate, good.key, NULL, missing, "No such file");
    refused(ca.certificate, missing, good.key, NULL, missing, "No such file");
    refused(ca.certificate, good.certificate, missing, NULL, missing, "No such file");
    refused(junk, good.certificate, good.key, NULL, junk, "PEM");
    refused(ca.certificate, junk, good.key, NULL, junk, "PEM");
    refused(ca.certificate, good.certificate, junk, NULL, junk, "PEM");
    /* a good certificate with a cut one behind it */
    file = fopen(ca.certificate, "r");
    bytes = fread(text, 1, sizeof text, file);
    fclose(file);
    file = fopen(half, "w");
    fwrite(text, 1, bytes, file);
    fwrite(text, 1, bytes / 2, file);
    fclose(file);
    refused(half, good.certificate, good.key, NULL, half, "damaged");
    if (getuid() != 0) {
        chmod(junk, 0);
        refused(ca.certificate, good.certificate, junk, NULL, junk, "Permission denied");
    }
}

static void test_key_of_another(void **state)
{
    struct cert_spec spec = {.dns = "site-a"};
    struct cert_file second;

    (void)state;
    certs_site(&certs, "second", &ca, &spec, &second);
    refused(ca.certificate, good.certificate, second.key, NULL, second.key, "does not belong to the certificate");
}

static void test_wrong_ca(void **state)
{
    (void)state;
    refused(other_ca.certificate, good.certificate, good.key, NULL, good.certificate, "not issued by the CA");
}

static void test_expired_and_early(void **state)
{
    struct cert_spec expired = {.dns = "site-a", .from_s = -7200, .to_s = -60};
    struct cert_spec early = {.dns = "site-a", .from_s = 600, .to_s = 7200};
    struct cert_file file;

    (void)state;
    certs_site(&certs, "expired", &ca, &expired, &file);
    refused(ca.certificate, file.certificate, file.key, NULL, file.certificate, "has expired");
    certs_site(&certs, "early", &ca, &early, &file);
    refused(ca.certificate, file.certificate, file.key, NULL, file.certificate, "not valid before");
}

static void test_names(void **state)
{
    struct cert_spec wild = {.dns = "*.example"}, only_cn = {.common_name = "site-a"};
    struct cert_file file;

    (void)state;
    refused(ca.certificate, good.certificate, good.key, "site-z", good.certificate,
            "\"site-a\", but this site is \"site-z\"");
    certs_site(&certs, "wild", &ca, &wild, &file);
    refused(ca.certificate, file.certificate, file.key, "a.example", file.certificate, "*.example");
    certs_site(&certs, "cn", &ca, &only_cn, &file);
    refused(ca.certificate, file.certificate, file.key, "site-a", file.certificate, "no DNS name");
}

static void test_purpose(void **state)
{
    struct cert_spec spec = {.dns = "site-a", .server_only = true};
    struct cert_file file;
    char text[SR_TLS_TEXT_BYTES];
    struct sr_tls *tls;

    (void)state;
    certs_site(&certs, "server", &ca, &spec, &file);
    refused(ca.certificate, file.certificate, file.key, NULL, file.certificate, "not for servers and clients");
    tls = load(SR_TLS_NBD, ca.certificate, file.certificate, file.key, NULL, text);
    assert_non_null(tls);
    sr_tls_unref(tls);
}

static int set_up(void **state)
{
    struct cert_spec spec = {.dns = "site-a"};

    (void)state;
    certs_make(&certs);
    certs_ca(&certs, "ca", &ca);
    certs_ca(&certs, "other", &other_ca);
    certs_site(&certs, "good", &ca, &spec, &good);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    certs_remove(&certs);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_set),          cmocka_unit_test(test_missing_and_damaged_files),
        cmocka_unit_test(test_key_of_another),    cmocka_unit_test(test_wrong_ca),
        cmocka_unit_test(test_expired_and_early), cmocka_unit_test(test_names),
        cmocka_unit_test(test_purpose),
    };

    if (argc == 6 && strcmp(argv[1], "--load") == 0) {
        struct sr_tls_files files = {argv[2], argv[3], argv[4]};
        char text[SR_TLS_TEXT_BYTES];
        struct sr_tls *tls = NULL;
        enum sr_error error = sr_tls_load(SR_TLS_PEER, &files, argv[5], &tls, text, sizeof text);

        if (error != SR_OK)
            fprintf(stderr, "%s\n", text);
        sr_tls_unref(tls);
        return error == SR_OK ? 0 : 1;
    }
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
