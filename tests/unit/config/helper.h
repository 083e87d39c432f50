/* helper.h - what the tests of the configuration share. */
#ifndef TESTS_UNIT_CONFIG_HELPER_H
#define TESTS_UNIT_CONFIG_HELPER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"

#define GROUP "group: 2f1d6f0e-5c0b-4b7e-9d53-3a0f4c1b7a11\n"

/* A complete file in 8 lines; a test appends to it from line 9 on. */
#define GOOD                                                                                                         \
    "site: site-a\n" GROUP "peer: {name: site-b, address: 10.0.0.2:7700}\n"                                          \
    "listen: 10.0.0.1:7700\n"                                                                                        \
    "insecure: true\n"                                                                                               \
    "pools: [{name: p, directory: /srv/p}]\n"                                                                        \
    "nbd: {listen: 'unix:/run/nbd.sock'}\n"                                                                          \
    "state: /srv/state\n"

static inline struct sr_config *parse_good(const char *text)
{
    struct sr_config_faults faults = {0};
    struct sr_config *config;

    if (sr_config_parse("test.yaml", text, strlen(text), false, &config, &faults) != SR_OK) {
        sr_config_faults_print(&faults, stderr);
        fail();
    }
    sr_config_faults_free(&faults);
    return config;
}

#endif
