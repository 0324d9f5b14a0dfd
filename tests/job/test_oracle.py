"""The oracle of the simulated fleets is worth something: bugs that were planted on purpose are seen.

Each is a rule of ``docs/dev/protocol.md`` taken out; most of them are taken out in ``tests/chaos/plants``.
The histories are some that see it; the suite would be blind without the oracle's counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import msgspec
import pytest

from elf.errors import ElfError
from elf.job.contributions import PartName, Piece
from elf.job.effects import Effect
from elf.job.events import Fetched
from elf.job.messages.rollup import Committed, PaneRow
from elf.job.rollup.mirrors import Mirror
from elf.job.rollup.root import Root
from elf.job.rollup.sender import Sender
from lab.chaos import world as w
from tests.support import stories

Plant = Callable[[pytest.MonkeyPatch], None]
History = Callable[[], None]


def chance(seeds: Iterable[int]) -> list[History]:
    """Random histories."""
    run = stories.crashes_loss_and_doubles
    return [partial(run, seed) for seed in seeds]


def send_nothing_again(patch: pytest.MonkeyPatch) -> None:
    """protocol 4.5: members do not answer when the root asks for what it misses, nor when it says "send"."""
    patch.setattr("agents.loop.fetched", lambda effect, store: Fetched(effect.flow, ()))


def forget_at_once(patch: pytest.MonkeyPatch) -> None:
    """protocol 4.6: a worker deletes a snapshot when any commit of its pane comes, included in it or not."""

    def committed(sender: Sender, word: Committed) -> list[Effect]:
        line = sender._lines.get(word.flow)
        return sender._settle(line, word.start, word.end) if line else []

    patch.setattr(Sender, "committed", committed)


def take_what_comes(patch: pytest.MonkeyPatch) -> None:
    """protocol 7.2: a reader on another node does not see that commits before this one were lost. (Job groups
    are alone: as a member of the flow's group the node would have them all the same.)"""
    patch.setattr(w, "GROUP_MEMBERS", 1)
    take = Mirror.take

    def deaf(mirror: Mirror, row: PaneRow) -> tuple[bool, list[Effect]]:
        return take(mirror, msgspec.structs.replace(row, after=0))

    patch.setattr(Mirror, "take", deaf)


def take_parts_again(patch: pytest.MonkeyPatch) -> None:
    """protocol 8.5: a root takes a part of late rows that is in a commit already."""

    def take_part(root: Root, name: PartName, piece: Piece) -> None:
        root.covered.add_part(name, piece)

    patch.setattr(Root, "take_part", take_part)


PLANTED: dict[str, tuple[Plant, list[History]]] = {
    "send nothing again": (send_nothing_again, chance(range(4))),
    "forget at once": (
        forget_at_once,
        [stories.snapshots_lost_for_long],
    ),
    "take parts again": (
        take_parts_again,
        [partial(stories.crashes_loss_and_doubles_of_late_rows, seed) for seed in (10, 2, 9, 11, 12, 13)],
    ),
    "take what comes": (
        take_what_comes,
        [partial(stories.crashes_loss_and_doubles_below_readers, seed) for seed in (1, 0, 2, 3)],
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, tried = PLANTED[name]
    plant(monkeypatch)
    for history in tried:
        with suppress_findings() as found:
            history()
        if found:
            return
    pytest.fail(f"no history of {len(tried)} saw: {name}")


@contextmanager
def suppress_findings() -> Iterator[list[BaseException]]:
    """What the oracle or an invariant found; a mistake in the planting itself goes through."""
    found: list[BaseException] = []
    try:
        yield found
    except (TypeError, AttributeError, NameError):
        raise
    except (AssertionError, ElfError) as seen:
        found.append(seen)
