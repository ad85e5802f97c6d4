/* CRC-32C (Castagnoli): by folding if the processor has carry-less multiplication, by its CRC-32C
 * instruction if it has only that, by tables otherwise.
 *
 * Numbers here are polynomials over GF(2), reflected like the checksum: the lowest bit is the highest
 * power. Everything rests on two facts. The checksum of A B is that of A, moved past as many zero
 * bytes as B has, xor that of B, so neighbouring blocks can be computed in parallel and combined. And
 * moving past n zero bytes is multiplication by x^(8n) modulo the polynomial (Gopal et al., "Fast CRC
 * Computation for Generic Polynomials Using PCLMULQDQ", Intel 2009). All constants are computed from
 * the polynomial when the module is loaded.
 *
 * Measured for 16 kB in the cache on a busy Zen 3: folding and instruction together 36 GB/s, the
 * instruction in three streams 22, google_crc32c with its copy 8.
 */
#ifndef KAFKAESQUE_CRC32C_H
#define KAFKAESQUE_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if (defined(__x86_64__) || defined(__amd64__)) && defined(__GNUC__)
#include <immintrin.h>
#define CRC32C_FOLDS
#define CRC32C_TARGET __attribute__((target("sse4.2")))
#define CRC32C_STEP8(crc, word) _mm_crc32_u64((crc), (word))
#define CRC32C_STEP1(crc, byte) _mm_crc32_u8((uint32_t)(crc), (byte))
#define CRC32C_HARDWARE "sse4.2"
static int crc32c_has_hardware(void) { return __builtin_cpu_supports("sse4.2") != 0; }
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32) && defined(__GNUC__)
/* Only if the compiler may assume the instruction, as on every Mac; otherwise tables are used. */
#include <arm_acle.h>
#define CRC32C_TARGET
#define CRC32C_STEP8(crc, word) __crc32cd((uint32_t)(crc), (word))
#define CRC32C_STEP1(crc, byte) __crc32cb((uint32_t)(crc), (byte))
#define CRC32C_HARDWARE "armv8"
static int crc32c_has_hardware(void) { return 1; }
#endif

#define CRC32C_POLYNOMIAL 0x82F63B78u
#define CRC32C_ONE 0x80000000u
#define CRC32C_X 0x40000000u

/* -- by tables --------------------------------------------------------------------------------- */

static uint32_t crc32c_table[8][256];

static uint32_t crc32c_by_table(uint32_t crc, const uint8_t *p, size_t size) {
    for (; size >= 8; size -= 8, p += 8) {
        crc ^= (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        crc = crc32c_table[7][crc & 0xFF] ^ crc32c_table[6][crc >> 8 & 0xFF] ^
              crc32c_table[5][crc >> 16 & 0xFF] ^ crc32c_table[4][crc >> 24] ^
              crc32c_table[3][p[4]] ^ crc32c_table[2][p[5]] ^ crc32c_table[1][p[6]] ^
              crc32c_table[0][p[7]];
    }
    for (; size > 0; size--, p++) crc = crc >> 8 ^ crc32c_table[0][(crc ^ *p) & 0xFF];
    return crc;
}

static void crc32c_fill_table(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? CRC32C_POLYNOMIAL : 0);
        crc32c_table[0][byte] = crc;
    }
    for (int n = 1; n < 8; n++) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = crc32c_table[n - 1][byte];
            crc32c_table[n][byte] = before >> 8 ^ crc32c_table[0][before & 0xFF];
        }
    }
}

#ifdef CRC32C_HARDWARE
/* -- constants --------------------------------------------------------------------------------- */

/* a * b modulo the polynomial. */
static uint32_t crc32c_product(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (; b != 0; b <<= 1) {
        if (b & CRC32C_ONE) product ^= a;
        a = a >> 1 ^ (a & 1 ? CRC32C_POLYNOMIAL : 0);
    }
    return product;
}

/* x^n modulo the polynomial. */
static uint32_t crc32c_power(size_t n) {
    uint32_t power = CRC32C_ONE;
    for (uint32_t square = CRC32C_X; n > 0; n >>= 1, square = crc32c_product(square, square)) {
        if (n & 1) power = crc32c_product(power, square);
    }
    return power;
}

/* -- by the instruction ------------------------------------------------------------------------ */

/* The instruction takes three cycles but one can start in every cycle, so three blocks are computed
 * in parallel. Four small tables for each of the two block sizes move a checksum past a block: moving
 * is linear in its 32 bits. */
#define CRC32C_LONG 1024
#define CRC32C_SHORT 128

static uint32_t crc32c_past_long[4][256];
static uint32_t crc32c_past_short[4][256];

static void crc32c_fill_past(uint32_t past[4][256], size_t size) {
    uint32_t power = crc32c_power(8 * size);
    for (int place = 0; place < 4; place++) {
        for (uint32_t byte = 0; byte < 256; byte++)
            past[place][byte] = crc32c_product(power, byte << (8 * place));
    }
}

static uint64_t crc32c_word(const uint8_t *p) {
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

static uint32_t crc32c_move(uint32_t past[4][256], uint64_t crc) {
    return past[0][crc & 0xFF] ^ past[1][crc >> 8 & 0xFF] ^ past[2][crc >> 16 & 0xFF] ^
           past[3][crc >> 24 & 0xFF];
}

CRC32C_TARGET static uint64_t crc32c_three(
    uint64_t a, const uint8_t *p, size_t block, uint32_t past[4][256]) {
    uint64_t b = 0, c = 0;
    for (size_t n = 0; n < block; n += 8) {
        a = CRC32C_STEP8(a, crc32c_word(p + n));
        b = CRC32C_STEP8(b, crc32c_word(p + n + block));
        c = CRC32C_STEP8(c, crc32c_word(p + n + 2 * block));
    }
    a = crc32c_move(past, a) ^ b;
    return crc32c_move(past, a) ^ c;
}

CRC32C_TARGET static uint32_t crc32c_by_hardware(uint32_t start, const uint8_t *p, size_t size) {
    uint64_t crc = start;
    for (; size >= 3 * CRC32C_LONG; size -= 3 * CRC32C_LONG, p += 3 * CRC32C_LONG)
        crc = crc32c_three(crc, p, CRC32C_LONG, crc32c_past_long);
    for (; size >= 3 * CRC32C_SHORT; size -= 3 * CRC32C_SHORT, p += 3 * CRC32C_SHORT)
        crc = crc32c_three(crc, p, CRC32C_SHORT, crc32c_past_short);
    for (; size >= 8; size -= 8, p += 8) crc = CRC32C_STEP8(crc, crc32c_word(p));
    for (; size > 0; size--, p++) crc = CRC32C_STEP1(crc, *p);
    return (uint32_t)crc;
}
#endif

/* -- by folding -------------------------------------------------------------------------------- */

#ifdef CRC32C_FOLDS
/* There is one folding function for each register width; _crc32c_folding.h explains it. */
#define CRC32C_STREAM_BYTES_MAX 4096
#define CRC32C_GRAIN_BYTES 16

/* Multipliers that move a checksum past n grains if the instruction then reduces the product: x^33
 * less, because a product of reflected numbers is one bit low and the instruction adds x^32. */
static uint32_t crc32c_past_grains[3 * CRC32C_STREAM_BYTES_MAX / CRC32C_GRAIN_BYTES + 1];

static void crc32c_fill_grains(void) {
    const size_t grains = sizeof crc32c_past_grains / sizeof *crc32c_past_grains;
    const uint32_t grain = crc32c_power(8 * CRC32C_GRAIN_BYTES);
    crc32c_past_grains[1] = crc32c_power(8 * CRC32C_GRAIN_BYTES - 33);
    for (size_t n = 2; n < grains; n++)
        crc32c_past_grains[n] = crc32c_product(crc32c_past_grains[n - 1], grain);
}

#define FOLD crc32c_by_folding_256
#define FOLD_TARGET __attribute__((target("sse4.2,pclmul,avx2,vpclmulqdq")))
#define FOLD_WORDS 4
#define LANE __m256i
#define LANE_LOAD(p) _mm256_loadu_si256((const __m256i *)(p))
#define LANE_STORE(p, lane) _mm256_storeu_si256((__m256i *)(p), (lane))
#define LANE_BOTH(low, high) _mm256_set_epi64x((high), (low), (high), (low))
#define LANE_FIRST(low) _mm256_set_epi64x(0, 0, 0, (low))
#define LANE_XOR(a, b) _mm256_xor_si256((a), (b))
#define LANE_PRODUCT(a, b, halves) _mm256_clmulepi64_epi128((a), (b), (halves))
/* Dirty upper register halves would slow down other code on some processors. */
#define LANE_DONE() _mm256_zeroupper()
#include "_crc32c_folding.h"

#define FOLD crc32c_by_folding_128
#define FOLD_TARGET __attribute__((target("sse4.2,pclmul")))
#define FOLD_WORDS 2
#define LANE __m128i
#define LANE_LOAD(p) _mm_loadu_si128((const __m128i *)(p))
#define LANE_STORE(p, lane) _mm_storeu_si128((__m128i *)(p), (lane))
#define LANE_BOTH(low, high) _mm_set_epi64x((high), (low))
#define LANE_FIRST(low) _mm_set_epi64x(0, (low))
#define LANE_XOR(a, b) _mm_xor_si128((a), (b))
#define LANE_PRODUCT(a, b, halves) _mm_clmulepi64_si128((a), (b), (halves))
#define LANE_DONE() ((void)0)
#include "_crc32c_folding.h"

static int crc32c_has_pclmul(void) {
    return crc32c_has_hardware() && __builtin_cpu_supports("pclmul") != 0;
}

static int crc32c_has_vpclmul(void) {
    return crc32c_has_pclmul() && __builtin_cpu_supports("avx2") != 0 &&
           __builtin_cpu_supports("vpclmulqdq") != 0;
}
#endif

/* -- the choice -------------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    int (*is_there)(void);
    uint32_t (*update)(uint32_t crc, const uint8_t *p, size_t size);
} Crc32cWay;

static int crc32c_has_tables(void) { return 1; }

/* The fastest first. */
static const Crc32cWay crc32c_ways[] = {
#ifdef CRC32C_FOLDS
    {"vpclmulqdq", crc32c_has_vpclmul, crc32c_by_folding_256},
    {"pclmulqdq", crc32c_has_pclmul, crc32c_by_folding_128},
#endif
#ifdef CRC32C_HARDWARE
    {CRC32C_HARDWARE, crc32c_has_hardware, crc32c_by_hardware},
#endif
    {"tables", crc32c_has_tables, crc32c_by_table},
};
#define CRC32C_WAYS (sizeof crc32c_ways / sizeof *crc32c_ways)

static const Crc32cWay *crc32c_way;

/* Fills the tables and chooses an implementation. Must be called once, before anything else. */
static void crc32c_prepare(void) {
    crc32c_fill_table();
#ifdef CRC32C_HARDWARE
    crc32c_fill_past(crc32c_past_short, CRC32C_SHORT);
    crc32c_fill_past(crc32c_past_long, CRC32C_LONG);
#endif
#ifdef CRC32C_FOLDS
    crc32c_fill_grains();
    crc32c_by_folding_256_prepare();
    crc32c_by_folding_128_prepare();
#endif
    for (crc32c_way = crc32c_ways; !crc32c_way->is_there();) crc32c_way++;
}

static uint32_t crc32c_of(const uint8_t *bytes, size_t size) {
    return ~crc32c_way->update(~0u, bytes, size);
}

#endif
