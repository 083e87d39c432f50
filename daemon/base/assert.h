/* assert.h - assertions that stay on in release builds.
 *
 * They state what our own code guarantees.  Never assert on what a peer, disk, host, file or operator
 * sent: validate it, refuse it, count it.
 */
#ifndef SR_BASE_ASSERT_H
#define SR_BASE_ASSERT_H

#include <stdnoreturn.h>

noreturn void sr_assert_failed(const char *expression, const char *file, int line, const char *function);

#define SR_ASSERT(expression)                                                                      \
    ((expression) ? (void)0 : sr_assert_failed(#expression, __FILE__, __LINE__, __func__))

#define SR_UNREACHABLE() sr_assert_failed("unreachable", __FILE__, __LINE__, __func__)

#endif
