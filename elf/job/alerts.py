"""What an alert makes of the windows of its job: it fires, is quiet, or cannot know.

A window gives a *verdict*: the groups for which the condition is true, or that it is unknown, since it covers
fewer agents than the alert asks for. ``FOR n WINDOWS`` is AND over the verdicts of the last n windows, in the
logic of SQL: an unknown window makes AND false where another one is false, and unknown where all others are
true. So an alert never fires because an agent is away, and does not call that quiet either.

    a group fires      when AND becomes true for it
    a group ends       when a window that is known is false for it; while nobody knows, it stays
    the alert is       unknown while AND is unknown for any group, else firing while a group fires, else quiet

Each change of these is one ``Transition``. A revision takes the place of its window while that is among the
last n; an older one changes nothing. Where results were lost, and where another version of the job has made
its first window, the run of windows begins anew. All of it is a function of the windows in their order, so
whoever takes them up after a crash, from the same ``Memory``, says the same again under the same
``Transition.number`` (protocol 7.10).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from elf.fields import Label, Micros, Serial, replace
from elf.ql.alert import Alert
from elf.ql.plan import Plan
from elf.windows import Counted, Session

State = Literal["quiet", "firing", "unknown"]

GROUPS_MAX: Final = 100
"""Groups of a window that an alert tells apart: the first ones in the order of their keys."""
Group = Annotated[str, Meta(max_length=512)]
"""The values of a group's columns as a JSON object; long ones are cut, with a digest behind."""


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
    def span(self) -> tuple[int, int]:
        return self.end_us, self.start_us


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


def follow_on(plan: Plan) -> bool:
    """Whether a job's windows follow one another: each ends after the one before, whatever the rows."""
    (*kinds,) = plan.windows
    return len(kinds) == 1 and not isinstance(kinds[0], Counted | Session)


_DECODER: Final = msgspec.msgpack.Decoder(Memory)


def remembered(data: bytes) -> Memory:
    """What ``kept`` has made bytes of; an alert that begins, of none. Raises ``msgspec.ValidationError``."""
    return _DECODER.decode(data) if data else Memory()


def kept(memory: Memory) -> bytes:
    return msgspec.msgpack.encode(memory)


def interrupted(memory: Memory) -> Memory:
    """The memory where windows were lost: what they would have said nobody knows."""
    return replace(memory, recent=())


def judged(alert: Alert, memory: Memory, verdict: Verdict) -> tuple[Memory, Transition | None]:
    """The memory after this window, and what changes with it."""
    recent = _with(memory.recent, verdict)
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


def _with(recent: Sequence[Verdict], verdict: Verdict) -> tuple[Verdict, ...] | None:
    """The last windows with this one; None where it changes nothing."""
    last = recent[-1] if recent else None
    if last is None or verdict.version > last.version:
        return (verdict,)
    if verdict.version < last.version:
        return None
    for place, one in enumerate(recent):
        if one.span == verdict.span:
            newer = verdict.revision > one.revision
            return (*recent[:place], verdict, *recent[place + 1 :]) if newer else None
    return (*recent, verdict) if verdict.span > last.span else None
