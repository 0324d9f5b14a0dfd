"""Aggregates of one's own: states as bytes, what is believed of a class, laws, what a text promises."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from elf.errors import UserError
from elf.examples.correlation import Correlation
from elf.paos import PAO, Groups
from elf.paos.laws import broken_law
from elf.paos.running import Calls, Misbehaved
from elf.paos.states import STATE_BYTES_MAX, NoState, decode, encode, state_type
from elf.paos.texts import signature_of

KINDS = (
    pa.int64(),
    pa.float64(),
    pa.bool_(),
    pa.string(),
    pa.timestamp("us"),
    pa.binary(),
    pa.list_(pa.float64()),
    pa.list_(pa.string()),
    pa.int32(),
    pa.list_(pa.bool_()),
)


def drawn(kind: pa.DataType, rng: random.Random) -> Any:
    if pa.types.is_list(kind):
        return [drawn(kind.value_type, rng) for _ in range(rng.randrange(4))]
    if pa.types.is_boolean(kind):
        return rng.random() < 0.5
    if pa.types.is_floating(kind):
        return rng.choice([0.0, 1.5, -2.25, 1e300, float("inf")])
    if pa.types.is_integer(kind):
        return rng.choice([0, 1, -5, 1 << 30])
    if pa.types.is_timestamp(kind):
        return pa.scalar(rng.randrange(1 << 50), pa.timestamp("us")).as_py()
    text = rng.choice(["", "a", "éé", "long" * 9])
    return text if pa.types.is_string(kind) else text.encode()


@pytest.mark.parametrize("seed", range(8))
def test_states_come_back_from_bytes_whatever_their_columns_and_however_they_are_sliced(seed: int) -> None:
    rng = random.Random(seed)
    kinds = [rng.choice(KINDS) for _ in range(rng.randrange(1, 6))]
    rows = rng.randrange(6)
    columns = [pa.array([drawn(kind, rng) for _ in range(rows + 1)], kind).slice(1) for kind in kinds]
    states = encode(columns, rows)
    assert [one.to_pylist() for one in decode(states, kinds)] == [one.to_pylist() for one in columns]
    assert [one.to_pylist() for one in decode(states.slice(1), kinds)] == [c.to_pylist()[1:] for c in columns]
    again = encode([pa.array(one.to_pylist(), one.type) for one in columns], rows)
    assert again.to_pylist() == states.to_pylist()


@pytest.mark.parametrize("seed", range(8))
def test_other_bytes_are_no_states(seed: int) -> None:
    rng = random.Random(seed)
    kinds = [pa.int64(), pa.list_(pa.string()), pa.string()]
    (whole,) = encode([pa.array([7]), pa.array([["a", "bc"]]), pa.array(["x"])], 1).to_pylist()
    spoilt = bytearray(whole)
    spoilt[rng.randrange(8, 20)] ^= 0x80
    for data in (bytes(spoilt), whole[:-1], whole + b"x", b""):
        with pytest.raises(NoState):
            decode(pa.array([data], pa.binary()), kinds)


def test_a_state_is_of_flat_columns_and_bounded() -> None:
    for kind in ("decimal", pa.struct([("a", pa.int64())]), pa.list_(pa.list_(pa.int64())), 5):
        with pytest.raises(NoState, match=r"is no type|is of numbers"):
            state_type(kind)
    with pytest.raises(NoState, match="at most 65,536"):
        encode([pa.array(["x" * (STATE_BYTES_MAX + 1)])], 1)


class Mean(PAO):
    arguments = ("double",)
    state: ClassVar = {"total": "double", "n": "bigint"}
    returns = "double"

    def create(self, groups: Groups, *columns: pa.Array) -> Mapping[str, Any]:
        return {"total": groups.sum(columns[0]), "n": groups.size()}

    def merge(self, groups: Groups, states: pa.RecordBatch) -> Mapping[str, Any]:
        return {name: groups.sum(states[name]) for name in ("total", "n")}

    def finalize(self, states: pa.RecordBatch) -> Any:
        return np.divide(states["total"], states["n"])


class Longest(PAO):
    """The texts of a group, as lists of texts merge."""

    arguments = ("text", "bigint")
    state: ClassVar = {"texts": pa.list_(pa.string()), "most": "bigint"}
    returns = "text"

    def create(self, groups: Groups, *columns: pa.Array) -> Mapping[str, Any]:
        return {"texts": groups.lists(columns[0]), "most": groups.max(columns[1])}

    def merge(self, groups: Groups, states: pa.RecordBatch) -> Mapping[str, Any]:
        return {"texts": groups.concat(states["texts"]), "most": groups.max(states["most"])}

    def finalize(self, states: pa.RecordBatch) -> Any:
        both = zip(states["texts"].to_pylist(), states["most"].to_pylist(), strict=True)
        return [f"{max(texts, key=lambda text: (len(text), text))} {most}" for texts, most in both]


def test_equal_states_are_merged_by_doubling() -> None:
    calls = Calls(Mean())
    states = calls.created(np.array([0, 1]), [pa.array([3.0, 5.0])])
    times = np.array([1_000_003, 7])
    (merged,) = calls.values(np.zeros(2, np.int64), states, times).to_pylist()
    assert merged == pytest.approx((3 * 1_000_003 + 35) / 1_000_010)
    assert calls.values(np.array([4, 2]), states, times).to_pylist() == [5.0, 3.0]


@pytest.mark.parametrize(("made", "columns"), [(Mean, 1), (Longest, 0), (Correlation, 2)])
def test_laws_hold(made: Callable[[], PAO], columns: int) -> None:
    own = [pa.array([0.1, 2.0, 7.5, 1e6] * 9), pa.array([5.0, -3.0, 0.1, 2.0] * 9)]
    rows = own[:columns]
    assert [broken_law(Calls(made()), some) for some in ([], rows)] == ["", ""]


class OfMeans(Mean):
    state: ClassVar = {"mean": "double"}

    def create(self, groups: Groups, *columns: pa.Array) -> Mapping[str, Any]:
        return {"mean": groups.sum(columns[0]) / groups.size()}

    def merge(self, groups: Groups, states: pa.RecordBatch) -> Mapping[str, Any]:
        return self.create(groups, states["mean"])

    def finalize(self, states: pa.RecordBatch) -> Any:
        return states["mean"]


class LastOne(OfMeans):
    def create(self, groups: Groups, *columns: pa.Array) -> Mapping[str, Any]:
        return {"mean": groups.each(lambda values: values[-1], columns[0])}


class Mixed(Mean):
    def create(self, groups: Groups, *columns: pa.Array) -> Mapping[str, Any]:
        return {"total": [float(columns[0].to_numpy().sum())] * groups.count, "n": groups.size()}


class Counting(Mean):
    """Forgets how many there were."""

    def merge(self, groups: Groups, states: pa.RecordBatch) -> Mapping[str, Any]:
        return {"total": groups.sum(states["total"]), "n": groups.size()}


class Seldom(Mean):
    """Wrong for large numbers alone, which no drawn row is."""

    def merge(self, groups: Groups, states: pa.RecordBatch) -> Mapping[str, Any]:
        return {"total": np.minimum(groups.sum(states["total"]), 1e9), "n": groups.sum(states["n"])}


@pytest.mark.parametrize(
    ("made", "own", "said"),
    [
        (OfMeans, [], "OfMeans: merge() is not associative: of [0.0] | [0.0] | [1.0] merged from the left "
         "they give 0.5, from the right 0.25"),
        (LastOne, [], "LastOne: merge() is not commutative: of [0.0] | [1.0] merged in this order they give "
         "1.0, in the other 0.0"),
        (Mixed, [], "Mixed: create() of several groups mixes them up: of [0.0] | [1.0] at once they give "
         "[1.0, 1.0], each by itself [0.0, 1.0]"),
        (Counting, [], "Counting: merge() changes a state that is alone: of [0.0, 1.0]"),
        (Seldom, [], ""),
        (Seldom, [pa.array([6e8] * 12)], "Seldom: create() over parts, merged, is not create() over all"),
    ],
)  # fmt: skip
def test_a_broken_law_is_told_by_its_smallest_example(
    made: type[PAO], own: list[pa.Array], said: str
) -> None:
    found = broken_law(Calls(made()), own)
    assert found.startswith(said)
    assert bool(found) == bool(said)
    assert "\n" not in found
    assert len(found) < 300


def returning(created: object = None, finalized: object = None) -> Calls:
    class Made(Mean):
        def create(self, groups: Groups, *columns: pa.Array) -> Mapping[str, Any]:
            return created if created is not None else super().create(groups, *columns)  # type: ignore[return-value]

        def finalize(self, states: pa.RecordBatch) -> Any:
            return finalized if finalized is not None else super().finalize(states)

    return Calls(Made())


@pytest.mark.parametrize(
    ("created", "said"),
    [
        ([1, 2], "Made.create() gives list, not a dict of the columns of its state"),
        ({"total": [1.0]}, "Made.create() gives the columns total; its state has total, n"),
        ({"total": [1.0], "n": [1, 2]}, "Made.create() gives 2 of n for 1 groups"),
        ({"total": ["a"], "n": [1]}, "Made.create(): total is no column of double: "),
        ({"total": [None], "n": [1]}, "Made.create() gives NULL in total: a state has none"),
        ({"total": [1.0], "n": [1.5]}, "Made.create(): n is no column of int64: "),
    ],
)
def test_what_a_class_returns_is_looked_at(created: object, said: str) -> None:
    with pytest.raises(Misbehaved) as caught:
        returning(created).created(np.zeros(2, np.int64), [pa.array([1.0, 2.0])])
    assert str(caught.value).startswith(said)


def test_values_are_looked_at_too() -> None:
    states = Calls(Mean()).created(np.zeros(1, np.int64), [pa.array([1.0])])
    for value, said in (
        ([1.0, 2.0], "gives 2 of the values for 1 states"),
        (["a"], "is no column of double"),
    ):
        with pytest.raises(Misbehaved, match=said):
            returning(finalized=value).values(np.zeros(1, np.int64), states, np.ones(1, np.int64))
    with pytest.raises(Misbehaved, match="too short"):
        Calls(Mean()).values(np.zeros(1, np.int64), pa.array([b"?"]), np.ones(1, np.int64))


WHOLE = '''
from elf.paos import PAO
class Mine(PAO):
    arguments = ("double", "text")
    state: ClassVar = {"n": "bigint"}
    returns = "bigint"
    def create(self, groups, x, y): ...
    def merge(self, groups, states): ...
    def finalize(self, states): ...
'''  # fmt: skip


def test_a_text_says_what_it_takes_and_gives_without_being_run() -> None:
    said = signature_of(WHOLE + "raise SystemExit\n", "mine.py")
    assert (said.title, said.arguments, said.returns) == ("Mine", ("double", "text"), "bigint")
    based = WHOLE.replace("class Mine(PAO)", "class Base(PAO)") + "class Mine(Base):\n    returns = 'text'\n"
    assert (signature_of(based, "m.py").title, signature_of(based, "m.py").returns) == ("Mine", "text")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "f.py must define one subclass of elf.paos.PAO at its top level; it has none"),
        (WHOLE + WHOLE.replace("Mine", "Two"), "it has Mine, Two"),
        (
            WHOLE.replace("def merge", "def merged"),
            "f.py:3: Mine: it must define merge(self, groups, states)",
        ),
        (WHOLE.replace("returns = ", "return_ = "), "f.py:3: Mine: it has no returns: one of 'bigint'"),
        (WHOLE.replace('"double", "text"', "*A,"), "f.py:4: Mine: arguments must be written out: a tuple"),
        (WHOLE.replace('("double", "text")', "()"), "arguments is a tuple of 1 to 8 types, not ()"),
        (WHOLE.replace('"text")', '"float")'), "arguments: there is no type 'float'; types: 'bigint'"),
        (WHOLE.replace("groups, x, y", "groups, x"), "f.py:7: Mine: create() is called with self and 3 more"),
        (
            WHOLE.replace("class Mine", "clas Mine"),
            "f.py:3: SyntaxError: invalid syntax in `clas Mine(PAO):`",
        ),
        ("x" + "(" * 90_000, "f.py"),
        ("\0", "f.py"),
    ],
)
def test_a_text_that_is_no_aggregate_is_told_in_one_line(text: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        signature_of(text, "f.py")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
