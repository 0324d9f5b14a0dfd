/* Times as text and as numbers, in µs since 1970: those of the shapes that logs have (elf/ql/timestamps.py has
 * all shapes). What is not plainly right is LEFT. */
#ifndef ELF_TIMES_H
#define ELF_TIMES_H

#include "native.h"

enum { YEAR_FIRST = 1000, YEAR_LAST = 2999, OFFSET_HOURS_MAX = 14 };

static inline bool is_digit(uint8_t byte) { return (uint8_t)(byte - '0') < 10; }

/* The number that two digits make; above 99 where they are none. */
static inline int32_t two_digits(const uint8_t *at) {
    return is_digit(at[0]) && is_digit(at[1]) ? 10 * (at[0] - '0') + (at[1] - '0') : 100;
}

/* Days since 1970 of the first day of a month, in the Gregorian calendar: years are counted from March on, so
 * that the day that a leap year has more is the last one. */
static inline int64_t first_of_month(int32_t year, int32_t month) {
    int32_t y = month <= 2 ? year - 1 : year, m = month <= 2 ? month + 9 : month - 3;
    return 365LL * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 - 719468;
}

/* µs of a moment in UTC whose parts may be anything. */
static inline int32_t moment_us(int32_t year, int32_t month, int32_t day, const int32_t clock[3], int64_t *us) {
    bool is_date = year >= YEAR_FIRST && year <= YEAR_LAST && month >= 1 && month <= 12 && day >= 1;
    if (!is_date || clock[0] > 23 || clock[1] > 59 || clock[2] > 59) return LEFT;
    if (day > 28) {
        int64_t next = month == 12 ? first_of_month(year + 1, 1) : first_of_month(year, month + 1);
        if (day > next - first_of_month(year, month)) return LEFT;
    }
    int64_t days = first_of_month(year, month) + day - 1;
    *us = (((days * 24 + clock[0]) * 60 + clock[1]) * 60 + clock[2]) * 1000000;
    return DECIDED;
}

/* HH:MM:SS, of 8 bytes; false where the separators are not there. Digits may be wrong: then a part is 100. */
static inline bool read_clock(const uint8_t *at, int32_t clock[3]) {
    clock[0] = two_digits(at), clock[1] = two_digits(at + 3), clock[2] = two_digits(at + 6);
    return at[2] == ':' && at[5] == ':';
}

/* An offset in hours and minutes behind its sign, in µs. */
static inline int32_t offset_us(uint8_t sign, int32_t hours, int32_t minutes, int64_t *us) {
    if ((sign != '+' && sign != '-') || hours > OFFSET_HOURS_MAX || minutes > 59) return LEFT;
    int64_t size = (hours * 60LL + minutes) * 60000000;
    *us = sign == '-' ? -size : size;
    return DECIDED;
}

/* What may follow the seconds of an RFC 3339 time: a fraction (cut to µs), then Z, +HH:MM or nothing. */
static inline int32_t read_behind_clock(const uint8_t *at, const uint8_t *end, int64_t *us) {
    if (at < end && *at == '.') {
        int64_t unit = 100000;
        const uint8_t *first = ++at;
        for (; at < end && is_digit(*at); at++, unit /= 10) *us += (*at - '0') * unit;
        if (at == first || at - first > 9) return LEFT;
    }
    if (at == end || (end - at == 1 && *at == 'Z')) return DECIDED;
    int64_t offset;
    if (end - at != 6 || at[3] != ':') return LEFT;
    if (offset_us(at[0], two_digits(at + 1), two_digits(at + 4), &offset) == LEFT) return LEFT;
    *us -= offset;
    return DECIDED;
}

/* 2026-01-31T23:59:59.123456Z and its like. */
static inline int32_t read_dated(const uint8_t *at, int64_t size, int64_t *us) {
    int32_t clock[3];
    if (size < 19 || at[4] != '-' || at[7] != '-' || (at[10] != 'T' && at[10] != ' ')) return LEFT;
    int32_t high = two_digits(at), low = two_digits(at + 2);
    int32_t month = two_digits(at + 5), day = two_digits(at + 8);
    if (high > 99 || low > 99 || day > 99 || !read_clock(at + 11, clock)) return LEFT;
    if (moment_us(100 * high + low, month, day, clock, us) == LEFT) return LEFT;
    return read_behind_clock(at + 19, at + size, us);
}

/* The number of the month with this name, of three bytes; 0 where there is none. */
static inline int32_t month_of(const uint8_t *at) {
    static const char names[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    for (int32_t month = 0; month < 12; month++) {
        if (memcmp(names + 3 * month, at, 3) == 0) return month + 1;
    }
    return 0;
}

/* 31/Jan/2026:23:59:59 +0100, of 26 bytes. */
static inline int32_t read_logged(const uint8_t *at, int64_t *us) {
    int32_t clock[3];
    int64_t offset;
    if (at[2] != '/' || at[6] != '/' || at[11] != ':' || at[20] != ' ' || !read_clock(at + 12, clock)) return LEFT;
    int32_t high = two_digits(at + 7), low = two_digits(at + 9), day = two_digits(at);
    if (high > 99 || low > 99 || day > 99) return LEFT;
    if (offset_us(at[21], two_digits(at + 22), two_digits(at + 24), &offset) == LEFT) return LEFT;
    if (moment_us(100 * high + low, month_of(at + 3), day, clock, us) == LEFT) return LEFT;
    *us -= offset;
    return DECIDED;
}

/* Any of these texts. */
static inline int32_t read_time(const uint8_t *at, int64_t size, int64_t *us) {
    return size == 26 && at[2] == '/' ? read_logged(at, us) : read_dated(at, size, us);
}

/* A whole number: seconds, ms or µs, by its size. */
static inline int32_t whole_us(int64_t number, int64_t *us) {
    if (number < 0 || number >= 100000000000000000) return LEFT;
    int64_t unit = number < 100000000000 ? 1000000 : number < 100000000000000 ? 1000 : 1;
    *us = number * unit;
    return DECIDED;
}

#endif
