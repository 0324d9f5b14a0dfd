/* Values of a line, and how they are stored in a column of a type: as Dialect.cast says (agents/formats). */
#ifndef ELF_VALUES_H
#define ELF_VALUES_H

#include <stdlib.h>

#include "native.h"
#include "times.h"

enum kind {
    NOTHING,   /* null */
    FALSE_,
    TRUE_,
    INTEGER,   /* a JSON integer of at most 18 digits and not -0 */
    NUMBER,    /* any other JSON number */
    STRING,    /* the contents of a string, without escapes */
    ESCAPED,   /* the same, with escapes */
    WRITTEN,   /* an array or object that is written as DuckDB writes it */
    CONTAINER, /* an array or object */
};

struct value {
    enum kind kind;
    int32_t start;
    int32_t size;
};

enum { DIGITS_MAX = 18, DOUBLE_TEXT_MAX = 63 };

/* -- eight bytes at a time ------------------------------------------------------------------------------- */

static const uint64_t HIGH_BITS = UINT64_C(0x8080808080808080), LOW_BITS = UINT64_C(0x0101010101010101);

/* Eight bytes as a number, the first one lowest. */
static inline uint64_t eight_bytes(const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

/* Four bytes as such a number. */
static inline uint64_t four_bytes(const uint8_t *at) {
    uint32_t word;
    memcpy(&word, at, 4);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap32(word);
#endif
    return word;
}

/* Of eight bytes, some of which have their high bit set: the number of the first of these. */
static inline int64_t first_byte(uint64_t bits) { return __builtin_ctzll(bits) >> 3; }

/* The place of the first such byte in [at, end); end where there is none. */
static inline int64_t find(const uint8_t *data, int64_t at, int64_t end, uint8_t byte) {
    for (; end - at >= 8; at += 8) {
        uint64_t x = eight_bytes(data + at) ^ (LOW_BITS * byte);
        uint64_t zeros = (x - LOW_BITS) & ~x & HIGH_BITS; /* right as far as the first one */
        if (zeros) return at + first_byte(zeros);
    }
    while (at < end && data[at] != byte) at++;
    return at;
}

/* Whether two pieces of so many bytes are the same. */
static inline bool are_same(const uint8_t *one, const uint8_t *other, int64_t size) {
    if (size < 8) {
        for (int64_t i = 0; i < size; i++) {
            if (one[i] != other[i]) return false;
        }
        return true;
    }
    int64_t last = size - 8;
    for (int64_t i = 0; i < last; i += 8) {
        if (eight_bytes(one + i) != eight_bytes(other + i)) return false;
    }
    return eight_bytes(one + last) == eight_bytes(other + last);
}

/* -- one text somewhere else ----------------------------------------------------------------------------- */

/* Copies a text. Most are short; where two pieces overlap they are the same. */
static inline void copy_text(uint8_t *to, const uint8_t *from, int64_t size) {
    if (size > 32) {
        memcpy(to, from, (size_t)size);
    } else if (size >= 16) {
        memcpy(to, from, 16), memcpy(to + size - 16, from + size - 16, 16);
    } else if (size >= 8) {
        memcpy(to, from, 8), memcpy(to + size - 8, from + size - 8, 8);
    } else if (size >= 4) {
        memcpy(to, from, 4), memcpy(to + size - 4, from + size - 4, 4);
    } else {
        for (int64_t i = 0; i < size; i++) to[i] = from[i];
    }
}

/* -- one value of a column ------------------------------------------------------------------------------- */

static inline void set_bit(uint8_t *bitmap, int64_t row) { bitmap[row >> 3] |= (uint8_t)(1 << (row & 7)); }

static inline int32_t store_integer(struct elf_column *column, int64_t row, int64_t value) {
    ((int64_t *)column->values)[row] = value;
    set_bit(column->valid, row);
    return DECIDED;
}

static inline int32_t store_double(struct elf_column *column, int64_t row, double value) {
    ((double *)column->values)[row] = value;
    set_bit(column->valid, row);
    return DECIDED;
}

static inline int32_t store_boolean(struct elf_column *column, int64_t row, bool value) {
    if (value) set_bit(column->values, row);
    set_bit(column->valid, row);
    return DECIDED;
}

static inline int32_t store_text(struct elf_column *column, int64_t row, const struct value *value) {
    column->starts[row] = value->start;
    column->sizes[row] = value->kind == ESCAPED ? -value->size : value->size;
    column->bytes += value->size;
    set_bit(column->valid, row);
    return DECIDED;
}

static inline int32_t store_null(struct elf_column *column, int64_t row) {
    if (column->type == TEXT) column->sizes[row] = 0, column->starts[row] = 0;
    return DECIDED;
}

/* A value that does not fit is NULL, and counted. */
static inline int32_t store_unfit(struct elf_column *column, int64_t row, int64_t *uncast) {
    *uncast += column->counted != 0;
    return store_null(column, row);
}

/* -- numbers --------------------------------------------------------------------------------------------- */

static const double POWERS_OF_TEN[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                       1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* A JSON number of at most 63 bytes by the C library, which rounds right; LEFT where it reads another text (in
 * a locale with a comma for a point), and for what is 0, subnormal or infinite. */
static int32_t long_double_of(const uint8_t *text, int64_t size, double *value) {
    char copy[DOUBLE_TEXT_MAX + 1];
    char *end;
    if (size > DOUBLE_TEXT_MAX) return LEFT;
    memcpy(copy, text, (size_t)size);
    copy[size] = 0;
    *value = strtod(copy, &end);
    double most = *value < 0 ? -*value : *value;
    return end == copy + size && most > 1e-300 && most < 1e300 ? DECIDED : LEFT;
}

/* The double of a JSON number. With at most 15 digits and a power of ten up to 22 both are doubles exactly, so
 * one operation rounds right (Clinger's fast path). */
static int32_t double_of(const uint8_t *text, int64_t size, double *value) {
    int64_t at = text[0] == '-', digits = 0, mantissa = 0, scale = 0;
    for (; at < size && is_digit(text[at]); at++, digits++) {
        if (digits < DIGITS_MAX) mantissa = 10 * mantissa + (text[at] - '0');
    }
    if (at < size && text[at] == '.') {
        for (at++; at < size && is_digit(text[at]); at++, digits++, scale++) {
            if (digits < DIGITS_MAX) mantissa = 10 * mantissa + (text[at] - '0');
        }
    }
    if (at != size || digits > 15) return long_double_of(text, size, value);
    double whole = (double)mantissa / POWERS_OF_TEN[scale];
    *value = text[0] == '-' ? -whole : whole;
    return DECIDED;
}

/* The end of the digits that begin at `at`. */
static inline int64_t digits_end(const uint8_t *text, int64_t at, int64_t end) {
    for (; end - at >= 8; at += 8) {
        uint64_t x = eight_bytes(text + at) ^ UINT64_C(0x3030303030303030); /* digits are 0 to 9 */
        uint64_t others = (((x & ~HIGH_BITS) + UINT64_C(0x7676767676767676)) | x) & HIGH_BITS;
        if (others) return at + first_byte(others);
    }
    while (at < end && is_digit(text[at])) at++;
    return at;
}

/* How many bytes from `at` on are a JSON number; 0 where none is. *integral: it has neither point nor exponent. */
static inline int64_t number_size(const uint8_t *text, int64_t size, bool *integral) {
    int64_t at = size > 0 && text[0] == '-';
    *integral = true;
    if (at >= size || !is_digit(text[at])) return 0;
    at = text[at] == '0' ? at + 1 : digits_end(text, at, size);
    if (at < size && text[at] == '.') {
        int64_t first = at + 1;
        *integral = false;
        at = digits_end(text, first, size);
        if (at == first) return 0;
    }
    if (at < size && (text[at] | 0x20) == 'e') {
        *integral = false;
        at++;
        if (at < size && (text[at] == '+' || text[at] == '-')) at++;
        int64_t first = at;
        at = digits_end(text, at, size);
        if (at == first) return 0;
    }
    return at;
}

/* The number that these digits make, at most 18, with a sign in front or none. */
static inline int64_t integer_of(const uint8_t *text, int64_t size) {
    int64_t at = text[0] == '-' || text[0] == '+', value = 0;
    for (; at < size; at++) value = 10 * value + (text[at] - '0');
    return text[0] == '-' ? -value : value;
}

/* -- a text as a type ------------------------------------------------------------------------------------ */

/* [+-]?[0-9]+ is an integer, if it is none of more than 64 bits; nothing else is one. */
static int32_t text_as_bigint(struct elf_column *column, int64_t row, const uint8_t *text, int64_t size,
                              int64_t *uncast) {
    int64_t first = size > 0 && (text[0] == '-' || text[0] == '+'), at = first;
    while (at < size && is_digit(text[at])) at++;
    if (at < size || at == first) return store_unfit(column, row, uncast);
    if (size - first > DIGITS_MAX) return LEFT;
    return store_integer(column, row, integer_of(text, size));
}

/* Without a digit it is no number; what is a number in other ways than JSON's is LEFT. */
static int32_t text_as_double(struct elf_column *column, int64_t row, const uint8_t *text, int64_t size,
                              int64_t *uncast) {
    double value;
    bool integral;
    int64_t at = 0;
    while (at < size && !is_digit(text[at])) at++;
    if (at == size) return store_unfit(column, row, uncast);
    if (number_size(text, size, &integral) != size || double_of(text, size, &value) == LEFT) return LEFT;
    return store_double(column, row, value);
}

static int32_t text_as_boolean(struct elf_column *column, int64_t row, const uint8_t *text, int64_t size,
                               int64_t *uncast) {
    if (size == 4 && memcmp(text, "true", 4) == 0) return store_boolean(column, row, true);
    if (size == 5 && memcmp(text, "false", 5) == 0) return store_boolean(column, row, false);
    return store_unfit(column, row, uncast);
}

static int32_t text_as_timestamp(struct elf_column *column, int64_t row, const uint8_t *text, int64_t size) {
    int64_t us;
    return read_time(text, size, &us) == DECIDED ? store_integer(column, row, us) : LEFT;
}

/* A text without escapes as any type. */
static inline int32_t store_string(struct elf_column *column, int64_t row, const uint8_t *data,
                                   const struct value *value, int64_t *uncast) {
    const uint8_t *text = data + value->start;
    switch (column->type) {
    case TEXT: return store_text(column, row, value);
    case BIGINT: return text_as_bigint(column, row, text, value->size, uncast);
    case DOUBLE: return text_as_double(column, row, text, value->size, uncast);
    case BOOLEAN: return text_as_boolean(column, row, text, value->size, uncast);
    case TIMESTAMP: return text_as_timestamp(column, row, text, value->size);
    default: return LEFT;
    }
}

/* -- JSON's other values --------------------------------------------------------------------------------- */

static inline int32_t store_whole(struct elf_column *column, int64_t row, const uint8_t *data,
                                  const struct value *value, int64_t *uncast) {
    int64_t us, number;
    if (column->type == TEXT) return store_text(column, row, value);
    if (column->type == BOOLEAN) return store_unfit(column, row, uncast);
    number = integer_of(data + value->start, value->size);
    if (column->type == BIGINT) return store_integer(column, row, number);
    if (column->type == DOUBLE) return store_double(column, row, (double)number);
    return whole_us(number, &us) == DECIDED ? store_integer(column, row, us) : LEFT;
}

/* A number with a point or an exponent, or of more than 18 digits, or -0: as text DuckDB may write it in
 * another way. */
static int32_t store_number(struct elf_column *column, int64_t row, const uint8_t *data, const struct value *value,
                            int64_t *uncast) {
    const uint8_t *text = data + value->start;
    double number;
    bool integral;
    number_size(text, value->size, &integral);
    if (integral) return LEFT;
    switch (column->type) {
    case BIGINT:
    case BOOLEAN: return store_unfit(column, row, uncast);
    case DOUBLE:
        return double_of(text, value->size, &number) == DECIDED ? store_double(column, row, number) : LEFT;
    case TIMESTAMP:
        if (double_of(text, value->size, &number) == LEFT || number < 0 || number >= 1e11) return LEFT;
        number *= 1e6;
        return store_integer(column, row, (int64_t)(number + 0.5));
    default: return LEFT;
    }
}

static int32_t store_truth(struct elf_column *column, int64_t row, const struct value *value, int64_t *uncast) {
    if (column->type == TEXT) return store_text(column, row, value);
    if (column->type == BOOLEAN) return store_boolean(column, row, value->kind == TRUE_);
    return column->type == TIMESTAMP ? LEFT : store_unfit(column, row, uncast);
}

/* Any value as any type. */
static inline int32_t store(struct elf_column *column, int64_t row, const uint8_t *data, const struct value *value,
                            int64_t *uncast) {
    switch (value->kind) {
    case STRING: return store_string(column, row, data, value, uncast);
    case INTEGER: return store_whole(column, row, data, value, uncast);
    case NUMBER: return store_number(column, row, data, value, uncast);
    case TRUE_:
    case FALSE_: return store_truth(column, row, value, uncast);
    case NOTHING: return store_null(column, row);
    case ESCAPED:
    case WRITTEN: return column->type == TEXT ? store_text(column, row, value) : LEFT;
    default: return LEFT;
    }
}

/* -- rows ------------------------------------------------------------------------------------------------ */

/* Takes back the texts of a row that is LEFT after some of its columns were stored. */
static inline void clear_row(struct elf_column *columns, int32_t count, int32_t stored, int64_t row) {
    for (int32_t i = 0; i < count; i++) {
        struct elf_column *column = &columns[i];
        if (column->type != TEXT) continue;
        if (i < stored) column->bytes -= column->sizes[row] < 0 ? -column->sizes[row] : column->sizes[row];
        store_null(column, row);
    }
}

/* The place of the first mark in [at, end); end where there is none. */
static inline int64_t next_mark(const uint64_t *marks, int64_t at, int64_t end) {
    if (at >= end) return end;
    int64_t word = at >> 6, last = (end - 1) >> 6;
    uint64_t left = marks[word] & (~UINT64_C(0) << (at & 63));
    while (!left) {
        if (word == last) return end;
        left = marks[++word];
    }
    int64_t found = 64 * word + __builtin_ctzll(left);
    return found < end ? found : end;
}

/* Whether the lines lie in their data, one behind the other. */
static inline bool lines_are_sound(const struct elf_lines *lines) {
    if (lines->rows < 0 || lines->size < 0 || lines->size > INT32_MAX || lines->offsets[0] < 0) return false;
    bool rising = true;
    for (int64_t row = 0; row < lines->rows; row++) rising &= lines->offsets[row] <= lines->offsets[row + 1];
    return rising && lines->offsets[lines->rows] <= lines->size;
}

#endif
