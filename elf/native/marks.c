/* Where the bytes are that end or change a string: one bit a byte, 64 bytes a word. */
#include "native.h"

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

enum { BLOCK = 64 };

/* Bit i: whether byte i of a block is a quote, a backslash, or below 0x20. */
static uint64_t portable_block(const uint8_t *bytes) {
    uint64_t marks = 0;
    for (int i = 0; i < BLOCK; i++) {
        uint64_t is = (bytes[i] == '"') | (bytes[i] == '\\') | (bytes[i] < 0x20);
        marks |= is << i;
    }
    return marks;
}

#if defined(__x86_64__) || defined(_M_X64)

/* The same of 16 bytes. Every x86-64 has SSE2. */
static uint64_t sixteen(const uint8_t *bytes) {
    __m128i x = _mm_loadu_si128((const __m128i *)bytes);
    __m128i quote = _mm_cmpeq_epi8(x, _mm_set1_epi8('"'));
    __m128i backslash = _mm_cmpeq_epi8(x, _mm_set1_epi8('\\'));
    __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(x, _mm_set1_epi8(0x1f)), x);
    return (uint32_t)_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quote, backslash), control));
}

static uint64_t narrow_block(const uint8_t *bytes) {
    return sixteen(bytes) | sixteen(bytes + 16) << 16 | sixteen(bytes + 32) << 32 | sixteen(bytes + 48) << 48;
}

/* The same of 32 bytes. */
__attribute__((target("avx2"))) static uint64_t thirty_two(const uint8_t *bytes) {
    __m256i x = _mm256_loadu_si256((const __m256i *)bytes);
    __m256i quote = _mm256_cmpeq_epi8(x, _mm256_set1_epi8('"'));
    __m256i backslash = _mm256_cmpeq_epi8(x, _mm256_set1_epi8('\\'));
    __m256i control = _mm256_cmpeq_epi8(_mm256_min_epu8(x, _mm256_set1_epi8(0x1f)), x);
    return (uint32_t)_mm256_movemask_epi8(_mm256_or_si256(_mm256_or_si256(quote, backslash), control));
}

__attribute__((target("avx2"))) static void wide_blocks(const uint8_t *data, int64_t blocks, uint64_t *marks) {
    for (int64_t i = 0; i < blocks; i++) {
        marks[i] = thirty_two(data + BLOCK * i) | thirty_two(data + BLOCK * i + 32) << 32;
    }
}

static bool has_wide(void) { return __builtin_cpu_supports("avx2"); }

#elif defined(__aarch64__)

/* 0xff or 0 a byte, of 16 bytes. Every 64-bit ARM has NEON. */
static uint8x16_t sixteen(const uint8_t *bytes) {
    uint8x16_t x = vld1q_u8(bytes);
    uint8x16_t either = vorrq_u8(vceqq_u8(x, vdupq_n_u8('"')), vceqq_u8(x, vdupq_n_u8('\\')));
    return vorrq_u8(either, vcltq_u8(x, vdupq_n_u8(0x20)));
}

static uint64_t narrow_block(const uint8_t *bytes) {
    static const uint8_t bits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    uint8x16_t bit = vld1q_u8(bits);
    uint8x16_t low = vpaddq_u8(vandq_u8(sixteen(bytes), bit), vandq_u8(sixteen(bytes + 16), bit));
    uint8x16_t high = vpaddq_u8(vandq_u8(sixteen(bytes + 32), bit), vandq_u8(sixteen(bytes + 48), bit));
    uint8x16_t eight = vpaddq_u8(low, high);
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(eight, eight)), 0);
}

#else

static uint64_t narrow_block(const uint8_t *bytes) { return portable_block(bytes); }

#endif

#if !defined(__x86_64__) && !defined(_M_X64)
static bool has_wide(void) { return false; }
static void wide_blocks(const uint8_t *data, int64_t blocks, uint64_t *marks) {
    for (int64_t i = 0; i < blocks; i++) marks[i] = narrow_block(data + BLOCK * i);
}
#endif

/* The highest level that this processor has. */
EXPORTED int32_t elf_level(void) { return has_wide() ? WIDE : NARROW; }

/* Writes (size + 63) / 64 words: bit i of word w is set where byte 64 w + i of data is a quote, a backslash, or
 * below 0x20; bits beyond the end are 0. A level that the processor has not is lowered to one that it has. */
EXPORTED void elf_marks(const uint8_t *data, int64_t size, uint64_t *marks, int32_t level) {
    int64_t blocks = size / BLOCK;
    if (level >= WIDE && has_wide()) {
        wide_blocks(data, blocks, marks);
    } else if (level >= NARROW) {
        for (int64_t i = 0; i < blocks; i++) marks[i] = narrow_block(data + BLOCK * i);
    } else {
        for (int64_t i = 0; i < blocks; i++) marks[i] = portable_block(data + BLOCK * i);
    }
    int64_t rest = size - BLOCK * blocks;
    if (rest > 0) {
        uint8_t last[BLOCK];
        memset(last, ' ', BLOCK);
        memcpy(last, data + BLOCK * blocks, (size_t)rest);
        marks[blocks] = portable_block(last);
    }
}
