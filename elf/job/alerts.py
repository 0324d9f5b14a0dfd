"""What an alert makes of the windows of its job: it fires, is quiet, or cannot know.

A window gives a *verdict*: the groups for which the condition is true, or that it is unknown, since it covers
fewer agents than the alert asks for. ``FOR n WINDOWS`` is AND over the verdicts of the last n windows, in the
logic of SQL: an unknown window makes AND false where another one is false, and unknown where all others are
true. So an alert never fires because an agent is away, and does not call that quiet either.

    a group fires      when AND becomes true for it
    a group ends       when a window that is known is false for it; while nobody knows, it stays
    the alert is       unknown while AND is unknown for any group, else firing while a group fires, else quiet

Each change of these is one ``Transition``. A revision takes the place of its window while that is among the
last n; an older one changes nothing. All of it is a function of the windows in their order, so whoever takes
them up after a crash, from the same ``Memory``, says the same again under the same ``Transition.number``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from elf.fields import Label, Micros, Serial, Statement, replace
from elf.ql.plan import Plan
from elf.windows import Counted, Cumulative, Kind, Sliding

WINDOWS_MAX: Final = 60
"""Of FOR n WINDOWS."""
GROUPS_MAX: Final = 100
"""Groups of a window that an alert tells apart: the first ones in the order of their keys."""

State = Literal["quiet", "firing", "unknown"]
Group = Annotated[str, Meta(max_length=512)]
"""The keys of a group, as JSON; of a job without GROUP BY, ``[]``."""


class Alert(msgspec.Struct, frozen=True, array_like=True):
    """``WHEN when FOR windows WINDOWS COVERAGE >= coverage``."""

    when: Statement
    windows: Annotated[int, Meta(ge=1, le=WINDOWS_MAX)] = 1
    coverage: Annotated[float, Meta(ge=0, le=1)] = 1.0


class Verdict(msgspec.Struct, frozen=True, array_like=True):
    """What one window says. ``groups``: for which the condition is true, sorted; ``more``: how many others
    there are; ``known``: whether it covers enough; ``missing``: the agents that it lacks, or why else it is
    unknown."""

    start_us: Micros
    end_us: Micros
    version: Serial
    revision: Serial
    known: bool
    groups: tuple[Group, ...] = ()
    more: Serial = 0
    missing: tuple[Label, ...] = ()

    @property
    def order(self) -> tuple[int, int]:
        return self.version, self.revision


class Memory(msgspec.Struct, frozen=True, array_like=True):
    """What an alert remembers between windows: the last n verdicts, oldest first. ``number``: of the last
    transition."""

    recent: tuple[Verdict, ...] = ()
    firing: tuple[Group, ...] = ()
    state: State = "quiet"
    number: Serial = 0


class Transition(msgspec.Struct, frozen=True):
    """A change, with the window that decides it. ``began`` and ``ended``: the groups that fire from now on,
    and no more; ``firing``: all that do."""

    number: int
    state: State
    was: State
    window: Verdict
    firing: tuple[Group, ...] = ()
    began: tuple[Group, ...] = ()
    ended: tuple[Group, ...] = ()
    missing: tuple[str, ...] = ()


def step_of(plan: Plan) -> int | None:
    """How far apart the ends of a job's windows are (µs); None where no window follows another."""
    kind: Kind | None = plan.windows[0] if len(plan.windows) == 1 else None
    if isinstance(kind, Counted) or not isinstance(kind, Sliding | Cumulative):
        return None
    return kind.step_us


_DECODER: Final = msgspec.msgpack.Decoder(Memory)


def remembered(data: bytes) -> Memory:
    """What ``kept`` has made bytes of; an alert that begins, of none. Raises ``msgspec.ValidationError``."""
    return _DECODER.decode(data) if data else Memory()


def kept(memory: Memory) -> bytes:
    return msgspec.msgpack.encode(memory)


def judged(alert: Alert, memory: Memory, verdict: Verdict, step_us: int) -> tuple[Memory, Transition | None]:
    """The memory after this window, and what changes with it. ``step_us``: a window ends so long after the
    one before; where one is left out, the run of windows begins anew."""
    recent = _with(memory.recent, verdict, step_us)
    if recent is None:
        return memory, None
    recent = recent[-alert.windows :]
    known = [set(one.groups) for one in recent if one.known]
    unsure = len(known) < len(recent)
    everywhere = set.intersection(*known) if known else set[str]()
    full = len(recent) == alert.windows
    stay = {group for group in memory.firing if all(group in one for one in known)}
    begin = everywhere - stay if full and not unsure else set[str]()
    firing = tuple(sorted(stay | begin))
    if unsure and (not known or everywhere) and (full or memory.firing):
        state: State = "unknown"
    else:
        state = "firing" if firing else "quiet"
    after = Memory(recent, firing, state, memory.number)
    if (firing, state) == (memory.firing, memory.state):
        return after, None
    after = replace(after, number=memory.number + 1)
    return after, Transition(
        after.number,
        state,
        memory.state,
        verdict,
        firing,
        tuple(sorted(begin)),
        tuple(sorted(set(memory.firing) - stay)),
        tuple(dict.fromkeys(name for one in recent if not one.known for name in one.missing)),
    )


def _with(recent: Sequence[Verdict], verdict: Verdict, step_us: int) -> tuple[Verdict, ...] | None:
    """The last windows with this one; None where it changes nothing."""
    for place, one in enumerate(recent):
        if (one.start_us, one.end_us) == (verdict.start_us, verdict.end_us):
            if verdict.order <= one.order:
                return None
            return (*recent[:place], verdict, *recent[place + 1 :])
    if not recent or verdict.end_us == recent[-1].end_us + step_us:
        return (*recent, verdict)
    return (verdict,) if verdict.end_us > recent[-1].end_us else None
