"""Trees and intervals: what links carry is kept, nobody waits longer than over direct paths, and nearly
nothing is better than what was planned."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("scipy")

from elf.planning.routes.intervals import intervals
from elf.planning.routes.model import Demand, Link, Objective, Problem
from elf.planning.routes.planner import Plan, plan
from elf.planning.routes.sizes import Size, fitted
from elf.planning.routes.turning import Standing, compared, panes_to_hold, sooner
from lab.wan.drawn import WORD_COUNT, large, small, the_testbed, usable
from lab.wan.exact import best_value
from lab.wan.printed import algorithm_1
from lab.wan.scenarios import figure_1, figure_1_problem, ratios


def test_figure_1s_detour_takes_less_than_a_second_where_the_direct_path_takes_2_5() -> None:
    found = figure_1(1)
    assert found.reached, found.measured
    assert found.measured["vias"]["A"] in ("B", "C")  # whose groups are merged with A's
    links, demands = figure_1_problem()
    relay = found.measured["vias"]["A"]
    reason = f"statistics: A sends over {relay}, where links carry 25 a second or more; A → D carries 2"
    assert reason in plan(links, demands).reasons


def test_algorithm_1_as_printed_never_leaves_the_direct_path_and_refuses_figure_1s_detour() -> None:
    problem = Problem(*figure_1_problem(), "goodput")
    trees, _ = algorithm_1(problem)
    assert trees == [job.direct for job in problem.jobs]
    assert plan(*figure_1_problem(), "goodput").routes["statistics"].detours  # what the paper means


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["line", "power", "saturation"]))
def test_no_size_that_does_not_decrease_lets_the_printed_step_take_a_detour(seed: int, shape: str) -> None:
    links, demands = small(seed)
    size = Size(shape, 2.0, 0.5, 0.6)  # type: ignore[arg-type]
    demands = [Demand(name=one.name, target=one.target, sources=one.sources, size=size) for one in demands]
    problem = Problem(links, demands, "goodput")
    assert algorithm_1(problem)[0] == [job.direct for job in problem.jobs]


def kept(links: list[Link], demands: list[Demand], found: Plan) -> None:
    """Raises where a plan is none: it is added up anew, from routes alone."""
    rates = {(one.origin, one.target): one.rate for one in links}
    load: dict[tuple[str, str], float] = {}
    for demand in demands:
        if demand.name in found.infeasible:
            continue
        route = found.routes[demand.name]
        assert demand.least_s <= route.interval_s * (1 + 1e-6)
        assert route.interval_s <= demand.most_s * (1 + 1e-6)
        inputs: dict[tuple[str, str], float] = {}
        for source, via in route.vias.items():
            rate = demand.sources[source]
            if via != route.target:
                assert route.vias.get(via, route.target) == route.target, "three hops"
                inputs[source, via] = inputs.get((source, via), 0.0) + rate
                source = via
            inputs[source, route.target] = inputs.get((source, route.target), 0.0) + rate
        assert set(route.vias) == {one for one, rate in demand.sources.items() if rate} - {route.target}
        for pair, rate in inputs.items():
            size = float(demand.size(np.array(rate * route.interval_s)))
            load[pair] = load.get(pair, 0.0) + size / route.interval_s
    assert load.keys() == found.links.keys()
    for pair, one in load.items():
        assert one <= rates[pair] * (1 + 1e-4), pair
        assert found.links[pair].load == pytest.approx(one)


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["fair", "goodput"]))
def test_links_carry_the_plan_and_no_interval_is_longer_than_over_direct_paths(
    seed: int, objective: Objective
) -> None:
    links, demands = small(seed)
    found = plan(links, demands, objective)
    kept(links, demands, found)
    assert max(ratios(found), default=0.0) <= 1 + 1e-6
    assert found == plan(links[::-1], demands[::-1], objective)  # whoever plans, from the same facts


@pytest.mark.parametrize("objective", ["fair", "goodput"])
@pytest.mark.parametrize("seed", [0, 3])
def test_no_plan_is_better_by_a_twentieth_than_the_one_found(seed: int, objective: Objective) -> None:
    links, demands = small(seed)
    demands = demands[:2]
    mine = plan(links, demands, objective).value / Problem(links, demands, objective).unit
    best = best_value(links, demands, objective)
    assert best is not None
    assert (best / mine if objective == "fair" else mine / best) >= 0.95


def test_on_the_papers_testbed_intervals_are_much_shorter_and_none_is_longer() -> None:
    links, demands = the_testbed(1)
    found = plan(usable(links), demands)
    kept(usable(links), demands, found)
    assert float(np.median(ratios(found))) <= 0.7
    assert max(ratios(found)) <= 1 + 1e-6


def test_a_large_problem_is_planned() -> None:
    links, demands = large(2, jobs=20, regions=20)
    found = plan(links, demands)
    kept(links, demands, found)
    assert not found.infeasible


LINE = Size("line", 1.0, 0.0)


def test_what_no_plan_carries_is_named_with_its_links_and_the_rest_is_planned() -> None:
    links = [Link("a", "b", 10.0), Link("a", "c", 1.0), Link("c", "b", 1.0), Link("d", "c", 5.0)]
    big = Demand(name="big", target="b", sources={"a": 40.0}, size=LINE)
    fits = Demand(name="fits", target="b", sources={"a": 4.0}, size=LINE)
    cut = Demand(name="cut", target="d", sources={"a": 1.0}, size=LINE)
    found = plan(links, [big, fits, cut])
    assert found.infeasible["cut"] == "no link leads from a to d, nor any two"
    assert found.infeasible["big"].startswith("no plan carries it beside the others: a → b would have 4")
    assert list(found.routes) == ["fits"]
    assert found.routes["fits"].vias == {"a": "b"}
    assert any(reason.startswith("big is not carried: no plan") for reason in found.reasons)


def test_where_nothing_can_be_carried_there_is_a_plan_for_nothing() -> None:
    demand = Demand(name="big", target="b", sources={"a": 4.0}, size=LINE)
    found = plan([Link("a", "b", 1.0)], [demand])
    assert (found.routes, found.links, list(found.infeasible)) == ({}, {}, ["big"])
    assert plan([Link("a", "b", 1.0)], []).infeasible == {}


def test_a_job_that_direct_paths_cannot_carry_at_any_interval_is_carried_over_a_detour() -> None:
    # 0.4 · 10 is more than a → b carries, however long the interval: no interval repairs that link
    links = [Link("a", "b", 3.0), Link("a", "c", 9.0), Link("c", "b", 9.0)]
    demand = Demand(name="job", target="b", sources={"a": 10.0}, size=WORD_COUNT)
    found = plan(links, [demand])
    assert found.routes["job"].vias == {"a": "c"}
    assert found.routes["job"].direct_s is None
    assert found.routes["job"].interval_s == pytest.approx(3.44 / (9.0 - 4.0), rel=1e-4)


def test_a_heavier_job_gets_more_of_a_link_and_the_papers_objective_starves_one() -> None:
    links = [Link("a", "b", 10.0)]

    def both(weight: float) -> list[Demand]:
        sizes = Size("line", 0.1, 1.0), Size("line", 0.1, 1.0)
        return [
            Demand(name=name, target="b", sources={"a": 1.0}, size=size, weight=one)
            for name, size, one in zip("xy", sizes, (1.0, weight), strict=True)
        ]

    even, uneven = plan(links, both(1.0)).routes, plan(links, both(3.0)).routes
    assert even["x"].interval_s == pytest.approx(even["y"].interval_s, rel=0.05)
    assert uneven["y"].interval_s == pytest.approx(uneven["x"].interval_s / 3, rel=0.1)
    starved = plan(links, both(1.1), "goodput").routes
    assert starved["x"].interval_s == pytest.approx(30.0)


@given(st.floats(0.5, 20.0), st.floats(0.1, 5.0), st.floats(2.0, 12.0))
@settings(max_examples=20, deadline=None)
def test_intervals_of_curves_are_as_short_as_the_link_allows(a: float, b: float, room: float) -> None:
    size = Size("saturation", a, b, 5.0)
    demand = Demand(name="j", target="y", sources={"x": 3.0}, size=size)
    problem = Problem([Link("x", "y", room)], [demand], "fair")
    job = problem.jobs[0]
    found = intervals(problem, [job.direct], [job.low], rounds=30).often[0]
    grid = np.geomspace(job.low, job.high, 4_000)
    fit = grid[size.rate(np.array(3.0), grid) <= room]
    best = float(fit.max()) if len(fit) else job.low
    assert found == pytest.approx(best, rel=0.05)


def test_a_job_whose_sources_are_all_in_its_region_is_sent_as_often_as_it_may_be() -> None:
    demand = Demand(name="here", target="b", sources={"b": 3.0}, size=LINE, least_s=0.5)
    found = plan([Link("a", "b", 1.0)], [demand])
    assert found.routes["here"].vias == {}
    assert found.routes["here"].interval_s == pytest.approx(0.5)
    assert found.links == {}


def test_a_link_that_is_none_and_two_jobs_of_a_name_are_refused() -> None:
    demand = Demand(name="j", target="b", sources={"a": 1.0}, size=LINE)
    with pytest.raises(ValueError, match="no link: a to b, 0 a second"):
        plan([Link("a", "b", 0.0)], [demand])
    with pytest.raises(ValueError, match="two demands have one name"):
        plan([Link("a", "b", 1.0)], [demand, demand])


# -- U(I) ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "size", [Size("line", 0.4, 3.0), Size("power", 2.0, 1.0, 0.5), Size("saturation", 40.0, 2.0, 30.0)]
)
def test_the_shape_of_sizes_is_found_again_from_noisy_batches(size: Size) -> None:
    rng = np.random.default_rng(1)
    inputs = np.repeat([2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0], 8)
    found = fitted(inputs.tolist(), (size(inputs) * rng.normal(1, 0.01, len(inputs))).tolist())
    assert found.size.shape == size.shape
    assert found.residual < 0.02
    assert found.size(np.array(90.0)) == pytest.approx(size(np.array(90.0)), rel=0.05)
    assert set(found.others) == {"line", "power", "saturation"} - {size.shape}


def test_two_inputs_show_a_line_and_one_shows_nothing() -> None:
    size = fitted([1.0, 2.0], [3.0, 5.0]).size
    assert size.shape == "line"
    assert size.a == pytest.approx(2.0)
    assert size.b == pytest.approx(1.0)
    with pytest.raises(ValueError, match="of 1 different inputs"):
        fitted([1.0, 1.0], [3.0, 3.1])


@given(
    st.sampled_from(["line", "power", "saturation"]),
    st.floats(0.1, 9),
    st.floats(0.01, 9),
    st.floats(0.01, 9),
)
def test_a_tangent_is_nowhere_below_the_rate(shape: str, a: float, often: float, at: float) -> None:
    size = Size(shape, a, 0.3, 0.7)  # type: ignore[arg-type]
    alpha, beta = size.tangent(np.array(2.0), np.array(at))
    assert alpha * often + beta >= size.rate(np.array(2.0), np.array(often)) - 1e-9
    assert alpha * at + beta == pytest.approx(size.rate(np.array(2.0), np.array(at)))


def test_what_is_under_way_for_long_goes_round_where_intervals_are_as_short_as_they_may_be() -> None:
    links = [Link("eu", "us", 5e3), Link("eu", "ap", 2.5e6), Link("ap", "us", 2.5e6)]
    size = Size("line", 4.5, 4_800.0)
    demand = Demand(
        name="busy", target="us", sources={"eu": 200, "ap": 200, "us": 200}, size=size, least_s=5, most_s=5
    )
    problem = Problem(links, [demand], "fair")
    (job,) = problem.jobs
    direct = plan(links, [demand]).routes["busy"]
    assert direct.vias == {"eu": "us", "ap": "us"}
    tree = problem.tree(job, direct.vias)
    (found,) = sooner(problem, [job], [tree], [1 / 5])
    assert problem.vias(job, found) == {"ap": "us", "eu": "ap"}
    full = [Link("eu", "us", 5e3), Link("eu", "ap", 2.5e6), Link("ap", "us", 2_000.0)]
    problem = Problem(full, [demand], "fair")
    (job,) = problem.jobs
    assert sooner(problem, [job], [tree], [1 / 5]) == [tree], "the detour has no room"
    today = {"busy": Standing({}, 5.0)}
    detour = {"busy": Standing({"eu": "ap"}, 5.0)}
    problem = Problem(links, [demand], "fair")
    found_better = compared(problem, today, detour)
    assert found_better.turns
    assert found_better.batch_s[1] < 0.1 < found_better.batch_s[0]
    assert not compared(problem, detour, detour).turns
    assert not compared(problem, detour, today).turns
    assert panes_to_hold({1: 0.1, 2: 0.2, 4: 0.5}, 1.0, 1.0) == 2
    assert panes_to_hold({1: 0.5, 2: 0.9, 4: 1.5}, 1.0, 2.0) == 2
