/* JSON lines: strict JSON (RFC 8259), one object a line, the values of some keys. */
#include "values.h"

enum { PARTS_MAX = 128 };

/* How a line is built: the bytes in front of each scalar in it (keys, colons, commas, brackets), and those behind
 * the last one. Most lines of a log are built like the one before. A line whose bytes there are the same is right
 * wherever that one was, and has its values at the same keys: only the scalars themselves are left to read. */
struct part {
    int32_t start;
    int32_t size;
    int32_t node; /* of the scalar behind these bytes; -1: none is looked for there */
};

struct shape {
    int32_t count; /* 0: of no line yet */
    uint64_t seen;
    struct part parts[PARTS_MAX]; /* of the line that was read last byte by byte */
};

struct reader {
    const uint8_t *data;
    const uint64_t *marks;
    int64_t at;
    int64_t end;
    const struct elf_plan *plan;
    struct value *found; /* by node: what is at it, where `seen` has its bit */
    uint64_t seen;
    uint64_t wanted; /* by node: whether a column is at it */
    struct shape shape;
    int32_t parts;    /* of this line's shape, so far; above PARTS_MAX where it has none */
    int64_t part_end; /* where the scalar before ended */
    bool as_written;  /* DuckDB would write what was read since this was set in the same way */
};

static int32_t read_value(struct reader *r, int32_t node, int32_t depth);

/* The byte that comes next; 0, which is in no line, at the end. */
static inline uint8_t next_byte(const struct reader *r) { return r->at < r->end ? r->data[r->at] : 0; }

static inline void skip_blanks(struct reader *r) {
    uint8_t byte = next_byte(r);
    if (byte > ' ') return;
    for (; byte == ' ' || byte == '\t' || byte == '\r'; byte = next_byte(r)) {
        r->at++;
        r->as_written = false;
    }
}

/* Whether these bytes come next, which are read then. */
static inline bool skip(struct reader *r, const char *word, int64_t size) {
    if (r->end - r->at < size || memcmp(r->data + r->at, word, (size_t)size) != 0) return false;
    r->at += size;
    return true;
}

/* The value of a hexadecimal digit; above 15 where it is none. */
static inline int32_t hex_digit(uint8_t byte) {
    if (is_digit(byte)) return byte - '0';
    uint8_t letter = (uint8_t)((byte | 0x20) - 'a');
    return letter < 6 ? letter + 10 : 16;
}

/* The number of four hexadecimal digits; -1 where they are none. */
static inline int32_t hex_number(const uint8_t *at) {
    int32_t value = 0;
    for (int i = 0; i < 4; i++) {
        int32_t digit = hex_digit(at[i]);
        if (digit > 15) return -1;
        value = 16 * value + digit;
    }
    return value;
}

/* How many bytes an escape has that begins at `at`; 0 where it is none, or one of a surrogate or of NUL. */
static inline int64_t escape_size(const uint8_t *at, const uint8_t *end) {
    if (end - at < 2) return 0;
    if (at[1] != 'u') return memchr("\"\\/bfnrt", at[1], 8) != NULL ? 2 : 0;
    int32_t code = end - at < 6 ? -1 : hex_number(at + 2);
    return code <= 0 || (code >= 0xd800 && code <= 0xdfff) ? 0 : 6;
}

/* The contents of a string, behind its opening quote. */
static inline int32_t read_string(struct reader *r, struct value *value) {
    int64_t start = r->at, at = next_mark(r->marks, start, r->end);
    value->kind = STRING;
    while (at < r->end && r->data[at] == '\\') {
        int64_t size = escape_size(r->data + at, r->data + r->end);
        if (!size) return LEFT;
        value->kind = ESCAPED;
        r->as_written = false;
        at = next_mark(r->marks, at + size, r->end);
    }
    if (at >= r->end || r->data[at] != '"') return LEFT;
    value->start = (int32_t)start;
    value->size = (int32_t)(at - start);
    r->at = at + 1;
    return DECIDED;
}

/* Whether a number is so long, or has such an exponent, that it may be beyond all doubles: not all readers take
 * one. */
static inline bool may_be_infinite(const uint8_t *text, int64_t size) {
    return size > DOUBLE_TEXT_MAX || (size > 3 && memchr(text, 'e', (size_t)size - 3) != NULL) ||
           (size > 3 && memchr(text, 'E', (size_t)size - 3) != NULL);
}

static inline int32_t read_number(struct reader *r, struct value *value) {
    const uint8_t *text = r->data + r->at;
    bool integral;
    int64_t size = number_size(text, r->end - r->at, &integral), digits = size - (text[0] == '-');
    if (!size || may_be_infinite(text, size)) return LEFT;
    value->start = (int32_t)r->at;
    value->size = (int32_t)size;
    value->kind = integral && digits <= DIGITS_MAX && !(size == 2 && text[0] == '-' && text[1] == '0') ? INTEGER
                                                                                                     : NUMBER;
    if (value->kind == NUMBER) r->as_written = false;
    r->at += size;
    return DECIDED;
}

/* The node below one that has this key; 0 where none has. */
static inline int32_t node_of(const struct reader *r, int32_t node, const struct value *key) {
    const struct elf_node *nodes = r->plan->nodes;
    for (int32_t below = nodes[node].child; below; below = nodes[below].sibling) {
        if (nodes[below].size != key->size) continue;
        if (are_same(r->plan->keys + nodes[below].key, r->data + key->start, key->size)) return below;
    }
    return 0;
}

/* A key, its colon and its value. Of two equal keys the first counts. `node`: of the object, -1 where nothing
 * in it is looked for. */
static inline int32_t read_pair(struct reader *r, int32_t node, int32_t depth) {
    struct value key;
    int32_t below = -1;
    if (next_byte(r) != '"') return LEFT;
    r->at++;
    if (read_string(r, &key) == LEFT) return LEFT;
    if (node >= 0 && r->plan->nodes[node].child) {
        if (key.kind == ESCAPED) return LEFT; /* it may be any of them */
        below = node_of(r, node, &key);
        if (!below || r->seen >> below & 1) below = -1;
    }
    skip_blanks(r);
    if (next_byte(r) != ':') return LEFT;
    r->at++;
    skip_blanks(r);
    if (below > 0) r->seen |= UINT64_C(1) << below;
    return read_value(r, below, depth);
}

/* What is in an object or array, behind its opening bracket, and the closing one. */
static int32_t read_items(struct reader *r, int32_t node, int32_t depth, uint8_t closing) {
    skip_blanks(r);
    if (next_byte(r) == closing) {
        r->at++;
        return DECIDED;
    }
    for (;;) {
        int32_t verdict = closing == '}' ? read_pair(r, node, depth) : read_value(r, -1, depth);
        if (verdict == LEFT) return LEFT;
        skip_blanks(r);
        uint8_t byte = next_byte(r);
        r->at++;
        if (byte == closing) return DECIDED;
        if (byte != ',') return LEFT;
        skip_blanks(r);
    }
}

static int32_t read_container(struct reader *r, int32_t node, int32_t depth, struct value *value) {
    bool before = r->as_written;
    int64_t start = r->at;
    uint8_t closing = r->data[r->at++] == '{' ? '}' : ']';
    r->as_written = true;
    if (depth == DEPTH_MAX || read_items(r, closing == '}' ? node : -1, depth + 1, closing) == LEFT) return LEFT;
    value->kind = r->as_written ? WRITTEN : CONTAINER;
    value->start = (int32_t)start;
    value->size = (int32_t)(r->at - start);
    r->as_written &= before;
    return DECIDED;
}

/* A word of JSON's; its text is what a text column has. */
static inline int32_t read_word(struct reader *r, struct value *value) {
    value->start = (int32_t)r->at;
    if (skip(r, "true", 4)) return value->kind = TRUE_, value->size = 4, DECIDED;
    if (skip(r, "false", 5)) return value->kind = FALSE_, value->size = 5, DECIDED;
    if (skip(r, "null", 4)) return value->kind = NOTHING, value->size = 0, DECIDED;
    return LEFT;
}

/* A string, a number or a word. */
static inline int32_t read_scalar(struct reader *r, struct value *value) {
    uint8_t byte = next_byte(r);
    if (byte == '"') {
        r->at++;
        return read_string(r, value);
    }
    return byte == '-' || is_digit(byte) ? read_number(r, value) : read_word(r, value);
}

/* Remembers what is in front of a scalar. */
static inline void add_part(struct reader *r, int32_t node) {
    if (r->parts < PARTS_MAX) {
        struct part *part = &r->shape.parts[r->parts];
        part->start = (int32_t)r->part_end;
        part->size = (int32_t)(r->at - r->part_end);
        part->node = node;
    }
    r->parts++;
}

/* A value, which is kept for its node if it has one (else -1). A line with an array or object that a column wants
 * has no shape. */
static int32_t read_value(struct reader *r, int32_t node, int32_t depth) {
    struct value other, *value = node > 0 ? &r->found[node] : &other;
    uint8_t byte = next_byte(r);
    if (byte == '{' || byte == '[') {
        if (node > 0 && r->wanted >> node & 1) r->parts = PARTS_MAX;
        return read_container(r, node, depth, value);
    }
    add_part(r, node);
    if (read_scalar(r, value) == LEFT) return LEFT;
    r->part_end = r->at;
    return DECIDED;
}

/* A line byte by byte: blanks, an object, blanks. Its shape is that of the lines to come. */
static int32_t read_line(struct reader *r, int64_t start, int64_t end) {
    struct value line;
    r->at = r->part_end = start;
    r->end = end;
    r->seen = 0;
    r->parts = r->shape.count = 0;
    skip_blanks(r);
    if (next_byte(r) != '{' || read_container(r, 0, 0, &line) == LEFT) return LEFT;
    skip_blanks(r);
    if (r->at != r->end) return LEFT;
    add_part(r, -1);
    r->shape.seen = r->seen;
    r->shape.count = r->parts <= PARTS_MAX ? r->parts : 0;
    return DECIDED;
}

/* A line that is built like the one that was read last; LEFT: it is not, or not right. */
static int32_t read_alike(struct reader *r, int64_t start, int64_t end) {
    const struct shape *shape = &r->shape;
    struct value other;
    r->at = start;
    r->end = end;
    r->seen = shape->seen;
    for (int32_t i = 0; i < shape->count; i++) {
        const struct part *part = &shape->parts[i];
        if (end - r->at < part->size) return LEFT;
        if (!are_same(r->data + r->at, r->data + part->start, part->size)) return LEFT;
        r->at += part->size;
        if (i == shape->count - 1) break;
        if (read_scalar(r, part->node > 0 ? &r->found[part->node] : &other) == LEFT) return LEFT;
    }
    return shape->count && r->at == end ? DECIDED : LEFT;
}

/* The columns of a row that was read. */
static int32_t store_row(const struct reader *r, struct elf_column *columns, int32_t count, int64_t row,
                         int64_t *uncast) {
    int64_t unfit = 0;
    for (int32_t i = 0; i < count; i++) {
        struct elf_column *column = &columns[i];
        const int32_t *way = r->plan->ways + column->first, *last = way + column->ways;
        while (way < last && !(r->seen >> *way & 1 && r->found[*way].kind != NOTHING)) way++;
        int32_t verdict = way == last ? store_null(column, row)
                                      : store(column, row, r->data, &r->found[*way], &unfit);
        if (verdict == LEFT) return clear_row(columns, count, i, row), LEFT;
    }
    *uncast += unfit;
    return DECIDED;
}

/* Whether all numbers of a plan are of things that are there. */
static bool plan_is_sound(const struct elf_plan *plan, const struct elf_column *columns, int32_t count) {
    if (plan->node_count < 1 || plan->node_count > NODES_MAX) return false;
    for (int32_t i = 0; i < plan->node_count; i++) {
        const struct elf_node *node = &plan->nodes[i];
        bool links = node->child >= 0 && node->child < plan->node_count && (!node->child || node->child > i);
        links &= node->sibling >= 0 && node->sibling < plan->node_count && (!node->sibling || node->sibling > i);
        if (!links || node->key < 0 || node->size < 0 || (int64_t)node->key + node->size > plan->keys_size) return false;
    }
    for (int32_t i = 0; i < plan->way_count; i++) {
        if (plan->ways[i] < 1 || plan->ways[i] >= plan->node_count) return false;
    }
    for (int32_t i = 0; i < count; i++) {
        if (columns[i].first < 0 || columns[i].ways < 0) return false;
        if ((int64_t)columns[i].first + columns[i].ways > plan->way_count) return false;
    }
    return true;
}

/* Reads lines of JSON. `verdicts`: a byte a row. Returns how many values of the rows that are DECIDED do not fit
 * their types; UNSOUND. */
EXPORTED int64_t elf_json(const struct elf_lines *lines, const struct elf_plan *plan, struct elf_column *columns,
                          int32_t count, uint8_t *verdicts) {
    struct value found[NODES_MAX];
    struct reader r = {.data = lines->data, .marks = lines->marks, .plan = plan, .found = found};
    int64_t uncast = 0;
    if (!lines_are_sound(lines) || !plan_is_sound(plan, columns, count)) return UNSOUND;
    for (int32_t i = 0; i < plan->way_count; i++) r.wanted |= UINT64_C(1) << plan->ways[i];
    for (int64_t row = 0; row < lines->rows; row++) {
        int64_t start = lines->offsets[row], end = lines->offsets[row + 1];
        bool is_read = read_alike(&r, start, end) == DECIDED || read_line(&r, start, end) == DECIDED;
        verdicts[row] = is_read;
        if (!is_read) {
            clear_row(columns, count, 0, row);
        } else {
            verdicts[row] = (uint8_t)store_row(&r, columns, count, row, &uncast);
        }
    }
    return uncast;
}

/* Writes a code point as UTF-8, at most three bytes; returns how many. */
static inline int64_t write_utf8(uint8_t *out, int32_t code) {
    if (code < 0x80) return out[0] = (uint8_t)code, 1;
    if (code < 0x800) return out[0] = (uint8_t)(0xc0 | code >> 6), out[1] = (uint8_t)(0x80 | (code & 63)), 2;
    out[0] = (uint8_t)(0xe0 | code >> 12);
    out[1] = (uint8_t)(0x80 | (code >> 6 & 63));
    out[2] = (uint8_t)(0x80 | (code & 63));
    return 3;
}

/* Writes the contents of a string without its escapes, which elf_json has seen to be right; returns how many
 * bytes: no more than there were. */
static int64_t unescape(const uint8_t *text, int64_t size, uint8_t *out) {
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    int64_t written = 0;
    for (int64_t at = 0; at < size; at++) {
        if (text[at] != '\\' || at + 1 == size) {
            out[written++] = text[at];
            continue;
        }
        uint8_t letter = text[++at];
        if (letter == 'u' && at + 4 < size) {
            written += write_utf8(out + written, hex_number(text + at + 1));
            at += 4;
        } else {
            const char *known = memchr(from, letter, 5);
            out[written++] = known != NULL ? (uint8_t)to[known - from] : letter;
        }
    }
    return written;
}

/* The texts of a column one behind the other: `offsets` (int32, rows + 1) and `out`, which has `out_size` bytes.
 * Returns how many bytes they are; UNSOUND where a span is not in the data, or there is no room. */
EXPORTED int64_t elf_gather(const struct elf_lines *lines, const struct elf_column *column, int32_t *offsets,
                            uint8_t *out, int64_t out_size) {
    int64_t written = 0;
    for (int64_t row = 0; row < lines->rows; row++) {
        int64_t start = column->starts[row], size = column->sizes[row];
        int64_t length = size < 0 ? -size : size;
        offsets[row] = (int32_t)written;
        if (start < 0 || start + length > lines->size || written + length > out_size) return UNSOUND;
        if (size < 0) {
            written += unescape(lines->data + start, length, out + written);
        } else if (size > 0) {
            copy_text(out + written, lines->data + start, size);
            written += size;
        }
    }
    offsets[lines->rows] = (int32_t)written;
    return written;
}
