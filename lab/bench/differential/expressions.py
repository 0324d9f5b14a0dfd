"""Random expressions of a wanted type. Functions come from the language's own table: a call is tried with
random arguments (of the types that the words of its ``usage`` suggest) until the binder takes it, and what
worked is remembered. A function that is added to the table is thus called from then on; a new word in a
usage wants a line in ``constants.WORDS`` only when its values are special.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from elf.errors import QueryError
from elf.ql import statements
from elf.ql.draft import BINDERS
from elf.ql.expressions import Kind
from elf.ql.functions import FUNCTIONS
from elf.ql.lookups import LOOKUPS
from elf.ql.scope import Scope
from lab.bench.differential.constants import COUNTS, ESCAPED, LIKES, TIMES, WORDS, constant_of, text_constant
from lab.bench.differential.logs import SCHEMA, STEADY, STREAMS
from lab.bench.differential.tree import Node, leaf

KINDS: Final[tuple[Kind, ...]] = ("bigint", "double", "text", "boolean", "timestamp")
TRIES_MAX: Final = 40

INEXACT: Final = frozenset(
    {"acos", "asin", "atan", "atan2", "cbrt", "cos", "cot", "exp", "ln", "log", "log10", "log2", "pow",
     "power", "sin", "tan", "cosh", "sinh", "tanh", "degrees", "radians"}
)  # fmt: skip
"""Functions whose last bit depends on the library that computes them: see ``differences``."""


_HINTS: Final[Mapping[str, Sequence[Kind]]] = {
    "text": ("text",),
    "part": ("text",),
    "old": ("text",),
    "new": ("text",),
    "start": ("bigint",),
    "length": ("bigint",),
    "number": ("bigint", "double"),
    "timestamp": ("timestamp",),
    "condition": ("boolean",),
    "ip": ("text",),
    "address": ("text",),
    "url": ("text",),
    "user_agent": ("text",),
    "json": ("text",),
    "from": ("timestamp",),
    "to": ("timestamp",),
    "seconds": ("bigint", "double"),
    "milliseconds": ("bigint",),
    "microseconds": ("bigint",),
}
LISTED: Final[Sequence[tuple[str, Kind]]] = (
    ("place", "text"),
    ("city", "text"),
    ("weight", "bigint"),
    ("share", "double"),
    ("open", "boolean"),
)
"""Columns of a file, to be among."""
_ALIKE: Final = frozenset({"value", "a", "b", "then", "else"})


@cache
def kind_of(text: str) -> Kind | None:
    """The type of an expression over the columns, by the binder's word; None when it refuses."""
    try:
        parsed = statements.parse(f"SELECT {text} FROM log")[0]
        assert isinstance(parsed, statements.Select)
        tree = parsed.query.tree
        scope = Scope(parsed.query.source, SCHEMA, "SELECT", True, binders=BINDERS)
        return scope.bind(tree.expressions[0]).kind
    except QueryError:
        return None


def usage_words(usage: str) -> list[list[str]]:
    """The arguments that a usage such as ``substring(text, start[, length])`` allows, shortest first. ``…``:
    the one before it once more, or twice.
    """
    inside = usage[usage.find("(") + 1 : usage.rfind(")")]
    found: list[list[str]] = []
    for part in re.split(r"\[,?\s*", inside.replace("]", "")):
        words = [word.strip() for word in part.split(",") if word.strip()]
        words = [*(found[-1] if found else []), *words]
        if words and words[-1] == "…":
            found += [[*words[:-1], words[-2]], [*words[:-1], words[-2], words[-2]]]
        else:
            found.append(words)
    return found


@dataclass
class Expressions:
    """Makes expressions over ``leaves``: columns before grouping, keys and aggregates after it."""

    rng: random.Random
    leaves: Mapping[Kind, Sequence[Node]]

    def make(self, kind: Kind, depth: int) -> Node:
        """An expression of that type (of ``hugeint``: what there is)."""
        rng = self.rng
        if depth <= 0 or rng.random() < 0.25:
            return self.leaf(kind)
        if rng.random() < 0.4:
            call = self._call(kind, depth)
            if call is not None:
                return call
        return rng.choice(_OPERATIONS[kind])(self, depth)

    def leaf(self, kind: Kind) -> Node:
        known = self.leaves.get(kind, ())
        if known and self.rng.random() < 0.8:
            return self.rng.choice(known)
        return constant_of(kind, self.rng)

    def any_kind(self) -> Kind:
        return self.rng.choice(KINDS)

    def join(self, template: str, kind: Kind, *args: Node, steady: bool = False) -> Node:
        return Node(
            template,
            kind,
            args,
            exact=all(arg.exact for arg in args),
            steady=steady,
            aggregated=any(arg.aggregated for arg in args),
        )

    def _call(self, kind: Kind, depth: int) -> Node | None:
        """A call of a function that gives ``kind``."""
        rng = self.rng
        names = _giving(kind)
        if not names:
            return None
        name = rng.choice(names)
        for _ in range(TRIES_MAX):
            found = self.try_call(name, depth)
            if found is not None and found.kind == kind:
                return found
        return None

    def try_call(self, name: str, depth: int) -> Node | None:
        """A call with random arguments; None when the binder refuses it."""
        rng = self.rng
        words = rng.choice(usage_words(FUNCTIONS[name].usage))
        alike = self.any_kind()
        args = []
        for word in words:
            if constant := WORDS.get(f"{name} {word}") or WORDS.get(word):
                args.append(constant(rng))
            elif word in _ALIKE:
                args.append(self.make(alike, depth - 1))
            else:
                args.append(self.make(rng.choice(_HINTS.get(word, KINDS)), depth - 1))
        template = f"{name}({', '.join(f'{{{i}}}' for i in range(len(args)))})"
        # What stands for the arguments when the binder is asked: columns, but constants as they are.
        shapes = [
            str(arg) if not arg.args and arg.template[0] in "'-0123456789" else _SHAPE[arg.kind]
            for arg in args
        ]
        kind = kind_of(f"{name}({', '.join(shapes)})")
        if kind is None or kind == "null":
            return None
        made = self.join(template, kind, *args)
        if name in INEXACT:
            made = Node(made.template, kind, made.args, False, False, made.aggregated)
        return made

    # -- operators -------------------------------------------------------------------------------------------

    def arithmetic(self, depth: int) -> Node:
        left, right = self.make("bigint", depth - 1), self.make("bigint", depth - 1)
        return self.join(f"({{0}} {self.rng.choice('+-*%')} {{1}})", "bigint", left, right)

    def doubles(self, depth: int) -> Node:
        left = self.make(self.rng.choice(["double", "bigint"]), depth - 1)
        right = self.make("double", depth - 1)
        return self.join(f"({{0}} {self.rng.choice('+-*/%')} {{1}})", "double", left, right)

    def quotient(self, depth: int) -> Node:
        word = self.rng.choice(["//", "DIV"])
        return self.join(
            f"({{0}} {word} {{1}})", "bigint", self.make("bigint", depth - 1), self.make("bigint", depth - 1)
        )

    def moved(self, depth: int) -> Node:
        op, count = self.rng.choice("+-"), self.rng.choice(COUNTS)
        unit = self.rng.choice(["MICROSECONDS", "SECONDS", "HOURS", "DAYS", "WEEKS", "MONTHS", "YEARS"])
        interval = self.rng.choice([f"INTERVAL {count} {unit}", f"INTERVAL '{count}' {unit}"])
        return self.join(f"({{0}} {op} {interval})", "timestamp", self.make("timestamp", depth - 1))

    def zoned(self, depth: int) -> Node:
        zone = self.rng.choice(["+02:00", "-11:30", "+00:00", "UTC"])
        return self.join(f"({{0}} AT TIME ZONE '{zone}')", "timestamp", self.make("timestamp", depth - 1))

    def extracted(self, depth: int) -> Node:
        path = self.rng.choice(["$.a", "$[0]", "$.a.b"])
        return self.join(f"({{0}} ->> '{path}')", "text", self.make("text", depth - 1))

    def division(self, depth: int) -> Node:
        return self.join(
            "({0} / {1})", "double", self.make("bigint", depth - 1), self.make("bigint", depth - 1)
        )

    def negation(self, kind: Kind) -> Callable[[int], Node]:
        return lambda depth: self.join("(- {0})", kind, self.make(kind, depth - 1))

    def case(self, kind: Kind, depth: int) -> Node:
        make = self.make
        args: tuple[Node, ...]
        if self.rng.random() < 0.3:
            subject = self.any_kind()
            template = "CASE {0} WHEN {1} THEN {2} ELSE {3} END"
            args = (make(subject, depth - 1), make(subject, 0), make(kind, depth - 1), make(kind, depth - 1))
        elif self.rng.random() < 0.5:
            template = "CASE WHEN {0} THEN {1} WHEN {2} THEN {3} END"
            args = (
                make("boolean", depth - 1),
                make(kind, 0),
                make("boolean", depth - 1),
                make(kind, depth - 1),
            )
        else:
            template = "CASE WHEN {0} THEN {1} ELSE {2} END"
            args = (make("boolean", depth - 1), make(kind, depth - 1), make(kind, depth - 1))
        return self.join(template, kind, *args)

    def cast(self, kind: Kind, depth: int) -> Node:
        source = self.rng.choice(_CAST_FROM[kind])
        word = self.rng.choice(["CAST", "TRY_CAST"])
        arg = self.make(source, depth - 1)
        known = {node for nodes in self.leaves.values() for node in nodes}
        if kind == "timestamp" and known.isdisjoint(arg.walk()):  # a constant that is none is an error
            arg = self.rng.choice(self.leaves.get("text") or [text_constant(TIMES[0])])
        if self.rng.random() < 0.2:
            return self.join(f"({{0}})::{kind.upper()}", kind, arg)
        return self.join(f"{word}({{0}} AS {kind.upper()})", kind, arg)

    def concatenation(self, depth: int) -> Node:
        return self.join("({0} || {1})", "text", self.make("text", depth - 1), self.make("text", depth - 1))

    def comparison(self, depth: int) -> Node:
        kind = self.any_kind()
        op = self.rng.choice(
            ["=", "==", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]
        )
        return self.join(
            f"({{0}} {op} {{1}})", "boolean", self.make(kind, depth - 1), self.make(kind, depth - 1)
        )

    def connective(self, depth: int) -> Node:
        op = self.rng.choice(["AND", "OR"])
        return self.join(
            f"({{0}} {op} {{1}})", "boolean", self.make("boolean", depth - 1), self.make("boolean", depth - 1)
        )

    def refusal(self, depth: int) -> Node:
        return self.join("(NOT {0})", "boolean", self.make("boolean", depth - 1))

    def test(self, depth: int) -> Node:
        if self.rng.random() < 0.5:
            word = self.rng.choice(["NULL", "NOT NULL"])
            return self.join(f"({{0}} IS {word})", "boolean", self.make(self.any_kind(), depth - 1))
        word = self.rng.choice(["TRUE", "FALSE", "NOT TRUE", "NOT FALSE"])
        return self.join(f"({{0}} IS {word})", "boolean", self.make("boolean", depth - 1))

    def between(self, depth: int) -> Node:
        kind = self.any_kind()
        args = [self.make(kind, depth - 1) for _ in range(3)]
        return self.join(f"({{0}} {self.rng.choice(['', 'NOT '])}BETWEEN {{1}} AND {{2}})", "boolean", *args)

    def membership(self, depth: int) -> Node:
        kind = self.any_kind()
        args = [self.make(kind, depth - 1), self.make(kind, 0), self.make(kind, 0)]
        return self.join(f"({{0}} {self.rng.choice(['', 'NOT '])}IN ({{1}}, {{2}}))", "boolean", *args)

    def listed(self, depth: int) -> Node:
        """Only in WHERE: whether it is in a file."""
        column, kind = self.rng.choice(LISTED)
        name = f"listed{self.rng.randrange(10_000)}"
        text = f"({{0}} {self.rng.choice(['', 'NOT '])}IN (SELECT {column} FROM 'places.csv' AS {name}))"
        return self.join(text, "boolean", self.make(kind, depth - 1))

    def like(self, depth: int) -> Node:
        op = self.rng.choice(["LIKE", "ILIKE", "NOT LIKE"])
        if self.rng.random() < 0.2:
            escaped = text_constant(self.rng.choice(ESCAPED))
            return self.join(
                f"({{0}} {op} {{1}} ESCAPE '!')", "boolean", self.make("text", depth - 1), escaped
            )
        pattern = text_constant(self.rng.choice(LIKES))
        return self.join(f"({{0}} {op} {{1}})", "boolean", self.make("text", depth - 1), pattern)

    def matched(self, depth: int) -> Node:
        op, pattern = self.rng.choice(["~", "~*", "!~", "RLIKE"]), WORDS["pattern"](self.rng)
        return self.join(f"({{0}} {op} {{1}})", "boolean", self.make("text", depth - 1), pattern)

    def part(self, depth: int) -> Node:
        word = self.rng.choice(["YEAR", "HOUR", "MINUTE", "DOW", "DOY"])
        if kind_of(f"EXTRACT({word} FROM ts)") is None:
            word = "MINUTE"
        return self.join(f"EXTRACT({word} FROM {{0}})", "bigint", self.make("timestamp", depth - 1))

    def position(self, depth: int) -> Node:
        return self.join("POSITION({0} IN {1})", "bigint", self.make("text", 0), self.make("text", depth - 1))

    def trimmed(self, depth: int) -> Node:
        where = self.rng.choice(["LEADING", "TRAILING", "BOTH"])
        characters = text_constant(self.rng.choice(["/", " a"]))
        return self.join(f"TRIM({where} {{0}} FROM {{1}})", "text", characters, self.make("text", depth - 1))

    def piece(self, depth: int) -> Node:
        start = leaf(str(self.rng.randrange(0, 5)), "bigint")
        return self.join("SUBSTRING({0} FROM {1} FOR 3)", "text", self.make("text", depth - 1), start)


_SHAPE: Final[Mapping[Kind, str]] = {
    "bigint": "n",
    "hugeint": "SUM(n)",
    "double": "x",
    "text": "page",
    "boolean": "ok",
    "timestamp": "ts",
}
_CAST_FROM: Final[Mapping[Kind, Sequence[Kind]]] = {
    "bigint": ("text", "double", "boolean", "bigint"),
    "double": ("text", "bigint", "boolean"),
    "text": ("bigint", "boolean", "timestamp", "text"),
    "boolean": ("text", "bigint", "double"),
    "timestamp": ("text",),
}

Operation = Callable[[Expressions, int], Node]


def _of(kind: Kind, *more: Operation) -> tuple[Operation, ...]:
    return (lambda e, d: e.case(kind, d), lambda e, d: e.cast(kind, d), *more)


E = Expressions
_OPERATIONS: Final[Mapping[Kind, Sequence[Operation]]] = {
    "bigint": _of("bigint", E.arithmetic, E.arithmetic, lambda e, d: e.negation("bigint")(d), E.part,
                  E.position, E.quotient),
    "double": _of("double", E.doubles, E.doubles, E.division, lambda e, d: e.negation("double")(d)),
    "text": _of("text", E.concatenation, E.trimmed, E.piece, E.extracted),
    "boolean": (*_of("boolean"), E.comparison, E.comparison, E.connective, E.connective, E.refusal, E.test,
                E.between, E.membership, E.like, E.matched),
    "timestamp": _of("timestamp", E.moved, E.zoned),
}  # fmt: skip


@cache
def _giving(kind: Kind) -> tuple[str, ...]:
    """The functions that can give ``kind``: found by trying."""
    rng = random.Random(0)
    maker = Expressions(rng, columns())
    found = []
    for name in (one for one in FUNCTIONS if one not in LOOKUPS):  # what these give is in tables of the host
        kinds = {
            node.kind for node in (maker.try_call(name, 1) for _ in range(TRIES_MAX)) if node is not None
        }
        if kind in kinds:
            found.append(name)
    return tuple(found)


def callable_functions() -> frozenset[str]:
    """The functions that random arguments reach."""
    return frozenset(name for kind in KINDS for name in _giving(kind))


@cache
def columns(stream: str = "log") -> Mapping[Kind, Sequence[Node]]:
    """The columns of a stream of the logs, by type."""
    found: dict[Kind, list[Node]] = {}
    for name, kind in STREAMS[stream].items():
        found.setdefault(kind, []).append(leaf(name, kind, steady=name in STEADY))
    return found
