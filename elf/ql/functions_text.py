"""Functions of text."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from elf.ql.expressions import Call, Constant, Expr, Kind, Spelled
from elf.ql.kinds import cast
from elf.ql.patterns import nullable
from elf.ql.signatures import (
    INT32_MAX,
    Arguments,
    Build,
    Function,
    Misuse,
    constant_integer,
    constant_text,
    count,
    fixed,
    in_both,
    pattern,
    spelled,
    want,
    written,
)
from elf.ql.templates import text_literal

_T: Kind = "text"
_I: Kind = "bigint"
REPEAT_MAX: Final = 1000
"""The most repeats, and the greatest width of lpad and rpad: text must not grow without bound."""


def as_text(expr: Expr) -> Expr | None:
    """What ``||`` and concat make of an operand; None for a double, which the engines write differently."""
    return cast(expr, "text")


def _texts(args: Arguments, first: int = 0) -> list[Expr]:
    found = []
    for index, arg in enumerate(args[first:], first):
        text = as_text(arg)
        if text is None:
            raise Misuse(
                f"cannot take {arg.kind}: the engines write it differently; CAST it to bigint", index
            )
        found.append(text)
    return found


def _concat(args: Arguments) -> Expr:
    count(args, 1, None)
    return Call("concat", tuple(Call("text or empty", (text,), "text") for text in _texts(args)), "text")


def _concat_ws(args: Arguments) -> Expr:
    count(args, 2, None)
    return Call("concat_ws", (spelled(constant_text(args, 0)), *_texts(args, 1)), "text")


def regexp_matches(args: Arguments) -> Expr:
    count(args, 2, 2)
    return Call("regexp_matches", (want(args, 0, "text"), in_both(pattern(args, 1))), "boolean")


def _regexp_extract(args: Arguments) -> Expr:
    count(args, 2, 3)
    found = pattern(args, 1)
    group = constant_integer(args, 2, 0, 99) if len(args) == 3 else 0
    if group > found.groups:
        raise Misuse(f"the pattern has {found.groups} groups", 2)
    return Call("regexp_extract", (want(args, 0, "text"), in_both(found), written(group)), "text")


def _regexp_replace(args: Arguments) -> Expr:
    """``\\1`` is a group, ``\\\\`` a backslash, in both engines; where a match may be empty they differ."""
    count(args, 3, 3)
    found, by = pattern(args, 1), constant_text(args, 2)
    if nullable(found.re2):
        raise Misuse("the pattern can match nothing, which the engines replace differently", 1)
    java = []
    for part in re.findall(r"\\?.", by, re.DOTALL):
        if re.fullmatch(r"\\[0-9]", part):
            if int(part[1]) > found.groups:
                raise Misuse(f"the pattern has {found.groups} groups", 2)
            java.append(f"${part[1]}")
        elif part.startswith("\\") and part != "\\\\":
            raise Misuse(f"{part} in a replacement: there are \\1 … \\9, \\0 and \\\\", 2)
        else:
            java.append("\\$" if part == "$" else part)
    # A digit after a group would become part of its number in Java.
    if any(re.match(r"\$\d", one) and two[0].isdigit() for one, two in pairwise(java)):
        raise Misuse("a digit directly after a group is not supported in a replacement", 2)
    both = Spelled(text_literal(by, "duckdb"), text_literal("".join(java), "spark"))
    return Call("regexp_replace", (want(args, 0, "text"), in_both(found), both), "text")


def _whole_constant(expr: Expr, least: int) -> int | None:
    """The value of an integer constant, within 31 bits."""
    if isinstance(expr, Constant) and isinstance(expr.value, int):
        return max(least, min(expr.value, INT32_MAX))
    return None


def _substring(args: Arguments) -> Expr:
    """Position 0 is the place before the first: Spark, which takes it for 1, needs one less of the length."""
    count(args, 2, 3)
    text, start = want(args, 0, "text"), want(args, 1, "bigint")
    first = _whole_constant(start, 1 - 2**31)
    position: Expr = Call("position", (start,), "bigint")
    if first is not None:
        position = Spelled(str(first), str(first or 1))
    if len(args) == 2:
        return Call("substring", (text, position), "text")
    length = want(args, 2, "bigint")
    size = _whole_constant(length, 0)
    extent: Expr = Call("extent", (length, start), "bigint")
    if first is not None and size is not None:
        extent = Spelled(str(size), str(max(0, size - 1) if first == 0 else size))
    return Call("substring of", (text, position, extent), "text")


def _end(op: str) -> Build:
    """left and right: how many, below 0 none."""

    def build(args: Arguments) -> Expr:
        count(args, 2, 2)
        return Call(op, (want(args, 0, "text"), Call("width", (want(args, 1, "bigint"),), "bigint")), "text")

    return build


def _pad(op: str) -> Build:
    def build(args: Arguments) -> Expr:
        count(args, 2, 3)
        width = constant_integer(args, 1, 0, REPEAT_MAX)
        filler = constant_text(args, 2) if len(args) == 3 else " "
        if not filler:
            raise Misuse("wants something to fill with", 2)
        return Call(op, (want(args, 0, "text"), written(width), spelled(filler)), "text")

    return build


def _repeat(args: Arguments) -> Expr:
    count(args, 2, 2)
    return Call("repeat", (want(args, 0, "text"), written(constant_integer(args, 1, 0, REPEAT_MAX))), "text")


def _translate(args: Arguments) -> Expr:
    count(args, 3, 3)
    old, new = constant_text(args, 1), constant_text(args, 2)
    if len(set(old)) < len(old):
        raise Misuse("names a character twice", 1)
    return Call("translate", (want(args, 0, "text"), spelled(old), spelled(new)), "text")


def _split_part(args: Arguments) -> Expr:
    count(args, 3, 3)
    separator = constant_text(args, 1)
    if not separator:
        raise Misuse("wants a separator that is not empty", 1)
    part = constant_integer(args, 2, -(2**31), INT32_MAX)
    if part == 0:
        raise Misuse("counts parts from 1 (or, from the end, from -1)", 2)
    return Call("split_part", (want(args, 0, "text"), spelled(separator), written(part)), "text")


TEXT: Final[tuple[Function, ...]] = (
    Function("lower", "lower(text)", "lower case", "lower('AbC')", "'abc'", fixed((_T,), _T, "lower"),
             ("lcase",)),
    Function("upper", "upper(text)", "upper case", "upper('AbC')", "'ABC'", fixed((_T,), _T, "upper"),
             ("ucase",)),
    Function("length", "length(text)", "number of code points", "length('naïve')", "5",
             fixed((_T,), _I, "length"), ("char_length", "character_length", "len")),
    Function("octet_length", "octet_length(text)", "number of bytes in UTF-8", "octet_length('naïve')", "6",
             fixed((_T,), _I, "octet_length")),
    Function("trim", "trim(text[, characters])", "without spaces (or characters) at both ends",
             "trim('  a ')", "'a'", fixed((_T, _T), _T, "trim", "trim of")),
    Function("ltrim", "ltrim(text[, characters])", "without spaces (or characters) at the start",
             "ltrim('//a/', '/')", "'a/'", fixed((_T, _T), _T, "ltrim", "ltrim of")),
    Function("rtrim", "rtrim(text[, characters])", "without spaces (or characters) at the end",
             "rtrim('/a/', '/')", "'/a'", fixed((_T, _T), _T, "rtrim", "rtrim of")),
    Function("substring", "substring(text, start[, length])",
             "from position start, counted from 1, or from the end if negative; a length below 0 is 0",
             "substring('GET /a', 5)", "'/a'", _substring, ("substr",)),
    Function("left", "left(text, n)", "the first n code points; n below 0 is 0", "left('2024-05-01', 4)",
             "'2024'", _end("left")),
    Function("right", "right(text, n)", "the last n code points; n below 0 is 0", "right('a.jpg', 3)",
             "'jpg'", _end("right")),
    Function("lpad", "lpad(text, n[, fill])",
             f"filled at the start, or cut at the end, to n code points; n is a constant up to {REPEAT_MAX}",
             "lpad('7', 3, '0')", "'007'", _pad("lpad")),
    Function("rpad", "rpad(text, n[, fill])",
             f"filled or cut at the end to n code points; n is a constant up to {REPEAT_MAX}",
             "rpad('7', 3, '.')", "'7..'", _pad("rpad")),
    Function("repeat", "repeat(text, n)", f"n times in a row; n is a constant up to {REPEAT_MAX}",
             "repeat('ab', 2)", "'abab'", _repeat),
    Function("reverse", "reverse(text)", "its code points from the last to the first", "reverse('abc')",
             "'cba'", fixed((_T,), _T, "reverse")),
    Function("concat", "concat(value, …)", "all values in a row, as text; NULL is empty",
             "concat('a', NULL, 1)", "'a1'", _concat),
    Function("concat_ws", "concat_ws(separator, value, …)",
             "all values that are not NULL, as text, with the separator between",
             "concat_ws('/', 'a', NULL, 1)", "'a/1'", _concat_ws),
    Function("replace", "replace(text, old, new)", "with every old replaced by new",
             "replace('a-b-c', '-', '/')", "'a/b/c'", fixed((_T, _T, _T), _T, "replace")),
    Function("translate", "translate(text, old, new)",
             "with each character of old replaced by that of new at the same place, or left out",
             "translate('a-b c', '- ', '_')", "'a_bc'", _translate),
    Function("contains", "contains(text, part)", "whether part is in text", "contains('/cart/7', 'cart')",
             "TRUE", fixed((_T, _T), "boolean", "contains")),
    Function("starts_with", "starts_with(text, part)", "whether text begins with part",
             "starts_with('/cart/7', '/cart')", "TRUE", fixed((_T, _T), "boolean", "starts_with"),
             ("startswith", "prefix")),
    Function("ends_with", "ends_with(text, part)", "whether text ends with part",
             "ends_with('a.png', '.png')", "TRUE", fixed((_T, _T), "boolean", "ends_with"),
             ("endswith", "suffix")),
    Function("strpos", "strpos(text, part)", "position of the first part in text, from 1; 0 if there is none",
             "strpos('a=b', '=')", "2", fixed((_T, _T), _I, "strpos"), ("instr",)),
    Function("split_part", "split_part(text, separator, n)",
             "the nth part, from 1, or from the end if negative; empty if there is none",
             "split_part('/a/b', '/', 2)", "'a'", _split_part),
    Function("regexp_matches", "regexp_matches(text, pattern)", "whether the pattern matches anywhere",
             "regexp_matches('/p/17', '^/p/[0-9]+$')", "TRUE", regexp_matches, ("regexp_like",)),
    Function("regexp_extract", "regexp_extract(text, pattern[, group])",
             "the first match, or its group; empty if there is none",
             "regexp_extract('/p/17', '/p/([0-9]+)', 1)", "'17'", _regexp_extract),
    Function("regexp_replace", "regexp_replace(text, pattern, replacement)",
             r"with every match replaced; \1 in the replacement is the first group",
             r"regexp_replace('/p/17/q/4', '[0-9]+', ':id')", "'/p/:id/q/:id'", _regexp_replace),
    Function("md5", "md5(text)", "the MD5 hash in hexadecimal, to make a value unreadable", "md5('a')",
             "'0cc175b9c0f1b6a831c399e269772661'", fixed((_T,), _T, "md5")),
    Function("sha256", "sha256(text)", "the SHA-256 hash in hexadecimal", "left(sha256('a'), 8)",
             "'ca978112'", fixed((_T,), _T, "sha256")),
)  # fmt: skip
"""In the order of the reference."""
