/* What cmocka.h wants to find included before it. */
#ifndef TESTS_UNIT_BASE_CMOCKA_ALL_H
#define TESTS_UNIT_BASE_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
