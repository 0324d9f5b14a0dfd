"""Where addresses are: databases in MaxMind's format (``.mmdb``: GeoLite2, DB-IP, IPinfo and others).

What is read is a copy of a database that has no name any more: the file itself may be replaced, or written
over, while the agent runs. Of several the first that knows a value gives it, so one of cities and one of
autonomous systems stand beside each other.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from elf.errors import UserError

ADDRESSES_KEPT: Final = 1 << 14
"""Of so many addresses what was found is remembered."""
_ADDRESS_CHARS_MAX: Final = 45
_PATHS: Final[Mapping[str, tuple[tuple[str | int, ...], ...]]] = {
    "geo_country": (
        ("country", "iso_code"),
        ("registered_country", "iso_code"),
        ("country_code",),
        ("country",),
    ),
    "geo_country_name": (
        ("country", "names", "en"),
        ("registered_country", "names", "en"),
        ("country_name",),
    ),
    "geo_continent": (("continent", "code"), ("continent_code",), ("continent",)),
    "geo_region": (("subdivisions", 0, "names", "en"), ("region",), ("state1",)),
    "geo_city": (("city", "names", "en"), ("city",)),
    "geo_latitude": (("location", "latitude"), ("latitude",), ("lat",)),
    "geo_longitude": (("location", "longitude"), ("longitude",), ("lng",)),
    "geo_asn": (("autonomous_system_number",), ("asn",)),
    "geo_organization": (("autonomous_system_organization",), ("as_name",), ("as_organization",)),
}
"""Where the providers have each value; the first that is there counts. Who is nowhere, as a satellite, is in
the country where the address is registered."""
_OF_PLACES: Final = "country|city|enterprise|precision|location"
_OF_CITIES: Final = "city|enterprise|precision|location"
_OF_NETWORKS: Final = "asn|isp|enterprise"
_SORTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("geo_asn", "geo_organization"), _OF_NETWORKS),
    **dict.fromkeys(("geo_city", "geo_region", "geo_latitude", "geo_longitude"), _OF_CITIES),
}
"""The types of MaxMind's and DB-IP's databases that have what not all have."""
_FAMILIAR: Final = re.compile(r"(geolite2|geoip2|dbip)-", re.IGNORECASE)

Value = str | float | int | None


class GeoIp:
    """Databases, each with its ``edition``."""

    def __init__(self, readers: Sequence[Any]) -> None:
        facts = [reader.metadata() for reader in readers]
        self._readers = tuple((reader, one.ip_version) for reader, one in zip(readers, facts, strict=True))
        self._types = [str(one.database_type) for one in facts]
        self.editions = tuple(_edition(reader) for reader in readers)
        self._found = lru_cache(ADDRESSES_KEPT)(self._looked_up)

    @classmethod
    def open(cls, paths: Sequence[str]) -> GeoIp:
        """Raises ``UserError``."""
        try:
            import maxminddb
        except ImportError:
            raise UserError("databases of addresses need maxminddb: install elf-stream[geoip]") from None
        readers = []
        for path in paths:
            try:
                with tempfile.TemporaryDirectory(prefix="elf-geoip-") as folder:
                    copy = shutil.copyfile(path, Path(folder) / "copy")
                    readers.append(maxminddb.open_database(copy))
            except OSError as error:
                why = (error.strerror or str(error)).lower()
                raise UserError(f"geoip: {path} cannot be read: {why}") from None
            except Exception as error:  # whatever is in the file
                raise UserError(f"geoip: {path} is no database in MaxMind's format: {error}") from None
        return cls(readers)

    def knows(self, name: str) -> bool:
        """Whether a database has such values, or may have them."""
        sorts = _SORTS.get(name, _OF_PLACES)
        return any(not _FAMILIAR.match(kind) or re.search(sorts, kind, re.I) for kind in self._types)

    def value(self, name: str, text: str | None) -> Value:
        """NULL for what is no address, or not in them."""
        if text is None or len(text) > _ADDRESS_CHARS_MAX:
            return None
        return self._found(text)[_PLACES[name]]

    def _looked_up(self, text: str) -> tuple[Value, ...]:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return _NOWHERE
        if isinstance(address, ipaddress.IPv6Address):
            address = address.ipv4_mapped or address
        records = list(self._records(address))
        return tuple(_value(name, records) for name in _PATHS)

    def _records(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> Iterator[Any]:
        for reader, version in self._readers:
            if address.version == 4 or version == 6:
                try:
                    found = reader.get(address)
                except Exception:  # a damaged database is one that does not know
                    continue
                if isinstance(found, dict):
                    yield found


_PLACES: Final = {name: place for place, name in enumerate(_PATHS)}
_NOWHERE: Final = (None,) * len(_PATHS)


def _value(name: str, records: Sequence[Any]) -> Value:
    for record in records:
        for path in _PATHS[name]:
            if (found := _typed(name, _at(record, path))) is not None:
                return found
    return None


def _at(record: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        if isinstance(step, int):
            record = record[step] if isinstance(record, list) and len(record) > step else None
        else:
            record = record.get(step) if isinstance(record, dict) else None
    return record


def _typed(name: str, value: Any) -> Value:
    """As its column has it; what repeats is one object."""
    if isinstance(value, bool):
        return None
    if name == "geo_asn":
        digits = str(value).upper().removeprefix("AS")
        return int(digits) if digits.isdecimal() and len(digits) < 11 else None
    if name in ("geo_latitude", "geo_longitude"):
        try:
            return float(value) if isinstance(value, int | float | str) else None
        except ValueError:
            return None
    return sys.intern(value) if isinstance(value, str) and value else None


def _edition(reader: Any) -> str:
    """``GeoLite2-City 2026-11-20``."""
    facts = reader.metadata()
    built = dt.datetime.fromtimestamp(facts.build_epoch, dt.UTC)
    return f"{facts.database_type} {built:%Y-%m-%d}"
