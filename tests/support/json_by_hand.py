"""The value of a JSON column, found in the text of the document as the manual says."""

from __future__ import annotations

import json

from hypothesis import strategies as st

KEYS = ["a", "b", "a.b", "b.a", "a.b.a", "c d", "$", "[0]", '"', '"a.b"', "'", "*", "?", "`", "é", "A b"]

SCALARS = ["1", "2.5", '"x"', '"5"', "null", "true", "[1,2]", "{}", '"{\\"b\\":7}"', '"a: \\": 1"']


@st.composite
def objects(draw: st.DrawFn, depth: int = 3) -> str:
    """JSON in which keys come again, are written with escapes, have dots, and hold anything."""
    items = []
    for _ in range(draw(st.integers(0, 4))):
        key = json.dumps(draw(st.sampled_from(KEYS[:4]) | st.sampled_from(KEYS)))
        if draw(st.integers(0, 5)) == 0:
            key = key.replace("a", "\\u0061")
        inner = objects(depth - 1) if depth and draw(st.booleans()) else st.sampled_from(SCALARS)
        items.append(f"{key}:{draw(inner)}")
    return "{" + ",".join(items) + "}"


class Pairs(list):  # type: ignore[type-arg]
    """An object as it is written: pairs of key and value."""


def first_at(document: object, keys: tuple[str, ...]) -> object:
    for key in keys:
        found = [value for name, value in document if name == key] if isinstance(document, Pairs) else []
        document = found[0] if found else None
    return document


def every_way(path: str) -> list[tuple[str, ...]]:
    """Nested first, flat last: each dot parts keys, or is part of one; the first dots part first."""
    head, dot, rest = path.partition(".")
    if not dot:
        return [(path,)]
    ways = every_way(rest)
    return [(head, *way) for way in ways] + [(f"{head}.{way[0]}", *way[1:]) for way in ways]


def text_of(value: object) -> str | None:
    if isinstance(value, Pairs):
        return (
            "{" + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{inner(one)}" for key, one in value) + "}"
        )
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"))


def inner(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else text_of(value) or "null"


def by_hand(line: str, name: str) -> str | None:
    """The text of a column, by the manual."""
    document = json.loads(line, object_pairs_hook=Pairs)
    if name.startswith('"') and name != '"':
        return text_of(first_at(document, (name[1:-1].replace('""', '"'),)))
    return next(
        (text for way in every_way(name) if (text := text_of(first_at(document, way))) is not None), None
    )


NAMES = ["a", "b", "a.b", "b.a", "a.b.a", '"a.b"', '"a.b.a"', "a.c d", "a.$", "[0]", '"', "a.'", "*.a", "`",
         '"""a.b"""', "é"]  # fmt: skip
