/* A table of groups (table.c), whose memory is the caller's.
 *
 * An entry has a number, a hash, and a value in each column; entries lie in the order in which their keys came, so
 * that the columns are Arrow's. A slot has the upper half of a hash, and below it the entry's number + 1; 0 is empty.
 * Slots are a power of two, and at most half of them are taken. */
#ifndef ELF_TABLE_H
#define ELF_TABLE_H

#include "columns.h"

enum { KEY = 0, SUM_64 = 1, SUM_128 = 2, LEAST_64 = 3, GREATEST_64 = 4, LEAST_DOUBLE = 5, GREATEST_DOUBLE = 6 };
enum { DONE = 0, NO_ROOM = 1, LEFT_OVER = 2 }; /* why it stopped */
enum { PROBES_MAX = 128 };                     /* more slots are looked through for no key */

struct elf_held {
    int32_t how;
    int32_t width;
    uint8_t *values;
    int64_t room;     /* bytes in `values` */
    int64_t used;     /* texts: bytes that are taken */
    int32_t *offsets; /* texts: capacity + 1, the first one 0 */
    uint8_t *valid;   /* a bitmap, zero at first */
    uint64_t most;    /* SUM_64: no sum is further from 0 */
};

struct elf_table {
    int64_t capacity; /* entries, at most half as many as slots, below 1 << 31 */
    int64_t count;
    uint64_t *slots;
    int64_t slot_count;
    uint64_t *hashes;
    int32_t column_count;
    int32_t stopped;
};

#endif
