"""An agent as the host of the page (``elf.page.visitors``): whom a token lets in asks inside the agent, as
themselves.

Rules: what they may do the agent decides as over any connection of theirs. What changes something carries its
author's signature in a fleet with keys: nobody's key is here, so the page of an agent reads there, and
``elf ui`` changes. Files that a statement names are on its author's machine, and never read here.
"""

from __future__ import annotations

from agents.driver import Driver
from agents.inside import Inside
from agents.keyring import Keyring
from elf.client.client import Client, user_name
from elf.errors import UserError
from elf.page.visitors import Compare, Visitor
from elf.security.roles import ROLES


class PageHost:
    """Of one agent."""

    compare: Compare | None = None

    def __init__(self, driver: Driver, keyring: Keyring) -> None:
        self._driver = driver
        self._keyring = keyring

    async def visitor(self, token: str) -> Visitor:
        """See ``elf.page.visitors``."""
        who = self._keyring.visitor(token)
        is_person = who is not None and who.kind == "person"
        name = who.name if who is not None and is_person else user_name()
        roles = who.roles if who is not None else ROLES
        client = Client(Inside(self._driver, who, name), name, reads_files=False)
        return Visitor(name, roles, not is_person, client)

    def ended(self, token: str) -> str:
        """See ``elf.page.visitors``."""
        try:
            self._keyring.visitor(token)
        except UserError as error:
            return str(error)
        return ""
