"""What a person has signed for this agent: each statement once, while it is fresh, and over a connection of
the key that signed it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from elf.errors import UserError
from elf.job.catalog.log import CatalogLog
from elf.job.spec import JobSpec
from elf.security.authored import Authorship, Taken
from elf.security.authorship import is_signed
from elf.security.principals import Principal
from elf.wire.clients import Call, Execute, authorship_of

if TYPE_CHECKING:  # sqlglot, as in agents.answering.statements
    from elf.ql.statements import Statement

Asked = TypeVar("Asked", Execute, Call)


class Once:
    """The statements that an agent has taken."""

    def __init__(self, log: CatalogLog) -> None:
        self._log = log
        self._taken = Taken()

    def taken(self, asked: Asked, who: Principal | None, now_ms: int, *, changes: bool) -> Asked:
        """What is asked, with its signature if it ``changes`` something and there are keys. Raises
        ``UserError`` where that is missing or not good."""
        trust = self._log.trust
        if trust is None or not changes:
            return msgspec.structs.replace(asked, authored=None)
        try:
            author = authorship_of(asked)
        except ValueError as error:
            raise UserError(f"this submission cannot be read: {error}") from None
        if author is None or who is None:
            raise UserError("this changes something, and is not signed: ask with a client that has keys")
        if author.authored.key != who.key:
            raise UserError("this statement was signed with another key than that of the connection")
        if not is_signed(trust.cluster, author):
            raise UserError("the signature of this statement is wrong")
        if why := self._taken.refused(author, object(), now_ms / 1_000):
            raise UserError(why)
        return asked


def author_of(asked: Execute, statement: Statement) -> Authorship | None:
    """A statement as its author has signed it, for all who act on it; None where there are no keys."""
    from elf.ql.signed import place_of

    author = authorship_of(asked)
    return None if author is None else msgspec.structs.replace(author, place=place_of(asked.sql, statement))


def authors_of(author: Authorship | None, spec: JobSpec | None = None) -> tuple[Authorship, ...]:
    """The signed statements behind a job that a statement makes, or behind the next version of ``spec``; none
    where there are no keys."""
    from elf.ql.signed import least

    if author is None:
        return ()
    return (author,) if spec is None else least(spec.name, (*spec.authors, author))
