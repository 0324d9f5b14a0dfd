"""What is done to a master when a statement, or a function that fails, wants its job to be changed; and the
flows that a new version proposes.
"""

from __future__ import annotations

from dataclasses import replace

from elf.errors import UserError
from elf.job.effects import Effect, TryFunctions
from elf.job.home.master import Master
from elf.job.log.readers import is_read
from elf.job.log.streamlog import StreamLog
from elf.job.messages import FunctionFailed, SteerJob
from elf.job.spec import Flow, JobSpec, flow_topic, flow_uid, range_topic, topics_of
from elf.ql.plan import Plan


class Steering:
    """For the masters at ``address``."""

    def __init__(self, address: str, log: StreamLog) -> None:
        self._address = address
        self._log = log

    def steer(self, master: Master, request: SteerJob, now_ms: int) -> list[Effect]:
        """Do as a statement says. Raises ``UserError``."""
        readers = self._log.read_by(request.uid)
        if readers and request.verb not in ("pause", "resume"):
            raise UserError(is_read(master.spec.name, readers))
        match request.verb:
            case "pause":
                return master.pause()
            case "empty":
                return master.empty()[1]
            case "resume":
                return master.resume(self._next(master, master.spec.plan), now_ms)
            case _:
                plan = request.plan if request.plan is not None else master.plan_of(request.version)
                reset, at_once = request.reset, request.immediately
                spec = self._next(master, plan, request.roots)
                return master.alter(spec, request.note, now_ms, reset=reset, immediately=at_once)

    def to_try(self, master: Master, request: SteerJob) -> TryFunctions | None:
        """What is to be tried before a statement is done: a reduce or a final function, on what the job has
        made so far. Raises ``UserError``."""
        plan = request.plan
        if request.verb == "rollback":
            plan = master.plan_of(request.version)
        if plan is None or (plan.final is None and plan.fragment.reduce is None):
            return None
        alike = replace(plan.fragment, reduce=None)
        same = [f for f in master.spec.flows if replace(f.fragment, reduce=None, range=(0, 1)) == alike]
        return TryFunctions(request, plan, tuple(flow.uid for flow in same))

    def final_failed(self, master: Master, number: int, why: str, now_ms: int) -> list[Effect]:
        """The final function of a version has failed on windows, which are committed without it: the job
        goes on with the same query and no final function, from the first window that is not made yet. While
        another change is under way nothing is done: each window that it fails on says so again."""
        current = master.current
        if master.state != "active" or current.number != number or current.spec.plan.final is None:
            return []
        spec = self._next(master, replace(current.spec.plan, final=None))
        return master.alter(spec, f"dropped its final function by itself: {why}", now_ms, by_ends=True)

    def failed(self, master: Master, word: FunctionFailed, now_ms: int) -> list[Effect]:
        """A user's function has failed at a member: the version never begins, or the job goes back to the
        last one without it, unless others read it.
        """
        why = f"{word.text} on agent {word.agent}"
        back = master.before_failure(word.flow)
        if back is None or self._log.read_by(master.spec.uid):
            return master.function_failed(word.flow, why)
        note = f"rolled back by itself to what version {back} did: {why}"
        return master.alter(self._next(master, master.plan_of(back)), note, now_ms, reset=True)

    def _next(self, master: Master, plan: Plan, roots: tuple[str, ...] = ()) -> JobSpec:
        """The next version, with flows that it proposes: those of before where they are equal."""
        spec = replace(master.next_spec(plan), master=self._address)
        spec = replace(spec, roots=roots or spec.roots)
        mine = {
            flow.topic[:12]
            for version in master.versions
            for flow in version.spec.flows
            if flow.home == self._address
        }
        keys = topics_of(spec.name, spec.creator)
        key = next((key for key in keys if key[:12] in mine), keys[0])
        running = {flow.fragment: flow for flow in master.spec.flows if self._log.flow(flow.uid) is not None}
        return replace(
            spec, flows=tuple(running.get(f.fragment, f) for f in proposed(spec, key, self._address))
        )


def proposed(spec: JobSpec, key: bytes, address: str) -> tuple[Flow, ...]:
    """Flows for the fragments of a version, with their roots at ``address``, the place of ``key``, or where
    the key range of a fragment has its own.
    """
    found = []
    for n, fragment in enumerate(spec.plan.fragments):
        uid = flow_uid(fragment, f"{spec.uid}.{spec.version}.{n}")
        place, near, root = fragment.range[0], key, address
        if 0 < place <= len(spec.roots):
            near, root = range_topic(spec.name, spec.creator, place), spec.roots[place - 1]
        found.append(Flow(uid, fragment, flow_topic(near, uid), root))
    return tuple(found)
