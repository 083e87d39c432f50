/* assert.c - the end of a process whose own code broke a guarantee.
 *
 * Writes one line with the daemon's log priority for "emergency" straight to stderr and aborts.  No lock, no
 * allocation and no buffering: the state of the process is not trusted any more.  A crash is harmless because
 * every acknowledged write is durable at both sites before it is acknowledged.
 */
#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

noreturn void sr_assert_failed(const char *expression, const char *file, int line, const char *function)
{
    char text[512];
    int n = snprintf(text, sizeof(text), "<0>assertion failed: %s (%s:%d, %s)\n", expression, file, line, function);
    size_t bytes = n < 0 ? 0 : (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1;
    ssize_t written = write(STDERR_FILENO, text, bytes);

    (void)written; /* nobody is left to tell */
    abort();
}
