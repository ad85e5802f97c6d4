/* The folding function, included by _crc32c.h once for each register width (FOLD, LANE and so on).
 *
 * Four lanes process the first part of a block. In each step every 16 bytes of the lanes are moved
 * past the 4 lanes that this step reads, by multiplying both halves by constants, and the bytes read
 * are added. At the end the lanes hold a message with the checksum of everything they processed. The
 * multiplier and the checksum instruction are different units, so three streams of the instruction
 * process the rest of the block in the same loop, FOLD_WORDS words of each in a step. This was
 * measured at 1.5 times the speed of the lanes alone.
 *
 *     | lanes: steps * 4 lanes | a: steps * FOLD_WORDS words | b: as many | c: as many |
 */
#define FOLD_JOINED(a, b) a##b
#define FOLD_NAME(function, part) FOLD_JOINED(function, part)
#define FOLD_LANES_BYTES (4 * sizeof(LANE))
#define FOLD_STREAM_BYTES (8 * FOLD_WORDS)
#define FOLD_STEP_BYTES (FOLD_LANES_BYTES + 3 * FOLD_STREAM_BYTES)
#define FOLD_STEPS_MAX (CRC32C_STREAM_BYTES_MAX / FOLD_STREAM_BYTES)

/* The multipliers of the halves of 16 bytes. The low half holds the higher powers, by x^64. A product
 * with a reflected number of 32 bits is x^33 too high. */
static uint64_t FOLD_NAME(FOLD, _low), FOLD_NAME(FOLD, _high);

static void FOLD_NAME(FOLD, _prepare)(void) {
    FOLD_NAME(FOLD, _low) = crc32c_power(8 * FOLD_LANES_BYTES + 64 - 33);
    FOLD_NAME(FOLD, _high) = crc32c_power(8 * FOLD_LANES_BYTES - 33);
}

FOLD_TARGET static inline LANE FOLD_NAME(FOLD, _lane)(LANE lane, LANE past, const uint8_t *p) {
    LANE moved = LANE_XOR(LANE_PRODUCT(lane, past, 0x00), LANE_PRODUCT(lane, past, 0x11));
    return LANE_XOR(moved, LANE_LOAD(p));
}

/* The checksum moved past `grains` grains, not reduced. */
FOLD_TARGET static inline uint64_t FOLD_NAME(FOLD, _past)(uint64_t crc, size_t grains) {
    __m128i power = _mm_cvtsi64_si128((int64_t)crc32c_past_grains[grains]);
    return (uint64_t)_mm_cvtsi128_si64(
        _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)crc), power, 0x00));
}

FOLD_TARGET static uint32_t FOLD_NAME(FOLD, _block)(uint32_t crc, const uint8_t *p, size_t steps) {
    const LANE past = LANE_BOTH((int64_t)FOLD_NAME(FOLD, _low), (int64_t)FOLD_NAME(FOLD, _high));
    const size_t stream_bytes = steps * FOLD_STREAM_BYTES;
    const size_t grains = stream_bytes / CRC32C_GRAIN_BYTES;
    const uint8_t *q = p + steps * FOLD_LANES_BYTES;
    uint64_t a = 0, b = 0, c = 0;
    LANE lane0 = LANE_XOR(LANE_LOAD(p), LANE_FIRST((int64_t)crc));
    LANE lane1 = LANE_LOAD(p + sizeof(LANE));
    LANE lane2 = LANE_LOAD(p + 2 * sizeof(LANE));
    LANE lane3 = LANE_LOAD(p + 3 * sizeof(LANE));
    for (;;) {
        for (int n = 0; n < FOLD_WORDS; n++, q += 8) {
            a = CRC32C_STEP8(a, crc32c_word(q));
            b = CRC32C_STEP8(b, crc32c_word(q + stream_bytes));
            c = CRC32C_STEP8(c, crc32c_word(q + 2 * stream_bytes));
        }
        if (--steps == 0) break;
        p += FOLD_LANES_BYTES;
        lane0 = FOLD_NAME(FOLD, _lane)(lane0, past, p);
        lane1 = FOLD_NAME(FOLD, _lane)(lane1, past, p + sizeof(LANE));
        lane2 = FOLD_NAME(FOLD, _lane)(lane2, past, p + 2 * sizeof(LANE));
        lane3 = FOLD_NAME(FOLD, _lane)(lane3, past, p + 3 * sizeof(LANE));
    }
    uint8_t message[FOLD_LANES_BYTES];
    LANE_STORE(message, lane0);
    LANE_STORE(message + sizeof(LANE), lane1);
    LANE_STORE(message + 2 * sizeof(LANE), lane2);
    LANE_STORE(message + 3 * sizeof(LANE), lane3);
    uint64_t lanes = 0;
    for (size_t n = 0; n < FOLD_LANES_BYTES; n += 8)
        lanes = CRC32C_STEP8(lanes, crc32c_word(message + n));
    uint64_t joined = FOLD_NAME(FOLD, _past)(lanes, 3 * grains) ^
                      FOLD_NAME(FOLD, _past)(a, 2 * grains) ^ FOLD_NAME(FOLD, _past)(b, grains);
    return (uint32_t)(CRC32C_STEP8(0, joined) ^ c);
}

FOLD_TARGET static uint32_t FOLD(uint32_t crc, const uint8_t *p, size_t size) {
    while (size >= 2 * FOLD_STEP_BYTES) {
        size_t steps = size / FOLD_STEP_BYTES;
        if (steps > FOLD_STEPS_MAX) steps = FOLD_STEPS_MAX;
        crc = FOLD_NAME(FOLD, _block)(crc, p, steps);
        p += steps * FOLD_STEP_BYTES;
        size -= steps * FOLD_STEP_BYTES;
    }
    LANE_DONE();
    return crc32c_by_hardware(crc, p, size);
}

#undef FOLD
#undef FOLD_TARGET
#undef FOLD_WORDS
#undef FOLD_JOINED
#undef FOLD_NAME
#undef FOLD_LANES_BYTES
#undef FOLD_STREAM_BYTES
#undef FOLD_STEP_BYTES
#undef FOLD_STEPS_MAX
#undef LANE
#undef LANE_LOAD
#undef LANE_STORE
#undef LANE_BOTH
#undef LANE_FIRST
#undef LANE_XOR
#undef LANE_PRODUCT
#undef LANE_DONE
