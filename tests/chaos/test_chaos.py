"""``elf sim chaos``: histories of whole fleets, the same in every process, and small where they fail."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Hashable
from pathlib import Path

import pytest

from agents.committing.kept import Contents, Kept
from elf.cli.main import main
from elf.fields import replace
from lab.chaos.books import LOST, WRONG, Finding
from lab.chaos.drawing import drawn
from lab.chaos.features import FEATURES
from lab.chaos.schedule import SAID, STORM_MS, Fault, Schedule
from lab.chaos.shrink import shrunk
from lab.chaos.story import Story, Verdict, play
from lab.cli.chaos import ChaosOptions, run_chaos
from tests.chaos import plants
from tests.support.long import cases
from tests.support.storms import EQUAL, NODES, equal, gone, reduced, schedule, unheard

ROOT = Path(__file__).parents[2]
FIXED = range(1, 1 + int(os.environ.get("ELF_CHAOS_SEEDS", cases("15", "500"))))
"""Seeds that are always run; ``ELF_CHAOS_SEEDS=500`` runs more."""
RARE = [
    (567, 4),
    (1085, 4),
    (1101, 4),
    (4653, 4),
    (500041, 8),
    (520126, 8),
    (520244, 8),
    (520389, 8),
    (600068, 8),
    (3000046, 5),
    (3000219, 5),
    (6000009, 8),
]
"""Seeds and nodes: sides over one stream, one of which lacks rows; a gap behind a copy; cuts within cuts, and
after them; a packed file that grows; who leaves before the log has it as a member, and holds copies; a file
after one that is deleted; a master that dies with a window of a paused job; a root of a key range that is
new; who leaves before a flow has read its past; who is over its quota in one key range."""
FRESH = range(first := int(time.time()), first + -(-len(FIXED) // 5))
"""Seeds that nobody has run before, a fifth as many. The processes of ``pytest -n`` agree on the names."""


def first_with_files() -> int:
    """A seed in which agents read files that are rotated."""
    return next(seed for seed in FIXED if drawn(seed, NODES).files)


@pytest.mark.parametrize("seed", [*FIXED, *(pytest.param(s, id=f"fresh {s - first}") for s in FRESH)])
def test_nothing_is_wrong_lost_or_twice(seed: int) -> None:
    verdict = play(drawn(seed, NODES))
    assert verdict.findings == (), f"elf sim chaos --seeds 1 --first-seed {seed} --nodes {NODES}"
    assert verdict.windows > 0 or seed in FRESH, "in some histories a job is paused and nobody hears RESUME"
    assert verdict.records > 50


@pytest.mark.parametrize(("seed", "nodes"), RARE)
def test_what_few_seeds_show(seed: int, nodes: int) -> None:
    assert play(drawn(seed, nodes)).findings == ()


def test_agents_and_masters_die_under_larger_windows_jobs_over_jobs_and_joined_ones() -> None:
    """Each agent once, then the job group of each job that is made of another's windows."""
    jobs = ("plain", "larger", "over", "joined")
    crashes = [Fault("crash", 1_000 + 1_200 * n, (n,), 300) for n in range(NODES)]
    job_groups = [Fault("leader", 1_600 + 2_000 * job, (), 400, job) for job in range(1, len(jobs))]
    weather = [Fault("doubles", 0, (), 9_000, 10), Fault("loss", 0, (), 9_000, 4)]
    faults = tuple(sorted([*crashes, *job_groups, *weather], key=lambda fault: fault.at_ms))
    storm = replace(schedule(unheard, 3), jobs=jobs, begun=len(jobs), faults=faults)
    verdict = play(storm)
    assert verdict.findings == ()
    assert verdict.windows > 20


@pytest.mark.parametrize("seed", [9, 11])
def test_what_others_have_of_an_agent_that_is_gone_for_good_is_in_the_last_words(seed: int) -> None:
    story = Story(schedule(gone, seed))
    assert story.play().findings == ()
    (copied,) = story.ledger.replicas.gone.values()
    assert copied, "there was something to be saved"


def test_windows_of_equal_jobs_are_made_once_in_a_storm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of them; the rest are revised, or are the first."""
    made, taken = Kept.made, list[object]()

    def look(kept: Kept, key: Hashable | None) -> Contents | None:
        found = made(kept, key)
        taken.extend([key] if found is not None else [])
        return found

    monkeypatch.setattr(Kept, "made", look)
    story = Story(schedule(equal, 1))
    verdict = story.play()
    assert verdict.findings == ()
    assert len(taken) > 50
    log = story.world.longest()
    assert log is not None
    jobs = log.jobs()
    assert len(jobs) == EQUAL
    assert len({story.world.leader(spec).index for spec in jobs}) == 1


def test_some_schedules_have_equal_jobs_that_are_to_be_together() -> None:
    drawn_together = [one for seed in range(100) if (one := drawn(seed, NODES)).together]
    assert 20 < len(drawn_together) < 50
    kinds = {one.jobs[number] for one in drawn_together for number in one.together}
    assert {"long", "slide", "leap"} <= kinds
    for one in drawn_together:
        assert len({one.jobs[number] for number in one.together}) == 1
        assert len({number in one.mirrored for number in one.together}) == 1
        created = {fault.amount for fault in one.faults if fault.kind == "create"}
        assert {number for number in one.together if number >= one.begun} <= created


def test_a_reduce_function_changes_panes_and_their_revisions_and_fails_in_a_storm() -> None:
    story = Story(schedule(reduced, 3))
    assert story.play().findings == ()
    flows = [flow for flow in story.ledger.flows.values() if flow.fragment.reduce is not None]
    words = [word for flow in flows for word in story.ledger.panes[flow.uid].values()]
    changed = {word.start for word in words if word.row.raw}
    assert {word.start for word in words if word.revision} & changed
    failed = [word for word in words if word.failed]
    assert failed
    log = story.world.longest()
    assert log is not None
    (spec,) = log.jobs()
    assert spec.version == 3, "it has gone back by itself"
    assert spec.plan.fragment.reduce is None


@pytest.mark.parametrize("seed", [2, 7])  # of the second agents read files, and lines are lost
def test_a_seed_has_one_history_in_all_processes(seed: int) -> None:
    """Whatever the salt of hashes is, the inodes of files, and how fast the machine."""
    verdict = play(drawn(seed, NODES))
    command = ["sim", "chaos", "--seeds", "1", "--first-seed", str(seed), "--nodes", str(NODES), "--json"]
    ran = subprocess.run(
        [sys.executable, "-m", "elf.cli.main", *command],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    facts = json.loads(ran.stdout.splitlines()[-1])
    assert facts["fingerprint"] == hashlib.blake2b(verdict.fingerprint.encode(), digest_size=8).hexdigest()
    assert (facts["seeds"], facts["windows"], facts["records"]) == (1, verdict.windows, verdict.records)
    done = verdict.rotations, verdict.stops, verdict.gaps
    assert (facts["rotations"], facts["stops"], facts["gaps"]) == done
    assert [facts[name] for name in ("wrong", "lost", "doubled", "failing_seeds")] == [0, 0, 0, []]


def test_schedules_have_every_kind_of_fault_in_the_time_of_the_storm() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(300):
        for nodes in (2, 5, 32):
            one = drawn(seed, nodes)
            assert one == drawn(seed, nodes)
            assert sorted(one.faults, key=lambda fault: fault.at_ms) == list(one.faults)
            assert all(0 <= index < nodes for fault in one.faults for index in fault.who)
            assert all(str(fault) for fault in one.faults)
            kinds.update(fault.kind for fault in one.faults if fault.at_ms < STORM_MS)
    assert kinds.keys() == SAID.keys()


def test_in_a_third_of_the_schedules_there_are_files_and_the_others_are_as_they_were() -> None:
    schedules = [drawn(seed, 8) for seed in range(300)]
    with_files = [one for one in schedules if one.files]
    assert 70 < len(with_files) < 135
    styles = {style for one in with_files for logs in one.files for style in logs}
    assert {style.packed for style in styles} == {"", "now", "later"}
    assert {(style.copies, style.hidden, style.dated) for style in styles} == {
        (copies, hidden, dated)
        for copies in (False, True)
        for hidden in (False, True)
        for dated in (False, True)
    }
    for one in with_files:
        for fault in one.faults:
            if fault.kind in ("rotate", "remove"):
                assert fault.amount < len(one.files[fault.who[0]])
    others = [fault.kind for one in schedules if not one.files for fault in one.faults]
    assert not {"rotate", "remove", "stop"} & {*others}


def test_what_is_asked_for_is_in_every_schedule_and_without_it_they_are_as_they_were() -> None:
    for seed in range(40):
        one = drawn(seed, 5, FEATURES)
        assert one.promised
        assert one.regions
        assert not one.files
        assert {"move", "overload", "table", "ring", "rekey"} <= {fault.kind for fault in one.faults}
        assert {"scale", "decide", "heir dies"} & {fault.kind for fault in one.faults}
        assert "offload" in {fault.kind for fault in one.faults}
        plain, tabled = drawn(seed, 5), drawn(seed, 5, ["tables"])
        kinds = {fault.kind for fault in plain.faults}
        if kinds >= {"table", "rekey"} and "ring" not in kinds:  # that has changes of its own
            assert tabled == plain
        assert tabled.files == plain.files
        assert tabled.regions == plain.regions


def test_a_failing_schedule_is_made_small() -> None:
    """The fault needs two others; one of them alone shows another kind of fault, which is not it."""
    runs: list[Schedule] = []
    whole = next(one for seed in range(99) if len((one := drawn(seed, 32)).faults) > 9)
    needed = {whole.faults[1], whole.faults[-1]}

    def run(one: Schedule) -> Verdict:
        runs.append(one)
        there = needed & {*one.faults}
        kind = WRONG if there == needed else LOST
        findings = (Finding(kind, "x", 1),) if there else ()
        return Verdict(1, 1, 1, findings, "", 1)

    left, verdict = shrunk(whole, run(whole), run)
    assert left == (2, len(whole.faults))
    assert verdict.count(WRONG) == 1
    assert len(runs) <= 40


def test_a_failing_seed_is_told_with_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plants.commits.commits_before_a_majority(monkeypatch)
    monkeypatch.setattr("lab.chaos.drawing.drawn", lambda seed, nodes, **_: schedule(unheard, seed))
    command = ["sim", "chaos", "--seeds", "1", "--first-seed", "3", "--nodes", "4"]
    with pytest.raises(SystemExit) as ended:
        main([*command, "--json"])
    lines = capsys.readouterr().out.splitlines()
    assert ended.value.code == 1
    assert lines[0] == "seed 3 fails:"
    assert lines[1].startswith("  broken at 1")
    assert "nobody hears the leader of job 0, which hears everybody, for 7 s" in "\n".join(lines)
    assert lines[-2] == "  again: elf " + " ".join([*command, "--only", "1"])
    facts = json.loads(lines[-1])
    assert (facts["failing_seeds"], facts["wrong"], facts["broken"]) == ([3], 0, 1)


def test_progress_is_told_on_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calm = replace(drawn(1, 2), faults=(), storm_ms=3_000)
    monkeypatch.setattr("lab.chaos.drawing.drawn", lambda seed, nodes, **_: calm)
    monkeypatch.setattr("lab.cli.chaos.PROGRESS_S", 0.0)
    assert run_chaos(ChaosOptions(2, 1, 2, None, False, 1, as_json=True)) == 0
    said = capsys.readouterr()
    assert re.fullmatch(r"1 of 2 seeds, \d+ windows, 0 failing\n", said.err)
    assert json.loads(said.out)["seeds"] == 2


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--only", "2"], "--only chooses faults of one seed: give --seeds 1 with it"),
        (["--seeds", "1", "--only", "x"], "--only x: give numbers of faults, such as --only 2,5"),
        (["--seeds", "1", "--only", "99"], "--only 99: seed 1 of 8 nodes has faults 1 to "),
    ],
)
def test_options_that_mean_nothing(
    options: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["sim", "chaos", *options])
    assert ended.value.code == 1
    assert error in capsys.readouterr().err


def test_the_help_names_all_that_every_seed_may_have(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["sim", "chaos", "--help"])
    assert f"{', '.join(FEATURES)}." in " ".join(capsys.readouterr().out.split())
