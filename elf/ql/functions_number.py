"""Functions of numbers, and those of any type that choose among values."""

from __future__ import annotations

from typing import Final

from elf.ql.expressions import Call, Constant, Expr, arithmetic
from elf.ql.kinds import INT64_MIN, become, common
from elf.ql.signatures import (
    Arguments,
    Build,
    Function,
    Misuse,
    alike,
    constant_integer,
    count,
    number,
    want,
)


def _double(op: str, arguments: int = 1) -> Build:
    """A function of doubles."""

    def build(args: Arguments) -> Expr:
        count(args, arguments, arguments)
        return Call(op, tuple(become(number(args, i), "double") for i in range(arguments)), "double")

    return build


def _abs(args: Arguments) -> Expr:
    count(args, 1, 1)
    arg = number(args, 0)
    if arg.kind == "bigint":
        if isinstance(arg, Constant) and isinstance(arg.value, int) and arg.value > INT64_MIN:
            return Constant(abs(arg.value), "bigint")
        return Call("abs bigint", (arg,), "bigint")
    return Call("abs", (arg,), arg.kind)


def _whole(op: str) -> Build:
    """floor, ceil and trunc: an integer stays what it is."""

    def build(args: Arguments) -> Expr:
        count(args, 1, 1)
        arg = number(args, 0)
        return Call(op, (arg,), "double") if arg.kind == "double" else arg

    return build


def _round(args: Arguments) -> Expr:
    count(args, 1, 2)
    arg = number(args, 0)
    digits = constant_integer(args, 1, 0, 15) if len(args) == 2 else 0
    if arg.kind != "double":
        return arg
    if digits == 0:
        return Call("round", (arg,), "double")
    return Call("round to", (arg, Constant(float(10**digits), "double")), "double")


def _sign(args: Arguments) -> Expr:
    count(args, 1, 1)
    return Call("sign", (number(args, 0),), "bigint")


def remainder(left: Expr, right: Expr) -> Expr:
    """``left % right`` of two numbers."""
    kind = common((left.kind, right.kind)) or "double"
    op = "% double" if kind == "double" else "%"
    return arithmetic(op, become(left, kind), become(right, kind), kind)


def _mod(args: Arguments) -> Expr:
    count(args, 2, 2)
    return remainder(number(args, 0), number(args, 1))


def quotient(args: Arguments) -> Expr:
    """``left // right`` of two integers."""
    count(args, 2, 2)
    return Call("//", (want(args, 0, "bigint"), want(args, 1, "bigint")), "bigint")


def _pi(args: Arguments) -> Expr:
    count(args, 0, 0)
    return Constant(3.141592653589793, "double")


def _if(args: Arguments) -> Expr:
    """``if`` is CASE WHEN a THEN b ELSE c END."""
    count(args, 3, 3)
    condition = want(args, 0, "boolean")
    kind = common((args[1].kind, args[2].kind))
    if kind is None:
        raise Misuse(f"cannot mix {args[1].kind} and {args[2].kind}", 2)
    return Call("case", (condition, become(args[1], kind), become(args[2], kind)), kind)


CONDITIONAL: Final[tuple[Function, ...]] = (
    Function("coalesce", "coalesce(value, …)", "the first that is not NULL", "coalesce(NULL, 2, 3)", "2",
             alike("coalesce", 1, None), ("ifnull", "nvl")),
    Function("nullif", "nullif(a, b)", "NULL where a = b, else a", "nullif('-', '-')", "NULL",
             alike("nullif", 2, 2)),
    Function("if", "if(condition, then, else)", "then where the condition is true, else the last",
             "if(404 >= 400, 'bad', 'good')", "'bad'", _if, ("iif",)),
    Function("least", "least(value, …)", "the least, NULLs aside", "least(3, NULL, 2)", "2",
             alike("least", 1, None)),
    Function("greatest", "greatest(value, …)", "the greatest, NULLs aside", "greatest(3, NULL, 2)", "3",
             alike("greatest", 1, None)),
)  # fmt: skip

NUMBERS: Final[tuple[Function, ...]] = (
    Function("abs", "abs(number)", "without the sign", "abs(-3)", "3", _abs),
    Function("sign", "sign(number)", "-1, 0 or 1", "sign(-2.5)", "-1", _sign),
    Function("round", "round(number[, digits])", "rounded half away from zero", "round(2.345, 1)", "2.3",
             _round),
    Function("floor", "floor(number)", "the whole number at or below; a double stays one", "floor(2.7)",
             "2.0", _whole("floor")),
    Function("ceil", "ceil(number)", "the whole number at or above; a double stays one", "ceil(2.1)", "3.0",
             _whole("ceil"), ("ceiling",)),
    Function("trunc", "trunc(number)", "without the fraction; a double stays one", "trunc(-2.7)", "-2.0",
             _whole("trunc")),
    Function("mod", "mod(a, b)", "the remainder, as a % b: with the sign of a; NULL for b = 0", "mod(-7, 3)",
             "-1", _mod),
    Function("sqrt", "sqrt(number)", "the square root; NULL below 0", "sqrt(16)", "4.0", _double("sqrt")),
    Function("cbrt", "cbrt(number)", "the cube root", "round(cbrt(27), 6)", "3.0", _double("cbrt")),
    Function("power", "power(base, exponent)", "base to the exponent, as doubles", "power(2, 10)", "1024.0",
             _double("power", 2), ("pow",)),
    Function("exp", "exp(number)", "e to the number", "exp(0)", "1.0", _double("exp")),
    Function("ln", "ln(number)", "the natural logarithm; NULL at or below 0", "ln(1)", "0.0", _double("ln")),
    Function("log10", "log10(number)", "the logarithm to base 10; NULL at or below 0", "log10(1000)", "3.0",
             _double("log10")),
    Function("log2", "log2(number)", "the logarithm to base 2; NULL at or below 0", "log2(8)", "3.0",
             _double("log2")),
    Function("sin", "sin(number)", "the sine of radians", "sin(0)", "0.0", _double("sin")),
    Function("cos", "cos(number)", "the cosine of radians", "cos(0)", "1.0", _double("cos")),
    Function("tan", "tan(number)", "the tangent of radians", "tan(0)", "0.0", _double("tan")),
    Function("atan", "atan(number)", "the angle of that tangent, in radians", "atan(0)", "0.0",
             _double("atan")),
    Function("atan2", "atan2(y, x)", "the angle of the point (x, y), in radians", "atan2(0, 1)", "0.0",
             _double("atan2", 2)),
    Function("radians", "radians(degrees)", "degrees as radians", "radians(180) = pi()", "TRUE",
             _double("radians")),
    Function("degrees", "degrees(radians)", "radians as degrees", "degrees(pi())", "180.0",
             _double("degrees")),
    Function("pi", "pi()", "π", "round(pi(), 2)", "3.14", _pi),
)  # fmt: skip
"""In the order of the reference."""
