/* CRC-32C against published values, and its two ways against each other and against the definition. */
#include "cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"

static uint32_t by_definition(const uint8_t *data, size_t bytes)
{
    uint32_t crc = UINT32_MAX;

    for (size_t i = 0; i < bytes; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ ((crc & 1) ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static void published_values(void **state)
{
    uint8_t data[32];

    (void)state;
    assert_int_equal(sr_crc32c(0, "", 0), 0);
    assert_int_equal(sr_crc32c(0, "123456789", 9), 0xe3069283);
    /* RFC 3720, appendix B.4 */
    memset(data, 0, 32);
    assert_int_equal(sr_crc32c(0, data, 32), 0x8a9136aa);
    memset(data, 0xff, 32);
    assert_int_equal(sr_crc32c(0, data, 32), 0x62a8ab43);
    for (int i = 0; i < 32; i++)
        data[i] = (uint8_t)i;
    assert_int_equal(sr_crc32c(0, data, 32), 0x46dd794e);
    for (int i = 0; i < 32; i++)
        data[i] = (uint8_t)(31 - i);
    assert_int_equal(sr_crc32c(0, data, 32), 0x113fdb5c);
}

static void all_ways_agree_at_every_length_and_split(void **state)
{
    static const size_t lengths[] = {1, 7, 8, 9, 63, 511, 4079, 4080, 4081, 4096, 8159, 8160, 8161, 20000};
    uint8_t *data = malloc(20000 + 8);

    (void)state;
    assert_non_null(data);
    for (size_t i = 0; i < 20008; i++)
        data[i] = (uint8_t)(i * i * 31 + (i >> 3) * 17 + 5);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        size_t length = lengths[i];
        for (size_t shift = 0; shift < 8; shift++) {
            uint32_t expected = by_definition(data + shift, length);
            assert_int_equal(sr_crc32c(0, data + shift, length), expected);
            assert_int_equal(sr_crc32c_portable(0, data + shift, length), expected);
            size_t split = length / 3;
            uint32_t crc = sr_crc32c(0, data + shift, split);
            assert_int_equal(sr_crc32c(crc, data + shift + split, length - split), expected);
            crc = sr_crc32c_portable(0, data + shift, split);
            assert_int_equal(sr_crc32c(crc, data + shift + split, length - split), expected);
        }
    }
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_values),
        cmocka_unit_test(all_ways_agree_at_every_length_and_split),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
