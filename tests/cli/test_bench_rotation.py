"""``elf bench rotation``: its judge sees each planted error, and its rotations lose no row of their own."""

from __future__ import annotations

import gzip
import random
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elf.cli.processes import Processes
from elf.errors import UserError
from elf.fields import replace
from lab.bench.rotation import neighbours
from lab.bench.rotation.bench import RotationBench, RotationReader, RotationWriter
from lab.bench.rotation.beside import gaps_of
from lab.bench.rotation.cells import QUICK, cells, drawn
from lab.bench.rotation.judge import Gap, Row, Seen, judge
from lab.bench.rotation.neighbours import Neighbour
from lab.bench.rotation.rotations import ROTATIONS, prepare, rotator_of
from lab.bench.rotation.side import Files
from lab.bench.rotation.writers import Plain, rows
from lab.bench.runner import Scratch

SIZE = 80
TRUTH = {f"/r/{number}": Row(1000.0 + number // 10, SIZE) for number in range(100)}
ALL = dict.fromkeys(TRUTH, 1)
LOST = tuple(f"/r/{number}" for number in range(20, 40))
"""Rows of the seconds 1002 and 1003."""
GAP = Gap("web-1", "logs/access.log", SIZE * len(LOST), 1002.0, 1003.0)
TOLD = {"status": True, "log": True, "health": True, "metrics": True, "compare": True}


def without(*names: str) -> dict[str, int]:
    return {name: 1 for name in ALL if name not in names}


def kept(*names: str) -> frozenset[str]:
    """In files: all rows but these."""
    return frozenset(TRUTH).difference(names)


GONE = Seen(TRUTH, without(*LOST), {GAP}, kept(*LOST), told=TOLD)


def test_each_row_in_a_window_or_in_a_gap_passes() -> None:
    assert judge(Seen(TRUTH, ALL, files=kept())).failures == []
    verdict = judge(GONE)
    assert verdict.failures == []
    assert (verdict.wrote, verdict.in_windows, verdict.in_gaps) == (100, 80, 20)


@pytest.mark.parametrize(
    ("seen", "failure"),
    [
        (Seen(TRUTH, without(*LOST), files=kept(*LOST)), "20 lost"),
        (Seen(TRUTH, without(*LOST), files=kept()), "20 lost (20 in files)"),
        (Seen(TRUTH, without(*LOST), left_out=15), "20 lost (15 counted as left out)"),
        (Seen(TRUTH, ALL | {"/r/7": 2}), "1 doubled"),
        (Seen(TRUTH, ALL | {"/r/100": 1}), "1 that nobody wrote"),
        (Seen(TRUTH, ALL, {GAP}, told=TOLD), "1 false gaps"),
        (msgspec.structs.replace(GONE, files=kept()), "20 lost (20 in files)"),
        (msgspec.structs.replace(GONE, told=TOLD | {"health": False}), "gaps untold: health"),
        (msgspec.structs.replace(GONE, gaps={msgspec.structs.replace(GAP, last=1002.0)}), "10 lost"),
        (
            msgspec.structs.replace(GONE, by_window={1002.0: (), 1003.0: (GAP,)}),
            "10 in gaps that their windows do not name",
        ),
        (
            msgspec.structs.replace(GONE, gaps={msgspec.structs.replace(GAP, size=SIZE)}),
            f"gap bytes: {SIZE} said, {SIZE * len(LOST)} gone",
        ),
    ],
)
def test_a_planted_error_is_seen(seen: Seen, failure: str) -> None:
    assert failure in judge(seen).failures


def test_what_nobody_could_read_is_excused_only_where_it_is_no_gap_and_in_no_file() -> None:
    seen = Seen(TRUTH, without(*LOST), files=kept(*LOST), raced=frozenset(LOST[:5]))
    assert (judge(seen).raced, judge(seen).lost) == (5, 15)
    assert judge(msgspec.structs.replace(seen, files=kept())).lost == 20
    assert judge(msgspec.structs.replace(seen, gaps={GAP})).in_gaps == 20
    least = msgspec.structs.replace(GAP, size=15 * SIZE)
    assert judge(msgspec.structs.replace(seen, gaps={least})).failures == []


def test_a_gap_of_rows_that_were_read_is_false_unless_its_agent_was_away_and_no_file_has_them() -> None:
    seen = Seen(TRUTH, ALL, {GAP}, kept(*LOST), told=TOLD)
    unknown = msgspec.structs.replace(seen, gaps={msgspec.structs.replace(GAP, size=None)}, away=True)
    assert judge(seen).false_gaps == 1
    assert judge(unknown).failures == []
    assert judge(msgspec.structs.replace(unknown, files=kept())).false_gaps == 1
    cut = judge(msgspec.structs.replace(unknown, files=kept(), cut=True))
    assert (cut.failures, cut.unsure) == ([], 1)
    assert judge(msgspec.structs.replace(seen, cut=True)).false_gaps == 1


@given(
    st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.booleans()), min_size=1, max_size=60),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=3),
)
def test_the_judge_is_what_one_row_after_another_says(
    fates: list[tuple[int, bool, bool]], spans: list[tuple[int, int]]
) -> None:
    truth = {f"/r/{number}": Row(float(number), 1) for number in range(len(fates))}
    gaps = {Gap("web-1", "x", None, float(min(span)), float(max(span))) for span in spans}
    by_name = dict(zip(truth, fates, strict=True))
    verdict = judge(
        Seen(
            truth,
            {name: count for name, (count, _, _) in by_name.items()},
            gaps,
            {name for name, (_, in_file, _) in by_name.items() if in_file},
            {name for name, (_, _, raced) in by_name.items() if raced},
        )
    )
    found = {"windows": 0, "gap": 0, "raced": 0, "lost": 0}
    right = set()
    for number, (count, in_file, raced) in enumerate(fates):
        here = {gap for gap in gaps if gap.first <= number <= gap.last}
        right |= here if not count and not in_file else set()
        if count:
            found["windows"] += 1
        elif in_file:
            found["lost"] += 1
        elif here:
            found["gap"] += 1
        else:
            found["raced" if raced else "lost"] += 1
    said = (verdict.in_windows, verdict.in_gaps, verdict.raced, verdict.lost)
    assert said == tuple(found.values())
    assert sum(said) == verdict.wrote
    assert verdict.doubled == sum(count > 1 for count, _, _ in fates)
    assert verdict.false_gaps == len(gaps - right)


def test_a_gap_is_read_from_a_status_or_from_json() -> None:
    told = {"agent": "web-1", "source": "x", "bytes": None, "from": "1970-01-01T00:16:42Z", "to": 1003}
    gap = Gap("web-1", "x", None, 1002.0, 1003.0)
    assert gaps_of({"gaps": [told]}) == {gap}
    assert gaps_of({"gaps": msgspec.json.encode([told]).decode()}) == {gap}
    assert gaps_of({"gaps": [told | {"to": 1_700_000_000_000_000}]}) == {
        Gap("web-1", "x", None, 1002.0, 1.7e9)
    }
    assert gaps_of({}) == set()
    with pytest.raises(ValueError, match="not a gap"):
        gaps_of({"gaps": [{"agent": "web-1"}]})


@pytest.mark.parametrize("name", ROTATIONS)
def test_a_rotation_in_python_loses_no_row_and_keeps_so_many_files(tmp_path: Path, name: str) -> None:
    rotation = replace(
        ROTATIONS[name], dated=False
    )  # dated names hold seconds, and would have to wait for them
    logs = tmp_path / "logs"
    logs.mkdir()
    log = prepare(rotation, logs)
    writer = Plain(log, tmp_path / "truth.log")
    rotate = rotator_of(rotation, log, writer, 3, tmp_path)
    files = Files(logs, tmp_path / "truth.log")
    for number in range(5):
        writer.write(10 * number, 10)
        rotate()
        files.look(excused=True)
    writer.write(50, 10)
    files.look(excused=True)
    writer.close()
    assert files.raced == set()
    assert files.here == {f"/r/{number:06}" for number in range(20, 60)}
    old = [path for path in logs.iterdir() if path.is_file() and path.resolve() != log.resolve()]
    packed = [path for path in old if path.suffix == ".gz"]
    assert (len(old), len(packed)) == (3, (3 - rotation.delays) * rotation.compresses)


def test_what_a_rotation_destroys_is_raced_only_if_it_never_was_in_a_file(tmp_path: Path) -> None:
    log, truth = tmp_path / "logs" / "access.log", tmp_path / "truth.log"
    log.parent.mkdir()
    writer = Plain(log, truth)
    files = Files(log.parent, truth)
    writer.write(0, 10)
    files.look(excused=True)
    writer.write(10, 10)
    log.write_bytes(b"")
    files.look(excused=True)
    writer.close()
    assert files.raced == {f"/r/{number:06}" for number in range(10, 20)}


def test_rows_are_whole_lines_with_their_times(tmp_path: Path) -> None:
    writer = Plain(tmp_path / "access.log", tmp_path / "truth.log")
    before = int(time.time())
    writer.write(7, 2)
    writer.close()
    data = (tmp_path / "access.log").read_bytes()
    assert data == (tmp_path / "truth.log").read_bytes()
    read = rows(data + data[:20])
    assert list(read) == ["/r/000007", "/r/000008"]
    assert all(before <= row.time <= time.time() and 2 * row.size == len(data) for row in read.values())
    assert rows(gzip.decompress(gzip.compress(data))) == read


def test_names_are_unique_and_a_drawn_cell_is_the_same_again() -> None:
    names = [cell.name for cell in cells()]
    assert len(names) == len(set(names))
    assert set(QUICK) < set(names)
    for number in random.Random(1).sample(range(1000), 50):
        cell = drawn(3, number)
        assert cell == drawn(3, number) != drawn(4, number)
        steps = [step for step in cell.script if step in ("kill", "start", "stop", "go")]
        dead = stopped = False
        for step in steps:
            assert {"kill": not dead, "start": dead, "stop": not dead and not stopped, "go": stopped}[step]
            dead = {"kill": True, "start": False}.get(step, dead)
            stopped = {"stop": True, "go": False, "kill": False}.get(step, stopped)
        assert not dead
        assert not stopped


@pytest.mark.parametrize("name", ["rsyslog", "syslog-ng"])
def test_what_a_neighbour_has_written_is_judged_as_windows_are(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "found", lambda tool, *_: f"/usr/sbin/{tool}")
    neighbour = Neighbour(name, Processes(), tmp_path, tmp_path / "access.log")
    assert not neighbour.counts()
    lines = [f'127.0.0.1 - - [10/Oct/2026:13:55:36 +0000] "GET {stem} HTTP/1.1" 204 0' for stem in TRUTH]
    (tmp_path / "out.log").write_text("".join(f"{line}\n" for line in [*lines[1:], lines[1]]))
    verdict = judge(Seen(truth=TRUTH, counts=neighbour.counts(), files=frozenset(TRUTH)))
    assert (verdict.lost, verdict.lost_in_files, verdict.doubled) == (1, 1, 1)
    (config,) = (tmp_path / "state").iterdir()
    assert str(tmp_path / "access.log") in config.read_text()


def test_a_neighbour_that_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.bench.rotation.writers.place_of", lambda _: None)
    with pytest.raises(UserError, match=r"needs rsyslogd: apt-get install rsyslog$"):
        RotationBench(reader=RotationReader.RSYSLOG, writer=RotationWriter.PYTHON).sides(Scratch())
