"""How one job is changed: by a statement, by a function that fails, or because the catalog log has refused a
version; and who waits for that, and hears how it has ended.

A change needs a PREPARE, or is done at once (PAUSE, EMPTY). A change with a PREPARE ends later than it was
asked for (``elf.job.group.master.Change``). Nobody hears anything about a replicated job before its group has
committed the last record of its versions.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from elf.errors import UserError
from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.readers import is_read
from elf.job.effects import Effect, SaveJob, Send, TryFunctions
from elf.job.events import WindowsCommitted
from elf.job.group.master import Change, Master
from elf.job.messages.groups import CreateJob, FunctionFailed, ReconfigureJob
from elf.job.spec import START_OF_TIME, Flow, JobSpec, flow_topic, flow_uid, range_topic, topics_of
from elf.job.tables import why_unfit
from elf.job.units import unit_end_us
from elf.ql.definition import Definition
from elf.security.authored import Authorship
from elf.wire.base import Answer
from elf.wire.clients import ONE_SHOT_PREFIX

UNITS_TOLD_MS: Final = 6_000
"""Who has waited for as long is told why: before the asker stops waiting."""


class Reconfiguration:
    """The changes of the job of a ``master`` at ``address``. ``creator``: who waits for the job itself."""

    def __init__(
        self, address: str, log: CatalogLog, master: Master, creator: CreateJob | None = None
    ) -> None:
        self.creator = creator
        self._address = address
        self._log = log
        self._master = master
        self._ended: list[tuple[ReconfigureJob, str]] = []
        """How changes have ended, for their askers."""
        self._unsaved: SaveJob | None = None
        """The last record of its versions, while its group has not committed it."""

    # -- what it is to do ------------------------------------------------------------------------------------

    def to_try(self, request: ReconfigureJob) -> TryFunctions | None:
        """What to try before a statement is carried out: a reduce or a final function, on what the job has
        made so far. Raises ``UserError``."""
        definition, authors, scale = request.definition, request.authors, request.scale
        if request.verb == "rollback":
            back = self._back_to(request.version)
            definition, authors, scale = back.definition, back.authors, back.scale
        plan = None if definition is None else definition.plan
        if definition is None or plan is None or (plan.final is None and plan.fragment.reduce is None):
            return None
        wanted = replace(self._master.next_spec(definition), authors=authors, scale=scale)
        self._must_be_signed(wanted)
        self._log.authors.trying(wanted)
        alike = replace(plan.fragment, reduce=None)
        flows = self._master.spec.flows
        same = [f for f in flows if replace(f.fragment, reduce=None, range=(0, 1)) == alike]
        return TryFunctions(request, plan, tuple(flow.uid for flow in same))

    def reconfigure(self, request: ReconfigureJob, now_ms: int) -> list[Effect]:
        """Carry out a statement. Raises ``UserError``."""
        master, readers = self._master, self._log.read_by(request.uid)
        if readers and request.verb not in ("pause", "resume"):
            raise UserError(is_read(master.spec.name, readers))
        match request.verb:
            case "pause":
                return self._done(request, master.pause())
            case "empty":
                return self._done(request, master.empty()[1])
            case "resume":
                return self._prepared(
                    request, master.resume(self._next(master.spec.definition.from_now()), now_ms)
                )
            case _:
                if request.verb == "alter" and request.version not in (0, master.spec.version):
                    raise UserError("it has changed meanwhile")
                if request.definition is None:
                    spec = self._like(self._back_to(request.version))
                else:
                    spec = self._next(request.definition, request.roots, request.authors)
                    spec = replace(spec, scale=request.scale)
                reset, at_once, before = request.reset, request.immediately, master.change
                if why := why_unfit(self._log.outputs(spec.uid), master.spec.plan, spec.plan):
                    raise UserError(why)
                self._must_be_signed(spec)
                found = master.alter(
                    spec,
                    request.note,
                    now_ms,
                    reset=reset,
                    immediately=at_once,
                    by_itself=request.by_itself,
                )
                self._end(before)
                return self._prepared(request, found)

    def _back_to(self, number: int) -> JobSpec:
        """What a version did, from now on, and the statements behind it. Raises ``UserError``."""
        spec = self._master.spec_of(number)
        return replace(spec, definition=spec.definition.from_now())

    def _like(self, back: JobSpec) -> JobSpec:
        """The next version, which does what one did."""
        return replace(self._next(back.definition, authors=back.authors), scale=back.scale)

    def _must_be_signed(self, spec: JobSpec) -> None:
        """Raises ``UserError``, as the catalog log would refuse it."""
        if why := self._log.refused(spec):
            raise UserError(f"refused: {why}")

    def _done(self, request: ReconfigureJob, found: list[Effect]) -> list[Effect]:
        """What is asked for has happened."""
        self._ended.append((request, ""))
        return self._saving(found)

    def _prepared(self, request: ReconfigureJob, found: list[Effect]) -> list[Effect]:
        """What is asked for is under way."""
        if self._master.change is not None:
            self._master.change.asker = request
        return self._saving(found)

    def final_failed(self, event: WindowsCommitted, now_ms: int) -> list[Effect]:
        """The final function of a version has failed on windows, which are committed without it: the job goes
        on with the same query and no final function, from the first window that is not made yet. While
        another change is under way nothing is done: each window that it fails on reports it again."""
        master, current = self._master, self._master.current
        same = current.number == event.done.spec.version
        if master.state != "active" or not same or current.spec.plan.final is None:
            return []
        spec = self._next(current.spec.definition.without("final"), authors=current.spec.authors)
        note = f"dropped its final function by itself: {event.failure}"
        return self._saving(master.alter(spec, note, now_ms, by_ends=True, by_itself=True))

    def worked_out(self, definition: Definition, note: str, now_ms: int) -> list[Effect]:
        """The same query with other settings, from the first window that is not made yet; not while another
        change is under way, nor where other jobs read it."""
        master, current = self._master, self._master.current
        if master.state != "active" or self._log.read_by(master.spec.uid):
            return []
        spec = self._next(definition, authors=current.spec.authors)
        return self._saving(master.alter(spec, note, now_ms, by_ends=True, by_itself=True))

    def function_failed(self, word: FunctionFailed, now_ms: int) -> list[Effect]:
        """A user's function has failed at a member: the job is not created, the version never begins, or the
        job returns to the last version without it, unless other jobs read it."""
        master, why = self._master, f"{word.text} on agent {word.agent}"
        if master.state == "preparing":
            way = "" if self.goes_when_it_fails else f"; DROP JOB {master.spec.name} takes it away"
            return self.not_created(f"job {master.spec.name} is not created: {why}{way}")
        back = master.before_failure(word.flow)
        if back is None or self._log.read_by(master.spec.uid):
            return self._saving(master.function_failed(word.flow, why))
        note = f"rolled back by itself to what version {back} did: {why}"
        spec = self._like(self._back_to(back))
        return self._saving(master.alter(spec, note, now_ms, reset=True, by_itself=True))

    @property
    def goes_when_it_fails(self) -> bool:
        """Whether a job that cannot begin is dropped by itself: with keys somebody has to sign that."""
        return self._log.trust is None or self._master.spec.name.startswith(ONE_SHOT_PREFIX)

    def refused(self) -> list[Effect]:
        """The catalog log has grown; it may have refused the version that is being prepared."""
        return self._saving(self._master.refused(self._log))

    def advance(self, now_ms: int) -> list[Effect]:
        """The next effects of the master."""
        return self._saving(self._master.advance(now_ms))

    def _next(
        self,
        definition: Definition,
        roots: tuple[str, ...] = (),
        authors: tuple[Authorship, ...] | None = None,
    ) -> JobSpec:
        """The next version, with the flows that it proposes: the present ones where they are equal.
        ``authors``: the statements behind it; None: those behind the newest one."""
        master = self._master
        spec = replace(master.next_spec(definition), master=self._address)
        spec = spec if authors is None else replace(spec, authors=authors)
        spec = replace(spec, roots=roots or spec.roots)
        mine = {
            flow.topic[:12]
            for version in master.versions
            for flow in version.spec.flows
            if flow.leader == self._address
        }
        keys = topics_of(spec.name, spec.creator)
        key = next((key for key in keys if key[:12] in mine), keys[0])
        running = {flow.fragment: flow for flow in master.spec.flows if self._log.flow(flow.uid) is not None}
        return spec.with_flows(running.get(f.fragment, f) for f in proposed(spec, key, self._address))

    # -- what its group has committed ------------------------------------------------------------------------

    @property
    def durable(self) -> bool:
        """Whether nothing of the job waits for its group."""
        return self._unsaved is None

    def _saving(self, effects: list[Effect]) -> list[Effect]:
        """The group of a replicated job is to commit what these effects say of it."""
        if self._master.spec.replicated:
            self._unsaved = next((e for e in reversed(effects) if isinstance(e, SaveJob)), self._unsaved)
        return effects

    def saved(self, job: SaveJob) -> bool:
        """The group has committed a record; whether it is the last one."""
        if self._unsaved != job:
            return False
        self._unsaved = None
        return True

    # -- who waits -------------------------------------------------------------------------------------------

    def _end(self, change: Change | None) -> None:
        """The asker of a change that has ended by now is to hear of it."""
        if change is None or change.asker is None or change.outcome is None:
            return
        error = f"nothing is changed: {change.outcome}" if change.outcome else ""
        self._ended.insert(0, (change.asker, error))
        change.asker = None

    def take_answers(self) -> list[tuple[ReconfigureJob | CreateJob, str]]:
        """Those who can be told by now, each with its error."""
        self._end(self._master.change)
        if not self.durable:
            return []
        found: list[tuple[ReconfigureJob | CreateJob, str]] = [*self._ended]
        self._ended.clear()
        if self.creator is not None and self._master.state != "preparing":
            found.append((self.creator, ""))
            self.creator = None
        return found

    def moved(self) -> list[Effect]:
        """Tell those who wait that another agent may or may not go on with it."""
        name, change = self._master.spec.name, self._master.change
        asker = change.asker if change is not None else None
        waiting = (*(request for request, _ in self._ended), asker, self.creator)
        error = f"the master of job {name} moved meanwhile; DESCRIBE {name} says what has become of that"
        return [Send(one.origin, Answer(id=one.id, error=error)) for one in waiting if one is not None]

    def tell_of_units(self, now_ms: int) -> list[Effect]:
        """A version that waits for the end of a unit (protocol 6.10) may begin after those who asked for it
        have stopped waiting: they hear when it does."""
        pending, name = self._master.pending, self._master.spec.name
        waits = pending.version.waits_for_roots() if pending is not None else []
        if pending is None or not waits or not self.durable or now_ms - pending.since_ms < UNITS_TOLD_MS:
            return []
        begun = [flow for flow in waits if flow.durable_to() > START_OF_TIME]
        at_us = max((unit_end_us(self._log, flow.flow, flow.durable_to()) for flow in begun), default=None)
        why = "when panes that its flow merges for the windows of other jobs end"
        if at_us is not None:  # else no pane has come yet
            at = datetime.fromtimestamp(at_us // 1_000_000, UTC)
            why = f"{why}, at {at:%H:%M:%S} UTC or soon after"
        if self._master.state == "preparing":
            return self.not_created(f"job {name} is created, and begins {why} (or DROP JOB {name})")
        request, pending.asker = pending.asker, None
        error = f"version {pending.version.number} of job {name} begins {why}; until then nothing is changed"
        return [Send(request.origin, Answer(id=request.id, error=error))] if request is not None else []

    def not_created(self, error: str) -> list[Effect]:
        """The job will not be created: answer the creator, if it still waits."""
        request, self.creator = self.creator, None
        return [Send(request.origin, Answer(id=request.id, error=error))] if request is not None else []


def proposed(spec: JobSpec, key: bytes, address: str) -> tuple[Flow, ...]:
    """Flows for the fragments of a version, with their roots at ``address``, the place of ``key``, or where
    the key range of a fragment has its own job group."""
    found = []
    for n, fragment in enumerate(spec.plan.fragments):
        uid = flow_uid(fragment, f"{spec.uid}.{spec.version}.{n}")
        place, near, root = fragment.range[0], key, address
        if 0 < place <= len(spec.roots):
            near, root = range_topic(spec.name, spec.creator, place), spec.roots[place - 1]
        found.append(Flow(uid, fragment, flow_topic(near, uid), root))
    return tuple(found)
