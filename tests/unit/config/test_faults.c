/* Every fault is found, with its exact place and what was expected (case B46). */
#include "helper.h"

/* Parses `text` and wants exactly these faults: {"line:column", "part of the message"}, ..., {NULL}. */
struct expected {
    const char *at, *part;
};

static void expect(const char *text, size_t length, const struct expected *expected)
{
    struct sr_config_faults faults = {0};
    struct sr_config *config;
    size_t n = 0;
    char at[40];

    while (expected[n].at != NULL)
        n++;
    enum sr_error error = sr_config_parse("test.yaml", text, length, false, &config, &faults);
    if (faults.n != n)
        sr_config_faults_print(&faults, stderr);
    assert_int_equal(error, SR_E_INVALID);
    assert_null(config);
    assert_int_equal(faults.n, n);
    for (size_t i = 0; i < n; i++) {
        snprintf(at, sizeof(at), "%d:%d", faults.list[i].line, faults.list[i].column);
        if (strcmp(at, expected[i].at) != 0 || strstr(faults.list[i].text, expected[i].part) == NULL)
            fail_msg("fault %zu is %s: %s, expected %s: %s", i, at, faults.list[i].text, expected[i].at,
                     expected[i].part);
    }
    sr_config_faults_free(&faults);
}

#define EXPECT(text, ...) expect(text, strlen(text), (const struct expected[]){__VA_ARGS__, {NULL, NULL}})

static void a_good_file_has_none(void **state)
{
    (void)state;
    sr_config_free(parse_good(GOOD));
    sr_config_free(parse_good("\xef\xbb\xbf" GOOD)); /* a byte order mark */
    sr_config_free(parse_good("%YAML 1.2\n---\n" GOOD "...\n"));
}

static void windows_line_ends_are_fine(void **state)
{
    char text[1000], *out = text;

    (void)state;
    for (const char *at = GOOD; *at != '\0'; at++) {
        if (*at == '\n')
            *out++ = '\r';
        *out++ = *at;
    }
    *out = '\0';
    struct sr_config *config = parse_good(text);
    assert_string_equal(config->state, "/srv/state");
    sr_config_free(config);
}

static void an_empty_file_misses_everything(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        EXPECT(i == 0   ? ""
               : i == 1 ? "\n\n"
                        : "# nothing\n",
               {"1:1", "site: the key is missing"}, {"1:1", "group: the key is missing"},
               {"1:1", "peer: the key is missing"}, {"1:1", "listen: the key is missing"},
               {"1:1", "pools: the key is missing"}, {"1:1", "nbd: the key is missing"},
               {"1:1", "state: the key is missing"}, {"1:1", "tls: the key is missing"});
}

static void unknown_keys_get_a_suggestion(void **state)
{
    (void)state;
    EXPECT(GOOD "stal_budget: 5s\n", {"9:1", "unknown key \"stal_budget\": did you mean \"stall_budget\"?"});
    EXPECT(GOOD "stall-budget: 5s\n", {"9:1", "did you mean \"stall_budget\"?"});
    EXPECT(GOOD "limits:\n  qeue_depth: 5\n", {"10:3", "limits: unknown key \"qeue_depth\": did you mean \"queue_"});
    EXPECT(GOOD "queue_depth: 5\n", {"9:1", "did you mean limits.queue_depth?"});
    EXPECT(GOOD "log: {colour: true}\n", {"9:7", "log: unknown key \"colour\": expected one of level, format"});
    EXPECT(GOOD "\"\\x1b[31m\": 1\n", {"9:1", "unknown key \"\\x1b[31m\""});
}

static void duplicates_name_the_first(void **state)
{
    (void)state;
    EXPECT(GOOD "state: /x\n", {"9:1", "state: given twice, first in line 8"});
    EXPECT(GOOD "log: {level: info, format: text, level: info}\n", {"9:34", "log.level: given twice"});
}

static void numbers_and_units_are_checked(void **state)
{
    (void)state;
    EXPECT(GOOD "stall_budget: 99ms\n", {"9:15", "too small: expected 100ms to 10m"});
    EXPECT(GOOD "stall_budget: 601s\n", {"9:15", "too large: expected 100ms to 10m"});
    EXPECT(GOOD "stall_budget: 5\n", {"9:15", "expected ms, s, m or h"});
    EXPECT(GOOD "stall_budget: 5 sec\n", {"9:15", "expected ms, s, m or h"});
    EXPECT(GOOD "limits:\n  buffer_memory: 95MiB\n", {"10:18", "expected 96MiB to 1TiB"});
    EXPECT(GOOD "limits:\n  buffer_memory: 1.5GiB\n", {"10:18", "whole number"});
    EXPECT(GOOD "limits:\n  buffer_memory: '512MB'\n", {"10:18", "decimal units"});
    EXPECT(GOOD "limits: {queue_depth: 0}\n", {"9:23", "expected 1 to 4096"});
    EXPECT(GOOD "limits: {queue_depth: -1}\n", {"9:23", "not a whole number"});
    EXPECT(GOOD "limits: {queue_depth: 0x10}\n", {"9:23", "not a whole number"});
    EXPECT(GOOD "limits: {queue_depth: 99999999999999999999}\n", {"9:23", "not a whole number"});
    EXPECT(GOOD "limits: {resync_latency_factor: 0.99}\n", {"9:33", "expected 1.00 to 100.00"});
    EXPECT(GOOD "limits: {resync_latency_factor: 1.999}\n", {"9:33", "at most two decimals"});
    EXPECT(GOOD "limits: {resync_latency_factor: .5}\n", {"9:33", "not a factor"});
    EXPECT(GOOD "limits: {resync_latency_factor: 99999999999999999.5}\n", {"9:33", "not a factor"});
    EXPECT(GOOD "limits: {resync_min_rate: 4Mbit}\n", {"9:27", "unknown unit of size"});
}

static void numbers_are_read(void **state)
{
    struct sr_config *config = parse_good(GOOD "limits: {resync_latency_factor: 1.5, resync_min_rate: 1MiB/s, "
                                               "queue_depth: '7'}\nstall_budget: 1m\n");

    (void)state;
    assert_int_equal(config->resync_latency_percent, 150);
    assert_int_equal(config->resync_min_bytes_per_s, 1 << 20);
    assert_int_equal(config->queue_depth, 7);
    assert_int_equal(config->stall_budget_ms, 60000);
    sr_config_free(config);
}

static void wrong_types_are_named(void **state)
{
    (void)state;
    EXPECT(GOOD "log: info\n", {"9:6", "log: this is a single value: expected a mapping"});
    EXPECT(GOOD "log: [info]\n", {"9:6", "log: this is a list"});
    EXPECT(GOOD "log: {level: {a: b}}\n", {"9:14", "log.level: this is a mapping: expected a word"});
    EXPECT(GOOD "log: {level: loud}\n", {"9:14", "expected one of error, warning, notice, info, debug"});
    EXPECT(GOOD "stall_budget:\n", {"9:1", "stall_budget: the value is missing: expected a duration"});
    EXPECT(GOOD "stall_budget: ~\n", {"9:15", "the value is missing"});
    EXPECT(GOOD "stall_budget: ''\n", {"9:15", "not a duration"});
    EXPECT(GOOD "[a, b]: c\n", {"9:1", "a key must be a name"});
    EXPECT("- a\n", {"1:1", "this is a list: expected keys and values"});
    EXPECT("just text\n", {"1:1", "this is a single value"});
}

static void listen_is_checked_entry_by_entry(void **state)
{
    (void)state;
    EXPECT("site: site-a\n" GROUP "peer: {name: site-b, address: 0.0.0.0:7700}\n"
           "listen: []\n"
           "insecure: true\n"
           "pools: []\n"
           "nbd: {listen: [\"::1:10809\", {a: b}, unix:run.sock, '[::1]:0']}\n"
           "state: state\n",
           {"3:31", "stands for every address"}, {"4:9", "listen: the list is empty"},
           {"6:8", "pools: the list is empty"}, {"7:16", "an IPv6 address needs brackets"},
           {"7:29", "nbd.listen: this is a mapping"}, {"7:37", "must be absolute"}, {"7:52", "this is no port"},
           {"8:8", "must be absolute"});
}

static void one_port_serves_one_purpose(void **state)
{
    (void)state;
#define HEAD "site: site-a\n" GROUP "peer: {name: site-b, address: 10.0.0.2:7700}\n"
#define TAIL "insecure: true\npools: [{name: p, directory: /srv/p}]\nstate: /srv/state\n"
    EXPECT(HEAD "listen: [10.0.0.1:7700, 10.0.0.1:7700]\nnbd: {listen: 10.0.0.1:1}\n" TAIL,
           {"4:25", "in use already by listen (10.0.0.1:7700, line 4): expected another port"});
    EXPECT(HEAD "listen: 10.0.0.1:7700\nnbd: {listen: 0.0.0.0:7700}\n" TAIL, {"5:15", "in use already by listen"});
    EXPECT(HEAD "listen: '[::]:7700'\nnbd: {listen: 10.0.0.1:7700}\n" TAIL, {"5:15", "in use already by listen"});
    EXPECT(HEAD "listen: '[::1]:77'\nnbd: {listen: '[0:0::1]:77'}\n" TAIL, {"5:15", "in use already by listen"});
    EXPECT(HEAD "listen: 10.0.0.2:7700\nnbd: {listen: 10.0.0.1:1}\n" TAIL,
           {"3:31", "where this site itself listens"});
    EXPECT(HEAD "listen: a:1\nnbd: {listen: 'unix:/run//x'}\ncontrol: {socket: /run/x}\n" TAIL,
           {"5:15", "in use already by control.socket (/run/x, line 6): expected another path"});
    sr_config_free(parse_good(HEAD "listen: 10.0.0.1:7700\nnbd: {listen: ['10.0.0.3:7700', '[::1]:7700']}\n" TAIL));
    sr_config_free(parse_good(HEAD "listen: '[::1]:7700'\nnbd: {listen: '0.0.0.0:7700'}\n" TAIL));
}

static void directories_and_names_are_distinct(void **state)
{
    (void)state;
    EXPECT("site: site-a\n" GROUP "peer: {name: site-a, address: 10.0.0.2:7700}\n"
           "listen: 10.0.0.1:7700\n"
           "insecure: true\n"
           "pools:\n"
           "  - {name: p, directory: /srv/p}\n"
           "  - {name: p, directory: /srv//p/./}\n"
           "  - {name: q, directory: /srv/state/}\n"
           "  - {name: ../q, directory: /srv/../x}\n"
           "  - {name: r}\n"
           "nbd: {listen: 'unix:/run/nbd.sock'}\n"
           "state: /srv/state\n",
           {"3:14", "name of this site too"}, {"8:12", "pool \"p\" exists already in line 7"},
           {"8:26", "is a pool already (line 7)"}, {"9:26", "is the state directory (line 13)"},
           {"10:12", "cannot start with"}, {"10:29", "must not contain '..'"},
           {"11:5", "pools[].directory: the key is missing"});
}

static void no_directory_lies_inside_another(void **state)
{
    (void)state;
    EXPECT("site: site-a\n" GROUP "peer: {name: site-b, address: 10.0.0.2:7700}\n"
           "listen: 10.0.0.1:7700\n"
           "insecure: true\n"
           "pools:\n"
           "  - {name: p, directory: /srv/p}\n"
           "  - {name: q, directory: /srv/pq}\n"
           "  - {name: r, directory: /srv/state/r}\n"
           "  - {name: s, directory: /srv/p/s}\n"
           "  - {name: t, directory: /}\n"
           "nbd: {listen: 'unix:/run/nbd.sock'}\n"
           "state: /srv/state\n",
           {"9:26", "/srv/state/r lies inside the state directory /srv/state (line 13)"},
           {"10:26", "/srv/p/s lies inside a pool /srv/p (line 7)"},
           {"11:26", "the state directory /srv/state (line 13) lies inside /:"}, {"11:26", "a pool /srv/p (line 7) lies inside /"},
           {"11:26", "a pool /srv/pq"}, {"11:26", "a pool /srv/state/r"}, {"11:26", "a pool /srv/p/s"});
}

static void exactly_one_kind_of_security(void **state)
{
#define REST                                                                                                         \
    "site: site-a\n" GROUP "peer: {name: site-b, address: 10.0.0.2:7700}\nlisten: 10.0.0.1:7700\n"                   \
    "pools: [{name: p, directory: /srv/p}]\nnbd: {listen: 'unix:/run/nbd.sock'}\nstate: /srv/state\n"
    (void)state;
    EXPECT(REST, {"1:1", "or insecure: true"});
    EXPECT(REST "insecure: false\n", {"8:11", "insecure: false without tls"});
    EXPECT(REST "insecure: 'true'\n", {"8:11", "expected true or false, without quotes"});
    EXPECT(REST "insecure: true\ntls: {ca: /a, certificate: /b, key: /c}\n", {"8:11", "exactly one of the two"});
    EXPECT(REST "tls: {ca: /a}\n", {"8:1", "tls.certificate: the key is missing"},
           {"8:1", "tls.key: the key is missing"});
    EXPECT(REST "insecure: false\ntls: {ca: a, certificate: /b, key: /c}\n", {"9:11", "must be absolute"});
    sr_config_free(parse_good(REST "insecure: false\ntls: {ca: /a, certificate: /b, key: /c}\n"));
}

static void pairs_of_numbers_fit(void **state)
{
    (void)state;
    EXPECT(GOOD "retry: {min: 2m}\n", {"9:14", "expected min <= max"});
    EXPECT(GOOD "heartbeat: {timeout: 1s}\n", {"9:22", "expected timeout >= 2 * interval"});
    EXPECT(GOOD "limits: {resync_max_rate: 1MiB}\n", {"9:27", "expected max >= min"});
    EXPECT(GOOD "limits: {peer_window: 1GiB}\n", {"9:23", "expected peer_window <= buffer_memory"});
}

static void not_yaml_at_all(void **state)
{
    (void)state;
    EXPECT("a: \"x\n", {"1:5", "not YAML"});
    EXPECT("site: a\n\tgroup: b\n", {"2:1", "a tab cannot indent"});
    EXPECT("site: a\n  \tgroup: b\n", {"2:3", "a tab cannot indent"});
    EXPECT("listen: [::1]:70\n", {"1:14", "write an IPv6 address in quotes"});
    EXPECT("site: a\nx\xff: b\n", {"2:2", "byte 0xff is not UTF-8"});
    EXPECT("site: \xc3\xa4\xed\xa0\x80\n", {"1:8", "byte 0xed is not UTF-8"});
    EXPECT("site: \x7f"
           "ELF\n",
           {"1:7", "control character 0x7f"});
    expect("site: a\0b", 9, (const struct expected[]){{"1:8", "control character 0x00"}, {NULL, NULL}});
    EXPECT("site: a\n---\nsite: b\n", {"2:1", "second document"});
}

static void nothing_expands_or_nests(void **state)
{
    char deep[4000];

    (void)state;
    EXPECT(GOOD "stall_budget: &x 5s\n", {"9:15", "anchors"});
    EXPECT(GOOD "stall_budget: *x\n", {"9:15", "aliases"});
    EXPECT(GOOD "stall_budget: !!str 5s\n", {"9:15", "tags"});
    EXPECT(GOOD "log: &x {level: *x}\n", {"9:6", "anchors"}, {"9:17", "aliases"});
    EXPECT("[[[[[[[[[a]]]]]]]]]", {"1:9", "nested too deeply: expected at most 8 levels"});
    memset(deep, '[', sizeof(deep));
    expect(deep, sizeof(deep), (const struct expected[]){{"1:9", "nested too deeply"}, {NULL, NULL}});
}

static void sizes_are_bounded(void **state)
{
    size_t length = SR_CONFIG_FILE_MAX_BYTES + 1;
    char *text = malloc(length);
    struct sr_config_faults faults = {0};
    struct sr_config *config;

    (void)state;
    assert_non_null(text);
    memset(text, '#', length);
    expect(text, length, (const struct expected[]){{"0:0", "too large: expected at most 256 KiB"}, {NULL, NULL}});

    for (size_t i = 0; i + 2 <= length - 1; i += 2)
        memcpy(text + i, "- ", 2); /* nests */
    expect(text, length - 1, (const struct expected[]){{"1:17", "nested too deeply"}, {NULL, NULL}});

    for (size_t i = 0; i < length; i++)
        text[i] = i == 0 ? '[' : i % 2 ? 'a' : ',';
    expect(text, length - 1, (const struct expected[]){{"1:8192", "too much content"}, {NULL, NULL}});

    size_t n = 0;
    for (int i = 0; i < 500; i++)
        n += (size_t)sprintf(text + n, "key%d: x\n", i);
    assert_int_equal(sr_config_parse("t", text, n, false, &config, &faults), SR_E_INVALID);
    assert_int_equal(faults.n, SR_CONFIG_FAULTS_MAX);
    assert_true(faults.more);
    sr_config_faults_free(&faults);
    free(text);
}

static void a_long_value_is_cut_in_the_message(void **state)
{
    char text[8000];

    (void)state;
    int n = sprintf(text, "%s", GOOD "stall_budget: ");
    memset(text + n, 'x', 3000);
    strcpy(text + n + 3000, "\n");
    EXPECT(text, {"9:15", "xxx...\": not a duration"});
    memset(text + n, 'x', 5000);
    strcpy(text + n + 5000, "\n");
    EXPECT(text, {"9:15", "the value is too long"});
}

static void columns_count_characters(void **state)
{
    (void)state;
    EXPECT(GOOD "log: {\xc3\xa4\xe2\x82\xac: 1, level: loud}\n", {"9:7", "unknown key"}, {"9:21", "expected one of"});
}

static void one_run_shows_everything(void **state)
{
    (void)state;
    EXPECT("site: -x\ngroup: 00000000-0000-0000-0000-000000000000\npeer: {nam: b}\nlisten: 10.0.0.1\n"
           "insecure: yes\npools: {}\nnbd: {}\nstate: /s\nlog: {format: xml}\nstore: {engine: aio}\n",
           {"1:7", "cannot start with"}, {"2:8", "zero UUID"}, {"3:1", "peer.name: the key is missing"},
           {"3:1", "peer.address: the key is missing"}, {"3:8", "did you mean \"name\""}, {"4:9", "port is missing"},
           {"5:11", "true or false"}, {"6:8", "this is a mapping: expected a list of pools"},
           {"7:1", "nbd.listen: the key is missing"}, {"9:15", "expected one of text, json"},
           {"10:17", "expected one of auto, io_uring, threads"});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_file_has_none),
        cmocka_unit_test(windows_line_ends_are_fine),
        cmocka_unit_test(an_empty_file_misses_everything),
        cmocka_unit_test(unknown_keys_get_a_suggestion),
        cmocka_unit_test(duplicates_name_the_first),
        cmocka_unit_test(numbers_and_units_are_checked),
        cmocka_unit_test(numbers_are_read),
        cmocka_unit_test(wrong_types_are_named),
        cmocka_unit_test(listen_is_checked_entry_by_entry),
        cmocka_unit_test(one_port_serves_one_purpose),
        cmocka_unit_test(directories_and_names_are_distinct),
        cmocka_unit_test(no_directory_lies_inside_another),
        cmocka_unit_test(exactly_one_kind_of_security),
        cmocka_unit_test(pairs_of_numbers_fit),
        cmocka_unit_test(not_yaml_at_all),
        cmocka_unit_test(nothing_expands_or_nests),
        cmocka_unit_test(sizes_are_bounded),
        cmocka_unit_test(a_long_value_is_cut_in_the_message),
        cmocka_unit_test(columns_count_characters),
        cmocka_unit_test(one_run_shows_everything),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
