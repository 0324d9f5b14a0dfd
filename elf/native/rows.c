/* Rows in the order of their hashes: which are of one key, and what becomes of their columns (elf/cbt/combine.py). */
#include "columns.h"

enum { AHEAD = 16 }; /* rows whose values are asked for before they are needed */
enum { SUM = 0, LEAST = 1, GREATEST = 2 };

static inline void ask_for(const struct elf_values *column, int64_t row) {
    if (column->width) {
        __builtin_prefetch(column->values + column->width * row);
    } else {
        __builtin_prefetch(column->offsets + row);
    }
}

static bool are_in(const int64_t *rows, int64_t count, int64_t end) {
    uint64_t most = 0;
    for (int64_t i = 0; i < count; i++) most = (uint64_t)rows[i] > most ? (uint64_t)rows[i] : most;
    return count == 0 || most < (uint64_t)end;
}

/* Whether the value in two rows is the same, NULL being one; -1 where the column lies. */
static inline int is_same_value(const struct elf_values *column, int64_t one, int64_t other) {
    bool there = is_valid(column, one);
    if (there != is_valid(column, other)) return 0;
    if (!there) return 1;
    struct span a = value_of(column, one), b = value_of(column, other);
    if (a.at == NULL || b.at == NULL) return UNSOUND;
    return a.size == b.size && are_same(a.at, b.at, a.size);
}

/* `rows` rows of key columns in their `order`, in which their `hashes` ascend: where each key begins goes to
 * `starts`. Returns how many there are; OTHER_WAY where rows of one hash have different keys; UNSOUND. */
EXPORTED int64_t elf_starts(const struct elf_values *keys, int32_t key_count, const int64_t *order,
                            const uint64_t *hashes, int64_t rows, int64_t *starts) {
    int64_t found = 0;
    for (int32_t k = 0; k < key_count; k++) {
        if (!is_sound(&keys[k]) || !are_in(order, rows, keys[k].rows)) return UNSOUND;
    }
    for (int64_t i = 0; i < rows; i++) {
        if (i == 0 || hashes[i] != hashes[i - 1]) {
            starts[found++] = i;
            continue;
        }
        for (int32_t k = 0; k < key_count; k++) {
            int same = is_same_value(&keys[k], order[i - 1], order[i]);
            if (same != 1) return same ? UNSOUND : OTHER_WAY;
        }
    }
    return found;
}

/* Copies the values of some rows: to `values`, which has room for `room` bytes, of texts with their `offsets`
 * (count + 1); `valid` is a bitmap, zero at first, or NULL where none is missing. Returns how many bytes it wrote;
 * OTHER_WAY where there is too little room; UNSOUND. */
EXPORTED int64_t elf_take(const struct elf_values *column, const int64_t *rows, int64_t count, uint8_t *values,
                          int64_t room, int32_t *offsets, uint8_t *valid) {
    int64_t written = 0, width = column->width;
    if (!is_sound(column) || !are_in(rows, count, column->rows) || room > INT32_MAX * (width ? width : 1)) return UNSOUND;
    if (valid == NULL && column->valid != NULL) return UNSOUND;
    if (width && count > room / width) return UNSOUND;
    for (int64_t i = 0; i < count; i++) {
        if (i + AHEAD < count) ask_for(column, rows[i + AHEAD]);
        if (!width && i + AHEAD / 2 < count) __builtin_prefetch(column->values + column->offsets[rows[i + AHEAD / 2]]);
        bool there = is_valid(column, rows[i]);
        if (valid != NULL && there) set_bit(valid, i);
        if (width) {
            copy_value(values + width * i, column->values + width * rows[i], width);
            continue;
        }
        offsets[i] = (int32_t)written;
        if (!there) continue;
        struct span text = value_of(column, rows[i]);
        if (text.at == NULL) return UNSOUND;
        if (text.size > room - written) return OTHER_WAY;
        copy_text(values + written, text.at, text.size);
        written += text.size;
    }
    if (width) return width * count;
    offsets[count] = (int32_t)written;
    return written;
}

/* Merges the numbers of each key, whose rows begin at `starts` in the `order`: `how` is SUM, LEAST or GREATEST.
 * Returns how many there are; OTHER_WAY where a sum does not fit; UNSOUND. */
EXPORTED int64_t elf_merge(const int64_t *numbers, int64_t size, int32_t how, const int64_t *order, int64_t rows,
                           const int64_t *starts, int64_t count, int64_t *merged) {
    if (!are_in(order, rows, size) || !are_in(starts, count, rows)) return UNSOUND;
    for (int64_t group = 0; group < count; group++) {
        int64_t at = starts[group], end = group + 1 < count ? starts[group + 1] : rows;
        int64_t all = numbers[order[at]];
        while (++at < end) {
            int64_t next = numbers[order[at]];
            if (how == SUM) {
                if (__builtin_add_overflow(all, next, &all)) return OTHER_WAY;
            } else if (how == LEAST ? next < all : next > all) {
                all = next;
            }
        }
        merged[group] = all;
    }
    return count;
}
