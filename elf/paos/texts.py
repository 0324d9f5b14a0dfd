"""What the text of an aggregate of one's own promises, read without running it: every agent reads the same.

That is why ``arguments`` and ``returns`` are written out in the class.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NoReturn

from elf.errors import UserError
from elf.schema import COLUMN_TYPES, ColumnType

ARGUMENTS_MAX: Final = 8
_METHODS: Final[Mapping[str, int]] = {"create": 2, "merge": 3, "finalize": 2}
"""With how many arguments each is called, those of ``create`` before its columns."""
_TYPES: Final = ", ".join(repr(kind) for kind in COLUMN_TYPES)


@dataclass(frozen=True)
class Signature:
    """``title``: the name of the class."""

    title: str
    arguments: tuple[ColumnType, ...]
    returns: ColumnType


@lru_cache(maxsize=256)
def signature_of(text: str, filename: str) -> Signature:
    """The signature of the one subclass of ``PAO`` at the top level of a text. Raises ``UserError``: one line
    with the file, the line, and what to do."""
    try:
        tree = ast.parse(text, filename)
    except SyntaxError as error:
        source = (error.text or "").strip()
        raise UserError(f"{filename}:{error.lineno}: SyntaxError: {error.msg} in `{source}`") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"{filename}: it cannot be parsed: {error}") from None
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    paos = {name: node for name, node in classes.items() if _is_pao(node, classes)}
    based_on = {name for node in paos.values() for name in _bases(node)}
    lowest = [node for name, node in paos.items() if name not in based_on]
    if len(lowest) != 1:
        many = ", ".join(node.name for node in lowest) or "none"
        raise UserError(
            f"{filename} must define one subclass of elf.paos.PAO at its top level; it has {many}"
        )
    return _Reading(filename, lowest[0], classes).signature()


class _Reading:
    """Of one class, with those in the same text that it is based on."""

    def __init__(self, filename: str, node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> None:
        self._filename = filename
        self._node = node
        self._lines = list(_line_of(node, classes))

    def signature(self) -> Signature:
        arguments = self._constant("arguments", f"a tuple of types, such as ('double',), out of {_TYPES}")
        if not isinstance(arguments, tuple | list) or not 1 <= len(arguments) <= ARGUMENTS_MAX:
            self._fail(f"arguments is a tuple of 1 to {ARGUMENTS_MAX} types, not {arguments!r}")
        kinds = tuple(self._type("arguments", one) for one in arguments)
        returns = self._type("returns", self._constant("returns", f"one of {_TYPES}"))
        for name, given in _METHODS.items():
            self._check_method(name, given + (len(kinds) if name == "create" else 0))
        return Signature(self._node.name, kinds, returns)

    def _type(self, name: str, told: object) -> ColumnType:
        if told not in COLUMN_TYPES:
            self._fail(f"{name}: there is no type {told!r}; types: {_TYPES}")
        return told

    def _constant(self, name: str, wanted: str) -> object:
        for node in (statement for one in self._lines for statement in one.body):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            named = any(isinstance(target, ast.Name) and target.id == name for target in targets)
            value = getattr(node, "value", None)
            if named and isinstance(node, ast.Assign | ast.AnnAssign) and value is not None:
                try:
                    found: object = ast.literal_eval(value)
                except (ValueError, TypeError, MemoryError, RecursionError):
                    self._fail(f"{name} must be written out: {wanted}", node.lineno)
                return found
        return self._fail(f"it has no {name}: {wanted}")

    def _check_method(self, name: str, given: int) -> None:
        for node in (statement for one in self._lines for statement in one.body):
            if isinstance(node, ast.FunctionDef) and node.name == name:
                plain = [*node.args.posonlyargs, *node.args.args]
                needed = len(plain) - len(node.args.defaults)
                keywords = any(default is None for default in node.args.kw_defaults)
                if not needed <= given or (len(plain) < given and node.args.vararg is None) or keywords:
                    takes = f"self and {given - 1} more"
                    self._fail(f"{name}() is called with {takes}, and takes others", node.lineno)
                return
        wanted = {
            "create": "create(self, groups, x, …)",
            "merge": "merge(self, groups, states)",
            "finalize": "finalize(self, states)",
        }
        self._fail(f"it must define {wanted[name]}")

    def _fail(self, text: str, line: int | None = None) -> NoReturn:
        place = f"{self._filename}:{line or self._node.lineno}"
        raise UserError(f"{place}: {self._node.name}: {text}")


def _bases(node: ast.ClassDef) -> list[str]:
    return [base.id for base in node.bases if isinstance(base, ast.Name)]


def _line_of(
    node: ast.ClassDef, classes: Mapping[str, ast.ClassDef], seen: tuple[str, ...] = ()
) -> Iterator[ast.ClassDef]:
    """The class, and those of the same text that it is based on."""
    yield node
    for name in _bases(node):
        if name in classes and name not in seen:
            yield from _line_of(classes[name], classes, (*seen, node.name, name))


def _is_pao(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> bool:
    return any(
        (isinstance(base, ast.Attribute) and base.attr == "PAO")
        or (isinstance(base, ast.Name) and base.id == "PAO")
        for one in _line_of(node, classes)
        for base in one.bases
    )
