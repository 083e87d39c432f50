/* address.h - inside config/: "host:port", "[ipv6]:port" and "unix:/path". */
#ifndef SR_CONFIG_ADDRESS_H
#define SR_CONFIG_ADDRESS_H

#include "config/config.h"

/* SR_OK: *address is filled and owned by the caller (sr_config_address_free).  SR_E_INVALID: *why says what is
 * wrong and what was expected.  SR_E_NO_MEMORY. */
enum sr_error sr_config_address_parse(const char *text, bool allow_unix, struct sr_config_address *address,
                                      const char **why);

void sr_config_address_free(struct sr_config_address *address); /* zeroes it */

bool sr_config_address_is_any(const struct sr_config_address *address); /* 0.0.0.0 or :: */

/* Could both not be bound at once (same port and overlapping addresses, or the same Unix path)?  Names are
 * compared as text. */
bool sr_config_address_clash(const struct sr_config_address *a, const struct sr_config_address *b);

/* NULL if text is an absolute path without ".." that fits max_bytes; else what is wrong. */
const char *sr_config_path_fault(const char *text, size_t max_bytes);

/* A copy without doubled and trailing slashes and "." parts; NULL without memory. */
char *sr_config_path_clean(const char *text);

#endif
