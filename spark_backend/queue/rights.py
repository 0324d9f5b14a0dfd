"""Who may put what into a queue: roles as in the fleet, and quotas of each person.

An *open* queue takes everybody who may write to its folder at their word, as an open fleet does: a run
belongs to whom its command names. A queue that is *signed* takes only what a person of one cluster has signed
with their key, and has the role for: then it does not matter who may write to the folder. The daemon checks
each signature when it begins a run, also one that a schedule has made; a certificate that has expired, or was
revoked as the daemon's own keys know, ends that. ``write`` is needed for a run, ``tap`` for raw lines,
``code`` for aggregates of one's own, ``read`` for a check. Owners and admins alone change a run.

What is signed is a digest of all that was asked for (``elf.security.authorship``). A signature does not
expire before the daemon has seen it: it may be down meanwhile. A run that is put in again is what its owner
has asked for, under the same name. A change is signed for one run and not for one time: who may write to the
folder can put an owner's ``suspend`` back after the ``resume``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from elf.errors import UserError
from elf.security.authored import Authorship, digests_of
from elf.security.authorship import author, refusal
from elf.security.certificates import Certificate, Signed
from elf.security.folder import Keys
from elf.security.roles import RAW_COLUMN, Role
from elf.security.roster import Roster
from spark_backend.queue.schedules import Schedule, Schedules
from spark_backend.queue.store import Run, Spec, Store

_SIGNED: Final = "signed"
_QUOTAS: Final = "quotas"


class Quotas(msgspec.Struct, frozen=True):
    """Of one person; 0: as much as they like.

    Attributes:
        runs (int): that are not over.
        production (int): of these, production runs.
        bytes (int): of the files that come with a run.

    Example:
        >>> Quotas.of(["runs=20", "production=2"])
        Quotas(runs=20, production=2, bytes=0)
    """

    runs: int = 0
    production: int = 0
    bytes: int = 0

    @classmethod
    def of(cls, given: Iterable[str]) -> Quotas:
        """Of ``--quota NAME=NUMBER``. Raises ``UserError``."""
        found: dict[str, int] = {}
        for text in given:
            name, equals, number = text.partition("=")
            if name not in cls.__struct_fields__ or not equals or not number.isdigit():
                names = ", ".join(cls.__struct_fields__)
                raise UserError(f"--quota {text}: say NAME=NUMBER, where NAME is one of {names}")
            found[name] = int(number)
        return cls(**found)

    def refused(self, owner: str, spec: Spec, production: bool, waiting: Sequence[Run]) -> str:
        """Why a run is too much beside those that are not over; empty: it is not."""
        own = [run for run in waiting if run.owner == owner]
        first = sum(run.production for run in own)
        brought = sum(map(len, spec.tables.values())) + sum(map(len, spec.texts.values()))
        if self.runs and len(own) >= self.runs:
            return f"{owner} has {len(own)} runs in the queue, the most of one person (--quota runs)"
        if self.production and production and first >= self.production:
            return f"{owner} has {first} production runs, the most of one person (--quota production)"
        if self.bytes and brought > self.bytes:
            return f"{brought:,} bytes come with the run, {self.bytes:,} are the most (--quota bytes)"
        return ""


class _Said(msgspec.Struct, frozen=True, array_like=True):
    """A signature, and the certificate of whose it is."""

    authorship: Authorship
    certificate: Signed


@dataclass(frozen=True)
class Author:
    """Who gives a command to a queue.

    Attributes:
        name (str): the owner of what they submit.
        keys (Keys | None): theirs, for a queue that is signed.

    Example:
        >>> Author("ada").say("cancel", 7)
        b''
    """

    name: str
    keys: Keys | None = None

    def say(self, what: str, *values: object) -> bytes:
        """The signature under something; empty without keys."""
        if self.keys is None:
            return b""
        cluster = self.keys.identity.cluster
        digests = _digests(values)
        authored = author(self.keys.pair, cluster, what, digests, 0)
        said = _Said(Authorship(what, digests, authored), self.keys.identity.certificate)
        return msgspec.msgpack.encode(said)


def _digests(values: Sequence[object]) -> tuple[tuple[str, bytes], ...]:
    return digests_of([("values", msgspec.msgpack.encode(values))])


def signed_run(
    name: str, spec: Spec, out: str, production: bool, deadline_ms: int | None
) -> tuple[object, ...]:
    """What the owner of a run signs."""
    return (name, spec, out, production, deadline_ms)


def terms(schedule: Schedule) -> tuple[object, ...]:
    """What the owner of a schedule signs."""
    when = schedule.cron, schedule.zone, schedule.late_ms
    return (schedule.name, *when, schedule.asked, schedule.out, schedule.production, schedule.deadline_ms)


def roles_of(text: str, texts: Iterable[str], check: bool) -> list[Role]:
    """What is needed to have a run."""
    found: list[Role] = ["write", "read"]
    if not check and RAW_COLUMN in text.lower():
        found.append("tap")
    return [*found, "code"] if texts else found


class Rights:
    """What a queue lets people do. Commands ask it first, and the daemon again.

    Args:
        store (Store): the queue.
        quotas (Quotas): of each person.
        roster (Roster | None): whose signatures count; None: the queue is open.

    Example:
        >>> Rights.of(store).signed
        ''
    """

    def __init__(self, store: Store, quotas: Quotas, signed: str = "", roster: Roster | None = None) -> None:
        self._store, self.quotas, self.signed, self._roster = store, quotas, signed, roster

    @classmethod
    def of(cls, store: Store) -> Rights:
        """As the last daemon has set them; without a roster: who is who, the daemon says."""
        signed, quotas = store.setting(_SIGNED), store.setting(_QUOTAS)
        return cls(store, msgspec.json.decode(quotas, type=Quotas) if quotas else Quotas(), signed)

    @classmethod
    def fix(cls, store: Store, quotas: Quotas, keys: Keys | None) -> Rights:
        """From now on. ``keys``: those of a member of the cluster whose persons may use the queue."""
        signed = "" if keys is None else keys.identity.cluster
        store.settle({_SIGNED: signed, _QUOTAS: msgspec.json.encode(quotas).decode()})
        return cls(store, quotas, signed, None if keys is None else keys.roster())

    # -- for commands ----------------------------------------------------------------------------------------

    def check_author(self, by: Author, roles: Iterable[Role]) -> None:
        """Raises ``UserError`` for somebody who may not."""
        if not self.signed:
            return
        if by.keys is None:
            raise UserError(
                f"the queue takes what persons of cluster {self.signed} have signed: --keys names the folder "
                "of your keys (elf keys enrol)"
            )
        its = by.keys.certificate
        if by.keys.identity.cluster != self.signed or its.kind != "person":
            raise UserError(
                f"these are the keys of the {its.kind} {its.name} of cluster {its.cluster}, and the queue "
                f"takes what persons of cluster {self.signed} have signed"
            )
        lacks = next((role for role in roles if not its.may(role)), None)
        if lacks is not None:
            has = ", ".join(its.roles) or "none"
            raise UserError(f"that needs the role {lacks}, which {its.name} does not have (roles: {has})")

    def check_owner(self, by: Author, what: str, owner: str, whose: str) -> None:
        """Raises ``UserError`` for somebody who may not change what is another's."""
        self.check_author(by, ["write"])
        if by.name == owner or self._is_admin(by):
            return
        raise UserError(f"{whose} is of {owner}: only its owner, or who serves the queue, may {what} it")

    def _is_admin(self, by: Author) -> bool:
        if by.keys is not None:
            return by.keys.certificate.may("admin")
        return self._store.folder.stat().st_uid == os.getuid()

    # -- for the daemon --------------------------------------------------------------------------------------

    def refused(self, run: Run, spec: Spec, now_s: float, *, begun: bool = False) -> str:
        """Why a run must not begin, or go on where it has ``begun``; empty: it may. Raises ``UserError``
        where its schedule is not there."""
        if not begun and (run.schedule or self.signed):  # others were counted by who submitted them
            ahead = [one for one in self._store.runs(over=False) if one.number < run.number]
            if why := self.quotas.refused(run.owner, spec, run.production, ahead):
                return why
        if not self.signed:
            return ""
        roles = roles_of(spec.text, spec.texts, spec.check is not None)
        if not run.schedule:
            whole = signed_run(run.name, spec, run.out, run.production, run.deadline_ms)
            return self._refused(run.said, "submit", whole, run.owner, roles, now_s)
        schedule = Schedules(self._store).named(run.schedule)
        if why := self._refused(run.said, "schedule", terms(schedule), run.owner, roles, now_s):
            return why
        return "" if schedule.makes(run, spec) else f"it is not what schedule {schedule.name} asks for"

    def refused_schedule(self, schedule: Schedule, now_s: float) -> str:
        """Why a schedule must not make a run; empty: it may."""
        if not self.signed:
            return ""
        asked = schedule.asked
        roles = roles_of(asked.text, asked.texts, bool(asked.job))
        return self._refused(schedule.said, "schedule", terms(schedule), schedule.owner, roles, now_s)

    def refused_change(self, run: Run, now_s: float) -> str:
        """Why what a run is asked to do must not be done; empty: it may."""
        if not self.signed:
            return ""
        return self._refused(run.asked_said, run.asked, (run.number, run.name), run.owner, ["write"], now_s)

    def _refused(
        self,
        said: bytes,
        what: str,
        values: Sequence[object],
        owner: str,
        roles: Iterable[Role],
        now_s: float,
    ) -> str:
        try:
            found = msgspec.msgpack.decode(said, type=_Said)
            certificate = found.certificate.opened()
        except (msgspec.MsgspecError, UserError):
            return f"no person of cluster {self.signed} has signed it"
        roster = self._roster
        if roster is None or not isinstance(certificate, Certificate):
            return "its signature is of nobody who is enrolled"
        if not roster.has(found.certificate) and (why := roster.take(found.certificate)):
            return why
        if not certificate.valid(now_s):
            return f"the certificate of {certificate.name} has expired"
        if (found.authorship.text, found.authorship.digests) != (what, _digests(values)):
            return "its signature is of something else"
        return refusal(roster, found.authorship, owner, roles)
