/* address.c - socket addresses and paths as people write them.  Pure: no name is looked up. */
#include "config/address.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HOST_MAX_BYTES 253

static bool parse_port(const char *text, uint16_t *port)
{
    unsigned value = 0;

    if (*text == '\0')
        return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9')
            return false;
        value = value * 10 + (unsigned)(*text - '0');
        if (value > 65535)
            return false;
    }
    *port = (uint16_t)value;
    return value > 0;
}

/* A DNS name or an IPv4 address; letters, digits, '-', '_' and '.', no empty part. */
static const char *host_fault(const char *host)
{
    bool numeric = true;
    struct in_addr ipv4;

    if (host[0] == '\0')
        return "the host is missing: expected host:port, like 10.0.0.1:7700 (0.0.0.0 for every address)";
    if (strlen(host) > HOST_MAX_BYTES)
        return "the host name is too long: expected at most 253 characters";
    for (const char *at = host; *at != '\0'; at++) {
        bool letter = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || *at == '-' || *at == '_';
        bool digit = *at >= '0' && *at <= '9';
        if (!letter && !digit && *at != '.')
            return "this is no host name: expected host:port, like 10.0.0.1:7700 or \"[::1]:7700\"";
        if (*at == '.' && (at == host || at[1] == '.'))
            return "this is no host name: a part of it is empty";
        if (letter)
            numeric = false;
    }
    if (host[0] == '-')
        return "a host name cannot start with '-'";
    if (numeric && inet_pton(AF_INET, host, &ipv4) != 1)
        return "this is no IPv4 address: expected four numbers from 0 to 255, like 10.0.0.1:7700";
    return NULL;
}

/* An IPv6 address, with an optional %interface. */
static const char *ipv6_fault(const char *host)
{
    char bare[INET6_ADDRSTRLEN];
    struct in6_addr ipv6;
    size_t length = strcspn(host, "%");

    if (length >= sizeof(bare) || (host[length] == '%' && host[length + 1] == '\0'))
        return "this is no IPv6 address: expected \"[address]:port\", like \"[::1]:7700\"";
    memcpy(bare, host, length);
    bare[length] = '\0';
    return inet_pton(AF_INET6, bare, &ipv6) == 1
               ? NULL
               : "this is no IPv6 address: expected \"[address]:port\", like \"[::1]:7700\"";
}

static const char *parse_tcp(const char *text, struct sr_config_address *address)
{
    const char *host = text, *host_end, *port;
    bool bracket = text[0] == '[';

    if (bracket) {
        host++;
        host_end = strchr(host, ']');
        if (host_end == NULL)
            return "a closing bracket is missing: expected \"[address]:port\", like \"[::1]:7700\"";
        if (host_end[1] != ':')
            return "the port is missing: expected \"[address]:port\", like \"[::1]:7700\"";
        port = host_end + 2;
    } else {
        host_end = strrchr(text, ':');
        if (host_end == NULL)
            return "the port is missing: expected host:port, like 10.0.0.1:7700";
        if (memchr(text, ':', (size_t)(host_end - text)) != NULL)
            return "an IPv6 address needs brackets and quotes: expected \"[address]:port\", like \"[::1]:7700\"";
        port = host_end + 1;
    }
    if (!parse_port(port, &address->port))
        return "this is no port: expected a number from 1 to 65535 behind the last colon";
    address->host = strndup(host, (size_t)(host_end - host));
    if (address->host == NULL)
        return NULL; /* the caller sees it */
    return bracket ? ipv6_fault(address->host) : host_fault(address->host);
}

const char *sr_config_path_fault(const char *text, size_t max_bytes)
{
    if (text[0] != '/')
        return "the path must be absolute: expected it to start with '/'";
    if (strlen(text) > max_bytes)
        return max_bytes == SR_CONFIG_UNIX_PATH_MAX_BYTES
                   ? "the path is too long for a Unix socket: expected at most 107 bytes"
                   : "the path is too long: expected at most 4000 bytes";
    for (const char *at = text; (at = strstr(at, "/..")) != NULL; at += 3)
        if (at[3] == '/' || at[3] == '\0')
            return "the path must not contain '..'";
    for (const char *at = text; *at != '\0'; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            return "the path contains a control character";
    return NULL;
}

char *sr_config_path_clean(const char *text)
{
    char *clean = malloc(strlen(text) + 2), *out = clean;

    if (clean == NULL)
        return NULL;
    while (*text != '\0') {
        while (*text == '/')
            text++;
        size_t part = strcspn(text, "/");
        if (part > 0 && !(part == 1 && *text == '.')) {
            *out++ = '/';
            memcpy(out, text, part);
            out += part;
        }
        text += part;
    }
    if (out == clean)
        *out++ = '/';
    *out = '\0';
    return clean;
}

enum sr_error sr_config_address_parse(const char *text, bool allow_unix, struct sr_config_address *address,
                                      const char **why)
{
    memset(address, 0, sizeof(*address));
    *why = NULL;
    if (strncmp(text, "unix:", 5) == 0) {
        *why = allow_unix ? sr_config_path_fault(text + 5, SR_CONFIG_UNIX_PATH_MAX_BYTES)
                          : "a Unix socket cannot be used here: expected host:port";
        if (*why == NULL)
            address->path = sr_config_path_clean(text + 5);
    } else {
        *why = parse_tcp(text, address);
    }
    if (*why != NULL) {
        sr_config_address_free(address);
        return SR_E_INVALID;
    }
    address->text = strdup(text);
    if (address->text == NULL || (address->host == NULL && address->path == NULL)) {
        sr_config_address_free(address);
        return SR_E_NO_MEMORY;
    }
    return SR_OK;
}

void sr_config_address_free(struct sr_config_address *address)
{
    free(address->text);
    free(address->host);
    free(address->path);
    memset(address, 0, sizeof(*address));
}

struct ip {
    int family; /* AF_UNSPEC: a name */
    unsigned char bytes[16];
    bool any;
};

static struct ip to_ip(const char *host)
{
    static const unsigned char zeroes[16];
    struct ip ip = {.family = AF_UNSPEC};

    if (inet_pton(AF_INET, host, ip.bytes) == 1)
        ip.family = AF_INET;
    else if (inet_pton(AF_INET6, host, ip.bytes) == 1)
        ip.family = AF_INET6;
    ip.any = ip.family != AF_UNSPEC && memcmp(ip.bytes, zeroes, sizeof(zeroes)) == 0;
    return ip;
}

bool sr_config_address_is_any(const struct sr_config_address *address)
{
    return address->host != NULL && to_ip(address->host).any;
}

bool sr_config_address_clash(const struct sr_config_address *a, const struct sr_config_address *b)
{
    if (a->path != NULL || b->path != NULL)
        return a->path != NULL && b->path != NULL && strcmp(a->path, b->path) == 0;
    if (a->port != b->port)
        return false;
    struct ip ip_a = to_ip(a->host), ip_b = to_ip(b->host);
    if (ip_a.any || ip_b.any) {
        /* "::" takes IPv4 too; 0.0.0.0 leaves specific IPv6 addresses alone */
        bool v6_any = (ip_a.any && ip_a.family == AF_INET6) || (ip_b.any && ip_b.family == AF_INET6);
        return v6_any || !(ip_a.family == AF_INET6 || ip_b.family == AF_INET6);
    }
    if (ip_a.family == AF_UNSPEC || ip_b.family == AF_UNSPEC)
        return strcasecmp(a->host, b->host) == 0;
    return ip_a.family == ip_b.family && memcmp(ip_a.bytes, ip_b.bytes, sizeof(ip_a.bytes)) == 0;
}
