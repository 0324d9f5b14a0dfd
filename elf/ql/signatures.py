"""What a scalar function is, and how its arguments are checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from elf.ql.expressions import Call, Constant, Expr, Kind, Spelled
from elf.ql.kinds import become, common
from elf.ql.patterns import BadPattern, Regex, regex
from elf.ql.templates import text_literal

Arguments = Sequence[Expr]
Build = Callable[[Arguments], Expr]

INT32_MAX = 2**31 - 1


class Misuse(Exception):
    """A wrong argument: ``index`` says which (None: their number)."""

    def __init__(self, text: str, index: int | None = None) -> None:
        super().__init__(text)
        self.index = index


class Function(Struct, frozen=True):
    """``usage`` and ``about`` are for people, ``example`` too: an expression, and what it ``gives``, both in
    ELF-QL. ``build`` checks the arguments and raises ``Misuse``. ``aliases``: its other names.
    """

    name: str
    usage: str
    about: str
    example: str
    gives: str
    build: Build
    aliases: tuple[str, ...] = ()


def count(args: Arguments, least: int, most: int | None) -> None:
    """As many arguments as that."""
    if len(args) < least or (most is not None and len(args) > most):
        wanted = str(least) if least == most else f"{least} or more" if most is None else f"{least} to {most}"
        noun = "argument" if wanted == "1" else "arguments"
        raise Misuse(f"takes {wanted} {noun}, not {len(args)}")


def want(args: Arguments, index: int, kind: Kind) -> Expr:
    """The argument as ``kind``, where that needs no CAST."""
    arg = args[index]
    if common((arg.kind, kind)) != kind:
        hint = f"; CAST it to {kind}" if kind != "boolean" and "null" not in (arg.kind, kind) else ""
        raise Misuse(f"wants {kind} here, not {arg.kind}{hint}", index)
    return become(arg, kind)


def number(args: Arguments, index: int) -> Expr:
    """The argument, a number of any type."""
    arg = args[index]
    if common((arg.kind, "double")) != "double":
        hint = "; CAST it to a number" if arg.kind == "text" else ""
        raise Misuse(f"wants a number here, not {arg.kind}{hint}", index)
    return become(arg, "double") if arg.kind == "null" else arg


def constant_text(args: Arguments, index: int) -> str:
    """The argument, a text constant."""
    arg = args[index]
    if isinstance(arg, Constant) and isinstance(arg.value, str):
        return arg.value
    raise Misuse("wants a text constant here", index)


def constant_integer(args: Arguments, index: int, least: int, most: int) -> int:
    """The argument, an integer constant within these bounds."""
    arg = args[index]
    if (
        isinstance(arg, Constant)
        and isinstance(arg.value, int)
        and arg.kind == "bigint"
        and least <= arg.value <= most
    ):
        return arg.value
    raise Misuse(f"wants an integer constant from {least} to {most} here", index)


def spelled(text: str) -> Spelled:
    """A text constant that stays as it is."""
    return Spelled(text_literal(text, "duckdb"), text_literal(text, "spark"))


def written(value: int) -> Spelled:
    """An integer constant without a type."""
    return Spelled(str(value), str(value))


def fixed(params: tuple[Kind, ...], result: Kind, *ops: str) -> Build:
    """A function of typed parameters; ``ops`` by number of arguments, the longest list last."""
    least = len(params) - len(ops) + 1

    def build(args: Arguments) -> Expr:
        count(args, least, len(params))
        typed = tuple(want(args, index, params[index]) for index in range(len(args)))
        return Call(ops[len(args) - least], typed, result)

    return build


def alike(op: str, least: int, most: int | None) -> Build:
    """A function whose arguments and result have one type."""

    def build(args: Arguments) -> Expr:
        count(args, least, most)
        kind = args[0].kind
        for index, arg in enumerate(args):
            together = common((kind, arg.kind))
            if together is None:
                raise Misuse(f"cannot mix {kind} and {arg.kind}", index)
            kind = together
        if kind == "null":
            return Constant(None, "null")
        typed = tuple(become(arg, kind) for arg in args)
        return typed[0] if len(typed) == 1 else Call(op, typed, kind)

    return build


def pattern(args: Arguments, index: int) -> Regex:
    """The argument, a constant regular expression of the common subset."""
    try:
        return regex(constant_text(args, index))
    except BadPattern as error:
        raise Misuse(str(error), index) from error


def in_both(found: Regex) -> Spelled:
    """A regular expression as each engine wants it."""
    return Spelled(text_literal(found.re2, "duckdb"), text_literal(found.java, "spark"))


def matches(text: Expr, wanted: str) -> Expr:
    """Whether a regular expression of ours matches anywhere."""
    return Call("regexp_matches", (text, in_both(regex(wanted))), "boolean")


def extract(text: Expr, wanted: str, group: int) -> Expr:
    """A group of the first match of a regular expression of ours; NULL where there is none or it is empty."""
    found = Call("regexp_extract", (text, in_both(regex(wanted)), written(group)), "text")
    return Call("nullif", (found, Constant("", "text")), "text")


def case(*parts: Expr) -> Expr:
    """CASE WHEN parts[0] THEN parts[1] … ELSE parts[-1] END."""
    return Call("case", parts, parts[1].kind)
