"""A seed's schedule: how the fleet is made, what people ask of it, and which faults befall it, as values.

Every fault has a number in the schedule. A run may leave some out: that is how a failing one is made small.
"""

from __future__ import annotations

from dataclasses import dataclass

from elf.fields import replace
from lab.chaos.files import Style
from overlay.turns import AT_ONCE

STORM_MS = 16_000


@dataclass(frozen=True)
class Fault:
    """A fault that befalls the fleet ``at_ms`` after the storm has begun, or a request.

    ``who``: numbers of agents; ``for_ms``: how long; ``amount``: percent, milliseconds, points of work, or
    the number of a job, as the kind says.
    """

    kind: str
    at_ms: int
    who: tuple[int, ...] = ()
    for_ms: int = 0
    amount: int = 0

    def __str__(self) -> str:
        names = " ".join(f"a{index}" for index in self.who)
        lasts = f" for {self.for_ms / 1000:g} s" if self.for_ms else ""
        said = SAID[self.kind].format(who=names, amount=self.amount)
        return f"{self.at_ms / 1000:6.3f} s  {said}{lasts}"


SAID = {
    "crash": "{who} is killed",
    "point": "{who} is killed after {amount} more steps of its work",
    "leader": "the leader of job {amount} is killed",
    "cut off": "the leader of job {amount} hears nobody, and nobody hears it,",
    "unheard": "nobody hears the leader of job {amount}, which hears everybody,",
    "power": "the power of {who} fails after {amount} more steps of its work",
    "gone": "{who} will be gone for good, disk and all: before, what it seals gets lost on its way",
    "heir": "who has copies of the one that is gone for good is asked to leave",
    "way up": "the slices that {who} sends get lost",
    "blackout": "all are killed",
    "deaths": "whoever writes to its disk dies of it in {amount} of 1000 cases",
    "loss": "{amount} % of messages are lost",
    "doubles": "{amount} % of messages come twice",
    "overtaking": "{amount} % of messages take up to 2 s",
    "partition": "{who} hear only one another",
    "mute": "nobody hears {who}",
    "slow": "{who} is up to {amount} ms slow",
    "stuck": "{who} neither reads nor computes",
    "slow disk": "writes of {who} take up to {amount} ms",
    "full disk": "the disk of {who} is full",
    "clock": "{who} is killed, and comes back with a clock that is {amount} ms off,",
    "join": "{who} joins",
    "leave": "{who} leaves",
    "create": "job {amount} is created through {who}",
    "drop": "job {amount} is dropped",
    "alter": "job {amount} is altered",
    "pause": "job {amount} is paused",
    "resume": "job {amount} is resumed",
    "rollback": "job {amount} goes back to version 1",
    "budget": "of {amount} rows of {who} one counts",
    "overload": "{who} gets more than it can map (a piece of work takes {amount} ms)",
    "waited": "reading of {who} has waited for its budget",
    "output": "windows of job {amount} are wanted outside, through {who}",
    "table": "windows of job {amount} go to a table, made through {who}",
    "ring": "windows of job {amount} go to a table with a ring, made through {who}",
    "rekey": "the tables get another key, through {who}",
    "hold": "the changes of tables' keys are paused, through {who}",
    "unhold": "the changes of tables' keys go on, through {who}",
    "join table": "a job joins the table that was made last, through {who}",
    "rejoin": "jobs that join tables are altered, or go back to version 1",
    "untable": "the tables are dropped, through {who}",
    "outside": "the outside takes nothing",
    "boom": "a row comes to {who} that final functions fail on",
    "move": "job {amount} is moved to {who}",
    "heir dies": "job {amount} is moved to {who}, which is killed while it comes",
    "scale": "job {amount} gets more trees, or fewer",
    "decide": "it is decided of job {amount} that it moves to {who}, or gets other trees, and once more",
    "reduce": "job {amount} is altered to one with a reduce function",
    "rotate": "log {amount} of {who} is rotated",
    "remove": "log {amount} of {who} is deleted, and written on to",
    "stop": "{who} is stopped, and goes on",
    "retention": "of what {who} has archived, {amount} % are deleted",
    "offload": "the rows of job {amount} on the first of {who} are to be mapped by the second",
    "rows back": "{who} is to map its rows of job {amount} itself again",
    "blind": "{who} cannot read what others have archived",
    "upkeep": "{who} merges small files of the archive",
    "recluster": "somebody sorts the archive, and dies after {amount} steps of it (0: does not)",
    "bang": "a row comes to {who} that reduce functions fail on",
    "master": "the agent with the master of the job in Python is gone for good, disk and all",
    "border": "agents of region {amount} hear only one another",
    "slow border": "between regions messages take {amount} ms more",
    "route": "it is decided how the panes of job {amount} go over borders, and once more",
    "head": "whoever is a head in the trees of region {amount} is killed",
    "process": "the processes of jobs in Python of {who} end",
}
"""What each kind is in words."""


@dataclass(frozen=True)
class Schedule:
    """``nodes``: all that ever run; the last ``joiners`` of them come during the storm. ``jobs``: what each
    one is (``lab.chaos.jobs``); the first ``begun`` are there before the storm."""

    seed: int
    nodes: int
    joiners: int
    group_members: int
    jobs: tuple[str, ...]
    begun: int
    disorder_ms: int
    faults: tuple[Fault, ...]
    streams: tuple[str, ...] = ()
    """What each agent reads: ``c`` clicks, ``b`` buys, ``cb`` both, ``-`` nothing; none: clicks."""
    rate_ms: int = 400
    """Between two rows of an agent's log."""
    quota: int = 256 << 20
    """Bytes that an agent may retain of a flow."""
    storm_ms: int = STORM_MS
    mirrored: tuple[int, ...] = ()
    """Jobs with ``STRAGGLERS MIRROR``."""
    together: tuple[int, ...] = ()
    """Jobs with equal queries that are to have one job group."""
    at_once: int = AT_ONCE
    """How many job groups, and parents, an agent speaks to each second."""
    files: tuple[tuple[Style, ...], ...] = ()
    """The logs of each agent, in each of its streams; none: its rows come without files."""
    pasts: tuple[tuple[int, int], ...] = ()
    """Jobs that begin in the past (SINCE): number, and how many ms before they are asked for."""
    promised: tuple[int, ...] = ()
    """Jobs with WITHIN."""
    research: tuple[int, ...] = ()
    """Jobs with PRIORITY RESEARCH."""
    eager: bool = False
    """Copies are eager: of open panes too."""
    owned: tuple[int, ...] = ()
    """Jobs that count by an aggregate of one's own."""
    listed: bool = False
    """A returning agent asks those that its configuration names, whatever has become of them."""
    program: bool = False
    """Whether there is a job in Python that counts (``lab.chaos.programs``)."""
    trees: int = 1
    """How many trees it has; 0: two with names."""
    regions: tuple[int, ...] = ()
    """The region of each agent; none: trees do not go by regions."""

    def only(self, numbers: tuple[int, ...]) -> Schedule:
        """The same with these faults only (numbers from 1)."""
        return replace(self, faults=tuple(f for n, f in enumerate(self.faults, 1) if n in numbers))
