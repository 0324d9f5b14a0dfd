"""Files that a statement names: they are read here, and their texts travel with it."""

from __future__ import annotations

import re
from pathlib import Path

from agents.functions.checks import check_text
from agents.functions.function import KINDS, FunctionSpec
from elf.errors import UserError

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
        if kind.lower() in KINDS:
            check_text(FunctionSpec(kind.lower(), found[name], Path(name).name))
    return found
