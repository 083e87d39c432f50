/* host:port, [ipv6]:port, unix:/path; clean paths. */
#include "helper.h"

#include "config/address.h"

static void good_addresses_come_apart(void **state)
{
    static const struct {
        const char *text, *host, *path;
        uint16_t port;
    } good[] = {
        {"10.0.0.1:7700", "10.0.0.1", NULL, 7700}, {"host-1.example:1", "host-1.example", NULL, 1},
        {"[::1]:65535", "::1", NULL, 65535},       {"[fe80::1%eth0]:9", "fe80::1%eth0", NULL, 9},
        {"0.0.0.0:80", "0.0.0.0", NULL, 80},       {"unix:/run/x.sock", NULL, "/run/x.sock", 0},
        {"unix:/run//./x/", NULL, "/run/x", 0},
    };
    struct sr_config_address address;
    const char *why;

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(sr_config_address_parse(good[i].text, true, &address, &why), SR_OK);
        assert_string_equal(address.text, good[i].text);
        assert_int_equal(address.port, good[i].port);
        if (good[i].host != NULL)
            assert_string_equal(address.host, good[i].host);
        else
            assert_null(address.host);
        if (good[i].path != NULL)
            assert_string_equal(address.path, good[i].path);
        else
            assert_null(address.path);
        sr_config_address_free(&address);
    }
}

static void bad_addresses_are_explained(void **state)
{
    static const char *const bad[] = {
        "",
        ":",
        ":1",
        "host",
        "host:",
        "host:0",
        "host:65536",
        "host:1x",
        "host:-1",
        "::1:7700",
        "[::1]",
        "[::1:7700",
        "[::1]7700",
        "[]:1",
        "[1.2.3.4]:1",
        "[::g]:1",
        "256.1.1.1:1",
        "1.2.3:1",
        "ho st:1",
        "ho/st:1",
        "a..b:1",
        ".a:1",
        "-a:1",
        "unix:",
        "unix:x",
        "unix:/a/../b",
        "[::1%]:1",
        "*:1",
        "host: 1",
        "http://x:1",
        "\xc3\xa4:1",
    };
    struct sr_config_address address;
    char text[400];
    const char *why;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (sr_config_address_parse(bad[i], true, &address, &why) != SR_E_INVALID)
            fail_msg("%s was taken", bad[i]);
        assert_non_null(why);
        assert_null(address.text);
    }
    assert_int_equal(sr_config_address_parse("unix:/x", false, &address, &why), SR_E_INVALID);
    memset(text, 'x', sizeof(text));
    memcpy(text, "unix:/", 6);
    text[5 + SR_CONFIG_UNIX_PATH_MAX_BYTES] = '\0';
    assert_int_equal(sr_config_address_parse(text, true, &address, &why), SR_OK);
    sr_config_address_free(&address);
    text[5 + SR_CONFIG_UNIX_PATH_MAX_BYTES] = 'x';
    text[6 + SR_CONFIG_UNIX_PATH_MAX_BYTES] = '\0';
    assert_int_equal(sr_config_address_parse(text, true, &address, &why), SR_E_INVALID);
    memset(text, 'x', sizeof(text));
    strcpy(text + 300, ":1");
    assert_int_equal(sr_config_address_parse(text, true, &address, &why), SR_E_INVALID);
}

static void paths_are_cleaned(void **state)
{
    static const char *const pairs[][2] = {
        {"/", "/"}, {"//", "/"}, {"/a/", "/a"}, {"//a///b/./c/.", "/a/b/c"}, {"/.a/..b", "/.a/..b"}};

    (void)state;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        char *clean = sr_config_path_clean(pairs[i][0]);
        assert_string_equal(clean, pairs[i][1]);
        free(clean);
    }
    assert_null(sr_config_path_fault("/a/..b/c..", 100));
    assert_non_null(sr_config_path_fault("/a/..", 100));
    assert_non_null(sr_config_path_fault("a", 100));
    assert_non_null(sr_config_path_fault("/a\n", 100));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_addresses_come_apart),
        cmocka_unit_test(bad_addresses_are_explained),
        cmocka_unit_test(paths_are_cleaned),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
