"""Errors, named by who must act on them.

``UserError`` and its kinds end up as one clear line in front of a person; ``PeerError`` drops one frame of
one peer and is counted; ``ElfBug`` means that elf itself is wrong and must never be swallowed.
"""

from __future__ import annotations


class ElfError(Exception):
    """Base of every error that elf raises on purpose. ``str()`` gives one clear text.

    Example:
        >>> try:
        ...     raise UserError("there is no job busy")
        ... except ElfError as error:
        ...     print(error)
        there is no job busy
    """


class UserError(ElfError):
    """Something that a person asked for cannot be done. The text says what, where and what to do.

    Example:
        >>> issubclass(ConfigError, UserError), issubclass(PeerError, UserError)
        (True, False)
    """


class ConfigError(UserError):
    """A configuration that cannot be used (exit status 78).

    Example:
        >>> raise ConfigError("agent.listen: no port")
        Traceback (most recent call last):
        elf.errors.ConfigError: agent.listen: no port
    """


class InputError(UserError):
    """An input (path, format) that cannot be read as asked.

    Example:
        >>> raise InputError("access.log cannot be read: no such file")
        Traceback (most recent call last):
        elf.errors.InputError: access.log cannot be read: no such file
    """


class QueryError(UserError):
    """A query that is wrong, or right but not supported yet.

    ``str()`` gives the whole message: text, line and column (both from 1), the offending line and a caret.

    Args:
        text (str): what is wrong, and what to do.
        sql (str): the query.
        line (int | None): where in it, from 1; None: nowhere in particular.
        column (int | None): where in the line, from 1.

    Example:
        >>> print(QueryError("unknown column n", sql="SELECT n FROM access", line=1, column=8))
        unknown column n (line 1, column 8)
          SELECT n FROM access
                 ^
    """

    def __init__(
        self, text: str, *, sql: str = "", line: int | None = None, column: int | None = None
    ) -> None:
        self.text = text
        self.line = line
        self.column = column
        self.sql = sql
        super().__init__(self._render())

    def _render(self) -> str:
        if self.line is None or self.column is None:
            return self.text
        place = f"{self.text} (line {self.line}, column {self.column})"
        lines = self.sql.splitlines()
        if not 1 <= self.line <= len(lines):
            return place
        source = lines[self.line - 1].replace("\t", " ")
        return f"{place}\n  {source}\n  {' ' * (self.column - 1)}^"


class ColumnError(QueryError):
    """A query that needs a column that is not known, or not as it needs it: who knows where columns are
    declared says so beside it. ``name``: the column; ``type``: what it has to be, or empty.
    """

    def __init__(self, error: QueryError, name: str, type: str = "") -> None:
        self.name = name
        self.type = type
        super().__init__(error.text, sql=error.sql, line=error.line, column=error.column)

    def with_way_out(self, way: str) -> QueryError:
        """The same, and what to do."""
        return QueryError(f"{self.text}; {way}", sql=self.sql, line=self.line, column=self.column)


class PeerError(ElfError):
    """A peer sent something that cannot be used. The frame is dropped and counted, nothing else.

    Example:
        >>> from elf.batch import decode
        >>> decode(b"no table")
        Traceback (most recent call last):
        elf.errors.PeerError: not a whole Arrow table: its end is missing
    """


class PanesGone(ElfError):
    """Panes that windows were to be made of are not in the store any more: their copy, or the job group that
    they are of, has moved meanwhile. They are to be asked for anew.
    """


class ElfBug(ElfError):
    """An invariant of elf itself is broken."""


class AuthError(ElfError):
    """A key is not admitted, or the other side has none or another one."""
