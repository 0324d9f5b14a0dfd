/* The hash of keys, as elf/keys.py defines it: the first half of murmur3 x64_128, and how columns are mixed. */
#include "values.h"

static const uint64_t C1 = UINT64_C(0x87C37B91114253D5), C2 = UINT64_C(0x4CF5AD432745937F);
static const uint64_t GOLDEN = UINT64_C(0x9E3779B97F4A7C15);

static inline uint64_t rotate(uint64_t word, int left) { return word << left | word >> (64 - left); }

static inline uint64_t fmix(uint64_t h) {
    h = (h ^ h >> 33) * UINT64_C(0xFF51AFD7ED558CCD);
    h = (h ^ h >> 33) * UINT64_C(0xC4CEB9FE1A85EC53);
    return h ^ h >> 33;
}

static inline uint64_t first_word(uint64_t word) { return rotate(word * C1, 31) * C2; }

static inline uint64_t second_word(uint64_t word) { return rotate(word * C2, 33) * C1; }

static inline uint64_t finish(uint64_t h1, uint64_t h2, uint64_t size) {
    h1 ^= size, h2 ^= size;
    h1 += h2, h2 += h1;
    return fmix(h1) + fmix(h2);
}

/* Up to eight bytes as a number, the first one lowest. Where pieces overlap, they are the same. */
static inline uint64_t some_bytes(const uint8_t *at, int64_t count) {
    if (count >= 8) return eight_bytes(at);
    if (count >= 4) return four_bytes(at) | four_bytes(at + count - 4) << 8 * (count - 4);
    if (count <= 0) return 0;
    int64_t middle = count / 2, last = count - 1;
    return at[0] | (uint64_t)at[middle] << 8 * middle | (uint64_t)at[last] << 8 * last;
}

static inline uint64_t hash_bytes(const uint8_t *at, int64_t size, uint64_t seed) {
    uint64_t h1 = seed, h2 = seed;
    int64_t left = size;
    for (; left >= 16; left -= 16, at += 16) {
        h1 = (rotate(h1 ^ first_word(eight_bytes(at)), 27) + h2) * 5 + 0x52DCE729;
        h2 = (rotate(h2 ^ second_word(eight_bytes(at + 8)), 31) + h1) * 5 + 0x38495AB5;
    }
    h2 ^= second_word(some_bytes(at + 8, left - 8));
    h1 ^= first_word(some_bytes(at, left));
    return finish(h1, h2, (uint64_t)size);
}

/* The hashes of values of `width` bytes (8 or 16), one behind the other. */
EXPORTED int64_t elf_hash_words(const uint8_t *values, int64_t width, int64_t rows, uint64_t seed, uint64_t *hashes) {
    if (width != 8 && width != 16) return UNSOUND;
    for (int64_t row = 0; row < rows; row++) hashes[row] = hash_bytes(values + width * row, width, seed);
    return rows;
}

/* The hashes of texts: `offsets` (rows + 1) into `size` bytes. */
EXPORTED int64_t elf_hash_texts(const uint8_t *data, int64_t size, const int32_t *offsets, int64_t rows, uint64_t seed,
                                uint64_t *hashes) {
    for (int64_t row = 0; row < rows; row++) {
        int64_t start = offsets[row], end = offsets[row + 1];
        if (start < 0 || end < start || end > size) return UNSOUND;
        hashes[row] = hash_bytes(data + start, end - start, seed);
    }
    return rows;
}

/* Mixes the hashes of one more column in. */
EXPORTED int64_t elf_hash_mix(uint64_t *hashes, const uint64_t *next, int64_t rows) {
    for (int64_t row = 0; row < rows; row++) hashes[row] = fmix(hashes[row] * GOLDEN + next[row]);
    return rows;
}
