/* Bytes of a file to lines. */
#include "native.h"

/* Copies the lines of `data` to `out`, one behind the other and without their ends. A line begins at `first` and
 * behind each newline; it ends before the next newline, or a return and a newline, or at the end. `starts` and
 * `offsets` have room for `rows` lines, `offsets` for one number more: where each begins in data, and in `out`,
 * which has `size` bytes; and where the last one ends there. Returns how many lines there are; OTHER_WAY where one
 * is longer than `longest` or a NUL is among the bytes, which is for somebody who knows what to do with them;
 * UNSOUND. */
EXPORTED int64_t elf_split(const uint8_t *data, int64_t size, int64_t first, int64_t longest, int64_t rows,
                           int64_t *starts, int32_t *offsets, uint8_t *out) {
    int64_t written = 0, row = 0;
    if (size > INT32_MAX || first < 0 || first > size || rows < 0) return UNSOUND;
    if (size > 0 && memchr(data, 0, (size_t)size) != NULL) return OTHER_WAY;
    for (int64_t start = first; start < size; row++) {
        const uint8_t *newline = memchr(data + start, '\n', (size_t)(size - start));
        int64_t at = newline != NULL ? newline - data : size;
        int64_t end = newline != NULL && at > start && data[at - 1] == '\r' ? at - 1 : at;
        if (end - start > longest) return OTHER_WAY;
        if (row == rows) return UNSOUND;
        starts[row] = start;
        offsets[row] = (int32_t)written;
        memcpy(out + written, data + start, (size_t)(end - start));
        written += end - start;
        start = at + 1;
    }
    offsets[row] = (int32_t)written;
    return row;
}
