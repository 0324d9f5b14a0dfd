"""Masks the lines of a stream as they are read: nobody behind ``Masked`` sees more than the owner of the host
lets them (``agents.masks``), neither queries, taps, samples and functions, nor the archive and rejects.

A line is put together anew from the columns that its format finds in it, so what has no place in the format
is not in it either. It stays a line of its format with the same values, but for:

- access logs: masked columns; ``extra``, all that follows the last field, which may hold anything (often the
  client's address again, from ``X-Forwarded-For``) and is dropped unless ``mask`` names it; a virtual host
  that the masked client would make uncertain; the identity, and proxies in front of the client. Of a masked
  ``cs_uri_query`` the request is written without, and a request that has no such parts is not written at all.
- JSON: masked values (``agents.tasks.jsonmasks``).

A line that does not parse cannot be masked: it is counted, and rejected, without what was in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agents.formats import Format
from agents.formats.access import DATE, EXTRA_TEXT, AccessLog
from agents.formats.csv import Csv
from agents.formats.layout import Patterned
from agents.formats.logfmt import Logfmt
from agents.formats.nested import Nested
from agents.inputs.values import Chunk, Counters, Input, Position
from agents.masks import WITHHELD, masked
from agents.tasks.jsonmasks import JsonMask
from agents.tasks.rewriting import CsvMask, LogfmtMask, PatternMask
from elf.fields import replace
from elf.job.gaps import Missed
from elf.job.ports import Wanted
from elf.schema import Column


class Lines(Protocol):
    """Masks the lines of one format."""

    def mask(self, lines: pa.StringArray) -> pa.StringArray:
        """As many lines."""

    def close(self) -> None: ...


class Masked:
    """An input whose lines are masked."""

    def __init__(self, source: Input, fmt: Format, mask: Mapping[str, str], key: bytes) -> None:
        self._source = source
        self._key = key
        self._lines = lines_of(fmt, mask, key)
        self.counters: Counters = source.counters

    def read(self, bytes_max: int, now_ms: int) -> Chunk | None:
        """See ``Input``."""
        chunk = self._source.read(bytes_max, now_ms)
        if chunk is None:
            return None
        source = replace(chunk.source, id=self._named(chunk.source.id))
        rejects = tuple(replace(reject, source=source.id, data=b"") for reject in chunk.rejects)
        return replace(chunk, source=source, lines=self._lines.mask(chunk.lines), rejects=rejects)

    def _named(self, source: str) -> str:
        """A source's id has a checksum of its first line, which few guesses at what is masked would fit."""
        return masked("hash", source, self._key) or ""

    @property
    def exhausted(self) -> bool:
        return self._source.exhausted

    @property
    def unread(self) -> int:
        return self._source.unread

    @property
    def has_new_sources(self) -> bool:
        return self._source.has_new_sources

    def positions(self) -> tuple[Position, ...]:
        """See ``Input``. Without the first bytes of a file, which are of a line: a copy that rotation made of
        a file of less than 256 bytes is not known for one after a restart."""
        return tuple(replace(position, beginning=b"") for position in self._source.positions())

    def gaps(self) -> tuple[Missed, ...]:
        return tuple(
            replace(gap, source=gap.source and self._named(gap.source)) for gap in self._source.gaps()
        )

    def finished(self) -> tuple[str, ...]:
        return tuple(map(self._named, self._source.finished()))

    def kept(self, positions: tuple[Position, ...]) -> None:
        self._source.kept(positions)

    @property
    def rests(self) -> bool:
        return self._source.rests

    def rest(self) -> None:
        self._source.rest()

    @property
    def passed_us(self) -> int:
        return self._source.passed_us

    def close(self) -> None:
        self._source.close()
        self._lines.close()


def lines_of(fmt: Format, mask: Mapping[str, str], key: bytes) -> Lines:
    """What masks the lines of a format, which can be masked (``agents.formats.maskable``)."""
    match fmt:
        case AccessLog():
            return AccessMask(fmt, mask, key)
        case Csv():
            return CsvMask(fmt, mask, key)
        case Logfmt():
            return LogfmtMask(mask, key)
        case Patterned():
            return PatternMask(fmt, mask, key)
        case Nested():
            return JsonMask(mask, key, fmt)
        case _:
            return JsonMask(mask, key)


_HEAD: Final = ("cs_host", "s_port", "c_ip", "cs_username", DATE)
_REQUEST: Final = ("cs_method", "cs_uri_stem", "cs_uri_query", "cs_version")
_REST: Final = ("cs_request", "sc_status", "sc_bytes", "cs_referer", "cs_user_agent", EXTRA_TEXT)


class AccessMask:
    """Of access logs."""

    def __init__(self, fmt: Format, mask: Mapping[str, str], key: bytes) -> None:
        from agents.tasks.extracting import Extractor

        self._mask = {
            EXTRA_TEXT: mask.get("extra", "drop"),
            **{name: mask[name] for name in mask if name != "extra"},
        }
        self._key = key
        self._combined = fmt.name == "combined"
        self._known: dict[tuple[str, str], str | None] = {}
        names = (*_HEAD, *(_REQUEST if "cs_uri_query" in mask else ()), *_REST)
        wanted = Wanted(tuple(Column(name, "text") for name in names))
        self._extractor = Extractor(fmt, None, wanted)

    def mask(self, lines: pa.StringArray) -> pa.StringArray:
        found = self._extractor.extract(lines)
        columns = {name: found.table[name].combine_chunks() for name in found.table.column_names[1:]}
        for name, how in self._mask.items():
            columns[name] = self._masked(columns[name], how)
        whole = pa.concat_arrays([self._whole(columns), pa.array([WITHHELD])])
        places = np.full(len(lines), len(whole) - 1)
        places[found.accepted] = np.arange(len(found.accepted))
        return whole.take(pa.array(places))

    def _masked(self, values: pa.StringArray, how: str) -> pa.StringArray:
        each = values.dictionary_encode()
        left = pa.array([masked(how, value, self._key) for value in each.dictionary.to_pylist()], pa.string())
        return left.take(each.indices)

    def _whole(self, of: Mapping[str, pa.StringArray]) -> pa.StringArray:
        client = _dash(of["c_ip"])
        joined = [
            *(_host(of, client, self._mask.get("c_ip")), client, " - ", _dash(of["cs_username"])),
            *(" [", of[DATE], '] "', self._request(of), '" '),
            *(_dash(of["sc_status"]), " ", _dash(of["sc_bytes"])),
        ]
        if self._combined:
            joined += [' "', _dash(of["cs_referer"]), '" "', _dash(of["cs_user_agent"]), '"']
        return _join(*joined, _optional(" ", of[EXTRA_TEXT]))

    def _request(self, of: Mapping[str, pa.StringArray]) -> pa.StringArray:
        if "cs_request" in self._mask or "cs_uri_query" not in self._mask:
            return _dash(of["cs_request"])
        target = _join(_dash(of["cs_uri_stem"]), _optional("?", of["cs_uri_query"]))
        return _dash(_join(of["cs_method"], " ", target, _optional(" ", of["cs_version"])))

    def close(self) -> None:
        self._extractor.close()


def _host(of: Mapping[str, pa.StringArray], client: pa.StringArray, how: str | None) -> pa.StringArray:
    """The virtual host in front, where the format is certain of it with this client behind it."""
    host = _join(of["cs_host"], _optional(":", of["s_port"]), " ")
    certain = pa.array([True] * len(host))
    if how is not None:
        there = pc.not_equal(client, "-")
        certain = there if how == "truncate" else pc.and_(there, pc.is_valid(of["s_port"]))
    return pc.if_else(pc.and_(certain, pc.is_valid(host)), host, "")


def _dash(values: pa.StringArray) -> pa.StringArray:
    return pc.fill_null(values, "-")


def _optional(before: str, values: pa.StringArray) -> pa.StringArray:
    """With what stands before it; empty where there is none."""
    return pc.fill_null(_join(before, values), "")


def _join(*parts: pa.StringArray | str) -> pa.StringArray:
    """NULL where a part is."""
    return pc.binary_join_element_wise(*parts, "")
