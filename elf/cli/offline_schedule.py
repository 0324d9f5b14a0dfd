"""``elf offline schedule``, ``schedules`` and ``unschedule``: runs that a queue's daemon submits at times."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from elf.cli.offline_queue import (
    Wanted,
    author_of,
    check_name,
    now_ms,
    opened,
    say_if_unserved,
    specified,
)
from elf.cli.printing import console, say

if TYPE_CHECKING:
    from spark_backend.queue.schedules import Schedule, Schedules

MISSED_SHOWN: Final = 3


@dataclass(frozen=True)
class ScheduleOptions:
    """The command line of ``elf offline schedule``."""

    name: str
    cron: str
    zone: str
    wanted: Wanted
    out: Path
    production: bool
    deadline: str | None
    late: str
    replace: bool
    queue: Path
    creator: str | None


def schedule(options: ScheduleOptions) -> int:
    """Check all that can be checked now; the daemon submits runs from now on. Raises ``UserError``."""
    from elf.cli.results import check_suffix
    from elf.cli.spans import seconds_of, span_of

    check_name(options.name, "NAME")
    asked = options.wanted.asked()
    secs = None if options.deadline is None else seconds_of(options.deadline, "--deadline")
    late_ms = seconds_of(options.late, "--late") * 1_000
    from spark_backend.queue.rights import Rights, roles_of, terms
    from spark_backend.queue.schedules import Schedule, Schedules, shown
    from spark_backend.queue.store import Store

    made = Schedule(
        options.name,
        "",
        options.cron,
        options.zone,
        asked,
        str(options.out.absolute()),
        options.production,
        None if secs is None else secs * 1_000,
        late_ms,
    )
    now = now_ms()
    first = made.times.next_after(now)
    check_suffix(made.out_of(first))
    span_of(asked.begin, asked.end)
    specified(
        msgspec.structs.replace(asked, begin=None, end=None), now
    )  # of its span there may be nothing yet
    store = Store(options.queue, create=True)
    rights = Rights.of(store)
    by = author_of(rights, options.creator)
    rights.check_author(by, roles_of(asked.text, asked.texts, bool(asked.job)))
    made = replace(made, owner=by.name, said=by.say("schedule", *terms(made)))
    Schedules(store).add(made, now, instead=options.replace)
    say(f"elf: {made.name} begins at {shown(first)}")
    say_if_unserved(options.queue)
    return 0


def unschedule(folder: Path, names: Sequence[str], creator: str | None) -> int:
    """Drop schedules; runs that they have made stay. In a signed queue their signature goes with the
    schedule, so a run fails that the daemon has still to begin, or to go on with when it is started again.
    Raises ``UserError``."""
    from spark_backend.queue.rights import Rights
    from spark_backend.queue.schedules import Schedules

    store = opened(folder)
    rights, schedules = Rights.of(store), Schedules(store)
    by = author_of(rights, creator)
    for one in [schedules.named(name) for name in names]:
        rights.check_owner(by, "drop", one.owner, f"schedule {one.name}")
    for name in names:
        schedules.drop(name)
    return 0


def show(folder: Path, *, as_json: bool) -> int:
    """Print the schedules, and what they have missed. Raises ``UserError``."""
    from rich.table import Table

    from spark_backend.queue.schedules import Schedules, shown

    schedules = Schedules(opened(folder))
    found = schedules.all()
    if as_json:
        for one in found:
            print(json.dumps(facts(schedules, one)))
        return 0
    say_if_unserved(folder)
    table = Table("schedule", "when", "zone", "what", "priority", "next", "last run", "missed", "owner")
    for one in found:
        last = schedules.last(one.name)
        table.add_row(
            one.name,
            one.cron,
            one.zone,
            f"compare {one.asked.job}" if one.asked.job else " ".join(one.asked.text.split())[:40],
            "production" if one.production else "research",
            shown(one.next_ms),
            "" if last is None else f"{last.name}: {last.state}",
            str(one.missed),
            one.owner,
        )
    console(sys.stdout).print(table)
    for one in found:
        missed = schedules.missed(one.name)
        for some in missed[-MISSED_SHOWN:]:
            print(f"{one.name} has missed {shown(some.at_ms)}: {some.why}")
        if one.missed > MISSED_SHOWN:
            print(f"{one.name} has missed {one.missed - MISSED_SHOWN} before: --json names the last 100")
    return 0


def facts(schedules: Schedules, one: Schedule) -> dict[str, Any]:
    """A schedule as JSON."""
    last = schedules.last(one.name)
    return {
        "schedule": one.name,
        "owner": one.owner,
        "cron": one.cron,
        "zone": one.zone,
        "query": one.asked.text or None,
        "compare": one.asked.job or None,
        "follow": one.asked.follow,
        "priority": "production" if one.production else "research",
        "next": one.next_ms / 1e3,
        "last_run": None if last is None else last.name,
        "last_state": None if last is None else last.state,
        "missed": one.missed,
        "missed_moments": [{"at": some.at_ms / 1e3, "why": some.why} for some in schedules.missed(one.name)],
        "out": one.out,
    }
