/* The samples in configs/ are correct, say what the defaults are, and the reference names every key. */
#include "helper.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/units.h"
#include "config/schema.h"

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = calloc(1, SR_CONFIG_FILE_MAX_BYTES);

    assert_non_null(file);
    assert_non_null(text);
    assert_true(fread(text, 1, SR_CONFIG_FILE_MAX_BYTES - 1, file) > 0);
    fclose(file);
    return text;
}

static struct sr_config *sample(const char *name)
{
    char path[500];

    snprintf(path, sizeof(path), "%s/configs/%s", SR_TOP, name);
    char *text = read_file(path);
    struct sr_config *config = parse_good(text);
    free(text);
    return config;
}

static void minimal_has_the_documented_defaults(void **state)
{
    struct sr_config *config = sample("minimal.yaml");

    (void)state;
    assert_string_equal(config->site, "site-a");
    assert_string_equal(config->peer_name, "site-b");
    assert_string_equal(config->peer_address.host, "127.0.0.1");
    assert_int_equal(config->peer_address.port, 7702);
    assert_int_equal(config->n_listen, 1);
    assert_true(config->insecure);
    assert_null(config->tls.ca);
    assert_string_equal(config->pools[0].directory, "/var/lib/syncrep/pool");
    assert_string_equal(config->nbd_listen[0].path, "/run/syncrep/nbd.sock");
    assert_null(config->nbd_listen[0].host);
    assert_int_equal(config->nbd_max_connections, 256);
    assert_int_equal(config->nbd_handshake_timeout_ms, 10000);
    assert_string_equal(config->control_socket, "/run/syncrep/control.sock");
    assert_int_equal(config->buffer_memory_bytes, 512 * SR_MIB);
    assert_int_equal(config->queue_depth, 128);
    assert_int_equal(config->peer_window_bytes, 64 * SR_MIB);
    assert_int_equal(config->hot_regions, 1024);
    assert_int_equal(config->resync_parallel, 4);
    assert_int_equal(config->resync_min_bytes_per_s, 4 * SR_MIB);
    assert_int_equal(config->resync_max_bytes_per_s, 0);
    assert_int_equal(config->resync_latency_percent, 200);
    assert_int_equal(config->max_volumes, 1024);
    assert_int_equal(config->stall_budget_ms, 5000);
    assert_int_equal(config->retry_min_ms, 1000);
    assert_int_equal(config->retry_max_ms, 60000);
    assert_int_equal(config->heartbeat_interval_ms, 1000);
    assert_int_equal(config->heartbeat_timeout_ms, 5000);
    assert_int_equal(config->log_level, SR_LOG_INFO);
    assert_int_equal(config->log_format, SR_LOG_TEXT);
    assert_int_equal(config->engine, SR_CONFIG_ENGINE_AUTO);
    sr_config_free(config);
}

static void full_samples_show_every_key_at_its_default(void **state)
{
    static const char *const names[] = {"site-a.yaml", "site-b.yaml"};
    struct sr_config *minimal = sample("minimal.yaml");

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct sr_config *full = sample(names[i]);
        struct sr_config_diff diff;
        sr_config_diff_live(minimal, full, &diff);
        assert_int_equal(diff.n_live, 0);
        for (size_t k = 0; k < diff.n_restart; k++) /* only what has no default may differ */
            assert_true(strncmp(diff.restart[k], "limits", 6) != 0 && strncmp(diff.restart[k], "retry", 5) != 0 &&
                        strcmp(diff.restart[k], "nbd.max_connections") != 0);
        assert_string_equal(full->tls.ca, "/etc/syncrep/tls/ca.pem");
        assert_int_equal(full->n_pools, 2);
        sr_config_free(full);

        char path[500];
        snprintf(path, sizeof(path), "%s/configs/%s", SR_TOP, names[i]);
        char *text = read_file(path);
        for (size_t k = 0; k < sr_config_n_keys; k++) {
            char with_colon[64];
            snprintf(with_colon, sizeof(with_colon), "%s:", sr_config_key_leaf(&sr_config_keys[k]));
            assert_non_null(strstr(text, with_colon));
        }
        free(text);
    }
    sr_config_free(minimal);
}

static void the_pair_of_samples_fits_together(void **state)
{
    struct sr_config *a = sample("site-a.yaml"), *b = sample("site-b.yaml");

    (void)state;
    assert_true(sr_uuid_equal(&a->group, &b->group));
    assert_string_equal(a->site, b->peer_name);
    assert_string_equal(b->site, a->peer_name);
    assert_string_equal(a->peer_address.text, b->listen[0].text);
    assert_string_equal(b->peer_address.text, a->listen[0].text);
    sr_config_free(a);
    sr_config_free(b);
}

static void the_reference_documents_every_key(void **state)
{
    char *text = read_file(SR_TOP "/docs/CONFIG.md");

    (void)state;
    for (size_t i = 0; i < sr_config_n_keys; i++) {
        const struct sr_config_key *key = &sr_config_keys[i];
        char start[64];
        if (key->kind == SR_KIND_SECTION)
            continue;
        snprintf(start, sizeof(start), "\n| `%s` |", key->path);
        const char *row = strstr(text, start);
        if (row == NULL)
            fail_msg("docs/CONFIG.md has no row for %s", key->path);
        const char *end = strchr(row + 1, '\n');
        size_t length = (size_t)(end - row);
        bool live = memmem(row, length, "| live |", 8) != NULL;
        assert_int_equal(live, (key->flags & SR_KEY_LIVE) != 0);
        assert_true(live || memmem(row, length, "| restart |", 11) != NULL);
        if (key->text != NULL) {
            snprintf(start, sizeof(start), "| `%s` |", key->text);
            if (memmem(row, length, start, strlen(start)) == NULL)
                fail_msg("docs/CONFIG.md gives another default for %s", key->path);
        }
    }
    free(text);
}

/* ---- load, from real files ---- */

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/sr-config-XXXXXX");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[100];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command);
}

static const char *put_file(const char *name, const char *text)
{
    static char path[128];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    return path;
}

static void load_checks_that_certificates_can_be_read(void **state)
{
    char text[2000];
    struct sr_config_faults faults = {0};
    struct sr_config *config;

    (void)state;
    put_file("ca.pem", "x");
    put_file("key.pem", "x");
    snprintf(text, sizeof(text),
             "site: site-a\n" GROUP "peer: {name: site-b, address: 10.0.0.2:7700}\nlisten: 10.0.0.1:7700\n"
             "tls:\n  ca: %s/ca.pem\n  certificate: %s/none.pem\n  key: %s\n"
             "pools: [{name: p, directory: /srv/p}]\nnbd: {listen: 127.0.0.1:10809}\nstate: /srv/state\n",
             folder, folder, folder);
    assert_int_equal(sr_config_load(put_file("bad.yaml", text), &config, &faults), SR_E_INVALID);
    assert_null(config);
    assert_int_equal(faults.n, 2);
    assert_int_equal(faults.list[0].line, 7);
    assert_int_equal(faults.list[0].column, 16);
    assert_non_null(strstr(faults.list[0].text, "No such file"));
    assert_int_equal(faults.list[1].line, 8);
    assert_non_null(strstr(faults.list[1].text, "not a regular file"));

    char *certificate = strstr(text, "none.pem"), *key = strstr(text, "key: ");
    memcpy(certificate, "ca.pem  ", 8);
    memmove(key + 5 + strlen(folder) + 8, key + 5 + strlen(folder), strlen(key + 5 + strlen(folder)) + 1);
    memcpy(key + 5 + strlen(folder), "/key.pem", 8);
    const char *path = put_file("good.yaml", text);
    assert_int_equal(sr_config_load(path, &config, &faults), SR_OK);
    assert_string_equal(config->file, path);
    assert_false(config->insecure);
    sr_config_free(config);
    sr_config_faults_free(&faults);
}

static void two_names_of_one_directory_are_seen(void **state)
{
    char text[2000], link[100];
    struct sr_config_faults faults = {0};
    struct sr_config *config;

    (void)state;
    snprintf(link, sizeof(link), "%s/link", folder);
    assert_int_equal(symlink(folder, link), 0);
    snprintf(text, sizeof(text),
             "site: site-a\n" GROUP "peer: {name: site-b, address: 10.0.0.2:7700}\nlisten: 10.0.0.1:7700\n"
             "insecure: true\npools: [{name: p, directory: %s}]\nnbd: {listen: 127.0.0.1:10809}\nstate: %s\n",
             link, folder);
    assert_int_equal(sr_config_load(put_file("same.yaml", text), &config, &faults), SR_E_INVALID);
    assert_int_equal(faults.n, 1);
    assert_int_equal(faults.list[0].line, 6);
    assert_int_equal(faults.list[0].column, 30);
    sr_config_faults_free(&faults);
}

static void what_is_no_file_is_refused_at_once(void **state)
{
    struct sr_config_faults faults = {0};
    struct sr_config *config;
    char path[100], line[300];

    (void)state;
    snprintf(path, sizeof(path), "%s/none", folder);
    assert_int_equal(sr_config_load(path, &config, &faults), SR_E_NOT_FOUND);
    assert_int_equal(faults.n, 1);
    assert_int_equal(faults.list[0].line, 0);
    snprintf(line, sizeof(line), "%s: cannot read the configuration: No such file or directory", path);
    char shown[300];
    assert_string_equal(sr_config_fault_format(&faults, 0, shown, sizeof(shown)), line);
    assert_int_equal(sr_config_load(folder, &config, &faults), SR_E_INVALID);
    snprintf(path, sizeof(path), "%s/fifo", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(sr_config_load(path, &config, &faults), SR_E_INVALID); /* does not hang */
    assert_int_equal(sr_config_load("/dev/zero", &config, &faults), SR_E_INVALID);
    sr_config_faults_free(&faults);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(minimal_has_the_documented_defaults),
        cmocka_unit_test(full_samples_show_every_key_at_its_default),
        cmocka_unit_test(the_pair_of_samples_fits_together),
        cmocka_unit_test(the_reference_documents_every_key),
        cmocka_unit_test_setup_teardown(load_checks_that_certificates_can_be_read, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(two_names_of_one_directory_are_seen, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(what_is_no_file_is_refused_at_once, make_folder, remove_folder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
