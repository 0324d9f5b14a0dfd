"""The files that a statement names: they are read on the client's machine, and what is in them travels with
the statement.
"""

from __future__ import annotations

import re
from pathlib import Path

from elf.errors import UserError

_JOIN = re.compile(r"\bJOIN\s*'|\bSET\s+TABLE\s|\bIN\s*\(\s*SELECT\b", re.IGNORECASE)
_AGGREGATE = re.compile(r"\bAGGREGATE\s+\w+\s+FROM\s+'((?:[^']|'')+)'", re.IGNORECASE)
_FUNCTION = re.compile(r"\bSET\s+FUNCTION\s+(\w+)\s+FROM\s+'((?:[^']|'')+)'", re.IGNORECASE)


def names_none(text: str) -> bool:
    """Whether a statement names no file, for certain: then nothing has to be read for it.

    Args:
        text (str): a statement.

    Returns:
        bool: True where ``files_of`` and ``tables_of`` find nothing.

    Raises:
        Nothing.

    Example:
        >>> names_none("SELECT * FROM client WHERE c_ip = '203.0.113.9'")
        True
    """
    return not any(one.search(text) for one in (_JOIN, _AGGREGATE, _FUNCTION))


def files_of(text: str) -> dict[str, str]:
    """The texts of the functions and aggregates that a statement names, looked at.

    Args:
        text (str): a statement.

    Returns:
        dict[str, str]: file name → text, of ``SET FUNCTION … FROM 'file'`` and ``CREATE AGGREGATE … FROM
            'file'``.

    Raises:
        UserError: for a file that cannot be read, or has no function of that kind with one argument, or no
            aggregate.

    Example:
        >>> path = Path(folder) / "most.py"
        >>> size = path.write_text("def reduce(batch):\\n    return batch\\n")
        >>> list(files_of(f"ALTER JOB busy SET FUNCTION reduce FROM '{path}'").values())
        ['def reduce(batch):\\n    return batch\\n']
    """
    found = {}
    named = [("aggregate", quoted) for quoted in _AGGREGATE.findall(text)]
    for kind, quoted in (*_FUNCTION.findall(text), *named):
        name = quoted.replace("''", "'")
        try:
            found[name] = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{name} cannot be read: {getattr(error, 'strerror', error)}") from None
        _look_at(kind.lower(), found[name], Path(name).name)
    return found


def _look_at(kind: str, text: str, filename: str) -> None:
    """Of what is no kind of function the agent will say so."""
    from elf.functions.checks import check_aggregate, check_text
    from elf.functions.function import KINDS
    from elf.ql.plan import Function

    if kind == "aggregate":
        check_aggregate(text, filename)
    elif kind in KINDS:
        check_text(Function(kind, text, filename))


def tables_of(text: str) -> dict[str, bytes]:
    """The tables in the files that a statement joins.

    Args:
        text (str): a statement.

    Returns:
        dict[str, bytes]: file name → Arrow table (``elf.batch.decode``).

    Raises:
        UserError: as ``elf.client.tables.read_table``.

    Example:
        >>> path = Path(folder) / "teams.csv"
        >>> size = path.write_text("cs_uri_stem,team\\n/cart,sales\\n")
        >>> join = f"SELECT team, COUNT(*) FROM access JOIN '{path}' AS t USING (cs_uri_stem) GROUP BY team"
        >>> tables_of(join).keys() == {str(path)}
        True
    """
    if not _JOIN.search(text):
        return {}
    from elf.client.tables import read_table
    from elf.ql.statements import joined_files

    return {name: read_table(name) for name in joined_files(text)}
