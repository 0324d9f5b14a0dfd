"""The cells of the matrix: what is written how fast, how it is rotated, and what happens to the agent.

A script is a row of steps: ``wait:SECONDS``, ``rotate`` (returns when it is done), ``rotate&`` (goes on
meanwhile), ``kill`` (SIGKILL), ``start`` (nobody waits for it), ``stop`` and ``go`` (SIGSTOP, SIGCONT),
``remove`` (rm of the log, which its writer does not notice) and ``reopen`` (USR1). Requests go on
all the time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

import msgspec

KEPT: Final = 10
"""logrotate's ``rotate``, where nothing is to go."""
RATES: Final = (100, 2000)
RANDOM: Final = "random"
SAME_SECOND_S: Final = 1.1
"""Dated names have seconds in them."""


class Cell(msgspec.Struct, frozen=True):
    """One run. ``rate``: requests a second; ``kept``: old files that a rotation leaves; ``gone``: whether
    bytes are really gone, so that there is a gap to be told; ``elsewhere``: the log is on another file system
    than the agent's data; ``row`` and ``column``: where it is in the printed table."""

    row: str
    column: str
    rate: int
    rotation: str
    script: tuple[str, ...]
    kept: int = KEPT
    gone: bool = False
    elsewhere: bool = False
    writer: str = "nginx"

    @property
    def name(self) -> str:
        return f"{self.row}/{self.column}/{self.rate}"


ROWS: Final = {
    "compress": "compress",
    "delaycompress": "delaycompress",
    "dateext": "dateext",
    "copytruncate": "copytruncate",
    "copytruncate-alone": "copytruncate-alone",
    "copytruncate-compress": "copytruncate-compress",
}
"""Rotations that logrotate does (``rotations``)."""

ALIVE: Final = ("wait:1.5", "rotate", "wait:1.5", "rotate", "wait:2")
RESTARTED: Final = ("wait:2", "kill", "wait:1", "start", "wait:3")


def killed_over(rotations: int) -> tuple[str, ...]:
    """The agent is dead while the log is rotated so many times."""
    return ("wait:2.5", "kill", "wait:0.5", *("rotate", "wait:1.2") * rotations, "start", "wait:3")


def stopped_over(rotations: int) -> tuple[str, ...]:
    return ("wait:2.5", "stop", "wait:0.5", *("rotate", "wait:1.2") * rotations, "go", "wait:3")


_TEN: Final = ("wait:10", "rotate&")
TWO_MINUTES: Final = (
    *(*_TEN * 3, "wait:5", "kill", "wait:5", "rotate&", "wait:2", "start", "wait:8", "rotate&"),
    *(*_TEN * 3, "wait:9", "kill", "wait:1", "rotate&", "start", *_TEN * 3, "wait:10"),
)
"""Rotated every ten seconds; once dead while it is, and once dead just before."""


def cells() -> Iterator[Cell]:
    """The whole matrix, slow ones of their kind last."""
    for row, rotation in ROWS.items():
        for rate in RATES:
            yield Cell(row, "alive", rate, rotation, ALIVE)
            yield Cell(row, "restarted", rate, rotation, RESTARTED)
            for count in (1, 2, 3):
                yield Cell(row, f"killed-{count}", rate, rotation, killed_over(count))
            yield Cell(row, "gone", rate, rotation, killed_over(2), kept=1, gone=True)
    yield from _folders()
    yield from _interventions()
    yield Cell("two minutes", "restarted", 2000, "compress", TWO_MINUTES)


def _folders() -> Iterator[Cell]:
    """Other places and names of the log."""
    for rotation in ("compress", "copytruncate"):
        row = f"{rotation}, other file system"
        yield Cell(row, "alive", 100, rotation, ALIVE, elsewhere=True)
        for count in (1, 2):
            yield Cell(row, f"killed-{count}", 100, rotation, killed_over(count), elsewhere=True)
        yield Cell(row, "gone", 100, rotation, killed_over(2), kept=1, gone=True, elsewhere=True)
    for rotation in ("symlink", "symlink-compress"):
        yield Cell(rotation, "alive", 100, rotation, ALIVE)
        for count in (1, 2, 3):
            yield Cell(rotation, f"killed-{count}", 100, rotation, killed_over(count))
        yield Cell(rotation, "gone", 100, rotation, killed_over(2), kept=1, gone=True)
    yield Cell("same inode", "alive", 100, "same-inode", ALIVE)
    for count in (1, 2, 3):
        yield Cell("same inode", f"killed-{count}", 100, "same-inode", killed_over(count))
    yield Cell("same inode", "gone", 100, "same-inode", killed_over(3), kept=1, gone=True)


def _interventions() -> Iterator[Cell]:
    """SIGSTOP over rotations, and a log that is removed while nginx writes to it."""
    for rotation in ("compress", "delaycompress", "copytruncate"):
        for count in (1, 2, 3):
            row = f"{rotation}, SIGSTOP"
            yield Cell(row, f"stopped-{count}", 100, rotation, stopped_over(count))
    yield Cell("compress, SIGSTOP", "gone", 100, "compress", stopped_over(3), kept=1, gone=True)
    removed = ("wait:2", "remove", "wait:3", "reopen", "wait:3")
    yield Cell("removed while open", "alive", 100, "compress", removed)
    yield Cell("removed while open", "alive", 2000, "compress", removed)
    dead = ("wait:2.5", "kill", "wait:0.5", "remove", "wait:2", "reopen", "wait:1", "start", "wait:3")
    yield Cell("removed while open", "gone", 100, "compress", dead, gone=True)


COMPARED: Final = ("compress/gone/100", "copytruncate/gone/100", "removed while open/gone/100")
"""Cells whose gaps are asked of ``elf compare`` too: Spark needs half a minute, and both cores."""
QUICK: Final = (
    "compress/alive/100",
    "compress/killed-2/100",
    "copytruncate/killed-1/2000",
    "dateext/killed-1/100",
    "compress/gone/100",
    "symlink/killed-1/100",
)
"""A handful, for a first look."""


def drawn(seed: int, number: int) -> Cell:
    """The random cell of that seed and number: five seconds in which anything may happen at any moment."""
    rng = random.Random(f"{seed}:{number}")
    rotation = rng.choice((*ROWS.values(), "symlink", "symlink-compress", "same-inode"))
    script: list[str] = ["wait:1.5"]
    state, at, rotated = "alive", 0.0, -SAME_SECOND_S
    while at < 5.0:
        pause = round(rng.choice((rng.uniform(0.0, 0.05), rng.uniform(0.1, 1.0))), 3)
        script.append(f"wait:{pause}")
        at += pause
        moves = {"alive": ("kill", "stop"), "dead": ("start",), "stopped": ("go", "kill")}[state]
        move = rng.choice(("rotate&", "rotate&", *moves))
        if move == "rotate&":
            if at - rotated < SAME_SECOND_S:
                continue
            rotated = at
        else:
            state = {"kill": "dead", "stop": "stopped"}.get(move, "alive")
        script.append(move)
    script += {"alive": [], "dead": ["start"], "stopped": ["go"]}[state] + ["wait:1"]
    kept = rng.choice((KEPT, KEPT, KEPT, 1))
    return Cell(RANDOM, f"{seed}-{number}", rng.choice((50, 200, 500)), rotation, tuple(script), kept)
