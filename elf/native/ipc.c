/* How large an Arrow IPC stream becomes when it is decoded, told from its heads: what elf/ipcsize.py says, for those
 * streams that it takes. */
#include "values.h"

enum { SCHEMA = 1, DICTIONARY = 2, RECORDS = 3 }; /* kinds of messages */
enum { PAIRS_MAX = 1 << 16 };

/* A table of a flatbuffer, in a head at [begin, end); at < 0: there is none. */
struct table {
    const uint8_t *data;
    int64_t begin, end, at, fields, size;
};

static inline int64_t i64_at(const uint8_t *at) { return (int64_t)eight_bytes(at); }

static inline int64_t u32_at(const uint8_t *at) { return (int64_t)four_bytes(at); }

static inline int64_t i32_at(const uint8_t *at) { return (int32_t)four_bytes(at); }

static inline int64_t u16_at(const uint8_t *at) { return at[0] | at[1] << 8; }

static inline bool is_inside(const struct table *head, int64_t at, int64_t size) {
    return head->begin <= at && at <= head->end - size;
}

/* Where an offset at this place leads; UNSOUND. */
static int64_t follow(const struct table *head, int64_t at) {
    if (!is_inside(head, at, 4)) return UNSOUND;
    int64_t to = at + u32_at(head->data + at);
    return is_inside(head, to, 4) ? to : UNSOUND;
}

/* Looks at the table at `at`. */
static bool is_table(struct table *head, int64_t at) {
    if (at < 0) return false;
    head->at = at;
    head->fields = at - i32_at(head->data + at);
    if (!is_inside(head, head->fields, 4)) return false;
    head->size = u16_at(head->data + head->fields);
    return true;
}

/* The place of a field of so many bytes; 0: it is absent; UNSOUND. (No head begins at 0.) */
static int64_t field(const struct table *of, int64_t number, int64_t size) {
    int64_t place = 4 + 2 * number;
    if (place + 2 > of->size) return 0;
    if (!is_inside(of, of->fields + place, 2)) return UNSOUND;
    int64_t offset = u16_at(of->data + of->fields + place);
    if (offset == 0) return 0;
    return is_inside(of, of->at + offset, size) ? of->at + offset : UNSOUND;
}

/* A field that is a table, which is none where the field is absent. */
static bool inner(const struct table *of, int64_t number, struct table *found) {
    int64_t at = field(of, number, 4);
    *found = *of;
    found->at = UNSOUND;
    if (at <= 0) return at == 0;
    return is_table(found, follow(of, at));
}

/* The pairs of numbers of a field: where they are; their count, which is negative if that is no list. */
static int64_t pairs(const struct table *of, int64_t number, const uint8_t **where) {
    int64_t at = field(of, number, 4);
    if (at <= 0) return at;
    int64_t start = follow(of, at);
    if (start < 0) return UNSOUND;
    int64_t count = u32_at(of->data + start);
    if (count > PAIRS_MAX || !is_inside(of, start + 4, 16 * count)) return UNSOUND;
    *where = of->data + start + 4;
    return count;
}

/* Adds what the buffers of a message claim; false: it is for somebody who says why not. */
static bool add_buffers(const struct table *records, int64_t size, int64_t body, bool packed, int64_t *found) {
    const uint8_t *at = NULL;
    int64_t count = pairs(records, 2, &at);
    if (count < 0) return false;
    for (; count > 0; count--, at += 16) {
        int64_t offset = i64_at(at), length = i64_at(at + 8), claimed = length;
        if (offset < 0 || length < 0 || offset > body || length > body - offset) return false;
        if (packed && length > 0) {
            if (length < 8 || records->end + offset > size - 8) return false;
            claimed = i64_at(records->data + records->end + offset);
            if (claimed < -1) return false;
            if (claimed == -1) claimed = length - 8;
        }
        if (__builtin_add_overflow(*found, claimed, found)) return false;
    }
    return true;
}

/* Adds what a message claims. Its length is that of its body; UNSOUND. */
static int64_t add_message(const uint8_t *data, int64_t size, int64_t begin, int64_t end, int64_t *found) {
    struct table message = {.data = data, .begin = begin, .end = end}, records, packing;
    if (!is_table(&message, follow(&message, begin))) return UNSOUND;
    int64_t at = field(&message, 3, 8), body = at > 0 ? i64_at(data + at) : at;
    if (body < 0 || body > size - end) return UNSOUND;
    at = field(&message, 1, 1);
    int64_t kind = at > 0 ? data[at] : 0;
    if (at < 0 || kind < SCHEMA || kind > RECORDS || !inner(&message, 2, &records)) return UNSOUND;
    if (kind == DICTIONARY && records.at >= 0) {
        struct table dictionary = records;
        if (!inner(&dictionary, 1, &records)) return UNSOUND;
    }
    if (kind == SCHEMA || records.at < 0) return body;
    const uint8_t *column = NULL;
    int64_t rows = field(&records, 0, 8), columns = pairs(&records, 1, &column);
    if (rows < 0 || columns < 0 || !inner(&records, 3, &packing)) return UNSOUND;
    rows = rows > 0 ? i64_at(data + rows) : 0;
    if (rows > 0 && __builtin_add_overflow(*found, rows, found)) return UNSOUND;
    for (; columns > 0; columns--, column += 16) {
        int64_t values = i64_at(column);
        if (values < 0 || __builtin_add_overflow(*found, values, found)) return UNSOUND;
    }
    return add_buffers(&records, size, body, packing.at >= 0, found) ? body : UNSOUND;
}

/* The bytes that a stream claims, and one for each value; UNSOUND where that is to be asked of elf/ipcsize.py: it is
 * no stream, or claims more than there are numbers for. */
EXPORTED int64_t elf_ipc_size(const uint8_t *data, int64_t size) {
    int64_t at = 0, found = 0;
    for (;;) {
        if (at > size - 8 || four_bytes(data + at) != UINT32_MAX) return UNSOUND;
        int64_t head = i32_at(data + at + 4), begin = at + 8;
        if (head == 0) return found;
        if (head < 0 || head > size - begin) return UNSOUND;
        int64_t body = add_message(data, size, begin, begin + head, &found);
        if (body < 0) return UNSOUND;
        at = begin + head + body;
    }
}
