/*
 * The native extractor: lines of a log to typed columns, over buffers that Python gives it.
 *
 * What it is for. DuckDB's SQL (agents/formats) says what each line means. This library reads the lines whose
 * meaning is plain and leaves every other line to that SQL: a wrong value is worse than a slow line. So each
 * function here has two verdicts a line, DECIDED and LEFT, and never refuses a line itself.
 *
 * Memory. It allocates nothing, keeps nothing between two calls, and has no variable that is written. All
 * buffers belong to the caller, who also says how large they are; nothing is read or written beyond. Depth of
 * recursion is bounded (DEPTH_MAX). It may be called by several threads at once, without the GIL.
 *
 * Lines are an Arrow string array: `offsets` (int32, rows + 1) into `data` (`size` bytes of valid UTF-8 without
 * NUL). The columns come back in Arrow's layout:
 *
 *   BIGINT, TIMESTAMP   values: int64[rows]
 *   DOUBLE              values: double[rows]
 *   BOOLEAN             values: a bitmap, least significant bit first, zero at first
 *   TEXT                starts, sizes: int32[rows] each. A span of `data`; size is negative where the text has
 *                       JSON escapes, which elf_gather takes out. `bytes` is what all spans come to, so that
 *                       the caller can make a buffer of that size for elf_gather.
 *   all                 valid: a bitmap, zero at first. A bit that stays zero is a NULL.
 *
 * Of a row that is LEFT all columns mean nothing, but its texts have no bytes.
 *
 * A text is first looked through for the few bytes that matter (elf_marks: one bit a byte, by the widest
 * instructions that the processor has); what reads the lines then goes from one such byte to the next.
 */
#ifndef ELF_NATIVE_H
#define ELF_NATIVE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(_WIN32)
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

enum { LEFT = 0, DECIDED = 1 };
enum { BIGINT = 0, DOUBLE = 1, TEXT = 2, BOOLEAN = 3, TIMESTAMP = 4 };
enum { PORTABLE = 0, NARROW = 1, WIDE = 2 }; /* levels of elf_marks: any processor, SSE2 or NEON, AVX2 */

enum { NODES_MAX = 64, DEPTH_MAX = 32 };
enum { UNSOUND = -1 };   /* the result of a call whose arguments contradict each other */
enum { OTHER_WAY = -2 }; /* of one whose bytes are for somebody else */

struct elf_lines {
    const uint8_t *data;
    int64_t size;
    const int32_t *offsets;
    int64_t rows;
    const uint64_t *marks; /* elf_marks of data: (size + 63) / 64 words */
};

struct elf_column {
    int32_t type;
    int32_t first; /* JSON: its first way in `ways`; access logs: the number of its field */
    int32_t ways;  /* JSON: so many nodes, the first of which that is there and not null counts */
    int32_t counted; /* whether values that do not fit the type are counted */
    void *values;
    uint8_t *valid;
    int32_t *starts;
    int32_t *sizes;
    int64_t bytes;
};

/* A key of an object, and below it those that are looked for in its value. Node 0 is the line itself; other
 * numbers are of a node with a higher number than its parent, and 0 is none. */
struct elf_node {
    int32_t child;
    int32_t sibling;
    int32_t key; /* its place in `keys` */
    int32_t size;
};

struct elf_plan {
    const struct elf_node *nodes;
    int32_t node_count;
    int32_t way_count;
    const int32_t *ways;
    const uint8_t *keys;
    int64_t keys_size;
};

#endif
