"""The master of a job, at the job group: the job's life, and which of its versions makes which windows.

    preparing --prepared--> active --alter--> altering --committed--> active
                                              altering --aborted--> active
    active, altering --pause--> paused --resume--> resuming --committed--> active
                                         resuming --aborted or pause--> paused
    any --drop--> dropped

PREPARE is an entry of the catalog log (protocol 6.1): ``JobAdded``, or ``VersionAdded``. It names the flows
that the new version reads, new or running ones; members install new ones beside the old. A new flow begins
after every member's ``live_from``; a running flow is read from where it is. COMMIT(P) is chosen here, once,
and stored before anybody hears of it (protocol 6.2). P is after the beginning of each flow, and after every
window start that the old version has committed. The old version makes its windows to their end
(``elf.job.group.versions``); then ``VersionEnded`` detaches it. A PREPARE that is not answered in
``PREPARE_LIMIT_MS`` is aborted: the job stays on its version. All of this is in the job's record, so a
restarted master, or another leader of the job group, goes on with what is pending.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from elf.errors import ElfBug, UserError
from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.readers import not_taken
from elf.job.effects import CommitWindows, Effect, SaveJob
from elf.job.group.versions import Version, is_kept
from elf.job.messages.groups import ReconfigureJob
from elf.job.messages.log import AddJob, AddVersion, EndVersion
from elf.job.rollup.panes import Panes, Segment
from elf.job.spec import END_OF_TIME, START_OF_TIME, JobSpec, VersionRecord
from elf.ql.definition import Definition

JobState = Literal["preparing", "active", "altering", "paused", "resuming", "dropped"]
JobEvent = Literal["prepared", "alter", "committed", "aborted", "pause", "resume", "empty", "drop"]

TRANSITIONS: Final[Mapping[tuple[JobState, JobEvent], JobState]] = {
    ("preparing", "prepared"): "active",
    ("active", "alter"): "altering",
    ("altering", "committed"): "active",
    ("altering", "aborted"): "active",
    ("active", "pause"): "paused",
    ("altering", "pause"): "paused",
    ("paused", "resume"): "resuming",
    ("resuming", "committed"): "active",
    ("resuming", "aborted"): "paused",
    ("resuming", "pause"): "paused",
    ("active", "empty"): "active",
    ("preparing", "drop"): "dropped",
    ("active", "drop"): "dropped",
    ("altering", "drop"): "dropped",
    ("paused", "drop"): "dropped",
    ("resuming", "drop"): "dropped",
}
"""The life of a job. A user's request that is not here is refused; anything else is a bug."""

REFUSALS: Final[Mapping[JobState, str]] = {
    "preparing": "it is still being prepared; try again in a moment",
    "active": "it runs: only a paused job can be resumed",
    "altering": "another change of it is under way; wait until that one is answered",
    "paused": "it is paused: RESUME JOB {name} first",
    "resuming": "it is being resumed; wait until that is answered",
}

PREPARE_LIMIT_MS: Final = 6_000
"""A new version that has not begun by then is aborted: before the asker stops waiting."""
VERSIONS_KEPT: Final = 20
"""So many versions of a job its record names, and the job can return to: the last ones that a person has
asked for, and the last of all."""
VERSIONS_LAST: Final = 5
"""The last versions are named whoever has asked for them: the present one, and what led to it."""


@dataclass
class Change:
    """One change of a job, from PREPARE to COMMIT or ABORT: the version that is prepared, and since when.
    ``asker``: who waits for its end; nobody does when the job changes by itself, or begins."""

    version: Version
    since_ms: int
    asker: ReconfigureJob | None = None
    outcome: str | None = None
    """How it has ended: empty when it was committed, else why it was aborted. None: it has not ended."""


class Master:
    """One job at its job group. ``assembled``: for each version, the end of its stored windows. ``change``:
    the change that is under way, or the last one."""

    def __init__(
        self,
        versions: Sequence[VersionRecord],
        *,
        state: JobState = "preparing",
        assembled: Mapping[int, int] | None = None,
        now_ms: int = 0,
    ) -> None:
        self.state: JobState = state
        self.versions = [Version(r, (assembled or {}).get(r.spec.version)) for r in versions]
        preparing = [v for v in self.versions if v.record.state == "preparing"]
        self.change = Change(preparing[0], now_ms) if preparing else None

    @property
    def current(self) -> Version:
        """The newest committed version; the first one of a job that is being created."""
        made = [v for v in self.versions if v.record.state in ("committed", "finished")]
        return made[-1] if made else self.versions[0]

    @property
    def spec(self) -> JobSpec:
        return self.current.spec

    @property
    def first_pane(self) -> int | None:
        return self.current.first_pane

    @property
    def flows(self) -> tuple[Panes, ...]:
        """The flows of all versions, each once."""
        return tuple({flow.flow.uid: flow for v in self.versions for flow in v.flows}.values())

    def reads(self, uid: str) -> bool:
        """Whether one of its versions reads a flow."""
        return any(flow.flow.uid == uid for v in self.versions for flow in v.flows)

    @property
    def finished(self) -> bool:
        return self.current.last

    @property
    def is_changing(self) -> bool:
        """Whether a version is being prepared."""
        return self.state in ("preparing", "altering", "resuming")

    @property
    def pending(self) -> Change | None:
        """The change that is under way."""
        return self.change if self.change is not None and self.change.outcome is None else None

    def live(self) -> list[Version]:
        """Versions that read flows, or will."""
        return [v for v in self.versions if v.record.state in ("preparing", "committed")]

    def _move(self, event: JobEvent) -> None:
        after = TRANSITIONS.get((self.state, event))
        if after is None:
            raise ElfBug(f"job {self.spec.name}: {event} while {self.state}")
        self.state = after

    def _asked(self, event: JobEvent) -> None:
        """A person asks for this event. Raises ``UserError``."""
        if (self.state, event) not in TRANSITIONS:
            why = "it is paused already" if (self.state, event) == ("paused", "pause") else ""
            raise UserError(why or REFUSALS[self.state].format(name=self.spec.name))

    def _saved(self) -> SaveJob:
        older, last = self.versions[:-VERSIONS_LAST], self.versions[-VERSIONS_LAST:]
        older.sort(key=lambda v: (not v.record.by_itself, v.number))
        kept = [*older[-(VERSIONS_KEPT - VERSIONS_LAST) :], *last]
        self.versions = [v for v in self.versions if v in kept or v in self.live()]
        return SaveJob(self.spec, self.state, self.first_pane, tuple(v.record for v in self.versions))

    # -- what people ask -------------------------------------------------------------------------------------

    def next_spec(self, definition: Definition) -> JobSpec:
        """A new version, without its flows."""
        number = 1 + max(version.number for version in self.versions)
        return replace(self.spec, version=number, definition=definition, places=())

    def spec_of(self, number: int) -> JobSpec:
        """A version to return to. Raises ``UserError``."""
        made = {v.number: v for v in self.versions if v.record.state in ("committed", "finished")}
        if number not in made:
            known = ", ".join(map(str, made))
            raise UserError(f"there is no version {number} to go back to; versions: {known}")
        return made[number].spec

    def alter(
        self,
        spec: JobSpec,
        note: str,
        now_ms: int,
        *,
        reset: bool = False,
        immediately: bool = False,
        by_ends: bool = False,
        by_itself: bool = False,
    ) -> list[Effect]:
        """PREPARE a version, which proposes flows of its own. ``by_ends``: it has the same windows and flows,
        and makes all windows that are not made yet. ``by_itself``: no person asks for it; a version that is
        prepared by itself gives way to a person. Raises ``UserError``."""
        gives_way = self.state == "altering" and not by_itself and self._prepares_by_itself
        if not gives_way:
            self._asked("alter")
        old = self.current
        if spec.plan.does_as(old.spec.plan) and spec.scale == old.spec.scale:
            raise UserError(f"nothing changes: that is what version {old.number} does")
        kept, why = is_kept(old.spec.plan, spec.plan)
        if kept and why and not reset:
            raise UserError(f"{why}, which the new one can't go on with; say RESET to begin them anew")
        if gives_way:
            self._abort("somebody has asked for another change")
            self._move("aborted")
        self._move("alter")
        cut = START_OF_TIME if immediately or (kept and (reset or why)) else END_OF_TIME
        after = 0 if by_ends or (kept and not why and not reset) else None
        record = VersionRecord(spec, after_us=after, cut_us=cut, note=note, by_itself=by_itself)
        self._prepare(record, now_ms)
        return [self._saved()]

    @property
    def _prepares_by_itself(self) -> bool:
        return self.pending is not None and self.pending.version.record.by_itself

    def _prepare(self, record: VersionRecord, now_ms: int) -> None:
        """Until the version is committed, its record says by ``after_us`` that it is cut by ends, and by
        ``cut_us`` that what lies across P is skipped."""
        self.change = Change(Version(record), now_ms)
        self.versions.append(self.change.version)

    def pause(self) -> list[Effect]:
        """Make no more windows, except those that are being committed: ``advance`` finishes a version that
        owes some, whichever agent is the master then. Open windows never end. Raises ``UserError``."""
        self._asked("pause")
        self._move("pause")
        self._abort("the job was paused")
        for version in self.live():
            end_us = max(version.promised_us(), version.record.after_us or START_OF_TIME)
            version.change(ends_us=end_us, cut_us=END_OF_TIME)
            if not version.owes():
                version.change(state="finished")
                version.release()
        return [self._saved()]

    def resume(self, spec: JobSpec, now_ms: int) -> list[Effect]:
        """PREPARE a version like the last one. Raises ``UserError``."""
        self._asked("resume")
        self._move("resume")
        self._prepare(VersionRecord(spec, note="RESUME"), now_ms)
        return [self._saved()]

    def empty(self) -> tuple[int, list[Effect]]:
        """Landmark windows begin again; returns (when, effects). Raises ``UserError``."""
        self._asked("empty")
        if not any(type(kind).__name__ == "Landmark" for kind in self.spec.plan.windows):
            raise UserError("it has no landmark windows: there is nothing to empty")
        at_us = self.current.empty()
        return at_us, [self._saved()]

    def drop(self) -> list[Effect]:
        if self.state == "dropped":
            return []
        self._move("drop")
        return [self._saved()]

    # -- its life --------------------------------------------------------------------------------------------

    def detach(self) -> None:
        """The panes will come from elsewhere: no version reads anything until ``attach``."""
        for version in self.versions:
            version.release()

    def proposals(self, log: CatalogLog) -> list[AddJob | AddVersion | EndVersion]:
        """What the catalog log must say of the job and does not say yet."""
        uid = self.spec.uid
        if log.job(uid) is None:
            return [AddJob(spec=self.versions[0].spec)]
        found: list[AddJob | AddVersion | EndVersion] = []
        for version in self.versions:
            over = version.record.state in ("finished", "aborted")
            if over and not log.is_over(uid, version.number):
                found.append(EndVersion(uid=uid, version=version.number))
            elif not over and log.version(uid, version.number) is None:
                found.append(AddVersion(spec=version.spec))
        return found

    def attach(
        self, version: Version, spec: JobSpec, flows: Sequence[Panes], joined: Sequence[int] = ()
    ) -> list[Effect]:
        """The catalog log has a version: these are the flows that it reads."""
        version.attach(spec, flows, self.current if version is not self.current else None, joined)
        return self.assemble()

    def advance(self, now_ms: int) -> list[Effect]:
        """Choose P when all flows of a version have begun, or abort it; end versions that are done."""
        found: list[Effect] = []
        pending = self.pending
        begun = pending.version.begun() if pending is not None else None
        if pending is not None and begun is not None:
            self._commit(pending, begun)
            found.append(self._saved())
        elif (
            pending is not None
            and self.state != "preparing"
            and not pending.version.waits_for_roots()
            and now_ms - pending.since_ms >= PREPARE_LIMIT_MS
        ):
            found.extend(self.abort(_silence(pending.version)))
        done = [v for v in self.live() if v.record.state == "committed" and v.ended()]
        for version in done:
            version.change(state="finished")
            current = set() if self.state == "paused" else {flow.flow.uid for flow in self.current.flows}
            if not {flow.flow.uid for flow in version.flows} <= current:
                version.release()
        if done:
            found.append(self._saved())
        return [*found, *self.assemble()] if found else []

    def _commit(self, change: Change, begun: int) -> None:
        """COMMIT(P)."""
        if self.state == "preparing":
            self._move("prepared")
            self._begin(change.version, begun)
        else:
            self._replace(self.current, change.version, begun)
            self._move("committed")
        change.outcome = ""

    def _replace(self, old: Version, new: Version, begun: int) -> None:
        pane_us, grain_us, proposal = new.spec.plan.fragment.pane_us, new.spec.plan.grain_us, new.record
        at_us = max(begun * pane_us, old.promised_us())
        at_us = -(-at_us // grain_us) * grain_us
        if proposal.after_us is not None:
            new.change(
                state="committed",
                first_pane=old.first_pane,
                after_us=at_us,
                landmarks=old.record.landmarks,
                cut_us=END_OF_TIME,
            )
            self._renew(new)
        else:
            self._begin(new, at_us // pane_us)
        if old.record.ends_us < END_OF_TIME:  # it was paused
            return
        if proposal.after_us is not None:
            old.change(ends_us=at_us)
            return
        ends_us = old.calendar().last_started(at_us)
        cut_us = at_us if proposal.cut_us < END_OF_TIME else END_OF_TIME
        if old.failed:
            cut_us = old.promised_us()
        old.change(until_us=at_us, ends_us=ends_us, cut_us=cut_us)

    def _begin(self, new: Version, pane: int) -> None:
        """The windows of a version start at this pane or later; another job's landmark windows end after
        it."""
        plan = new.spec.plan
        if plan.since is None:
            new.change(state="committed", first_pane=pane, cut_us=END_OF_TIME)
            return
        landmark_us, over_us = plan.since
        pane_us = plan.fragment.pane_us
        new.change(
            state="committed",
            first_pane=landmark_us // pane_us,
            after_us=max(over_us, pane * pane_us),
            landmarks=(landmark_us,),
            cut_us=END_OF_TIME,
        )
        self._renew(new)

    def _renew(self, version: Version) -> None:
        """Make a version again from its record, as after a restart."""
        fresh = Version(version.record)
        fresh.attach(version.spec, version.flows, None)
        self.versions[self.versions.index(version)] = fresh

    def before_failure(self, uid: str) -> int | None:
        """The version to return to when the function of a flow has failed in windows that are made already;
        None when there is none, or nothing to return from."""
        bad = [f.flow.fragment for f in self.current.flows if f.flow.uid == uid]
        if not bad or self.state != "active":
            return None
        made = [v for v in self.versions if v.record.state in ("committed", "finished")]
        good = [v.number for v in made if bad[0] not in v.spec.plan.fragments]
        return good[-1] if good else None

    def function_failed(self, uid: str, why: str) -> list[Effect]:
        """A function has failed before COMMIT: the version that is being prepared never begins."""
        pending, made = self.pending, {flow.flow.uid for flow in self.current.flows}
        if pending is None or uid in made or all(f.flow.uid != uid for f in pending.version.flows):
            return []
        return self.abort(why)

    def refused(self, log: CatalogLog) -> list[Effect]:
        """The catalog log says that a version which is being prepared is over: it never begins."""
        if self.pending is None or self.state == "preparing":
            return []
        spec = self.pending.version.spec
        if not log.is_over(spec.uid, spec.version):
            return []
        return self.abort(not_taken(log, spec) or "what it reads, or who reads it, changed meanwhile")

    def abort(self, why: str) -> list[Effect]:
        """Give up the version that is being prepared: the job stays as it was."""
        if not self._abort(why):
            return []
        self._move("aborted")
        return [self._saved()]

    def _abort(self, why: str) -> bool:
        pending = self.pending
        if pending is not None:
            version, pending.outcome = pending.version, why
            version.change(state="aborted", note=f"{version.record.note}; aborted: {why}")
            version.release()
        return pending is not None

    # -- panes and windows -----------------------------------------------------------------------------------

    def committed_to(self) -> int:
        """Panes below this one are committed in every flow of the current version."""
        return self.current.committed_to()

    def assembled_us(self) -> int | None:
        """Windows that end by here are committed; None when none is."""
        return self.current.assembled_us()

    def begins_us(self) -> int | None:
        """Where the job began: its windows start here or later, whichever version makes them; None while it
        has not begun."""
        begun = [(v.first_pane, v.spec.plan.fragment.pane_us) for v in self.versions]
        return min((pane * pane_us for pane, pane_us in begun if pane is not None), default=None)

    def panes_committed(self, uid: str, segment: Segment) -> list[Effect]:
        """Panes of a flow are committed or revised."""
        readers = [v for v in self.versions if any(flow.flow.uid == uid for flow in v.flows)]
        return [effect for version in readers for effect in version.panes_committed(segment)]

    def completed(self, panes: Panes) -> list[CommitWindows]:
        """Windows that are complete with panes that are about to be committed, in flight from now on."""
        found = [version.completed(panes) for version in self.versions]
        return [work for work in found if work is not None]

    def wanted_from(self, uid: str, settled: int) -> int:
        """The first pane of a flow that the job may yet want, if nothing below ``settled`` can change."""
        readers = [v for v in self.versions if any(flow.flow.uid == uid for flow in v.flows)]
        return min((v.wanted_from(settled) for v in readers if not v.failed), default=settled)

    def assemble(self) -> list[Effect]:
        if self.state == "dropped":
            return []
        return [effect for version in self.versions for effect in version.assemble()]

    def windows_committed(self, done: CommitWindows) -> list[Effect]:
        """A range of windows of a version is durable."""
        version = self._version(done.spec.version)
        return [] if version is None else version.windows_committed(done)

    def panes_gone(self, work: CommitWindows) -> None:
        """What was in flight came to nothing: its panes are elsewhere."""
        version = self._version(work.spec.version)
        if version is not None:
            version.panes_gone(work)

    def window_failed(self, number: int) -> None:
        """A window of a version cannot be finished: the version makes no more."""
        version = self._version(number)
        if version is not None:
            version.window_failed()

    def _version(self, number: int) -> Version | None:
        return next((v for v in self.versions if v.number == number), None)


def _silence(pending: Version) -> str:
    """Why a version has not begun in time."""
    silent = [f.flow.leader for f in pending.flows if f.first_pane is None]
    what = f"the root of its flow, {silent[0]}, hears of no member" if silent else "the catalog log is away"
    return f"nobody answered in {PREPARE_LIMIT_MS // 1000} s ({what})"
