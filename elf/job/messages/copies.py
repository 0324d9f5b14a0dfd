"""Owner, holder and root about copies of snapshots (``elf.job.rollup.copying``)."""

from __future__ import annotations

from elf.job.copies import Copy, CopyName
from elf.wire.base import Message


class KeepCopies(Message, frozen=True, kw_only=True):
    """Owner to holder: keep these until they have their answer."""

    copies: tuple[Copy, ...]


class CopiesKept(Message, frozen=True, kw_only=True):
    """Holder to owner: these are durable here; the ``refused`` ones will never be."""

    names: tuple[CopyName, ...]
    refused: tuple[CopyName, ...] = ()


class DropCopies(Message, frozen=True, kw_only=True):
    """Owner to holder: these have their answer."""

    names: tuple[CopyName, ...]


class OfferCopies(Message, frozen=True, kw_only=True):
    """Holder to root, of snapshots (first pane, end, part) of a member: what is to become of them?"""

    flow: str
    member: int
    names: tuple[tuple[int, int, int], ...]


class CopyVerdict(Message, frozen=True, kw_only=True):
    """Root's answer, as a ``Verdict`` on a member's own: ``included``, ``final`` and ``leapt`` mean forget
    it. ``send``: the owner is gone, and you are its proxy."""

    flow: str
    member: int
    start: int
    end: int
    verdict: str
    part: int = 0


COPY_MESSAGES = (KeepCopies, CopiesKept, DropCopies, OfferCopies, CopyVerdict)
CopyMessage = KeepCopies | CopiesKept | DropCopies | OfferCopies | CopyVerdict
