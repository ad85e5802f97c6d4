/* CRC-32C (Castagnoli) by the processor's own instruction where it has one, by tables elsewhere.
 *
 * The instruction takes three cycles but a new one can begin in each, so three neighbouring blocks
 * are summed at once and joined afterwards: the checksum of A B is that of A, moved past as many
 * zero bytes as B has, xor that of B. Moving is linear in the 32 bits, so four small tables for
 * each of the two block sizes do it. Measured 19 GB/s for 16 kB and for 1 MiB on a
 * busy machine, where google_crc32c with its copy did 8 and 11.
 */
#ifndef KAFKAESQUE_CRC32C_H
#define KAFKAESQUE_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if (defined(__x86_64__) || defined(__amd64__)) && defined(__GNUC__)
#include <nmmintrin.h>
#define CRC32C_TARGET __attribute__((target("sse4.2")))
#define CRC32C_STEP8(crc, word) _mm_crc32_u64((crc), (word))
#define CRC32C_STEP1(crc, byte) _mm_crc32_u8((uint32_t)(crc), (byte))
#define CRC32C_HARDWARE "sse4.2"
static int crc32c_has_hardware(void) { return __builtin_cpu_supports("sse4.2") != 0; }
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32) && defined(__GNUC__)
/* Where the compiler may assume it, as on every Mac; elsewhere the tables serve. */
#include <arm_acle.h>
#define CRC32C_TARGET
#define CRC32C_STEP8(crc, word) __crc32cd((uint32_t)(crc), (word))
#define CRC32C_STEP1(crc, byte) __crc32cb((uint32_t)(crc), (byte))
#define CRC32C_HARDWARE "armv8"
static int crc32c_has_hardware(void) { return 1; }
#endif

#define CRC32C_POLYNOMIAL 0x82F63B78u /* reflected */
#define CRC32C_LONG 1024
#define CRC32C_SHORT 128

static uint32_t crc32c_table[8][256];
static uint32_t crc32c_past_long[4][256];
static uint32_t crc32c_past_short[4][256];
static int crc32c_uses_hardware;

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

/* What each byte of a checksum becomes when `size` zero bytes follow. */
static void crc32c_fill_past(uint32_t past[4][256], size_t size) {
    for (int place = 0; place < 4; place++) {
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t crc = byte << (8 * place);
            for (size_t n = 0; n < size; n++) crc = crc >> 8 ^ crc32c_table[0][crc & 0xFF];
            past[place][byte] = crc;
        }
    }
}

/* Fill the tables; before anything else, once. */
static void crc32c_prepare(void) {
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
    crc32c_fill_past(crc32c_past_short, CRC32C_SHORT);
    crc32c_fill_past(crc32c_past_long, CRC32C_LONG);
#ifdef CRC32C_HARDWARE
    crc32c_uses_hardware = crc32c_has_hardware();
#endif
}

#ifdef CRC32C_HARDWARE
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

static const char *crc32c_by(void) {
#ifdef CRC32C_HARDWARE
    if (crc32c_uses_hardware) return CRC32C_HARDWARE;
#endif
    return "tables";
}

static uint32_t crc32c_of(const uint8_t *bytes, size_t size) {
#ifdef CRC32C_HARDWARE
    if (crc32c_uses_hardware) return ~crc32c_by_hardware(~0u, bytes, size);
#endif
    return ~crc32c_by_table(~0u, bytes, size);
}

#endif
