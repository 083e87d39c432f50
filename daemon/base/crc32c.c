/* crc32c.c - CRC-32C with the processor's instruction where there is one, else with tables.
 *
 * The instruction has a latency of three cycles and a throughput of one, so long runs go in three lanes at a
 * time.  Lanes are joined by linearity: crc(A || B) = shift(crc(A), |B|) ^ crc(B), where shift feeds |B| zero
 * bytes; for the fixed lane length that is four table lookups.  A lane is 1360 bytes: three of them and
 * 16 bytes make one 4 KiB block.
 *
 * The tables are filled before main() starts, hence no lock and no race.
 */
#include "base/crc32c.h"

#include <stdbool.h>
#include <string.h>

#define POLYNOMIAL 0x82f63b78u /* reflected */

static uint32_t table[8][256];

static void fill_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ ((crc & 1) ? POLYNOMIAL : 0);
        table[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++)
            table[k][i] = table[k - 1][i] >> 8 ^ table[0][table[k - 1][i] & 0xff];
}

uint32_t sr_crc32c_portable(uint32_t crc, const void *data, size_t bytes)
{
    const uint8_t *at = data;

    crc = ~crc;
    for (; bytes >= 8; at += 8, bytes -= 8) {
        uint32_t low = crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        crc = table[7][low & 0xff] ^ table[6][low >> 8 & 0xff] ^ table[5][low >> 16 & 0xff] ^ table[4][low >> 24] ^
              table[3][at[4]] ^ table[2][at[5]] ^ table[1][at[6]] ^ table[0][at[7]];
    }
    for (; bytes > 0; at++, bytes--)
        crc = crc >> 8 ^ table[0][(crc ^ *at) & 0xff];
    return ~crc;
}

#if defined(__x86_64__)

#define LANE_BYTES 1360

static bool have_sse42;
static uint32_t shift_table[4][256];

static inline uint64_t load_u64(const uint8_t *at)
{
    uint64_t value;

    memcpy(&value, at, sizeof(value));
    return value;
}

static uint32_t shift_lane(uint32_t crc)
{
    return shift_table[0][crc & 0xff] ^ shift_table[1][crc >> 8 & 0xff] ^ shift_table[2][crc >> 16 & 0xff] ^
           shift_table[3][crc >> 24];
}

__attribute__((target("sse4.2"))) static void fill_shift_table(void)
{
    uint32_t of_bit[32];

    for (int bit = 0; bit < 32; bit++) {
        uint64_t crc = UINT64_C(1) << bit;
        for (int i = 0; i < LANE_BYTES / 8; i++)
            crc = __builtin_ia32_crc32di(crc, 0);
        of_bit[bit] = (uint32_t)crc;
    }
    for (int byte = 0; byte < 4; byte++)
        for (int i = 0; i < 256; i++) {
            shift_table[byte][i] = 0;
            for (int bit = 0; bit < 8; bit++)
                if (i >> bit & 1)
                    shift_table[byte][i] ^= of_bit[8 * byte + bit];
        }
}

__attribute__((target("sse4.2"))) static uint32_t crc_sse42(uint32_t start, const uint8_t *at, size_t bytes)
{
    uint64_t crc = (uint32_t)~start;

    for (; bytes >= 3 * LANE_BYTES; at += 3 * LANE_BYTES, bytes -= 3 * LANE_BYTES) {
        uint64_t second = 0, third = 0;
        for (size_t i = 0; i < LANE_BYTES; i += 8) {
            crc = __builtin_ia32_crc32di(crc, load_u64(at + i));
            second = __builtin_ia32_crc32di(second, load_u64(at + LANE_BYTES + i));
            third = __builtin_ia32_crc32di(third, load_u64(at + 2 * LANE_BYTES + i));
        }
        crc = shift_lane((uint32_t)crc) ^ (uint32_t)second;
        crc = shift_lane((uint32_t)crc) ^ (uint32_t)third;
    }
    for (; bytes >= 8; at += 8, bytes -= 8)
        crc = __builtin_ia32_crc32di(crc, load_u64(at));
    for (; bytes > 0; at++, bytes--)
        crc = __builtin_ia32_crc32qi((uint32_t)crc, *at);
    return ~(uint32_t)crc;
}

__attribute__((constructor)) static void prepare(void)
{
    fill_table();
    __builtin_cpu_init();
    have_sse42 = __builtin_cpu_supports("sse4.2");
    if (have_sse42)
        fill_shift_table();
}

uint32_t sr_crc32c(uint32_t crc, const void *data, size_t bytes)
{
    return have_sse42 ? crc_sse42(crc, data, bytes) : sr_crc32c_portable(crc, data, bytes);
}

#else

__attribute__((constructor)) static void prepare(void)
{
    fill_table();
}

uint32_t sr_crc32c(uint32_t crc, const void *data, size_t bytes)
{
    return sr_crc32c_portable(crc, data, bytes);
}

#endif
