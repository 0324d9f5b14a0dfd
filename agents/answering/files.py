"""Files that statements name: who says a statement sends their texts with it."""

from __future__ import annotations

from elf.errors import UserError
from elf.wire.clients import Execute


def sent(asked: Execute, file: str) -> tuple[str, str]:
    """(The text of a file, its name without folders.) Raises ``UserError``."""
    files = dict(asked.files)
    if file not in files:
        raise UserError(f"the text of {file} did not come with the statement; this client is too old")
    return files[file], file.replace("\\", "/").rsplit("/", 1)[-1]
