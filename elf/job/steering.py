"""What is done to a master when a statement, or a function that fails, wants its job to be changed; and the
flows that a new version proposes.
"""

from __future__ import annotations

from dataclasses import replace

from elf.job.effects import Effect
from elf.job.master import Master
from elf.job.messages import FunctionFailed, SteerJob
from elf.job.spec import Flow, JobSpec, flow_topic, flow_uid, range_topic, topics_of
from elf.job.streamlog import StreamLog
from elf.ql.plan import Plan


class Steering:
    """For the masters at ``address``."""

    def __init__(self, address: str, log: StreamLog) -> None:
        self._address = address
        self._log = log

    def steer(self, master: Master, request: SteerJob, now_ms: int) -> list[Effect]:
        """Do as a statement says. Raises ``UserError``."""
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
                spec = self._next(master, plan)
                return master.alter(spec, request.note, now_ms, reset=reset, immediately=at_once)

    def failed(self, master: Master, word: FunctionFailed, now_ms: int) -> list[Effect]:
        """A user's function has failed at a member: the version never begins, or the job goes back to the
        last one without it.
        """
        why = f"{word.text} on agent {word.agent}"
        back = master.before_failure(word.flow)
        if back is None:
            return master.function_failed(word.flow, why)
        note = f"rolled back by itself to what version {back} did: {why}"
        return master.alter(self._next(master, master.plan_of(back)), note, now_ms, reset=True)

    def _next(self, master: Master, plan: Plan) -> JobSpec:
        """The next version, with flows that it proposes: those of before where they are equal."""
        spec = replace(master.next_spec(plan), master=self._address)
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
