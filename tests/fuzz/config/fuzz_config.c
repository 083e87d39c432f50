/* fuzz_config.c - any bytes as configuration: a struct that keeps its promises, or faults with places; never a crash.
 *
 * Only the memory variant: nothing of the file system is touched.
 */
#include "config/config.h"

#include <string.h>

#include "base/assert.h"
#include "base/names.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
const char *__lsan_default_suppressions(void);

/* libfyaml 0.7.12 loses up to a few hundred bytes when it refuses a quoted text without its closing quote.  The file
 * is read at start and on SIGHUP only, so that is of no account; a leak of ours is still reported. */
const char *__lsan_default_suppressions(void)
{
    return "leak:libfyaml.so";
}

static void check_good(const struct sr_config *config)
{
    struct sr_config_diff diff;

    SR_ASSERT(sr_name_valid(config->site, NULL) && sr_name_valid(config->peer_name, NULL));
    SR_ASSERT(strcmp(config->site, config->peer_name) != 0);
    SR_ASSERT(!sr_uuid_is_none(&config->group));
    SR_ASSERT(config->n_listen >= 1 && config->n_listen <= SR_CONFIG_LISTEN_MAX);
    SR_ASSERT(config->n_nbd_listen >= 1 && config->n_nbd_listen <= SR_CONFIG_LISTEN_MAX);
    SR_ASSERT(config->n_pools >= 1 && config->n_pools <= SR_CONFIG_POOLS_MAX);
    for (size_t i = 0; i < config->n_pools; i++)
        SR_ASSERT(sr_name_valid(config->pools[i].name, NULL) && config->pools[i].directory[0] == '/');
    SR_ASSERT(config->state[0] == '/' && config->control_socket[0] == '/');
    SR_ASSERT(config->insecure == (config->tls.ca == NULL) && config->insecure == (config->tls.key == NULL));
    SR_ASSERT(config->stall_budget_ms >= 100 && config->stall_budget_ms <= 600000);
    SR_ASSERT(config->retry_min_ms <= config->retry_max_ms);
    sr_config_diff_live(config, config, &diff);
    SR_ASSERT(diff.n_live == 0 && diff.n_restart == 0);
}

static void check_faults(const struct sr_config_faults *faults)
{
    char text[600];

    SR_ASSERT(faults->n > 0 && faults->n <= SR_CONFIG_FAULTS_MAX);
    for (size_t i = 0; i < faults->n; i++) {
        const struct sr_config_fault *fault = &faults->list[i];
        SR_ASSERT(fault->line >= 0 && (fault->line == 0) == (fault->column == 0));
        SR_ASSERT(i == 0 || fault->line >= faults->list[i - 1].line);
        sr_config_fault_format(faults, i, text, sizeof(text));
        SR_ASSERT(strchr(text, '\n') == NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sr_config_faults faults = {0};
    struct sr_config *config;

    if (sr_config_parse("fuzz.yaml", (const char *)data, size, false, &config, &faults) == SR_OK)
        check_good(config);
    else
        check_faults(&faults);
    sr_config_free(config);
    sr_config_faults_free(&faults);
    return 0;
}
