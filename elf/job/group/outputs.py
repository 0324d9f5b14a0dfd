"""The outputs of one job at its master: how far each has got, and what is under way.

    (the log has it) ─▶ begin: SaveOutput ─▶ Deliver ─▶ Delivered ─┬─▶ Deliver … until all is out
                                                  ▲                ├─▶ SaveOutput, a second after the last
                                                  └── after a pause ┘   (an error)

Where an output begins is committed before anything of it is delivered. Then one delivery is under way at a
time, in the order of the results' numbers, on a thread of the driver, which reads them from the store. So a
target that is slow or dead holds up nothing: the job's windows are committed all the same, what waits is what
the job group keeps of them, and results that it no longer keeps when their turn comes are counted as lost.

How far it has got is committed at most once a second, and may lag behind: the next master delivers that
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from elf.fields import replace
from elf.job.alerts import remembered
from elf.job.catalog.log import CatalogLog
from elf.job.effects import Deliver, Effect, SaveOutput
from elf.job.events import Delivered
from elf.job.group.tables import Tables
from elf.job.output import OutputKept, OutputSpec
from elf.job.spec import JobSpec
from elf.job.tables import StoredTable, is_table
from elf.job.work import AlertWork, OutputWork

PAUSE_MS: Final = 1_000
"""After a delivery that has failed; it doubles with each more."""
PAUSE_MS_MAX: Final = 60_000
SAVE_MS: Final = 1_000
"""Between two records of an output."""
UNDER_WAY_MS_MAX: Final = 900_000
"""A delivery of which nothing has been heard by then is begun anew."""
SAVED_MS_MAX: Final = 5_000
"""A record that is not committed by then is proposed again."""


@dataclass
class _Output:
    """``at``: how far it has got. ``saved``: as much of that as is committed, None until that is where it
    begins; ``saving``: what is being committed."""

    spec: OutputSpec
    at: OutputKept
    saved: OutputKept | None = None
    saving: SaveOutput | None = None
    saved_ms: int = 0
    under_way: Deliver | None = None
    due_ms: int = 0
    failures: int = 0
    error: str = ""


class Outputs:
    """Of the job ``uid``. ``published``: the number of its last results; ``kept``: what its job group has;
    ``tables``: likewise. A table is an output that stays in the group, and nothing of it is delivered.
    ``versions``: those that its master names. The log forgets who reads nothing any more, and what is
    delivered may be older."""

    def __init__(
        self,
        uid: str,
        published: int,
        kept: Iterable[OutputKept] = (),
        tables: Iterable[StoredTable] = (),
        versions: Callable[[], Iterable[JobSpec]] = tuple,
    ) -> None:
        self._named = versions
        self.tables = Tables(uid, tables)
        self._uid = uid
        self._published = published
        self._kept = {one.output: one for one in kept}
        self._outputs: dict[str, _Output] = {}
        self._job: JobSpec | None = None
        self._versions: tuple[JobSpec, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._outputs or self._kept or self.tables)

    def follow(self, log: CatalogLog, now_ms: int) -> list[Effect]:
        """The log may have other outputs of the job."""
        self._job, self._versions = log.job(self._uid), log.versions(self._uid)
        specs = {spec.uid: spec for spec in log.outputs(self._uid) if not is_table(spec)}
        for uid in self._outputs.keys() - specs.keys():
            del self._outputs[uid]
        for uid, spec in specs.items():
            if uid not in self._outputs:
                kept = self._kept.get(uid)
                begin = OutputKept(self._uid, uid, 0 if spec.from_beginning else self._published)
                self._outputs[uid] = _Output(spec, kept or begin, saved=kept)
        over = [one for uid, one in self._kept.items() if uid not in specs and log.is_dropped(uid)]
        for one in over:
            del self._kept[one.output]
        found: list[Effect] = [SaveOutput(replace(one, over=True)) for one in over]
        self.tables.follow(log)
        return [*found, *self.advance(now_ms)]

    def published(self, number: int, now_ms: int) -> list[Effect]:
        """Results up to this number are committed."""
        self._published = max(self._published, number)
        return self.advance(now_ms) if self._outputs else []

    def advance(self, now_ms: int) -> list[Effect]:
        """What is due."""
        found = [effect for one in self._outputs.values() for effect in self._advance(one, now_ms)]
        return [*found, *self.tables.advance(now_ms)]

    def _advance(self, one: _Output, now_ms: int) -> list[Effect]:
        found: list[Effect] = []
        if self._save_due_ms(one, now_ms) <= now_ms:
            one.saving, one.saved_ms = SaveOutput(one.at), now_ms
            found.append(one.saving)
        if self._job is not None and now_ms >= one.due_ms and self._waits(one):
            versions = {spec.version: spec for spec in (*self._named(), *self._versions)}
            one.under_way = Deliver(one.spec, self._job, one.at, tuple(versions.values()))
            one.due_ms = now_ms + UNDER_WAY_MS_MAX
            found.append(one.under_way)
        return found

    def _waits(self, one: _Output) -> bool:
        """Whether something of it can be delivered, now or later."""
        return self._job is not None and one.saved is not None and one.at.number < self._published

    def _save_due_ms(self, one: _Output, now_ms: int) -> int:
        """When a record is to be proposed; long from now: it need not be."""
        if one.saving is not None:
            return one.saved_ms + SAVED_MS_MAX
        if one.at == one.saved:
            return now_ms + PAUSE_MS_MAX
        return one.saved_ms + SAVE_MS if one.saved is not None else now_ms

    def deadline(self, now_ms: int) -> int | None:
        waits = [self._save_due_ms(one, now_ms) for one in self._outputs.values()]
        waits += [one.due_ms for one in self._outputs.values() if self._waits(one)]
        waits += [due] if (due := self.tables.deadline(now_ms)) is not None else []
        return min(waits, default=None)

    def delivered(self, event: Delivered, now_ms: int) -> list[Effect]:
        """A delivery has ended."""
        one = self._outputs.get(event.done.output.uid)
        if one is None or one.under_way is not event.done:
            return []  # of another term, or the output is over
        one.under_way, one.at, one.error, one.due_ms = None, event.kept, event.error, now_ms
        moved = event.kept.number > event.done.kept.number
        one.failures = 0 if moved else one.failures + 1
        if event.error or not moved:
            one.due_ms = now_ms + min(PAUSE_MS << min(max(one.failures - 1, 0), 10), PAUSE_MS_MAX)
        return self._advance(one, now_ms)

    def kept(self, done: SaveOutput, now_ms: int) -> list[Effect]:
        """A record is committed."""
        one = self._outputs.get(done.kept.output)
        if one is None or done.kept.over:
            return []
        one.saved = self._kept[done.kept.output] = done.kept
        if one.saving is done:
            one.saving = None
        return self._advance(one, now_ms)

    def work(self) -> tuple[OutputWork, ...]:
        """How they are."""
        return tuple(self._work(one) for one in self._outputs.values())

    def _work(self, one: _Output) -> OutputWork:
        at = one.at
        return OutputWork(
            one.spec.uid,
            at.number,
            self._published - at.number,
            at.windows,
            at.lost,
            at.gap,
            one.error,
            _alert_work(at.state) if one.spec.alert is not None else None,
        )


def _alert_work(state: bytes) -> AlertWork | None:
    """None where no window was judged yet, or another master has left what is no memory of an alert: then
    the delivery says that it fails."""
    try:
        memory = remembered(state)
    except msgspec.DecodeError:
        return None
    if not state:
        return None
    return AlertWork(memory.state, memory.firing, memory.recent[-1].missing if memory.recent else ())
