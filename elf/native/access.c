/* Access logs, combined and common: the lines that agents/formats/access.py calls plain, with a usual request.
 *
 *   client identity user [date] "request" status bytes "referer" "user agent" extra
 */
#include "values.h"

enum field { TIME, CLIENT, USER, METHOD, STEM, QUERY, VERSION, STATUS, BYTES, REFERER, AGENT, REQUEST, EXTRA, DATE,
             ABSENT, FIELDS };

enum { DATE_SIZE = 26 };

struct line {
    const uint8_t *data;
    const uint64_t *marks;
    int64_t at;
    int64_t end;
    int64_t time_us;
    int64_t dated; /* where the date is that time_us was read of; -1: nowhere */
    struct value fields[FIELDS];
};

/* A piece of the line as a field. */
static inline void put(struct line *l, enum field field, int64_t start, int64_t end) {
    l->fields[field].kind = STRING;
    l->fields[field].start = (int32_t)start;
    l->fields[field].size = (int32_t)(end - start);
}

/* The same, where "-" alone means nothing. */
static inline void put_unless_dash(struct line *l, enum field field, int64_t start, int64_t end) {
    put(l, field, start, end);
    if (end - start == 1 && l->data[start] == '-') l->fields[field].kind = NOTHING;
}

/* Whether the line goes on with this byte, which is read then. */
static inline bool skip_byte(struct line *l, uint8_t byte) {
    if (l->at >= l->end || l->data[l->at] != byte) return false;
    l->at++;
    return true;
}

/* The place of the next quote that is not escaped; end where there is none. A backslash escapes the quote, or the
 * backslash, behind it. */
static inline int64_t next_quote(const struct line *l, int64_t at) {
    for (;;) {
        at = next_mark(l->marks, at, l->end);
        if (at == l->end || l->data[at] == '"') return at;
        bool escapes = l->data[at] == '\\' && at + 1 < l->end && (l->data[at + 1] == '"' || l->data[at + 1] == '\\');
        at += escapes ? 2 : 1;
    }
}

/* A client is an address or a name: without a comma, and with no or at least two colons. A byte order mark is
 * none of it. */
static inline int32_t read_client(struct line *l) {
    int64_t start = l->at, colons = 0;
    for (; l->at < l->end && l->data[l->at] != ' '; l->at++) {
        uint8_t byte = l->data[l->at];
        if (byte == ',' || byte == 0xef) return LEFT;
        colons += byte == ':';
    }
    put_unless_dash(l, CLIENT, start, l->at);
    return l->at > start && colons != 1 && skip_byte(l, ' ') ? DECIDED : LEFT;
}

/* An identity is a word without points, colons and commas. */
static inline int32_t read_identity(struct line *l) {
    int64_t start = l->at;
    for (; l->at < l->end && l->data[l->at] != ' '; l->at++) {
        if (memchr(".:,", l->data[l->at], 3) != NULL) return LEFT;
    }
    return l->at > start && skip_byte(l, ' ') ? DECIDED : LEFT;
}

/* A user here is one word. */
static inline int32_t read_user(struct line *l) {
    int64_t start = l->at;
    l->at = find(l->data, l->at, l->end, ' ');
    put_unless_dash(l, USER, start, l->at);
    return l->at > start && skip_byte(l, ' ') ? DECIDED : LEFT;
}

/* Many lines have the date of the line before. */
static inline int32_t read_date(struct line *l) {
    if (!skip_byte(l, '[') || l->end - l->at < DATE_SIZE) return LEFT;
    if (l->dated < 0 || !are_same(l->data + l->at, l->data + l->dated, DATE_SIZE)) {
        l->dated = -1;
        if (read_logged(l->data + l->at, &l->time_us) == LEFT) return LEFT;
        l->dated = l->at;
    }
    put(l, DATE, l->at, l->at + DATE_SIZE);
    l->at += DATE_SIZE;
    return skip_byte(l, ']') && skip_byte(l, ' ') ? DECIDED : LEFT;
}

/* From the quote that comes next to its fellow. */
static inline int32_t read_quoted(struct line *l, int64_t *start, int64_t *end) {
    if (!skip_byte(l, '"')) return LEFT;
    *start = l->at;
    *end = next_quote(l, l->at);
    if (*end == l->end) return LEFT;
    l->at = *end + 1;
    return DECIDED;
}

/* Whether a word is a method: a token of RFC 9110. */
static inline bool is_method(const uint8_t *word, int64_t size) {
    for (int64_t i = 0; i < size; i++) {
        uint8_t byte = word[i];
        bool letter = (uint8_t)((byte | 0x20) - 'a') < 26 || is_digit(byte);
        if (!letter && memchr("!#$%&'*+.^_`|~-", byte, 15) == NULL) return false;
    }
    return size > 0;
}

/* Whether a word is a version: HTTP/1.1, HTTP/2, and the same of RTSP and SIP, in any case. */
static inline bool is_version(const uint8_t *word, int64_t size) {
    if (size == 8 && memcmp(word, "HTTP/1.1", 8) == 0) return true;
    char name[8] = {0};
    int64_t slash = find(word, 0, size < 5 ? size : 5, '/');
    for (int64_t i = 0; i < slash && i < 5; i++) name[i] = (char)(word[i] | 0x20);
    if (slash == size || word[slash] != '/') return false;
    for (int64_t i = 0; i < slash; i++) {
        if (word[i] < 'A') return false;
    }
    if (strcmp(name, "http") != 0 && strcmp(name, "rtsp") != 0 && strcmp(name, "sip") != 0) return false;
    const uint8_t *number = word + slash + 1;
    int64_t digits = size - slash - 1;
    return (digits == 1 && is_digit(number[0])) ||
           (digits == 3 && is_digit(number[0]) && number[1] == '.' && is_digit(number[2]));
}

/* A target: what is before the first question mark, and what is behind it. */
static inline void put_target(struct line *l, int64_t start, int64_t end) {
    int64_t mark = find(l->data, start, end, '?');
    put_unless_dash(l, STEM, start, mark);
    if (mark < end) put(l, QUERY, mark + 1, end);
}

/* Whether " HTTP/" is in a text, in any case: then somebody meant a version. */
static bool means_version(const uint8_t *data, int64_t start, int64_t end) {
    for (int64_t at = find(data, start, end, ' '); end - at >= 6; at = find(data, at + 1, end, ' ')) {
        const uint8_t *word = data + at + 1;
        bool is_http = (word[0] | 0x20) == 'h' && (word[1] | 0x20) == 't' && (word[2] | 0x20) == 't';
        if (is_http && (word[3] | 0x20) == 'p' && word[4] == '/') return true;
    }
    return false;
}

/* Whether there is a byte beyond ASCII. */
static inline bool has_other_letters(const uint8_t *text, int64_t size) {
    for (int64_t i = 0; i < size; i++) {
        if (text[i] >= 0x80) return true;
    }
    return false;
}

/* What is behind the method of a request, without blanks around it: a target, and perhaps a version as its last
 * word. LEFT where that word may be a version in letters that only Unicode takes for ASCII's. */
static int32_t split_target(struct line *l, int64_t start, int64_t end) {
    int64_t last = end;
    while (last > start && l->data[last - 1] != ' ') last--;
    if (has_other_letters(l->data + last, end - last)) return LEFT;
    if (last > start && is_version(l->data + last, end - last)) {
        put(l, VERSION, last, end);
        for (end = last; l->data[end - 1] == ' ';) end--;
    } else if (means_version(l->data, start - 1, end) || (last > start && l->data[start] != '/')) {
        l->fields[METHOD].kind = NOTHING;
        return DECIDED;
    }
    put_target(l, start, end);
    return DECIDED;
}

/* A request: METHOD target [VERSION], with blanks around them. What has not these parts has none. */
static inline int32_t split_request(struct line *l, int64_t start, int64_t end) {
    const uint8_t *data = l->data;
    l->fields[METHOD].kind = l->fields[STEM].kind = l->fields[QUERY].kind = l->fields[VERSION].kind = NOTHING;
    put_unless_dash(l, REQUEST, start, end);
    while (start < end && data[start] == ' ') start++;
    int64_t method_end = find(data, start, end, ' '), target = method_end;
    if (!is_method(data + start, method_end - start)) return DECIDED;
    while (target < end && data[target] == ' ') target++;
    while (end > target && data[end - 1] == ' ') end--;
    if (target == end) return DECIDED;
    put_unless_dash(l, METHOD, start, method_end);
    return split_target(l, target, end);
}

/* Digits, or a dash; `most`: how many digits there may be. */
static inline int32_t read_count(struct line *l, enum field field, int64_t least, int64_t most) {
    int64_t start = l->at;
    if (!skip_byte(l, '-')) {
        while (l->at < l->end && is_digit(l->data[l->at])) l->at++;
        if (l->at - start < least || l->at - start > most) return LEFT;
    }
    put_unless_dash(l, field, start, l->at);
    return DECIDED;
}

/* What is behind the last field: nothing, or a blank and more, in which quotes have fellows. A bracket is LEFT:
 * an empty field in front of it might be a user without a name. */
static inline int32_t read_extra(struct line *l) {
    int64_t start = l->at, end = l->end;
    l->fields[EXTRA].kind = NOTHING;
    if (start == end) return DECIDED;
    if (l->data[start] != ' ' || (end - start > 1 && l->data[start + 1] == '[')) return LEFT;
    int64_t quotes = 0;
    for (int64_t at = next_quote(l, start); at != end; at = next_quote(l, at + 1)) quotes++;
    if (quotes % 2) return LEFT;
    while (start < end && l->data[start] == ' ') start++;
    while (end > start && l->data[end - 1] == ' ') end--;
    if (start < end) put(l, EXTRA, start, end);
    return DECIDED;
}

/* Referer and user agent, each behind a blank. */
static inline int32_t read_combined(struct line *l) {
    int64_t start, end;
    if (!skip_byte(l, ' ') || read_quoted(l, &start, &end) == LEFT) return LEFT;
    put_unless_dash(l, REFERER, start, end);
    if (!skip_byte(l, ' ') || read_quoted(l, &start, &end) == LEFT) return LEFT;
    put_unless_dash(l, AGENT, start, end);
    return DECIDED;
}

static inline int32_t read_line(struct line *l, bool combined) {
    int64_t start, end, quote = next_quote(l, l->at);
    if (read_client(l) == LEFT || read_identity(l) == LEFT || read_user(l) == LEFT) return LEFT;
    if (read_date(l) == LEFT || l->at != quote || read_quoted(l, &start, &end) == LEFT) return LEFT;
    if (split_request(l, start, end) == LEFT) return LEFT;
    if (!skip_byte(l, ' ') || read_count(l, STATUS, 3, 3) == LEFT) return LEFT;
    if (!skip_byte(l, ' ') || read_count(l, BYTES, 1, DIGITS_MAX) == LEFT) return LEFT;
    if (combined && read_combined(l) == LEFT) return LEFT;
    return read_extra(l);
}

/* The columns of a row that was read. */
static inline int32_t store_fields(const struct line *l, struct elf_column *columns, int32_t count, int64_t row,
                                   int64_t *uncast) {
    int64_t unfit = 0;
    for (int32_t i = 0; i < count; i++) {
        int32_t field = columns[i].first, verdict;
        if (field == TIME) {
            verdict = store_integer(&columns[i], row, l->time_us);
        } else {
            verdict = store(&columns[i], row, l->data, &l->fields[field], &unfit);
        }
        if (verdict == LEFT) return clear_row(columns, count, i, row), LEFT;
    }
    *uncast += unfit;
    return DECIDED;
}

/* Whether all columns are of fields that are there, and times where a time is. */
static bool fields_are_sound(const struct elf_column *columns, int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        if (columns[i].first < 0 || columns[i].first >= FIELDS) return false;
        if (columns[i].first == TIME && columns[i].type != TIMESTAMP) return false;
    }
    return true;
}

/* Reads lines of an access log; see elf_json. `beyond`: to it is added how many lines that are DECIDED have more
 * fields than the format. */
EXPORTED int64_t elf_access(const struct elf_lines *lines, int32_t combined, struct elf_column *columns,
                            int32_t count, uint8_t *verdicts, int64_t *beyond) {
    struct line l = {.data = lines->data, .marks = lines->marks, .dated = -1};
    int64_t uncast = 0;
    if (!lines_are_sound(lines) || !fields_are_sound(columns, count)) return UNSOUND;
    for (int64_t row = 0; row < lines->rows; row++) {
        l.at = lines->offsets[row];
        l.end = lines->offsets[row + 1];
        verdicts[row] = (uint8_t)read_line(&l, combined != 0);
        if (verdicts[row] == LEFT) {
            clear_row(columns, count, 0, row);
            continue;
        }
        verdicts[row] = (uint8_t)store_fields(&l, columns, count, row, &uncast);
        *beyond += verdicts[row] == DECIDED && l.fields[EXTRA].kind != NOTHING;
    }
    return uncast;
}
