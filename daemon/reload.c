/* reload.c - the configuration read again while the daemon runs (SIGHUP, `syncrepctl reload`).
 *
 * The whole file is checked first; a faulty one, or certificates that are not good, change nothing.  Keys that are
 * live are applied, certificates are read again whatever their paths say, and keys that need a restart are named.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "site.h"

static void describe_faults(const struct sr_config_faults *faults, char *text, size_t text_bytes)
{
    size_t used = (size_t)snprintf(text, text_bytes, "the configuration is faulty and nothing is changed:");

    for (size_t i = 0; i < faults->n && used < text_bytes; i++) {
        char line[SR_SITE_TEXT];
        sr_config_fault_format(faults, i, line, sizeof(line));
        sr_log(SR_LOG_ERROR, "%s", line);
        used += (size_t)snprintf(text + used, text_bytes - used, "\n%s", line);
    }
}

static void apply(struct sr_site *site, const struct sr_config *fresh)
{
    struct sr_config *config = site->config;

    sr_config_apply_live(config, fresh);
    sr_log_set_level(config->log_level);
    site->tuning.stall_budget_ms = config->stall_budget_ms;
    site->tuning.hot_regions_max = config->hot_regions;
    site->tuning.resync_parallel = config->resync_parallel;
    site->tuning.resync_min_bytes_per_s = config->resync_min_bytes_per_s;
    site->tuning.resync_max_bytes_per_s = config->resync_max_bytes_per_s;
    site->tuning.resync_latency_factor_percent = config->resync_latency_percent;
    sr_driver_tune(site);
}

static enum sr_error load_certificates(struct sr_site *site, char *text, size_t text_bytes)
{
    /* The paths in use: new paths need a restart. */
    enum sr_error error = sr_link_events_load_tls(site, site->config, text, text_bytes);

    return error == SR_OK && site->nbd ? sr_hosts_load_tls(site, site->config, text, text_bytes) : error;
}

enum sr_error sr_reload(struct sr_site *site, char *text, size_t text_bytes)
{
    struct sr_config_faults faults = {0};
    struct sr_config_diff diff;
    struct sr_config *fresh;
    char live[256], restart[256];
    enum sr_error error = sr_config_load(site->config->file, &fresh, &faults);

    if (error != SR_OK) {
        describe_faults(&faults, text, text_bytes);
        sr_config_faults_free(&faults);
        return error;
    }
    sr_config_faults_free(&faults);
    error = load_certificates(site, text, text_bytes);
    if (error != SR_OK) {
        sr_log(SR_LOG_ERROR, "reload: %s; the certificates in use stay", text);
        sr_config_free(fresh);
        return error;
    }
    sr_config_diff_live(site->config, fresh, &diff);
    sr_config_names_join(diff.live, diff.n_live, live, sizeof(live));
    sr_config_names_join(diff.restart, diff.n_restart, restart, sizeof(restart));
    apply(site, fresh);
    sr_config_free(fresh);
    snprintf(text, text_bytes, "configuration read again: %s%s%s%s", diff.n_live ? "applied " : "no live key changed",
             live, diff.n_restart ? "; a restart is needed for " : "", restart);
    sr_log(SR_LOG_NOTICE, "%s", text);
    sr_control_emit(site->control, SR_LOG_NOTICE, "config", "", sr_driver_wall_ms(), "%s", text);
    return SR_OK;
}
