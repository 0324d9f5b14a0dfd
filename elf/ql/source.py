"""The text of a statement, and places in it: how an error finds its line, column and caret."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from sqlglot import exp

from elf.errors import QueryError

JOB: Final = "job's query"
"""In the meta of the tree of a job's query: what is known of the job (``elf.ql.job_queries``)."""


class Source(Struct, frozen=True):
    """The whole text that a person wrote; offsets are characters from its start."""

    text: str

    def error(self, message: str, at: int | None) -> QueryError:
        """The error at an offset; without one, the message alone."""
        if at is None:
            return QueryError(message, sql=self.text)
        at = min(at, len(self.text))
        before = self.text[:at]
        line = before.count("\n") + 1
        column = at - (before.rfind("\n") + 1) + 1
        return QueryError(message, sql=self.text, line=line, column=column)

    def at(self, node: exp.Expr, message: str) -> QueryError:
        """The error at the first character of a node."""
        return self.error(message, start_of(node))


def start_of(node: exp.Expr) -> int | None:
    """Offset of the first character of a node: the least offset of its parts (operators themselves have
    none). A job's query in it, in place of its name, is of another text."""
    own = (part for part in node.walk(prune=lambda part: JOB in part.meta) if JOB not in part.meta)
    starts = [part.meta["start"] for part in own if part.meta.get("start") is not None]
    return min(starts) if starts else None


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like ``name``, without regard to case; None when nothing is near."""
    folded = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.7)
    return folded[close[0]] if close else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`` – did you mean …?`` or nothing: the end of an error message."""
    found = nearest(name, known)
    return f'; did you mean "{found}"?' if found else ""
