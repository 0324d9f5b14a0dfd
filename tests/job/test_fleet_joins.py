"""Two streams joined in whole fleets on virtual time: an agent and the job group die and come back, messages
are lost and doubled, late parts revise panes of both, and the last word on each window is what all logs say.
"""

from __future__ import annotations

from collections import Counter

from elf.fields import replace
from elf.job.group.versions import Version
from elf.job.spec import VersionRecord
from elf.windows import Sliding
from lab.chaos.engine import APART_US, SECOND, STREAM, joined_plan, spec_of
from lab.chaos.world import World
from tests.support.histories import asked, last_words, struck

OTHER = "buys"
KINDS = (Sliding(2 * SECOND, 2 * SECOND), Sliding(5 * SECOND, 3 * SECOND))


def pairs(world: World, start: int, end: int) -> Counter[str]:
    """Clicks of a window, each as often as it has partners."""
    logs = {
        name: [log for agent in world.agents if (log := agent.logs.get(name))] for name in (STREAM, OTHER)
    }
    others = [row for log in logs[OTHER] for row in log.rows]
    found: Counter[str] = Counter()
    for ts, key in (row for log in logs[STREAM] for row in log.rows):
        if start <= ts < end:
            found[key] += sum(k == key and APART_US[0] <= t - ts <= APART_US[1] for t, k in others)
    return +found


def test_the_last_word_on_each_window_has_all_pairs() -> None:
    trees = 2
    world = World(43, 4, loss=0.02, doubles=0.02, checking=False)
    for agent in world.agents:
        agent.streams = (STREAM, OTHER) if agent.index else (OTHER,)
    roots = tuple(agent.address for agent in world.agents[1:trees])
    query = replace(joined_plan(KINDS, OTHER), trees=trees)
    world.start_all()
    until = world.now + 20_000
    for agent in world.agents:
        world.write(agent, until, rate_ms=400)
    spec = world.create(1, query, roots=roots)
    text, told = asked(world, 3, "EXPLAIN job")
    assert (told["join"]["before_s"], told["join"]["after_s"], told["join"]["keys"]) == (2, 1, ["k0"])
    assert "windows wait      1 s longer than without the join" in text
    world.run(6_000)
    victim = next(a for a in world.agents if a.address not in (spec.leader, *(f.leader for f in spec.flows)))
    struck(world, spec, victim, away_ms=7_000, after_ms=30_000)
    (master,) = world.leader(spec).node.job_groups.jobs()
    calendar, end = master.current.calendar(), until * 1000
    spans = calendar.ending(calendar.from_us, end)
    windows = list(zip(spans.starts.tolist(), spans.ends.tolist(), strict=True))
    want = {(*span, key): n for span in windows for key, n in pairs(world, *span).items()}
    got = last_words(world, spec)
    assert len(want) > 30
    assert {window: n for window, n in got.items() if window[1] <= end} == want
    panes = [flow.first_pane for flow in master.current.flows if flow.first_pane is not None]
    assert len(panes) == len(master.current.flows)
    assert calendar.from_us == max(panes) * SECOND + query.reach[0], "partners of the first rows are there"


def test_panes_are_kept_for_partners_before_and_after_a_window() -> None:
    spec = spec_of("job", "me", 1, joined_plan(KINDS[:1], OTHER), ())
    assert spec.plan.reach == (2 * SECOND, SECOND)
    record = VersionRecord(spec, "committed", first_pane=10)
    assert Version(record).wanted_from(30) == 8
    at_20_s = Version(record, 20 * SECOND)
    assert at_20_s.reads_from() == 8
    assert at_20_s.wanted_from(30) == 18, "for the window from 20 s on"
    assert at_20_s.wanted_from(15) == 12, "a revision of pane 15 touches the window from 14 s on"
    over = Version(replace(record, state="finished", ends_us=20 * SECOND), 20 * SECOND)
    assert over.wanted_from(21) == 21
    assert over.wanted_from(20) == 16, "pane 20 may still be revised, and touches the last window"
