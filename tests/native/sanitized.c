/* Runs the native reader over lines from standard input, in buffers that are exactly as large as it is told, for a
 * build with sanitizers. Arguments: the format, then columns: JSON keys with dots between them, or numbers of
 * fields. Each is read as each type that it may have. Prints how many lines were decided. */
#include <stdio.h>
#include <stdlib.h>

#include "native.h"

int64_t elf_json(const struct elf_lines *, const struct elf_plan *, struct elf_column *, int32_t, uint8_t *);
int64_t elf_access(const struct elf_lines *, int32_t, struct elf_column *, int32_t, uint8_t *, int64_t *);
int64_t elf_gather(const struct elf_lines *, const struct elf_column *, int32_t *, uint8_t *, int64_t);
int64_t elf_split(const uint8_t *, int64_t, int64_t, int64_t, int64_t, int64_t *, int32_t *, uint8_t *);
void elf_marks(const uint8_t *, int64_t, uint64_t *, int32_t);

enum { TEXT_MAX = 1 << 22 };

static void *piece(int64_t bytes) { return calloc(bytes > 0 ? (size_t)bytes : 1, 1); }

/* Exactly so many bytes, so that one more is seen. */
static uint8_t *exactly(const uint8_t *from, int64_t size) {
    uint8_t *copy = malloc(size > 0 ? (size_t)size : 1);
    memcpy(copy, from, (size_t)size);
    return copy;
}

static struct elf_column column_of(int32_t type, int32_t first, int64_t rows) {
    struct elf_column column = {.type = type, .first = first, .ways = 1, .counted = 1};
    column.values = piece(type == BOOLEAN ? (rows + 7) / 8 : 8 * rows);
    column.valid = piece((rows + 7) / 8);
    column.starts = piece(4 * rows);
    column.sizes = piece(4 * rows);
    return column;
}

/* Whether a field may be read as a type without all lines being left. */
static bool may_be(bool json, const char *key, int32_t field, int32_t type) {
    bool is_time = type == TIMESTAMP;
    if (json) return !is_time || strcmp(key, "ts") == 0;
    return (field == 0) == is_time && (type != DOUBLE || field == 7 || field == 8);
}

static void gather(const struct elf_lines *lines, const struct elf_column *column) {
    int32_t *offsets = piece(4 * (lines->rows + 1));
    uint8_t *out = malloc(column->bytes > 0 ? (size_t)column->bytes : 1);
    if (elf_gather(lines, column, offsets, out, column->bytes) < 0) exit(3);
    free(offsets);
    free(out);
}

int main(int count, char **words) {
    static uint8_t text[TEXT_MAX];
    int64_t length = (int64_t)fread(text, 1, TEXT_MAX, stdin), decided = 0, beyond = 0, room = 1;
    for (int64_t i = 0; i < length; i++) room += text[i] == '\n';
    uint8_t *file = exactly(text, length), *data = malloc((size_t)length + 1);
    int64_t *starts = piece(8 * room);
    int32_t *offsets = piece(4 * (room + 1));
    int64_t rows = elf_split(file, length, 0, length, room, starts, offsets, data);
    if (rows < 0) return 4;
    struct elf_lines lines = {.size = offsets[rows], .rows = rows, .data = exactly(data, offsets[rows])};
    lines.offsets = (int32_t *)exactly((uint8_t *)offsets, 4 * (rows + 1));
    free(file), free(data), free(starts), free(offsets);
    struct elf_node nodes[NODES_MAX] = {{0}};
    char keys[4096] = "";
    int32_t ways[NODES_MAX], fields = count - 2, keys_size = 0;
    struct elf_column columns[5 * NODES_MAX];
    for (int32_t i = 0; i < fields; i++) {
        nodes[i].sibling = i ? i + 1 : 0;
        nodes[i + 1] = (struct elf_node){.key = keys_size, .size = (int32_t)strlen(words[i + 2])};
        memcpy(keys + keys_size, words[i + 2], strlen(words[i + 2]));
        keys_size += nodes[i + 1].size;
        ways[i] = i + 1;
    }
    nodes[0].child = 1;
    struct elf_plan plan = {nodes, fields + 1, fields, (int32_t *)exactly((uint8_t *)ways, 4 * fields),
                            exactly((uint8_t *)keys, keys_size), keys_size};
    bool json = strcmp(words[1], "json") == 0;
    for (int32_t level = PORTABLE; level <= WIDE; level++) {
        uint64_t *marks = piece(8 * ((lines.size + 63) / 64));
        uint8_t *verdicts = piece(rows);
        int32_t made = 0;
        elf_marks(lines.data, lines.size, marks, level);
        lines.marks = marks;
        for (int32_t i = 0; i < fields; i++) {
            int32_t first = json ? i : atoi(words[i + 2]);
            for (int32_t type = BIGINT; type <= TIMESTAMP; type++) {
                if (may_be(json, words[i + 2], first, type)) columns[made++] = column_of(type, first, rows);
            }
        }
        int64_t unfit = json ? elf_json(&lines, &plan, columns, made, verdicts)
                             : elf_access(&lines, strcmp(words[1], "combined") == 0, columns, made, verdicts, &beyond);
        if (unfit < 0) return 2;
        for (int32_t i = 0; i < made; i++) {
            if (columns[i].type == TEXT) gather(&lines, &columns[i]);
        }
        for (int64_t row = 0; row < rows; row++) decided += verdicts[row];
        for (int32_t i = 0; i < made; i++) {
            free(columns[i].values), free(columns[i].valid), free(columns[i].starts), free(columns[i].sizes);
        }
        free(marks), free(verdicts);
    }
    free((void *)lines.data), free((void *)lines.offsets), free((void *)plan.ways), free((void *)plan.keys);
    printf("%lld\n", (long long)decided);
    return 0;
}
