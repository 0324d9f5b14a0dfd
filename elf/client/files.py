"""Files that a statement names: they are read here, and what is in them travels with it."""

from __future__ import annotations

import re
from pathlib import Path

from elf.errors import UserError

_JOIN = re.compile(r"\bJOIN\s*'|\bSET\s+TABLE\s", re.IGNORECASE)
_FUNCTION = re.compile(r"\bSET\s+FUNCTION\s+(\w+)\s+FROM\s+'((?:[^']|'')+)'", re.IGNORECASE)


def files_of(text: str) -> dict[str, str]:
    """The texts of the files that a statement names, looked at. Raises ``UserError``."""
    found = {}
    for kind, quoted in _FUNCTION.findall(text):
        name = quoted.replace("''", "'")
        try:
            found[name] = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{name} cannot be read: {getattr(error, 'strerror', error)}") from None
        _look_at(kind.lower(), found[name], Path(name).name)
    return found


def _look_at(kind: str, text: str, filename: str) -> None:
    """Of what is no kind of function the agent will say so."""
    from elf.functions.checks import check_text
    from elf.functions.function import KINDS
    from elf.ql.plan import Function

    if kind in KINDS:
        check_text(Function(kind, text, filename))


def tables_of(text: str) -> dict[str, bytes]:
    """The tables in the files that a statement joins, as Arrow (``elf.batch``). Raises ``UserError``."""
    if not _JOIN.search(text):
        return {}
    from elf.client.tables import read_table
    from elf.ql.statements import joined_files

    return {name: read_table(name) for name in joined_files(text)}
