/* The map of out-of-sync blocks against a plain array of booleans, over random operations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/dirtymap.h"

#define BLOCKS (5 * SR_REGION_BLOCKS + 100) /* the last region is not whole */

static unsigned seed = 42;

static unsigned below(unsigned n)
{
    seed = seed * 1103515245u + 12345u;
    return (seed >> 8) % n;
}

static void compare(const struct sr_dirtymap *map, const bool *reference)
{
    uint64_t count = 0, at = 0, first, n;
    for (unsigned i = 0; i < BLOCKS; i++)
        count += reference[i];
    assert_int_equal(sr_dirtymap_count(map), count);
    assert_int_equal(sr_dirtymap_is_empty(map), count == 0);
    uint64_t seen = 0;
    while ((n = sr_dirtymap_next_run(map, at, 256, &first))) {
        for (uint64_t i = at; i < first; i++)
            assert_false(reference[i]);
        for (uint64_t i = first; i < first + n; i++)
            assert_true(reference[i]);
        assert_true(n <= 256 && first / SR_REGION_BLOCKS == (first + n - 1) / SR_REGION_BLOCKS);
        seen += n;
        at = first + n;
    }
    assert_int_equal(seen, count);
}

static void behaves_like_an_array(void **state)
{
    (void)state;
    static bool reference[BLOCKS];
    struct sr_dirtymap map;
    assert_true(sr_dirtymap_init(&map, BLOCKS));
    for (int round = 0; round < 3000; round++) {
        unsigned first = below(BLOCKS), n = 1 + below(below(4) ? 16 : 2000);
        if (n > BLOCKS - first)
            n = BLOCKS - first;
        switch (below(8)) {
        case 0:
        case 1:
        case 2:
            sr_dirtymap_set(&map, first, n);
            memset(reference + first, 1, n);
            break;
        case 3:
        case 4:
        case 5:
            sr_dirtymap_materialize(&map, first + n);
            sr_dirtymap_clear(&map, first, n);
            memset(reference + first, 0, n);
            break;
        case 6:
            if (below(20) == 0) {
                sr_dirtymap_set_from(&map, first, false);
                first -= first % SR_REGION_BLOCKS;
                memset(reference + first, 1, BLOCKS - first);
            }
            break;
        default:
            if (below(3) == 0) {
                uint32_t region;
                while (sr_dirtymap_take_stale(&map, &region))
                    assert_true(region < map.n_regions);
            }
            break;
        }
        bool any = false;
        for (unsigned i = first; i < first + n && i < BLOCKS; i++)
            any |= reference[i];
        assert_int_equal(sr_dirtymap_any(&map, first, n > BLOCKS - first ? BLOCKS - first : n), any);
        if (round % 10 == 0)
            compare(&map, reference);
    }
    compare(&map, reference);
    sr_dirtymap_free(&map);
}

static void everything_is_one_number(void **state)
{
    (void)state;
    struct sr_dirtymap map;
    uint64_t blocks = 64 * SR_TIB / SR_BLOCK_BYTES, first;
    assert_true(sr_dirtymap_init(&map, blocks));
    sr_dirtymap_set_from(&map, 0, true);
    assert_int_equal(sr_dirtymap_count(&map), blocks);
    assert_int_equal(map.n_entries, 0);
    assert_int_equal(sr_dirtymap_next_run(&map, 0, 256, &first), 256);
    sr_dirtymap_materialize(&map, 256);
    assert_true(sr_dirtymap_is_suspect(&map, 0));
    assert_int_equal(map.n_entries, 1);
    sr_dirtymap_clear(&map, 0, 256);
    assert_int_equal(sr_dirtymap_count(&map), blocks - 256);
    sr_dirtymap_free(&map);
}

static void memory_is_bounded(void **state)
{
    (void)state;
    struct sr_dirtymap map;
    uint64_t blocks = 64 * SR_TIB / SR_BLOCK_BYTES, first;
    assert_true(sr_dirtymap_init(&map, blocks));
    uint64_t regions = SR_DIRTYMAP_REGIONS_MAX + 5000;
    for (uint64_t region = 0; region < regions; region++)
        sr_dirtymap_set(&map, region * SR_REGION_BLOCKS + 7, 1);
    assert_true(map.n_entries <= SR_DIRTYMAP_REGIONS_MAX);
    for (uint64_t region = 0; region < regions; region++) /* nothing was lost */
        assert_true(sr_dirtymap_any(&map, region * SR_REGION_BLOCKS + 7, 1));
    assert_int_equal(sr_dirtymap_next_run(&map, 0, 256, &first), 1);
    sr_dirtymap_free(&map);
}

static void intents_after_a_crash_are_suspect(void **state)
{
    (void)state;
    struct sr_dirtymap map;
    uint8_t bits[SR_REGION_MAP_BYTES];
    assert_true(sr_dirtymap_init(&map, BLOCKS));
    sr_dirtymap_set_suspect(&map, 5);
    assert_int_equal(sr_dirtymap_count(&map), 100); /* the last region is not whole */
    assert_true(sr_dirtymap_is_suspect(&map, 5 * SR_REGION_BLOCKS));
    assert_int_equal(sr_dirtymap_region_bits(&map, 5, bits), 100);
    assert_false(sr_dirtymap_is_suspect(&map, 0));
    sr_dirtymap_free(&map);
}

/* Of one region: compared if nothing is known of it, copied if some of it is known to differ. */
static void single_blocks_can_be_suspect(void **state)
{
    (void)state;
    struct sr_dirtymap map;
    uint8_t bits[SR_REGION_MAP_BYTES] = {0x81};
    assert_true(sr_dirtymap_init(&map, BLOCKS));
    sr_dirtymap_set_suspect_blocks(&map, 1, bits);
    assert_int_equal(sr_dirtymap_count(&map), 2);
    assert_true(sr_dirtymap_is_suspect(&map, SR_REGION_BLOCKS + 7));
    assert_true(sr_dirtymap_any(&map, SR_REGION_BLOCKS + 7, 1));
    assert_false(sr_dirtymap_any(&map, SR_REGION_BLOCKS + 1, 6));
    sr_dirtymap_set(&map, 3, 1);
    sr_dirtymap_set_suspect_blocks(&map, 0, bits);
    assert_int_equal(sr_dirtymap_count(&map), 5);
    assert_false(sr_dirtymap_is_suspect(&map, 0));
    sr_dirtymap_free(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(behaves_like_an_array),
        cmocka_unit_test(everything_is_one_number),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(intents_after_a_crash_are_suspect),
        cmocka_unit_test(single_blocks_can_be_suspect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
