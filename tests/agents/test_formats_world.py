"""The formats of the world: told from their lines, and every field of every line typed and named."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from agents.formats import FORMATS as KNOWN
from agents.formats import get_format
from agents.tasks.extracting import Extractor
from agents.tasks.samples import guess_format
from elf.job.ports import Wanted
from lab.formats import OF, PAGE, page
from tests.support.log_lines import FORMATS, Expected, Written, hits

COUNT = 200
HITS = hits(COUNT)


def lines_of(written: Written) -> list[str]:
    return [*written.head, *(written.line(hit) for hit in HITS)]


@pytest.mark.parametrize("written", FORMATS, ids=[one.name for one in FORMATS])
def test_every_field_is_named_and_typed(written: Written) -> None:
    fmt = get_format(written.format)
    lines = pa.array(lines_of(written), pa.string())
    schema = fmt.schema(lines, None)
    assert schema.event_time == written.event_time
    extractor = Extractor(fmt, schema.event_time, Wanted(schema.columns))
    found = extractor.extract(lines)
    extractor.close()
    assert (len(found.rejected), found.uncast) == (0, 0)
    assert found.table.num_rows == COUNT
    rows = found.table.drop_columns(["_ts"]).to_pylist()
    for row, hit in zip(rows, HITS, strict=True):
        expected: Expected = written.says(hit)
        assert {
            name: value for name, value in row.items() if name in expected or value is not None
        } == expected
        assert {name: type(value) for name, value in row.items() if isinstance(value, dt.datetime)} == {
            name: dt.datetime for name, value in expected.items() if isinstance(value, dt.datetime)
        }
    at = [value.replace(tzinfo=dt.UTC).timestamp() for value in found.table[written.event_time].to_pylist()]
    assert [us / 1e6 for us in found.table["_ts"].to_pylist()] == at


@pytest.mark.parametrize("written", [one for one in FORMATS if not one.told], ids=lambda one: one.name)
def test_a_format_is_told_from_its_lines(written: Written) -> None:
    assert guess_format(lines_of(written)).name == written.format


def test_the_page_says_what_the_code_does() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()
    assert set(OF) == set(KNOWN)
