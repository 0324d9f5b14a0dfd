"""Aggregates of one's own in the catalog log: one of a name for each person, and what is left of others."""

from __future__ import annotations

from elf.fields import replace
from elf.job.catalog.admission import grow
from elf.job.catalog.log import CatalogLog, decode_entry, encode_entry
from elf.job.messages.log import AddAggregate, AggregateAdded, DropJobEntry
from elf.job.own import AGGREGATES_MAX, OwnSpec
from elf.security.authored import digest
from tests.support.own import MEAN

OTHER = MEAN.replace("1e-9", "1e-6")


def spec(name: str = "geo", creator: str = "ada", text: str = MEAN, generation: int = 1) -> OwnSpec:
    return OwnSpec(name, creator, generation, text, "geo.py", digest(text))


def test_one_takes_the_place_of_the_one_before_and_nobody_elses() -> None:
    log = CatalogLog()
    for one in (spec(), spec(creator="bob"), spec("sum2"), spec(text=OTHER, generation=2)):
        assert [entry.spec for entry in grow(log, AddAggregate(spec=one))] == [one]  # type: ignore[union-attr]
        assert grow(log, AddAggregate(spec=one)) == ()
    found = log.find_aggregate("geo", "ada")
    assert found is not None
    assert (found.text, found.generation) == (OTHER, 2)
    assert log.find_aggregate("geo", "eve") is None
    assert log.find_aggregate("sum2", "eve") == spec("sum2")
    assert len(log.aggregates()) == 3
    grow(log, DropJobEntry(uid=found.uid))
    assert log.is_dropped(found.uid)
    assert log.find_aggregate("geo", "ada") == spec(creator="bob")
    assert grow(log, AddAggregate(spec=spec(text=OTHER, generation=2))) == ()


def test_what_is_over_is_remembered_without_its_text_by_all_alike() -> None:
    log = CatalogLog()
    for one in (spec(), spec(text=OTHER, generation=2), spec("mean")):
        grow(log, AddAggregate(spec=one))
    grow(log, DropJobEntry(uid=spec("mean").uid))
    log.forget()
    texts = [entry.spec.text for entry in log.after(0) if isinstance(entry, AggregateAdded)]
    assert texts == ["", OTHER, ""]
    again = CatalogLog([decode_entry(encode_entry(entry)) for entry in log.after(0)])
    assert again.aggregates() == log.aggregates()
    assert again.after(0) == log.after(0)
    assert all(again.has_aggregate(uid) for uid in (spec().uid, spec("mean").uid))
    assert again.generation("aggregate geo", "ada") == 3
    assert not again.skipped


def test_what_is_none_is_not_taken() -> None:
    log = CatalogLog()
    wrong = (
        spec(text="x = 1"),
        replace(spec(), digest=digest("another")),
        spec().forgotten,
        spec(generation=1 << 40),
    )
    for one in wrong:
        assert grow(log, AddAggregate(spec=one)) == ()
    forged = AggregateAdded(seq=1, spec=wrong[0])
    log.append(forged)
    assert log.skipped[1] == "geo.py must define one subclass of elf.paos.PAO at its top level; it has none"
    assert log.aggregates() == ()


def test_a_creator_has_so_many_and_no_more() -> None:
    log = CatalogLog()
    for number in range(AGGREGATES_MAX):
        grow(log, AddAggregate(spec=spec(f"a{number}")))
    assert grow(log, AddAggregate(spec=spec("one_more"))) == ()
    assert grow(log, AddAggregate(spec=spec("one_more", creator="bob")))
    assert grow(log, AddAggregate(spec=spec("a7", text=OTHER, generation=2)))
