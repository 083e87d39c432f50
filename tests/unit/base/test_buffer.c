/* Payload buffers: alignment, references, the budget, the caches. */
#include "cmocka_all.h"

#include <string.h>

#include "base/buffer.h"

static void buffers_are_aligned_and_writable(void **state)
{
    static const size_t sizes[] = {1, 4095, 4096, 4097, 65536, 65537, 1 << 20, 3 << 20};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct sr_buf *buf = sr_buf_alloc(NULL, sizes[i]);
        assert_non_null(buf);
        assert_int_equal((uintptr_t)buf->data % SR_BUF_ALIGN, 0);
        assert_int_equal(buf->length, sizes[i]);
        assert_int_equal(buf->capacity, (sizes[i] + 4095) / 4096 * 4096);
        assert_int_equal(buf->refs, 1);
        memset(buf->data, 0xa5, buf->capacity);
        sr_buf_unref(buf);
    }
    sr_buf_trim_cache();
}

static void a_buffer_moves_to_another_budget(void **state)
{
    struct sr_budget from = {.limit_bytes = 8192}, to = {.limit_bytes = 4096};
    struct sr_buf *buf = sr_buf_alloc(&from, 8192);

    (void)state;
    sr_buf_recharge(buf, &to); /* beyond its limit */
    assert_int_equal(from.used_bytes, 0);
    assert_int_equal(to.used_bytes, 8192);
    assert_int_equal(to.peak_bytes, 8192);
    assert_null(sr_buf_alloc(&to, 1));
    sr_buf_unref(buf);
    assert_int_equal(to.used_bytes, 0);
    assert_int_equal(from.used_bytes, 0);
}

static void the_budget_is_never_exceeded(void **state)
{
    struct sr_budget budget = {.limit_bytes = 3 * 4096};
    struct sr_buf *a, *b;

    (void)state;
    a = sr_buf_alloc(&budget, 8192);
    assert_non_null(a);
    assert_null(sr_buf_alloc(&budget, 4097));
    assert_int_equal(budget.used_bytes, 8192);
    b = sr_buf_alloc(&budget, 1);
    assert_non_null(b);
    assert_int_equal(budget.used_bytes, 3 * 4096); /* what is charged is the capacity */
    assert_null(sr_buf_alloc(&budget, 1));
    sr_buf_unref(a);
    assert_int_equal(budget.used_bytes, 4096);
    sr_buf_unref(b);
    assert_int_equal(budget.used_bytes, 0);
    assert_int_equal(budget.peak_bytes, 3 * 4096);
    sr_buf_trim_cache();
}

static void impossible_sizes_fail(void **state)
{
    struct sr_budget budget = {0};

    (void)state;
    assert_null(sr_buf_alloc(&budget, SIZE_MAX));
    assert_null(sr_buf_alloc(&budget, SIZE_MAX - 8192));
    assert_int_equal(budget.used_bytes, 0);
}

static void the_last_reference_frees(void **state)
{
    struct sr_budget budget = {.limit_bytes = 4096};
    struct sr_buf *buf = sr_buf_alloc(&budget, 100);

    (void)state;
    assert_ptr_equal(sr_buf_ref(buf), buf);
    sr_buf_unref(buf);
    assert_int_equal(budget.used_bytes, 4096);
    sr_buf_unref(buf);
    assert_int_equal(budget.used_bytes, 0);
    assert_null(sr_buf_ref(NULL));
    sr_buf_unref(NULL);
    sr_buf_trim_cache();
}

static void a_cached_buffer_comes_back_clean(void **state)
{
    struct sr_budget first = {0}, second = {0};
    struct sr_buf *bufs[600];

    (void)state;
    for (int round = 0; round < 3; round++) { /* more than the cache holds, so that its bound is crossed too */
        struct sr_budget *budget = round % 2 == 0 ? &first : &second;
        for (int i = 0; i < 600; i++) {
            bufs[i] = sr_buf_alloc(budget, 4000);
            assert_non_null(bufs[i]);
            assert_int_equal(bufs[i]->refs, 1);
            assert_int_equal(bufs[i]->length, 4000);
            assert_ptr_equal(bufs[i]->budget, budget);
            assert_null(bufs[i]->next);
        }
        assert_int_equal(budget->used_bytes, 600 * 4096);
        for (int i = 0; i < 600; i++)
            sr_buf_unref(bufs[i]);
        assert_int_equal(budget->used_bytes, 0);
    }
    sr_buf_trim_cache();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffers_are_aligned_and_writable), cmocka_unit_test(a_buffer_moves_to_another_budget),
        cmocka_unit_test(the_budget_is_never_exceeded),     cmocka_unit_test(impossible_sizes_fail),
        cmocka_unit_test(the_last_reference_frees),         cmocka_unit_test(a_cached_buffer_comes_back_clean),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
