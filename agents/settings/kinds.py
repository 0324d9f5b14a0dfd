"""Kinds of values: how each is called, read from YAML, and read from the text of an environment variable."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from elf.addresses import AddressError, split_address

T = TypeVar("T")


class Unfit(Exception):
    """A value that a kind does not take; the text ends the line of the problem."""


@dataclass(frozen=True)
class Kind(Generic[T]):
    """A kind of value: how it is called, how it is read from YAML, and from the text of a variable."""

    name: str
    read: Callable[[object], T]
    """Raises ``Unfit``."""
    split: Callable[[str], object] = field(default=lambda text: text)
    """The text of an environment variable as what YAML would have given."""


def nearest(word: str, known: Iterable[str]) -> str:
    """The known name that looks most like ``word``."""
    return max(known, key=lambda name: difflib.SequenceMatcher(None, word.lower(), name.lower()).ratio())


def _expected(name: str, value: object) -> Unfit:
    return Unfit(f"must be {name}, not {_shown(value)}")


def _shown(value: object) -> str:
    """A value as a user would write it, on one line and not too long."""
    try:
        shown = json.dumps(value, default=str, ensure_ascii=False)
    except (TypeError, ValueError):
        shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:79]}…"


def matching(pattern: str, name: str) -> Kind[str]:
    """A text that the whole of ``pattern`` matches."""

    def read(value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise _expected(name, value)
        return value

    return Kind(name, read)


def empty_or(kind: Kind[str]) -> Kind[str]:
    """The same, or the empty text."""
    return Kind(f"{kind.name}, or empty", lambda value: "" if value == "" else kind.read(value))


def address() -> Kind[str]:
    """``host:port``."""

    def read(value: object) -> str:
        if not isinstance(value, str):
            raise _expected("host:port", value)
        try:
            split_address(value)
        except AddressError as error:
            raise Unfit(str(error)) from None
        return value

    return Kind("host:port", read)


def choice(*names: str) -> Kind[str]:
    """One of these words. In YAML ``off`` is false."""

    def read(value: object) -> str:
        value = "off" if value is False and "off" in names else value
        if not isinstance(value, str) or value not in names:
            hint = f" (nearest: {nearest(str(value), names)})" if isinstance(value, str) else ""
            raise Unfit(f"must be one of {', '.join(names)}, not {_shown(value)}{hint}")
        return value

    return Kind(f"one of {', '.join(names)}", read)


def whole(low: int, high: int = (1 << 63) - 1) -> Kind[int]:
    """A whole number from ``low`` to ``high``."""
    name = f"a whole number, at least {low}"

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise _expected(name, value)
        return value

    return Kind(name, read, _number)


def counted(words: tuple[str, ...], high: int) -> Kind[str]:
    """One of these words, a whole number up to ``high``, or a word with a number from 1 behind it."""
    named = " or ".join(words)
    name = f"{named}, a whole number from 0 to {high}, or both ({words[-1]} 1)"

    def read(value: object) -> str:
        whole_number = isinstance(value, int) and not isinstance(value, bool)
        text = str(value) if whole_number or isinstance(value, str) else ""
        if not re.fullmatch(rf"[0-{high}]|(?:{'|'.join(words)})(?: [1-{high}])?", text):
            raise _expected(name, value)
        return text

    return Kind(name, read)


def number(low: float = 0.0, *, above: bool = False) -> Kind[float]:
    """A number of at least ``low`` (``above``: more than that)."""
    name = f"a number above {low:g}" if above else f"a number, at least {low:g}"

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise _expected(name, value)
        if value < low or (above and value == low):
            raise _expected(name, value)
        return float(value)

    return Kind(name, read, _number)


def flag() -> Kind[bool]:
    """Yes or no."""

    def read(value: object) -> bool:
        if not isinstance(value, bool):
            raise _expected("true or false", value)
        return value

    return Kind("true or false", read, lambda line: {"true": True, "false": False}.get(line.lower(), line))


def many(kind: Kind[T], least: int = 0) -> Kind[tuple[T, ...]]:
    """A list; one value alone is a list of one. In a variable: with commas between."""

    def read(value: object) -> tuple[T, ...]:
        if isinstance(value, list) and len(value) < least:
            raise Unfit("must be a list of at least one")
        return tuple(kind.read(item) for item in (value if isinstance(value, list) else [value]))

    def split(line: str) -> object:
        return [kind.split(item.strip()) for item in line.split(",") if item.strip()]

    return Kind(f"a list, each {kind.name}", read, split)


def table(kind: Kind[T]) -> Kind[Mapping[str, T]]:
    """Names and values. In a variable: ``name:value`` with commas between."""

    def read(value: object) -> Mapping[str, T]:
        if not isinstance(value, dict):
            raise _expected("names with values", value)
        found = {}
        for name, item in value.items():
            if not isinstance(name, str) or not name:
                raise _expected("names with values", value)
            try:
                found[name] = kind.read(item)
            except Unfit as error:
                raise Unfit(f"{name} {error}") from None
        return found

    def split(line: str) -> object:
        pairs = [item.rpartition(":") for item in line.split(",") if item.strip()]
        return {name.strip(): kind.split(value.strip()) for name, _, value in pairs}

    return Kind(f"names, each with {kind.name}", read, split)


def optional(kind: Kind[T]) -> Kind[T | None]:
    """The same, or null (in a variable: ``none``)."""

    def read(value: object) -> T | None:
        return None if value is None else kind.read(value)

    def split(line: str) -> object:
        return None if line.lower() in ("none", "null") else kind.split(line)

    return Kind(f"{kind.name}, or null", read, split)


def _number(line: str) -> object:
    """The number that a text says, or the text itself (which no kind of number takes)."""
    for convert in (int, float):
        try:
            return convert(line)
        except ValueError:
            continue
    return line
