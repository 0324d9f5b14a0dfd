"""``elf bench paper``: the figures of the paper out of other commands, where elf loses, one page."""

from __future__ import annotations

import json
import re
import shlex
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

from elf.cli.processes import ended
from elf.errors import ElfError, UserError
from lab.bench.paper import bench, figures, folder
from lab.bench.paper.bench import Paper
from lab.bench.paper.curves import Axes, Bound, Curve, Kind, Point, losses
from lab.bench.paper.figures import FIGURES, Asked, Sizes
from lab.bench.paper.measured import Measured, measured
from lab.bench.paper.readers import campaign, overheads, recovery, sent_bytes, trees, windows
from lab.bench.peers.engines import PEERS
from lab.cli.bench import command_of
from lab.cli.simulations import app

ALL = ["10a", "10b", "10c", "11", "12a", "12b", "12c", "13a", "13b", "13c", "4.1"]
SIZES = [
    Sizes.of(quick=quick, agents_max=agents, simulated_max=simulated)
    for quick, agents, simulated in ((True, 64, 10_240), (False, 64, 10_240), (False, 3, 16))
]


def said_of(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return said


def test_a_figure_is_in_json_and_on_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "folder"
    assert Paper(out, quick=True, figure=["12c"]).perform(as_json=True) == 0
    said = said_of(capsys)
    assert not said["12c"]["not_measured"]
    assert set(said) & set(ALL) == {"12c"}
    figure = said["12c"]
    (axes,) = figure["axes"]
    assert [curve["name"] for curve in axes["curves"]] == ["500 jobs", "1000 jobs", "2000 jobs"]
    for curve in axes["curves"]:
        shares = [point["y"] for point in curve["points"]]
        assert 0 < shares[0] < 90
        assert shares == sorted(shares)
        assert shares[-1] == pytest.approx(100)
    assert (figure["seed"], figure["loses"], figure["failed"]) == (1, [], [])
    assert figure["machine"]["machine"] == said["machine"]
    assert figure["seconds"].keys() == set(figure["commands"])
    assert json.loads((out / "paper.json").read_text()) == {"12c": figure}
    page = (out / "index.html").read_text()
    assert page.index("Where elf loses") < page.index("Not measured") < page.index("Figure 12c")
    assert len(re.findall(r'<img alt="[^"]+" src="data:image/svg\+xml;base64,', page)) == 1
    assert "http" not in re.sub(r"base64,[^\"]+|http-equiv", "", page), "it reads without a network"
    for text in (
        figure["commands"][0],
        "99.5 %",
        "12c: a quick look",
        said["elf"],
        "Seed: 1,",
        figure["spread"],
    ):
        assert text in page
    assert (out / "12c-1.svg").read_text().startswith("<?xml")


def test_every_figure_runs_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert Paper(tmp_path, quick=True).perform(as_json=True) == 0
    said = said_of(capsys)
    assert set(ALL) <= said.keys()
    for number in ALL:
        axes = said[number]["axes"]
        assert axes
        assert all(curve["points"] for one in axes for curve in one["curves"])
        assert any(curve["kind"] != "beside" for one in axes for curve in one["curves"])
    assert len(list(tmp_path.glob("*.svg"))) == sum(len(said[number]["axes"]) for number in ALL)


def test_a_command_that_fails_is_named_and_the_page_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = "elf bench sliding --size 300 --slide 7"
    figure = replace(FIGURES["12c"], asks=lambda _: Asked([wrong], ["a thing: not here"]))
    monkeypatch.setattr(figures, "FIGURES", {"12c": figure})
    monkeypatch.setattr(bench, "FIGURES", {"12c": figure})
    monkeypatch.setattr(folder, "FIGURES", {"12c": figure})
    with pytest.raises(ElfError, match=f"{wrong}: elf: the size of the windows must"):
        Paper(tmp_path, figure=["12c"]).perform(as_json=True)
    first, second = said_of(capsys)["12c"]["not_measured"]
    assert first == "a thing: not here"
    assert second.startswith(f"a command failed: {wrong}")
    page = (tmp_path / "index.html").read_text()
    assert page.index("a thing: not here") < page.index("Figure 12c")
    assert "quick look" not in page


def test_figures_of_other_runs_stay_until_they_are_measured_again(tmp_path: Path) -> None:
    machine = {"machine": "2 cores <b>", "date": "2026-01-01"}
    failed = ["elf bench x: it failed"]

    def one(number: str, *, quick: bool) -> Measured:
        return measured(
            number, Asked(["elf bench x"]), {}, failed, machine, {"elf bench x": 61.0}, quick=quick
        )

    folder.check(tmp_path)
    folder.add(tmp_path, {"11": one("11", quick=False), "10b": one("10b", quick=True)})
    folder.add(tmp_path, {"11": one("11", quick=True), "12b": one("12b", quick=False)})
    there = folder.there(tmp_path)
    assert [(number, figure.quick) for number, figure in there.items()] == [
        ("10b", True),
        ("11", True),
        ("12b", False),
    ]
    assert there["12b"].axes[0].bounds == [Bound("the paper: less than 100 ms", 100)]
    page = (tmp_path / "index.html").read_text()
    assert "10b, 11: a quick look" in page
    assert "2 cores &lt;b&gt;" in page
    assert "a command failed: elf bench x: it failed" in page
    (tmp_path / "paper.json").write_text('{"11": {}}')
    with pytest.raises(UserError, match=r"paper.json has figures of another elf: remove it"):
        folder.check(tmp_path)


def test_a_command_is_ended_by_whoever_is_first() -> None:
    """Its own thread when it is over, or the bench when it is interrupted."""
    with ended() as processes:
        child = processes.run("sleep", ["sleep", "60"], None)
        for _ in range(2):
            processes.stop([child])
        assert child.process.returncode == -signal.SIGTERM


def test_what_cannot_be_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="--figure 9: there are 10a, 10b, 10c, 11, "):
        Paper(figure=["10a, 9"])
    with pytest.raises(UserError, match=r"--figure \(nothing\)"):
        Paper(figure=[""])
    assert figures.numbered(["4.1,10a", "11"]) == ["10a", "11", "4.1"]
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file/page: Not a directory; give a folder that can be written"):
        Paper(tmp_path / "file" / "page")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UserError, match="--out needs matplotlib"):
        Paper(tmp_path)
    Paper()


def test_what_is_not_here_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither engines nor Java, Spark nor rsyslog: the commands are those that can run all the same."""
    monkeypatch.setattr(figures, "place_of", lambda _: None)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    quick, whole = (replace(sizes, envs=tmp_path) for sizes in SIZES[:2])
    asked = FIGURES["10a"].asks(whole)
    assert asked.lacking[0].startswith("not installed: Flink SQL, Spark Structured Streaming; install with")
    assert all("--engines duckdb --window" in command for command in asked.commands)
    asked = FIGURES["13a"].asks(SIZES[0])
    assert "rsyslog: apt-get install rsyslog" in asked.lacking
    assert "--shipper" not in asked.commands[0]
    for name in figures.STREAMING:
        python = tmp_path / name / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.touch()
    assert len(FIGURES["10a"].asks(quick).commands) == 1
    asked = FIGURES["10a"].asks(whole)
    assert asked.lacking[0].startswith("no java for Flink SQL, Spark Structured Streaming: install")
    assert all("--engines duckdb --window" in command for command in asked.commands)
    assert "code" in " ".join(FIGURES["10b"].read({}).lacking)
    assert FIGURES["11"].read({}).lacking == ["Google's sparsehash: no g++ or no libsparsehash-dev"]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("number", ALL)
def test_its_commands_can_be_given(number: str, sizes: Sizes) -> None:
    simulations = typer.main.get_command(app)
    asked = FIGURES[number].asks(sizes)
    assert asked.commands
    for command in asked.commands:
        elf, group, name, *words = shlex.split(command)
        assert (elf, group) in (("elf", "bench"), ("elf", "sim"))
        known = command_of(name) if group == "bench" else simulations.commands[name]  # type: ignore[attr-defined]
        known.make_context(name, [*words, "--json"])


def test_there_are_all_figures_and_the_sizes_end_where_they_are_told() -> None:
    assert list(FIGURES) == ALL
    assert [*SIZES[1].real, *SIZES[1].simulated] == [4, 16, 64, 64, 320, 1280, 5120, 10240]
    assert [*SIZES[2].real, *SIZES[2].simulated, *SIZES[2].busy] == [3, 16, 16]


def curves_of(*values: float, **beside: float) -> list[Curve]:
    own = [Curve("elf", Kind.ELF, [Point(x, y, y, 2 * y) for x, y in enumerate(values)])]
    return own + [Curve(name, Kind.BESIDE, [Point(1, y)]) for name, y in beside.items()]


def test_elf_loses_where_another_is_better_and_where_the_paper_is() -> None:
    curves = curves_of(1.0, 4.0, slow=5.0, quick=2.0)
    axes = Axes("t", "agents", "ms", curves, [Bound("the paper: 7", 7.0), Bound("other", 1.0, "none")])
    assert list(losses(axes)) == [
        "t: elf is behind quick at 1 agents: 4 and 2 ms, 2 times",
        "t: elf at 1 of 2 points, worst at 1 agents: 4 ms, worst 8; the paper: 7",
    ]
    more = replace(axes, more_is_better=True, bounds=[Bound("the paper: 3", 3.0)])
    assert list(losses(more)) == [
        "t: elf is behind slow at 1 agents: 4 and 5 ms, 1.25 times",
        "t: elf at 1 of 2 points, worst at 0 agents: 1 ms; the paper: 3",
    ]
    assert list(losses(Axes("t", "x", "ms", curves_of(0.0, 0.0, zero=0.0)))) == []
    assert list(losses(Axes("t", "x", "ms", curves_of(0.0, 1.0, zero=0.0)))) == [
        "t: elf is behind zero at 1 x: 1 and 0 ms"
    ]


def test_a_window_costs_what_its_events_cost() -> None:
    """Of the longest file that an engine has run; what is too short to tell is named."""
    side = {"engine": "elf", "events": 900, "events_per_core_s": 1_000_000, "spread": [500_000, 2_000_000]}
    less, none = {**side, "events": 90, "events_per_core_s": 7}, {"events_per_core_s": None, "spread": None}
    facts = {"slide_s": 5, "log_events_per_s": 200.0, "window_s": 300}
    answers = {
        "elf bench peers --rows 1000": {**facts, "sides": [less, {**none, "engine": "flink"}]},
        "elf bench peers": {**facts, "sides": [side]},
        "elf bench peers --rows 10": {**facts, "sides": [{**none, "engine": "elf"}]},
    }
    shown = windows(answers)
    assert shown.axes[0].curves == [Curve("elf", Kind.ELF, [Point(300, 1.0, 0.5, 2.0)])]
    assert [(row.what, row.here) for row in shown.beside] == [("a window of 300 s", "elf 1 ms")]
    assert shown.lacking == [f"{PEERS[1].title} with windows of 300 s: too short to tell"]


def test_readers_take_numbers_of_agents_in_order() -> None:
    quantiles = {"p50": 1.0, "p99": 3.0, "max": 4.0}
    shown = recovery(
        {
            "elf bench failover --agents 16": {"agents": 16, "recovery_ms": quantiles},
            "elf bench failover --agents 4": {"agents": 4, "recovery_ms": quantiles},
            "elf sim overlay --nodes 64": {"nodes": 64, "recovery_seconds": quantiles},
            "elf sim control --nodes 64": {"agents": 64, "leap_ms": quantiles},
        }
    )
    killed, leaps = shown.axes
    assert [point.x for point in killed.curves[0].points] == [4, 16]
    assert killed.curves[1].points == [Point(64, 1000, 1000, 3000)]
    assert leaps.curves == [Curve("leapt over, simulated", Kind.SIMULATED, [Point(64, 1.0, 1.0, 3.0)])]


def test_traffic_is_that_of_one_agent_in_a_second() -> None:
    sent = {"0": {"bytes_per_s": 9.0}, "5": {"bytes_per_s": 20.0}}
    shown = sent_bytes(
        {
            "elf bench jobs --agents 4": {"agents": 4, "window": 5, "all": {"bytes_a_window": 2_000}},
            "elf sim control --nodes 64": {"agents": 64, "traffic": sent},
            "elf sim overlay --nodes 64": {"nodes": 64, "upkeep": {"bytes_per_s": 7.0}},
        }
    )
    found = {curve.name: curve.points[0].y for curve in shown.axes[0].curves}
    assert found == {
        "an update every 5 s, real": 100.0,
        "no job, simulated": 9.0,
        "an update every 5 s, simulated": 20.0,
        "the ring alone, simulated": 7.0,
    }


def test_keys_and_hosts_beside_others() -> None:
    row = {"keys": "zipf", "groups": 10, "keys_per_s": 2_000_000, "spread": [1_000_000, 3_000_000]}
    rows = [{**row, "side": side, "peak_bytes_per_key": 5.0} for side in ("elf", "sparse_hash_map")]
    speed, memory = trees({"elf bench cbt": {"runs": rows}}).axes
    assert speed.curves[0].points == [Point(10, 2.0, 1.0, 3.0)]
    assert speed.more_is_better
    assert not memory.more_is_better
    run = {"cpu_percent": 1.0, "pss_mib": 2.0, "writes_per_s": 3.0, "switches_per_s": 4.0}
    shown = overheads({"elf bench idle": {"no_job": run, "one_job": run, "shipper": {**run, "pss_mib": 1.0}}})
    assert [text for axes in shown.axes for text in losses(axes)] == [
        "Memory: elf, no job is behind rsyslog: 2 and 1 MiB, 2 times",
        "Memory: elf, one job is behind rsyslog: 2 and 1 MiB, 2 times",
    ]


def test_the_application_says_how_many_agents_it_had() -> None:
    late = {"p50": 100.0, "p99": 300.0}
    real = {
        "agents": 32, "lag_ms": late, "zoomed_lag_ms": {"p50": 200.0, "p99": 250.0}, "zoom_ms": 50.0,
        "cores": 1.5, "spark_s": None, "compared": {"equal": 7, "explained": 1}, "judged": 8, "wrong": 0,
    }  # fmt: skip
    simulated = {"agents": 16, "campaign_ms": late, "zoom_ms": {"p50": 9.0, "p99": 9.0}}
    answers = {"elf bench campaign": real, "elf sim control --rate 50": simulated}
    shown = campaign(answers)
    assert shown.axes[0].curves[0].points == [Point(32, 200.0, 100.0, 300.0)]
    assert [row.here for row in shown.beside] == [
        "32 real on this machine, 16 simulated",
        "9 to 50 ms",
        "8 of 8",
        "windows by Spark: 7 equal, 1 explained",
    ]
    assert shown.lacking == ["1,280 agents: this size is smaller than the paper's"]
