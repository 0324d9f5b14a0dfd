"""What goes out as one, with what tells it from every other: a window's rows, or what an alert says of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from typing import Final

import msgspec

from agents.committing.windowcommits import window_result
from agents.outputs.alerting import Alarm, alarms
from elf.client.values import json_rows, rfc3339
from elf.client.windows import Window, split
from elf.errors import UserError
from elf.job.alerts import interrupted, kept, remembered
from elf.job.commits import WindowCommit
from elf.job.effects import Deliver
from elf.job.output import OutputKept, OutputSpec
from elf.ql.plan import Plan

_json: Final = msgspec.json.Encoder(decimal_format="number").encode


class Refused(UserError):
    """A target has taken what it takes of a result, and wants the rest never again."""


Rank = tuple[int, int, int, int]


@dataclass(frozen=True)
class Parcel:
    """A window of a job. ``number``: of the result that it is in."""

    output: OutputSpec
    number: int
    window: Window

    @property
    def span(self) -> tuple[datetime | None, datetime | None]:
        return self.window.start, self.window.end

    @property
    def rank(self) -> Rank:
        """Of two parcels for one place and span, the one with the higher rank counts: the generation of the
        output, which may have been of another job before, that of the job, the version, and the revision."""
        generation = int(self.window.job.rpartition(".")[2])
        return self.output.generation, generation, self.window.version, self.window.revision

    @property
    def place(self) -> str:
        """What it is of: of all with the same place one counts."""
        start, end = (int(at.timestamp() * 1_000_000) if at is not None else "" for at in self.span)
        return f"{self.output.name}:{start}:{end}"

    @property
    def key(self) -> str:
        """Two with the same key are the same."""
        window = self.window
        return f"{self.output.uid}:{window.job}:{self.place}:{window.version}:{window.revision}"

    @property
    def facts(self) -> dict[str, object]:
        """Which window it is, as JSON says that."""
        window = self.window
        return {
            "job": window.name,
            "job_uid": window.job,
            "version": window.version,
            "window_start": window.start and rfc3339(window.start),
            "window_end": window.end and rfc3339(window.end),
            "revision": window.revision,
        }

    @cached_property
    def json(self) -> bytes:
        """For a program elsewhere: one object."""
        window = self.window
        told = {
            "kind": "window",
            "output": self.output.name,
            **self.facts,
            "number": self.number,
            "status": window.status,
            "rows": msgspec.Raw(f"[{','.join(json_rows(window.table))}]".encode()),
        }
        return _json(told)


@dataclass(frozen=True)
class Notice(Parcel):
    """What an alert says: that it fires, is quiet, or cannot know."""

    alarm: Alarm

    @property
    def key(self) -> str:
        return f"{self.output.uid}:{self.alarm.transition.number}"

    @cached_property
    def json(self) -> bytes:
        change, alert = self.alarm.transition, self.output.alert
        assert alert is not None
        told = {
            "kind": "alert",
            "alert": self.output.name,
            "number": change.number,
            "state": change.state,
            "was": change.was,
            "text": self._text,
            **self.facts,
            "when": alert.when,
            "by": alert.by,
            "windows": alert.windows,
            "coverage": alert.coverage,
            "firing": change.firing,
            "began": change.began,
            "ended": change.ended,
            "more": change.window.more,
            "missing": change.missing,
            "rows": msgspec.Raw(f"[{','.join(self.alarm.rows)}]".encode()),
        }
        return _json(told)

    @property
    def _text(self) -> str:
        """For people, in a line."""
        change, name = self.alarm.transition, f"{self.output.name} (job {self.window.name})"
        if change.state == "unknown":
            return f"{name} cannot know: {', '.join(change.missing) or 'windows'} missing"
        if change.state == "quiet":
            return f"{name} is quiet"
        groups = ", ".join(group for group in change.firing if group != "{}")
        return f"{name} fires{f': {groups}' if groups else ''}"


def parcels(output: OutputSpec, job: str, row: WindowCommit, master: str) -> list[Parcel]:
    """The windows of one result of the job of that name."""
    return [Parcel(output, row.seq, window) for window in split(window_result(job, row, master))]


def said(effect: Deliver, row: WindowCommit, master: str, got: OutputKept) -> tuple[list[Parcel], bytes]:
    """What goes out of one result, and what the output remembers after it; ``got``: how far it had got."""
    output, found = effect.output, parcels(effect.output, effect.job.name, row, master)
    if output.alert is None:
        return found, got.state
    memory, windows = remembered(got.state), [parcel.window for parcel in found]
    if row.seq > got.number + 1:
        memory = interrupted(memory)
    memory, changes = alarms(output.alert, memory, partial(_plan, effect), windows)
    return [Notice(output, row.seq, one.window, one) for one in changes], kept(memory)


def _plan(effect: Deliver, version: int) -> Plan | None:
    """Of that version of the job, whichever is the newest now; None: nobody knows it any more. So whoever
    judges a window again judges it by the same plan."""
    for one in (effect.job, *effect.versions):
        if one.version == version:
            return one.plan
    if version > effect.job.version:
        raise UserError(f"version {version} of job {effect.job.name} is not known here yet")
    return None
