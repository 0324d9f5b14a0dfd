"""What happens to a fleet while a planted bug matters."""

from __future__ import annotations

import random
from collections.abc import Callable

from lab.chaos.files import Style
from lab.chaos.schedule import Fault, Schedule

NODES = 4

EQUAL = 7
"""Jobs with one query."""

Storm = Callable[[random.Random], list[Fault]]


def slow_crashes(rng: random.Random) -> list[Fault]:
    """Chunks wait for slow stream tasks when their agents die."""
    return [*_slow(), *(Fault("crash", 2_000 + 1_000 * n, (n,), 300) for n in range(NODES))]


def _slow() -> list[Fault]:
    return [Fault("slow", 0, (n,), 9_000, 1_500) for n in range(NODES)]


def bordered(rng: random.Random) -> list[Fault]:
    """Agents stand in two regions, and two jobs read one flow; the root dies, and a head."""
    dies = Fault("leader", 4_000 + rng.randrange(4_000), for_ms=1_500)
    return [dies, Fault("head", 3_000 + rng.randrange(2_000), for_ms=300, amount=1)]


def alone_over_panes(rng: random.Random) -> list[Fault]:
    """The same of one job, whose panes may all be merged."""
    return bordered(rng)


def bounded_over_panes(rng: random.Random) -> list[Fault]:
    """The same where agents may retain a few panes; the one in the other region has a slow disk, and seals
    more at a time."""
    return [Fault("slow disk", 0, (NODES - 1,), 11_000, 1_500)]


def unheard(rng: random.Random) -> list[Fault]:
    """A master hears all, and nobody it."""
    return [Fault("unheard", 2_000 + rng.randrange(2_000), for_ms=7_000)]


def lossy(rng: random.Random) -> list[Fault]:
    """A few messages get lost, and half of what readers are told."""
    return [Fault("loss", 0, for_ms=10_000, amount=1)]


def outside(rng: random.Random) -> list[Fault]:
    """Windows go out of the fleet, where nobody takes them while their master dies."""
    down = Fault("outside", 3_000 + rng.randrange(1_000), for_ms=5_000)
    return [Fault("output", 0, (1,)), down, Fault("leader", 6_500, for_ms=3_000)]


def outside_late(rng: random.Random) -> list[Fault]:
    """Windows go out of the fleet, and what an alert says of them, when their master dies."""
    return [Fault("output", 0, (1,)), Fault("leader", 9_500 + rng.randrange(1_000), for_ms=3_000)]


def tabled(rng: random.Random) -> list[Fault]:
    """A job has a table, and one member of its group after the other is slow."""
    slow = [Fault("slow disk", 1_000 + 2_500 * n, (n,), 2_500, 1_500) for n in range(NODES)]
    return [Fault("table", 0, (1,)), *slow]


def sharded(rng: random.Random) -> list[Fault]:
    """A job over three key ranges has a table with three shards, while agents die."""
    times = [3_000 + rng.randrange(500), 6_000 + rng.randrange(500)]
    crashes = [Fault("crash", at + 200, (rng.randrange(NODES),), 600) for at in times]
    return [Fault("table", 0, (1,)), Fault("rekey", times[0], (2,)), *crashes]


def ringed(rng: random.Random) -> list[Fault]:
    """A job has a table with a ring, which gets another key while agents die."""
    times = [3_500 + rng.randrange(500), 7_500 + rng.randrange(500)]
    crashes = [
        Fault("crash", at + rng.choice([100, 500, 1_000]), (rng.randrange(NODES),), 600) for at in times
    ]
    return [Fault("ring", 0, (1,)), *(Fault("rekey", at, (2,)) for at in times), *crashes]


def ring_moved(rng: random.Random) -> list[Fault]:
    """A job has a table with a ring, and one of its replicas leaves."""
    leaves = Fault("leave", 6_000 + rng.randrange(500), (rng.randrange(NODES - 1),))
    return [Fault("ring", 0, (1,)), leaves]


def rekeyed(rng: random.Random) -> list[Fault]:
    """A job has a table, which gets another key while agents die."""
    times = [3_000 + rng.randrange(500), 6_000 + rng.randrange(500)]
    crashes = [Fault("crash", at + 200, (rng.randrange(NODES),), 600) for at in times]
    return [Fault("table", 0, (1,)), *(Fault("rekey", at, (2,)) for at in times), *crashes]


def held(rng: random.Random) -> list[Fault]:
    """A job has a table, which gets another key. That is paused, and goes on, while agents are slow, and
    leaders die."""
    found = [Fault("table", 0, (1,)), *(Fault("slow disk", 0, (n,), 10_000, 200) for n in range(NODES))]
    for at in (3_500 + rng.randrange(500), 6_500 + rng.randrange(500)):
        found.append(Fault("rekey", at, (2,)))
        found += [Fault("hold", at + ms, (rng.randrange(NODES),)) for ms in (300, 500, 700)]
        found += [Fault("leader", at + 900, for_ms=600), Fault("unhold", at + 2_800, (rng.randrange(NODES),))]
    return found


def held_shards(rng: random.Random) -> list[Fault]:
    """The same of a table with three shards, one change of which is paused to the end."""
    return held(rng)[:-1]


def joined(rng: random.Random) -> list[Fault]:
    """A job joins the table of another one, while agents and leaders die; and it is altered."""
    crashes = [Fault("crash", 4_000 + 1_700 * n, (rng.randrange(NODES),), 600) for n in range(3)]
    alters = [Fault("rejoin", 4_000 + 2_000 * n + rng.randrange(900)) for n in range(3)]
    return [Fault("table", 0, (1,)), Fault("join table", 1_500, (2,)), *crashes, *alters]


def joined_slowly(rng: random.Random) -> list[Fault]:
    """The same, where reading the table takes longer than it takes to alter the job."""
    slow = [Fault("slow", 2_500, (n,), 9_000, 2_500) for n in rng.sample(range(NODES), 2)]
    alters = [Fault("rejoin", 3_000 + 800 * n + rng.randrange(500)) for n in range(9)]
    return [Fault("table", 0, (1,)), Fault("join table", 1_500, (2,)), *slow, *alters]


def tabled_late(rng: random.Random) -> list[Fault]:
    """A job has a table, and agents come late with what they have of its windows."""
    late = [
        Fault("mute", 1_500 + 1_500 * n, (who,), 4_000) for n, who in enumerate(rng.sample(range(NODES), 3))
    ]
    return [Fault("table", 0, (1,)), *late]


def moving(rng: random.Random) -> list[Fault]:
    """A job goes from one agent to the next, while messages get lost and overtake others; some die on the
    way."""
    found = [Fault("overtaking", 0, for_ms=10_000, amount=30), Fault("loss", 0, for_ms=10_000, amount=10)]
    for n in range(12):
        kind, away_ms = ("heir dies", 4_000) if n % 4 == 3 else ("move", 0)
        found.append(Fault(kind, 500 + 700 * n + rng.randrange(500), (rng.randrange(NODES),), away_ms))
    return found


def dead_leader(rng: random.Random) -> list[Fault]:
    """One job group is away for long."""
    return [Fault("leader", 1_000 + rng.randrange(500), for_ms=9_000)]


def fashions(rng: random.Random) -> list[Fault]:
    """Other keys come first than did, while agents die."""
    return [Fault("crash", 3_000 + 2_500 * n, (rng.randrange(NODES),), 600) for n in range(3)]


def stragglers(rng: random.Random) -> list[Fault]:
    """Agents are away for longer than panes wait: unheard, dead, stuck; and die of their writes meanwhile."""
    mute, dead, stuck = rng.sample(range(6), 3)
    return [
        Fault("mute", rng.randrange(500), (mute,), 6_000),
        Fault("crash", 2_500, (dead,), 6_000),
        Fault("stuck", 6_000, (stuck,), 5_500),
        Fault("deaths", 4_000, (), 3_000, 40),
    ]


def spread(rng: random.Random) -> list[Fault]:
    """The same, with trees, in which what agents send gets lost."""
    lost = [Fault("way up", 1_000 + 1_500 * n, (n,), 2_500) for n in range(6)]
    return [*stragglers(rng), *lost, Fault("loss", 0, (), 10_000, 10)]


def dead(rng: random.Random) -> list[Fault]:
    """One is dead for longer than it takes to notice; nothing else holds panes up."""
    return [Fault("crash", 2_000 + rng.randrange(1_500), (rng.randrange(6),), 6_000)]


def lagging(rng: random.Random) -> list[Fault]:
    """Half of the agents are alive and heard, but what they read takes so long that panes are committed
    without them while they have them open."""
    return [Fault("slow", rng.randrange(2_000), (who,), 9_000, 9_000) for who in rng.sample(range(6), 3)]


def gone(rng: random.Random) -> list[Fault]:
    """One that nobody has heard of late is gone for good, and messages get lost."""
    lasts_ms = rng.choice([3_000, 4_500])
    return [Fault("gone", rng.randrange(1_000, 4_000), (rng.randrange(6),), lasts_ms), *lossy(rng)]


def gone_eagerly(rng: random.Random) -> list[Fault]:
    """One is gone for good with its open panes, of which others have copies; one dies for longer than panes
    wait, and comes back with what it had."""
    gone, away = rng.sample(range(6), 2)
    dies = Fault("crash", 5_500 + rng.randrange(1_000), (away,), 5_000)
    return [Fault("gone", rng.randrange(1_000, 3_000), (gone,), 500), dies]


def stuck_eagerly(rng: random.Random) -> list[Fault]:
    """One stands still while a pane of its is open, so that others commit what they have copies of; it dies
    before and after it has gone on."""
    who = rng.randrange(6)
    dies = [
        Fault("crash", 1_500 + 3_000 * n + rng.randrange(1_500), (who,), rng.choice([300, 1_500, 4_000]))
        for n in range(3)
    ]
    return [Fault("stuck", 2_000, (who,), 6_000), *dies]


def behind(rng: random.Random) -> list[Fault]:
    """Panes wait for one that stands still. Slices of others get lost for a while, of several at once, and
    most takes long: what they are asked for and what mirrors send for them come one about the other."""
    stuck, *others = rng.sample(range(6), 6)
    broken = [Fault("way up", 500 + 800 * n, (who,), 4_000) for n, who in enumerate(2 * others)]
    return [Fault("stuck", 0, (stuck,), 9_000), *broken, Fault("overtaking", 0, (), 10_000, 60)]


def equal(rng: random.Random) -> list[Fault]:
    """Equal jobs at one agent. Some of them get behind, and make a window when late rows have come."""
    created = [Fault("create", 100 * n, (rng.randrange(NODES),), amount=n) for n in range(1, EQUAL)]
    lost = [Fault("way up", 3_000 + 2_000 * n, (n,), 1_500) for n in range(NODES)]
    return [*created, *lost, Fault("loss", 2_000, (), 10_000, 15)]


def reduced(rng: random.Random) -> list[Fault]:
    """A job gets a reduce function. Agents come late with what they have of its panes; on one it fails."""
    late = [Fault("mute", 3_500 + 500 * n, (who,), 4_000) for n, who in enumerate(rng.sample(range(6), 3))]
    return [Fault("reduce", 0, amount=0), *late, Fault("bang", 9_500, (rng.randrange(6),)), *lossy(rng)]


def ranged(rng: random.Random) -> list[Fault]:
    """Agents come late with what they have of panes of which roots have made a later stage."""
    late = [Fault("mute", 3_500 + 500 * n, (who,), 4_000) for n, who in enumerate(rng.sample(range(6), 3))]
    return [*late, *lossy(rng)]


def away(rng: random.Random) -> list[Fault]:
    """Each agent is killed, or stopped, over several rotations of its logs."""
    found = []
    for who in range(NODES):
        at, kind = 1_000 + rng.randrange(2_000), rng.choice(["crash", "stop"])
        found.append(Fault(kind, at, (who,), 6_000))
        found += [Fault("rotate", at + 500 + 900 * n, (who,), amount=n % 2) for n in range(6)]
    return found


def kept(rng: random.Random) -> list[Fault]:
    """The same, where all is still there."""
    return away(rng)


def peaceful(rng: random.Random) -> list[Fault]:
    """Logs are rotated under the eyes of their agents."""
    return [Fault("rotate", 1_000 + rng.randrange(6_000), (n % NODES,), amount=n % LOGS) for n in range(12)]


def stopped(rng: random.Random) -> list[Fault]:
    """Agents with several logs are stopped for longer than a silent one is waited for."""
    return [Fault("stop", 1_000 + rng.randrange(3_000), (who,), 6_500) for who in range(NODES)]


def unknown(rng: random.Random) -> list[Fault]:
    """Agents die before they have read all of their logs for the first time."""
    return [Fault("crash", rng.randrange(400), (who,), 7_000) for who in range(NODES)]


def cut_away(rng: random.Random) -> list[Fault]:
    """Logs are copied and cut several times while nobody looks."""
    return away(rng)


def slow_files(rng: random.Random) -> list[Fault]:
    """Chunks of files wait for slow stream tasks when their agents die."""
    return slow_crashes(rng)


def cut_off(rng: random.Random) -> list[Fault]:
    """Logs are copied and cut, while their agents run and while they are down."""
    found = [Fault("rotate", 1_000 + rng.randrange(8_000), (n % NODES,), amount=n % LOGS) for n in range(12)]
    return [*found, *away(rng)]


def begun_before(rng: random.Random) -> list[Fault]:
    """A job begins in the past."""
    return [Fault("create", 5_000 + rng.randrange(500), (1,), amount=1)]


def begun_before_and_killed(rng: random.Random) -> list[Fault]:
    """The same, and agents die while they read it."""
    at = 5_500 + rng.randrange(500)
    return [*begun_before(rng), *(Fault("crash", at + 150 * n, (n,), 300) for n in range(2, NODES))]


def counting(rng: random.Random) -> list[Fault]:
    """A job in Python counts; messages get lost and come twice, agents die, and processes of the job end."""
    weather = [Fault("loss", 0, for_ms=9_000, amount=10), Fault("doubles", 0, for_ms=9_000, amount=20)]
    crashes = [Fault("crash", 1_500 + 1_100 * n, (rng.randrange(NODES),), 400) for n in range(6)]
    return [*weather, *crashes, *(Fault("process", 2_000 + 1_300 * n, (n,)) for n in range(NODES))]


def master_gone(rng: random.Random) -> list[Fault]:
    """A job in Python counts; the agent with its master goes for good, disk and all."""
    return [Fault("loss", 0, for_ms=9_000, amount=2), Fault("master", 4_000 + rng.randrange(3_000))]


def spread_counting(rng: random.Random) -> list[Fault]:
    """A job in Python counts in two trees; an agent with one of its masters goes for good."""
    crashes = [Fault("crash", 1_500 + 2_000 * n, (rng.randrange(NODES),), 400) for n in range(2)]
    return [*master_gone(rng), *crashes]


def overloaded(rng: random.Random) -> list[Fault]:
    """Agents get more than they can map, some jobs promise something, and agents die meanwhile."""
    found = []
    for who in range(NODES):
        at = rng.randrange(1_500)
        found.append(Fault("overload", at, (who,), 8_000, amount=500))
        found.append(Fault("crash", at + 3_000 + rng.randrange(3_000), (who,), 300))
    return found


AGENTS: dict[Storm, int] = {
    spread: 6,
    stragglers: 6,
    dead: 6,
    lagging: 6,
    behind: 6,
    fashions: 8,
    gone: 6,
    gone_eagerly: 6,
    stuck_eagerly: 6,
    reduced: 6,
    ranged: 6,
    master_gone: 6,
    spread_counting: 6,
}


JOBS: dict[Storm, tuple[str, ...]] = {
    stragglers: ("leap", "wait"),
    spread: ("leap trees",),
    dead: ("wait",),
    lagging: ("leap", "wait"),
    fashions: ("first",),
    equal: ("long",) * EQUAL,
    reduced: ("plain",),
    stuck_eagerly: ("plain",),
    ranged: ("ranked", "tallied"),
    tabled_late: ("long",),
    sharded: ("trees",),
    held_shards: ("trees",),
    begun_before: ("plain", "plain"),
    begun_before_and_killed: ("plain", "plain"),
    counting: ("plain",),
    overloaded: ("plain", "plain", "where"),
    master_gone: ("plain",),
    spread_counting: ("plain",),
    bordered: ("six", "odd"),
    alone_over_panes: ("four",),
    bounded_over_panes: ("six",),
}

TWO = (stragglers, lagging, ranged, bordered)
"""In these two jobs are there from the beginning."""

LOGS = 3
"""Of each agent, in storms over files."""

FILES: dict[Storm, Style] = {
    away: Style(keep=1, hidden=True, pause_ms=50),
    kept: Style(packed="later", keep=9, pause_ms=50),
    cut_off: Style(copies=True, keep=9, pause_ms=50),
    cut_away: Style(copies=True, keep=9, pause_ms=500),
    peaceful: Style(keep=9, hidden=True, pause_ms=50),
    slow_files: Style(),
    unknown: Style(),
    stopped: Style(),
}

RATES_MS: dict[Storm, int] = {fashions: 200, reduced: 400, ranged: 400, bounded_over_panes: 400}
QUOTAS: dict[Storm, int] = {dead_leader: 9_000, bounded_over_panes: 4_200}
REGIONS: dict[Storm, tuple[int, ...]] = {
    bordered: (0, 0, 1, 1),
    alone_over_panes: (0, 0, 1, 1),
    bounded_over_panes: (0, 0, 0, 1),
}


def schedule(storm: Storm, seed: int) -> Schedule:
    faults = sorted(storm(random.Random(seed)), key=lambda fault: fault.at_ms)
    alone = storm is dead_leader
    return Schedule(
        mirrored=(0, 1, 2) if storm is behind else (),
        owned=(0, 1, 2) if storm is owned else (),
        together=tuple(range(EQUAL)) if storm is equal else (),
        seed=seed,
        nodes=AGENTS.get(storm, NODES),
        joiners=0,
        group_members=1 if alone else 3,
        jobs=JOBS.get(storm, ("plain", "odd", "where")),
        begun=3 if alone or storm in (lossy, overloaded) else 2 if storm in TWO else 1,
        disorder_ms=1_500 if storm in (equal, reduced, ranged, tabled_late) else 300,
        faults=tuple(faults),
        rate_ms=RATES_MS.get(storm, 150),
        quota=QUOTAS.get(storm, 256 << 20),
        storm_ms=12_000 if storm in JOBS else 10_000,
        promised=(0, 2) if storm is overloaded else (),
        eager=storm in (gone_eagerly, stuck_eagerly),
        pasts=((1, 5_000),) if storm in (begun_before, begun_before_and_killed) else (),
        files=((FILES[storm],) * LOGS,) * NODES if storm in FILES else (),
        program=storm in (counting, master_gone, spread_counting),
        trees=2 if storm is spread_counting else 1,
        regions=REGIONS.get(storm, ()),
    )


def doubled(rng: random.Random) -> list[Fault]:
    """Much comes twice, late, and again after a crash."""
    kinds = (("doubles", 20), ("overtaking", 15), ("loss", 8))
    weather = [Fault(kind, 0, for_ms=7_000, amount=share) for kind, share in kinds]
    points = (Fault("point", rng.randrange(5_000), (rng.randrange(NODES),), 300, 20) for _ in range(3))
    return [*weather, *points]


def owned(rng: random.Random) -> list[Fault]:
    """Jobs count by an aggregate of one's own; agents die."""
    return crashes(rng)


def leaving(rng: random.Random) -> list[Fault]:
    """One leaves, so the places in the roster change, while others die."""
    dies = Fault("point", rng.randrange(1_000, 5_000), (rng.randrange(NODES),), 300, 5)
    return [Fault("leave", 2_000, (rng.randrange(NODES - 1),)), Fault("loss", 0, (), 7_000, 8), dies]


def crashes(rng: random.Random) -> list[Fault]:
    return [Fault("crash", 2_000 + 1_500 * n + rng.randrange(500), (n,), 300) for n in range(NODES)]


def over_budget(rng: random.Random) -> list[Fault]:
    """Agents leave out more and fewer of their rows, and die meanwhile."""
    found = []
    for who in range(NODES):
        at = 1_000 + rng.randrange(1_500)
        for weight in (4, 2, 8, 1):
            found.append(Fault("budget", at, (who,), amount=weight))
            at += rng.randrange(300, 2_000)
        found.append(Fault("crash", at - 1_500 - rng.randrange(500), (who,), 300))
    return found


def slow_create(rng: random.Random) -> list[Fault]:
    """Chunks wait for slow stream tasks when a job is created."""
    return [*_slow(), Fault("create", 2_000 + rng.randrange(1_000), (rng.randrange(NODES),), amount=1)]
