/* Draws columns of keys and numbers and groups them in each way, in buffers that are exactly as large as it is told,
 * for a build with sanitizers. Argument: a seed. Prints how many groups there were; a number below 0 is a difference. */
#include <stdio.h>
#include <stdlib.h>

#include "columns.h"
#include "table.h"

int64_t elf_hash_words(const uint8_t *, int64_t, int64_t, uint64_t, uint64_t *);
int64_t elf_hash_texts(const uint8_t *, int64_t, const int32_t *, int64_t, uint64_t, uint64_t *);
int64_t elf_hash_mix(uint64_t *, const uint64_t *, int64_t);
int64_t elf_starts(const struct elf_values *, int32_t, const int64_t *, const uint64_t *, int64_t, int64_t *);
int64_t elf_take(const struct elf_values *, const int64_t *, int64_t, uint8_t *, int64_t, int32_t *, uint8_t *);
int64_t elf_merge(const int64_t *, int64_t, int32_t, const int64_t *, int64_t, const int64_t *, int64_t, int64_t *);
int64_t elf_table_add(struct elf_table *, struct elf_held *, const struct elf_values *, const uint64_t *, int64_t, int64_t);
int64_t elf_table_place(struct elf_table *);

enum { ROWS = 3000, KEYS = 2, COLUMNS = 4, CAPACITY = 4096 };

static uint64_t state;

static uint64_t draw(uint64_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % below;
}

static void *piece(int64_t bytes) { return calloc(bytes > 0 ? (size_t)bytes : 1, 1); }

static const uint64_t *sort_by;

static int by_hash(const void *one, const void *other) {
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    if (sort_by[a] != sort_by[b]) return sort_by[a] < sort_by[b] ? -1 : 1;
    return a < b ? -1 : a > b;
}

static struct elf_values texts(void) {
    struct elf_values column = {.rows = ROWS, .valid = piece((ROWS + 7) / 8)};
    int32_t *offsets = piece(4 * (ROWS + 1));
    for (int64_t row = 0; row < ROWS; row++) offsets[row + 1] = offsets[row] + (int32_t)draw(draw(20) + 1);
    uint8_t *bytes = malloc((size_t)offsets[ROWS] + !offsets[ROWS]);
    for (int64_t at = 0; at < offsets[ROWS]; at++) bytes[at] = (uint8_t)('a' + draw(2));
    for (int64_t row = 0; row < ROWS; row++) {
        if (draw(9)) set_bit((uint8_t *)column.valid, row);
    }
    column.values = bytes, column.size = offsets[ROWS], column.offsets = offsets;
    return column;
}

static struct elf_values numbers(int64_t width, uint64_t below, bool missing) {
    struct elf_values column = {.rows = ROWS, .width = width, .size = width * ROWS};
    uint8_t *bytes = piece(width * ROWS), *valid = missing ? piece((ROWS + 7) / 8) : NULL;
    for (int64_t row = 0; row < ROWS; row++) {
        bytes[width * row] = (uint8_t)draw(below);
        if (missing && draw(5)) set_bit(valid, row);
    }
    column.values = bytes, column.valid = valid;
    return column;
}

static struct elf_held held_of(const struct elf_values *column, int32_t how, int64_t capacity) {
    struct elf_held held = {.how = how, .width = (int32_t)column->width, .valid = piece((capacity + 7) / 8)};
    held.room = column->width ? column->width * capacity : column->size;
    held.values = piece(held.room);
    held.offsets = piece(column->width ? 0 : 4 * (capacity + 1));
    return held;
}

static void release(struct elf_values *column) {
    free((void *)column->values), free((void *)column->offsets), free((void *)column->valid);
}

int main(int count, char **words) {
    state = 88172645463325252u + (count > 1 ? (uint64_t)atoll(words[1]) : 0) * 7919;
    struct elf_values columns[COLUMNS] = {texts(), numbers(8, 3, true), numbers(8, 100, false), numbers(16, 100, true)};
    int64_t *order = piece(8 * ROWS), *starts = piece(8 * ROWS), *merged = piece(8 * ROWS);
    uint64_t *hashes = piece(8 * ROWS), *more = piece(8 * ROWS), *sorted = piece(8 * ROWS);
    if (elf_hash_texts(columns[0].values, columns[0].size, columns[0].offsets, ROWS, 3, hashes) < 0) return 2;
    if (elf_hash_words(columns[1].values, 8, ROWS, 1, more) < 0) return 3;
    for (int64_t row = 0; row < ROWS; row++) {
        if (!is_valid(&columns[0], row)) hashes[row] = 0;
        if (!is_valid(&columns[1], row)) more[row] = 0;
        order[row] = row;
    }
    elf_hash_mix(hashes, more, ROWS);
    sort_by = hashes;
    qsort(order, ROWS, 8, by_hash);
    for (int64_t i = 0; i < ROWS; i++) sorted[i] = hashes[order[i]];
    int64_t groups = elf_starts(columns, KEYS, order, sorted, ROWS, starts);
    if (groups < 0) return 4;
    const int64_t *sums = (const int64_t *)columns[2].values;
    if (elf_merge(sums, ROWS, 0, order, ROWS, starts, groups, merged) != groups) return 5;

    struct elf_held held[COLUMNS] = {held_of(&columns[0], 0, CAPACITY), held_of(&columns[1], 0, CAPACITY),
                                     held_of(&columns[2], 1, CAPACITY), held_of(&columns[3], 2, CAPACITY)};
    struct elf_table table = {.capacity = CAPACITY, .slots = piece(16 * CAPACITY), .slot_count = 2 * CAPACITY,
                              .hashes = piece(8 * CAPACITY), .column_count = COLUMNS};
    if (elf_table_add(&table, held, columns, hashes, 0, ROWS / 2) != ROWS / 2) return 6;
    memset(table.slots, 0, 16 * CAPACITY);
    if (elf_table_place(&table) != table.count) return 7;
    if (elf_table_add(&table, held, columns, hashes, ROWS / 2, ROWS) != ROWS) return 8;
    if (table.count != groups) return 9;
    for (int64_t group = 0; group < groups; group++) {
        int64_t entry = 0, sum;
        while (table.hashes[entry] != sorted[starts[group]]) entry++;
        memcpy(&sum, held[2].values + 8 * entry, 8);
        if (sum != merged[group]) return 10;
    }

    /* What does not fit, and what lies. */
    table.capacity = table.count;
    memset(table.slots, 0, 16 * CAPACITY);
    if (elf_table_place(&table) != groups) return 11;
    for (uint64_t *hash = hashes; hash < hashes + ROWS; hash++) *hash += 1;
    if (elf_table_add(&table, held, columns, hashes, 0, ROWS) != 0 || table.stopped != 1) return 12;
    for (int64_t row = 0; row < ROWS; row++) order[row] = (int64_t)draw(ROWS + 1);
    uint8_t *values = malloc((size_t)columns[0].size), *valid = piece((ROWS + 7) / 8);
    int32_t *offsets = piece(4 * (ROWS + 1));
    elf_take(&columns[0], order, ROWS, values, columns[0].size, offsets, valid);
    int32_t *lying = (int32_t *)columns[0].offsets;
    for (int64_t i = 0; i < 100; i++) lying[draw(ROWS + 1)] = (int32_t)draw(1 << 30) - (1 << 29);
    elf_take(&columns[0], order, ROWS, values, columns[0].size, offsets, valid);
    elf_hash_texts(columns[0].values, columns[0].size, columns[0].offsets, ROWS, 3, more);
    elf_starts(columns, KEYS, order, sorted, ROWS, starts);
    table.capacity = CAPACITY;
    memset(table.slots, 0, 16 * CAPACITY);
    elf_table_place(&table);
    elf_table_add(&table, held, columns, hashes, 0, ROWS);

    for (int c = 0; c < COLUMNS; c++) {
        release(&columns[c]);
        free(held[c].values), free(held[c].offsets), free(held[c].valid);
    }
    free(order), free(starts), free(merged), free(hashes), free(more), free(sorted);
    free(values), free(valid), free(offsets), free(table.slots), free(table.hashes);
    printf("%lld\n", (long long)groups);
    return 0;
}
