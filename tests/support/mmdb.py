"""Databases of addresses, in MaxMind's format, written by mmdb-writer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

PLACES: Mapping[str, Mapping[str, object]] = {
    "81.2.69.0/24": {
        "continent": {"code": "EU"},
        "country": {"iso_code": "GB", "names": {"en": "United Kingdom"}},
        "subdivisions": [{"names": {"en": "England"}}],
        "city": {"names": {"en": "London"}},
        "location": {"latitude": 51.5142, "longitude": -0.0931},
    },
    "2001:db8::/32": {"country": {"iso_code": "DE", "names": {"en": "Germany"}}},
    "198.51.100.0/24": {"registered_country": {"iso_code": "FR", "names": {"en": "France"}}},
}
NETWORKS: Mapping[str, Mapping[str, object]] = {
    "81.2.69.0/24": {
        "autonomous_system_number": 20712,
        "autonomous_system_organization": "Andrews & Arnold Ltd",
    }
}
FLAT: Mapping[str, Mapping[str, object]] = {
    "203.0.113.0/24": {
        "country": "NL",
        "country_name": "Netherlands",
        "continent": "Europe",
        "city": "Utrecht",
        "region": "Utrecht",
        "lat": "52.09",
        "lng": "5.12",
        "asn": "AS64500",
        "as_name": "Example",
    },
    "203.0.113.99/32": {"country": 7, "asn": "none", "lat": "north", "lng": True, "city": ""},
}
"""As IPinfo has it; the last is nonsense."""


def database(
    path: Path, kind: str, networks: Mapping[str, Mapping[str, object]], built: int = 1_763_596_800
) -> str:
    """Written there. ``kind``: what it says it is; ``built``: when, in s since 1970."""
    import mmdb_writer
    from netaddr import IPSet

    writer = mmdb_writer.MMDBWriter(ip_version=6, database_type=kind, ipv4_compatible=True)
    for network, record in networks.items():
        writer.insert_network(IPSet([network]), dict(record))
    with patch("mmdb_writer.time.time", return_value=built):
        writer.to_db_file(str(path))
    return str(path)
