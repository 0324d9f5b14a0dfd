"""``elf sim wan``: what its network measures, and that what it says is a line of JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("scipy")

from elf.planning.routes.model import Demand, Link
from elf.planning.routes.sizes import Size
from lab.scenarios import ScenarioOptions, run_scenarios
from lab.wan import network
from lab.wan.network import Network, Sending
from lab.wan.panes import Log, bytes_of, merged
from lab.wan.scenarios import SCENARIOS

LINE = Size("line", 1.0, 0.0)


def demand(name: str, sources: dict[str, float]) -> Demand:
    return Demand(name=name, target="c", sources=sources, size=LINE)


@pytest.fixture(autouse=True)
def _even(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are alike."""
    monkeypatch.setattr(network, "SPREAD", 0.0)


def test_a_batch_takes_its_bytes_at_the_links_rate_and_the_delay() -> None:
    sending = Sending(demand("j", {"a": 2.0}), {"a": "c"}, 1.0)
    found = Network([Link("a", "c", 8.0, 0.1)], [sending], 1).run(20.0)
    assert found.batch_s["j"] == pytest.approx(2 / 8 + 0.1)
    assert found.sent["a", "c"] == pytest.approx(2.0 * len(found.batch_s["j"]), abs=2.1)


def test_a_relay_waits_for_what_it_is_sent_and_its_own_goes_with_it() -> None:
    links = [Link("a", "b", 4.0), Link("b", "c", 10.0), Link("a", "c", 1.0)]
    sending = Sending(demand("j", {"a": 2.0, "b": 3.0}), {"a": "b", "b": "c"}, 2.0)
    found = Network(links, [sending], 1).run(20.0)
    assert found.batch_s["j"] == pytest.approx(4 / 4 + 10 / 10)
    assert found.sent["a", "c"] == 0


def test_a_relay_without_rows_of_its_own_sends_on_once() -> None:
    links = [Link("a", "r", 4.0), Link("b", "r", 2.0), Link("r", "c", 3.0)]
    sending = Sending(demand("j", {"a": 2.0, "b": 1.0}), {"a": "r", "b": "r"}, 4.0)
    found = Network(links, [sending], 1).run(40.0)
    assert found.batch_s["j"] == pytest.approx(8 / 4 + 12 / 3)


def test_transfers_share_a_link_alike() -> None:
    both = [Sending(demand(name, {"a": 2.0}), {"a": "c"}, 1.0) for name in "xy"]
    found = Network([Link("a", "c", 100.0)], both, 1).run(5.0)
    alone = 2 / 100
    assert all(
        alone - 1e-9 <= took.min() <= took.max() <= 2 * alone + 1e-9 for took in found.batch_s.values()
    )
    full = Network([Link("a", "c", 3.0)], both, 1).run(30.0)  # 4 a second do not fit
    assert np.all(np.diff(full.batch_s["x"]) > 0)
    assert full.left > 5


def test_panes_are_merged_to_the_lines_that_they_are_of_and_grow_less_than_lines() -> None:
    log = Log(1, 500)
    some = [log.pane(1_000) for _ in range(8)]
    whole = merged(some)
    assert sum(whole["s0"].to_pylist()) == 8_000
    assert whole.num_rows <= 500
    assert bytes_of([whole]) < 0.5 * bytes_of(some)


def test_sizes_of_a_grouped_log_are_learned_as_a_curve_that_saturates() -> None:
    found = SCENARIOS["sizes"](2)
    assert found.reached, found.measured
    path = found.measured["path"]
    assert "exp" in path["fit"]
    assert path["residual"] < path["others"]["line"]


def test_each_row_is_under_its_name_with_its_target(capsys: pytest.CaptureFixture[str]) -> None:
    options = ScenarioOptions(("figure_1", "planner"), 1, as_json=True)
    code = run_scenarios(SCENARIOS, options)
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == (0 if found["ok"] else 1)
    assert found["figure_1"]["reached"]
    assert found["figure_1"]["measured"]["direct_s"] == 2.5
    assert found["planner"]["measured"]["3 sources"]["infeasible"] == 0
