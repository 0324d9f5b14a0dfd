/* A table of groups in memory: rows come, and those of a known key are merged into it (elf/native/table.py).
 *
 * Rows go through in blocks, and each step is done for the whole block, so that what one row waits for from memory is
 * asked for together with what the others do: a slot that may be of the row's key; whether it is; what is no entry yet
 * becomes one; then each state. */
#include "table.h"

enum { BLOCK = 256, AHEAD = 32, NOBODY = -1 };

struct block {
    int64_t row;
    int64_t rows;
    int64_t known; /* entries before it */
    int32_t entries[BLOCK];
    bool differs[BLOCK];
};

/* -- whether what is given can be worked with ------------------------------------------------------------ */

static bool is_sound_size(const struct elf_table *table) {
    int64_t slots = table->slot_count, capacity = table->capacity;
    if (capacity < 0 || capacity >= INT32_MAX || table->count < 0 || table->count > capacity) return false;
    return slots > 0 && (slots & (slots - 1)) == 0 && slots / 2 >= capacity;
}

static bool is_sound_column(const struct elf_held *held, int64_t capacity) {
    int32_t width = held->how == KEY ? held->width : held->how == SUM_128 ? 16 : 8;
    if (held->how < KEY || held->how > GREATEST_DOUBLE || held->width != width || width < 0 || width > 16) return false;
    if (width) return held->room / width >= capacity;
    return held->used >= 0 && held->used <= held->room && held->room <= INT32_MAX;
}

static bool is_sound_table(const struct elf_table *table, const struct elf_held *held, const struct elf_values *given,
                           int64_t rows) {
    if (!is_sound_size(table)) return false;
    for (int32_t c = 0; c < table->column_count; c++) {
        if (!is_sound_column(&held[c], table->capacity) || !is_sound(&given[c])) return false;
        if (given[c].width != held[c].width || given[c].rows < rows) return false;
    }
    return true;
}

/* -- slots ----------------------------------------------------------------------------------------------- */

static inline int64_t slot_of(const struct elf_table *table, uint64_t hash) {
    return (int64_t)(hash & (uint64_t)(table->slot_count - 1));
}

static inline uint64_t slot_with(uint64_t hash, int64_t entry) {
    return (hash & ~(uint64_t)UINT32_MAX) | (uint64_t)(entry + 1);
}

/* The entry in a slot that is taken, if it may have this hash; NOBODY. */
static inline int64_t entry_in(uint64_t slot, uint64_t hash) {
    return (slot ^ hash) >> 32 == 0 ? (int64_t)(uint32_t)slot - 1 : NOBODY;
}

/* Asks for what an entry has in each column; of texts, for where they are. */
static inline void ask_for(const struct elf_table *table, const struct elf_held *held, int64_t entry) {
    for (int32_t c = 0; c < table->column_count; c++) {
        if (held[c].width) {
            __builtin_prefetch(held[c].values + held[c].width * entry);
        } else {
            __builtin_prefetch(held[c].offsets + entry);
        }
    }
}

/* For each row of a block the first entry that may be its own. */
static bool find_entries(const struct elf_table *table, const struct elf_held *held, const uint64_t *hashes,
                         struct block *block) {
    for (int64_t i = 0; i < block->rows; i++) {
        uint64_t hash = hashes[block->row + i], slot;
        int64_t place = slot_of(table, hash), entry = NOBODY;
        if (i + AHEAD < block->rows) __builtin_prefetch(table->slots + slot_of(table, hashes[block->row + i + AHEAD]));
        for (int probes = 0; (slot = table->slots[place]) != 0 && probes < PROBES_MAX; probes++) {
            if ((entry = entry_in(slot, hash)) != NOBODY) break;
            place = (place + 1) & (table->slot_count - 1);
        }
        if (entry >= table->count) return false;
        block->entries[i] = (int32_t)entry;
        block->differs[i] = entry == NOBODY;
        if (entry != NOBODY) ask_for(table, held, entry);
    }
    return true;
}

/* -- keys ------------------------------------------------------------------------------------------------ */

static inline bool is_held(const struct elf_held *column, int64_t entry) {
    return column->valid[entry >> 3] >> (entry & 7) & 1;
}

static inline bool is_same_key(const struct elf_held *held, const struct elf_values *given, int64_t entry, int64_t row) {
    bool there = is_valid(given, row);
    if (there != is_held(held, entry)) return false;
    if (!there) return true;
    struct span value = value_of(given, row);
    if (held->width == 0) {
        int64_t start = held->offsets[entry];
        return value.at != NULL && value.size == held->offsets[entry + 1] - start &&
               are_same(held->values + start, value.at, value.size);
    }
    return are_same(held->values + (int64_t)held->width * entry, value.at, held->width);
}

static inline void ask_for_key(const struct elf_held *held, int64_t entry) {
    int64_t at = held->width ? held->width * entry : held->offsets[entry];
    __builtin_prefetch(held->values + at);
}

/* Which rows of a block have another value in a column than their entries. */
static void compare(const struct elf_held *held, const struct elf_values *given, struct block *block) {
    for (int64_t i = 0; i < block->rows; i++) {
        if (i + AHEAD < block->rows && !block->differs[i + AHEAD]) ask_for_key(held, block->entries[i + AHEAD]);
        if (!block->differs[i]) block->differs[i] = !is_same_key(held, given, block->entries[i], block->row + i);
    }
}

/* 1: there is room for a row as an entry more; 0; UNSOUND where a text lies. */
static int has_room(const struct elf_table *table, const struct elf_held *held, const struct elf_values *given,
                    int64_t row) {
    if (table->count >= table->capacity) return 0;
    for (int32_t c = 0; c < table->column_count; c++) {
        if (held[c].width || !is_valid(&given[c], row)) continue;
        struct span text = value_of(&given[c], row);
        if (text.at == NULL) return UNSOUND;
        if (text.size > held[c].room - held[c].used) return 0;
    }
    return 1;
}

/* Before the first value is merged into a state. */
static const int64_t BEGINNING[] = {
    [KEY] = 0, [SUM_64] = 0, [SUM_128] = 0, [LEAST_64] = INT64_MAX, [GREATEST_64] = INT64_MIN,
    [LEAST_DOUBLE] = INT64_MAX, [GREATEST_DOUBLE] = -1};

/* A row's key as a new entry, whose states have no value yet. There is room. */
static void append(struct elf_table *table, struct elf_held *held, const struct elf_values *given, int64_t row) {
    int64_t entry = table->count++;
    for (int32_t c = 0; c < table->column_count; c++) {
        struct elf_held *column = &held[c];
        uint8_t *to = column->values + (int64_t)column->width * entry;
        if (column->how != KEY) {
            memset(to, 0, (size_t)column->width);
            memcpy(to, &BEGINNING[column->how], 8);
            continue;
        }
        struct span value = {NULL, 0};
        if (is_valid(&given[c], row)) {
            value = value_of(&given[c], row);
            set_bit(column->valid, entry);
        }
        if (column->width == 0) {
            if (value.at != NULL) copy_text(column->values + column->used, value.at, value.size);
            column->used += value.size;
            column->offsets[entry + 1] = (int32_t)column->used;
        } else if (value.at != NULL) {
            copy_value(to, value.at, column->width);
        } else {
            memset(to, 0, (size_t)column->width);
        }
    }
}

/* The entry of a row's key, which it becomes where there is none; NOBODY where that cannot be (`stopped`), UNSOUND - 1
 * where a column lies. */
static int64_t entry_of(struct elf_table *table, struct elf_held *held, const struct elf_values *given, uint64_t hash,
                        int64_t row) {
    int64_t place = slot_of(table, hash);
    uint64_t slot;
    for (int probes = 0; (slot = table->slots[place]) != 0; probes++) {
        int64_t entry = entry_in(slot, hash);
        if (entry >= table->count) return NOBODY + UNSOUND;
        bool same = entry != NOBODY;
        for (int32_t c = 0; same && c < table->column_count; c++) {
            same = held[c].how != KEY || is_same_key(&held[c], &given[c], entry, row);
        }
        if (same) return entry;
        if (probes >= PROBES_MAX) {
            table->stopped = LEFT_OVER;
            return NOBODY;
        }
        place = (place + 1) & (table->slot_count - 1);
    }
    int room = has_room(table, held, given, row);
    if (room != 1) {
        table->stopped = NO_ROOM;
        return room + NOBODY;
    }
    append(table, held, given, row);
    table->hashes[table->count - 1] = hash;
    table->slots[place] = slot_with(hash, table->count - 1);
    return table->count - 1;
}

/* -- states ---------------------------------------------------------------------------------------------- */

/* Whether a block's sums surely fit: of 64 bits by a bound for all of them; those of 128 bits (38 digits) where each
 * value has 64, since no table has 2 ** 60 rows. Others are for somebody else. */
static bool fits(struct elf_held *held, const struct elf_values *given, const struct block *block) {
    uint64_t most = 0;
    if (held->how != SUM_64 && held->how != SUM_128) return true;
    for (int64_t row = block->row; row < block->row + block->rows; row++) {
        int64_t value[2];
        memcpy(value, given->values + held->width * row, (size_t)held->width);
        if (held->how == SUM_128) {
            if (value[1] != value[0] >> 63 && is_valid(given, row)) return false;
            continue;
        }
        uint64_t size = value[0] < 0 ? -(uint64_t)value[0] : (uint64_t)value[0];
        if (size > most && is_valid(given, row)) most = size;
    }
    if (most > (uint64_t)INT64_MAX / (4 * BLOCK) || held->most > (uint64_t)INT64_MAX / 2) return false;
    held->most += most * (uint64_t)block->rows;
    return true;
}

/* A double's bits as a number that is ordered as doubles are, NaN on top. */
static inline int64_t ordered(int64_t bits) { return bits ^ (bits >> 63 & INT64_MAX); }

static inline void merge(int32_t how, uint8_t *mine, const uint8_t *given) {
    int64_t one, other;
    if (how == SUM_128) {
        __int128 sum, more;
        memcpy(&sum, mine, 16), memcpy(&more, given, 16);
        sum += more;
        memcpy(mine, &sum, 16);
        return;
    }
    memcpy(&one, mine, 8), memcpy(&other, given, 8);
    if (how == SUM_64) one += other;
    if (how == LEAST_64 && other < one) one = other;
    if (how == GREATEST_64 && other > one) one = other;
    if (how == LEAST_DOUBLE && ordered(other) < ordered(one)) one = other;
    if (how == GREATEST_DOUBLE && ordered(other) > ordered(one)) one = other;
    memcpy(mine, &one, 8);
}

static inline void merge_block(int32_t how, int64_t width, struct elf_held *held, const struct elf_values *given,
                               const struct block *block) {
    const uint8_t *values = given->values + width * block->row;
    for (int64_t i = 0; i < block->rows; i++) {
        if (given->valid != NULL && !is_valid(given, block->row + i)) continue;
        merge(how, held->values + width * block->entries[i], values + width * i);
        set_bit(held->valid, block->entries[i]);
    }
}

static void merge_column(struct elf_held *held, const struct elf_values *given, const struct block *block) {
    switch (held->how) {
    case SUM_64: merge_block(SUM_64, 8, held, given, block); break;
    case SUM_128: merge_block(SUM_128, 16, held, given, block); break;
    case LEAST_64: merge_block(LEAST_64, 8, held, given, block); break;
    case GREATEST_64: merge_block(GREATEST_64, 8, held, given, block); break;
    case LEAST_DOUBLE: merge_block(LEAST_DOUBLE, 8, held, given, block); break;
    case GREATEST_DOUBLE: merge_block(GREATEST_DOUBLE, 8, held, given, block); break;
    default: break;
    }
}

/* -- what is called -------------------------------------------------------------------------------------- */

/* Adds rows from `row` on. Returns the first that was not added, and in `stopped` why: there is no room for it, or it
 * is to be left to somebody else, as a sum might not fit or too many keys are in the same slots. UNSOUND. */
EXPORTED int64_t elf_table_add(struct elf_table *table, struct elf_held *held, const struct elf_values *given,
                               const uint64_t *hashes, int64_t row, int64_t rows) {
    if (row < 0 || !is_sound_table(table, held, given, rows)) return UNSOUND;
    table->stopped = DONE;
    struct block block;
    for (block.row = row; block.row < rows && table->stopped == DONE; block.row += block.rows) {
        block.rows = rows - block.row < BLOCK ? rows - block.row : BLOCK;
        for (int32_t c = 0; c < table->column_count; c++) {
            if (fits(&held[c], &given[c], &block)) continue;
            table->stopped = LEFT_OVER;
            return block.row;
        }
        if (!find_entries(table, held, hashes, &block)) return UNSOUND;
        for (int32_t c = 0; c < table->column_count; c++) {
            if (held[c].how == KEY) compare(&held[c], &given[c], &block);
        }
        for (int64_t i = 0; i < block.rows; i++) {
            if (!block.differs[i]) continue;
            int64_t entry = entry_of(table, held, given, hashes[block.row + i], block.row + i);
            if (entry < NOBODY) return UNSOUND;
            if (entry == NOBODY) block.rows = i;
            block.entries[i] = (int32_t)entry;
        }
        for (int32_t c = 0; c < table->column_count; c++) merge_column(&held[c], &given[c], &block);
    }
    return block.row;
}

/* Puts all entries into their slots, which are empty. Returns how many there are; UNSOUND. */
EXPORTED int64_t elf_table_place(struct elf_table *table) {
    if (!is_sound_size(table)) return UNSOUND;
    for (int64_t entry = 0; entry < table->count; entry++) {
        int64_t place = slot_of(table, table->hashes[entry]);
        while (table->slots[place]) place = (place + 1) & (table->slot_count - 1);
        table->slots[place] = slot_with(table->hashes[entry], entry);
    }
    return table->count;
}
