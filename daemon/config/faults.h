/* faults.h - inside config/: collects what is wrong with a file. */
#ifndef SR_CONFIG_FAULTS_H
#define SR_CONFIG_FAULTS_H

#include "config/config.h"

/* A place in the file; both from 1, or both 0: the file as a whole. */
struct sr_config_at {
    int line, column;
};

/* Past SR_CONFIG_FAULTS_MAX only notes that there were more; without memory too. */
void sr_config_fault_add(struct sr_config_faults *faults, struct sr_config_at at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* By position; two at the same place keep their order. */
void sr_config_faults_sort(struct sr_config_faults *faults);

#define SR_CONFIG_QUOTE_BYTES 56

/* A piece of the file for use in a message: in quotes, odd bytes as \xNN, cut when long.  Returns out. */
const char *sr_config_quote(const char *text, char out[SR_CONFIG_QUOTE_BYTES]);

#endif
