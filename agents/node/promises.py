"""Which jobs are to look sooner, or less often, for what ends their panes, so that they keep what they
promise (``WITHIN``, protocol 5.17). What is promised has come to something that the job's master sees, and
its agent says (``GroupLoad.reached_ms``); what helps says ``elf.planning.drift``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from elf.job.catalog.assignments import TRIES
from elf.job.catalog.loads import by_group
from elf.job.catalog.log import CatalogLog
from elf.job.messages.log import AgentLoad, DecidePause, GroupLoad, PauseDecided
from elf.job.spec import JobSpec
from elf.planning.drift import pause_of


def proposed(
    log: CatalogLog, free: Iterable[JobSpec], agents: Mapping[str, AgentLoad], now_ms: int
) -> Sequence[DecidePause]:
    """Those of these jobs that would win by it. ``agents``: their loads, by address. What came to nothing
    ``TRIES`` times waits for another version."""
    groups = by_group(agents)
    jobs = [spec for spec in free if log.assignments.in_vain(spec, PauseDecided) < TRIES]
    found = [_proposed(spec, groups[spec.uid], now_ms) for spec in jobs if spec.uid in groups]
    return [one for one in found if one is not None]


def _proposed(spec: JobSpec, load: GroupLoad, now_ms: int) -> DecidePause | None:
    chosen, promise, reached = spec.definition.chosen, spec.plan.promise, load.reached_ms
    if chosen is None or promise is None or reached is None:
        return None
    pause = pause_of(chosen.poll_ms, reached, promise.within_us / 1000, kept=load.kept)
    if pause == chosen.poll_ms:
        return None
    return DecidePause(
        uid=spec.uid,
        before_ms=chosen.poll_ms,
        pause_ms=pause,
        reached_ms=max(0, reached + pause - chosen.poll_ms),
        at_ms=now_ms,
        why=f"worked out anew: {reached:,} ms with looks {chosen.poll_ms} ms apart, now {pause}",
    )
