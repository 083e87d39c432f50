/* Block digests are the first half of SHA-256, each block by itself. */
#include "cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "base/digest.h"

static void known_blocks_have_known_digests(void **state)
{
    /* head -c 4096 /dev/zero | sha256sum */
    static const uint8_t zeroes[SR_DIGEST_OUT_BYTES] = {0xad, 0x7f, 0xac, 0xb2, 0x58, 0x6f, 0xc6, 0xe9,
                                                        0x66, 0xc0, 0x04, 0xd7, 0xd1, 0xd1, 0x6b, 0x02};
    uint8_t *data = calloc(3, SR_DIGEST_BLOCK_BYTES), digests[3 * SR_DIGEST_OUT_BYTES];

    (void)state;
    assert_non_null(data);
    data[SR_DIGEST_BLOCK_BYTES] = 1;
    sr_digest_blocks(data, 3, digests);
    assert_memory_equal(digests, zeroes, sizeof(zeroes));
    assert_memory_equal(digests + 2 * SR_DIGEST_OUT_BYTES, zeroes, sizeof(zeroes));
    assert_memory_not_equal(digests + SR_DIGEST_OUT_BYTES, zeroes, sizeof(zeroes));
    free(data);
}

static void no_blocks_write_nothing(void **state)
{
    uint8_t digest = 7;

    (void)state;
    sr_digest_blocks(NULL, 0, &digest);
    assert_int_equal(digest, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_blocks_have_known_digests),
        cmocka_unit_test(no_blocks_write_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
