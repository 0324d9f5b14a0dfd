"""Who is at the page, and what serves it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from elf.client.client import Client

Compare = Callable[[str], Awaitable[dict[str, object]]]
"""Hold the windows of a job against Spark: what ``elf compare JOB --json`` says. Raises ``ElfError``."""


@dataclass(frozen=True)
class Visitor:
    """Whom a token has let in.

    Attributes:
        name (str): whose the token is; empty where anybody is anybody.
        roles (tuple[str, ...]): what they may do, as agents see it.
        signs (bool): whether ``client`` can sign what changes something, or need not.
        client (Client): asks the fleet as them.
    """

    name: str
    roles: tuple[str, ...]
    signs: bool
    client: Client

    def may(self, role: str) -> bool:
        """Whether the page offers what needs the role; an agent decides by itself."""
        return role in self.roles or "admin" in self.roles


class Host(Protocol):
    """What serves the page."""

    @property
    def compare(self) -> Compare | None:
        """None: there is no Spark here."""

    async def visitor(self, token: str) -> Visitor:
        """Whom a token lets in, now; it is asked for each request. Raises ``UserError`` where it is none, and
        ``ElfError`` where nobody answers for the fleet."""

    def ended(self, token: str) -> str:
        """Why a token holds no more, for what goes on for long; empty: it does."""
