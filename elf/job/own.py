"""An aggregate of one's own as its creator sent it: an entry of the catalog log, which queries then name."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import msgspec

from elf.errors import UserError
from elf.fields import Code, Generation, Label, Name
from elf.job.spec import app_id
from elf.paos.texts import Signature, signature_of
from elf.ql.own import OwnAggregate, OwnName
from elf.security.authored import Authorship, Digest, digest

AGGREGATES_MAX: Final = 256
"""Of one creator."""


class OwnSpec(msgspec.Struct, frozen=True, array_like=True, dict=True):
    """``digest``: of the text; that is empty once nobody can call the aggregate any more, and the log knows
    all the same what was signed."""

    name: OwnName
    creator: Name
    generation: Generation
    text: Code
    filename: Label
    digest: Digest
    author: Authorship | None = None
    """The signed statement that it came of, where the fleet has keys."""

    @property
    def app(self) -> bytes:
        return own_app(self.name, self.creator)

    @property
    def uid(self) -> str:
        """DROP and CREATE under one name are different aggregates."""
        return f"{self.app.hex()}.{self.generation}"

    @property
    def own(self) -> OwnAggregate:
        """As queries name it."""
        return OwnAggregate(self.name, self.text, self.filename)

    @property
    def signature(self) -> Signature:
        """Raises ``UserError`` for a text that is no aggregate."""
        return signature_of(self.text, self.filename)

    @cached_property
    def unusable(self) -> str:
        """Why it is none; empty: it is one, or was."""
        if not self.text:
            return ""
        if digest(self.text) != self.digest:
            return "its text has another digest"
        try:
            _ = self.signature
        except UserError as error:
            return str(error)
        return ""

    @property
    def forgotten(self) -> OwnSpec:
        """What remains of it."""
        return msgspec.structs.replace(self, text="")


def own_app(name: str, creator: str) -> bytes:
    """What the uids of a creator's aggregates of one name begin with. No job has that name."""
    return app_id(f"aggregate {name}", creator)
