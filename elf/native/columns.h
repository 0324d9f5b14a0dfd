/* Columns of keys and states, for what groups rows (rows.c, table.c). */
#ifndef ELF_COLUMNS_H
#define ELF_COLUMNS_H

#include "values.h"

/* A column of one chunk, as Arrow has it. `width`: bytes of each value, 0 for texts. */
struct elf_values {
    int64_t rows;
    int64_t width;
    const uint8_t *values;  /* or the bytes of texts */
    int64_t size;           /* of `values`, in bytes */
    const int32_t *offsets; /* texts: rows + 1, into `values` */
    const uint8_t *valid;   /* a bitmap from its bit `first` on; NULL where no value is missing */
    int64_t first;
};

/* Some bytes; `at` is NULL where they are not where the column says, or not in it. */
struct span {
    const uint8_t *at;
    int64_t size;
};

static inline bool is_valid(const struct elf_values *column, int64_t row) {
    int64_t bit = column->first + row;
    return column->valid == NULL || (column->valid[bit >> 3] >> (bit & 7) & 1);
}

/* The bytes of the value in a row, which is one of the column's. */
static inline struct span value_of(const struct elf_values *column, int64_t row) {
    if (column->width) return (struct span){column->values + column->width * row, column->width};
    int64_t start = column->offsets[row], end = column->offsets[row + 1];
    if (start < 0 || end < start || end > column->size) return (struct span){NULL, 0};
    return (struct span){column->values + start, end - start};
}

static inline bool is_sound(const struct elf_values *column) {
    return column->rows >= 0 && column->width >= 0 && column->width <= 16 && column->size >= 0 &&
           (column->width == 0 || column->rows <= column->size / column->width);
}

/* Copies a value of a width that the compiler need not know. */
static inline void copy_value(uint8_t *to, const uint8_t *from, int64_t width) {
    if (width == 8) {
        memcpy(to, from, 8);
    } else if (width == 4) {
        memcpy(to, from, 4);
    } else {
        memcpy(to, from, (size_t)width);
    }
}

#endif
