"""Functions that look a text up in a table of the host (``elf.ql.lookups``)."""

from __future__ import annotations

from typing import Final

from elf.ql.lookups import LOOKUPS, OP
from elf.ql.signatures import Function, fixed

_LONDON: Final = "'81.2.69.142'"
_PHONE: Final = (
    "'Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
    "Version/17.5 Mobile/15E148 Safari/604.1'"
)


def _function(name: str, argument: str, about: str, example: str, gives: str) -> Function:
    build = fixed(("text",), LOOKUPS[name].kind, f"{OP}{name}")
    return Function(name, f"{name}({argument})", about, f"{name}({example})", gives, build)


GEOIP: Final[tuple[Function, ...]] = tuple(
    _function(name, "address", about, _LONDON, gives)
    for name, about, gives in (
        (
            "geo_country",
            "the country of an address, two letters (ISO 3166); NULL where it is not known",
            "'GB'",
        ),
        ("geo_country_name", "its name in English", "'United Kingdom'"),
        ("geo_continent", "the continent, two letters", "'EU'"),
        ("geo_region", "the largest part of the country", "'England'"),
        ("geo_city", "the city", "'London'"),
        ("geo_latitude", "degrees to the north", "51.5142"),
        ("geo_longitude", "degrees to the east", "-0.0931"),
        ("geo_asn", "the number of the autonomous system", "20712"),
        ("geo_organization", "whose autonomous system it is", "'Andrews & Arnold Ltd'"),
    )
)
USER_AGENT_TABLES: Final[tuple[Function, ...]] = tuple(
    _function(name, "user_agent", about, _PHONE, gives)
    for name, about, gives in (
        ("ua_browser", "the family of the browser or program, else Other", "'Mobile Safari'"),
        ("ua_browser_version", "its version, as far as it is told", "'17.5'"),
        ("ua_os", "the family of the operating system, else Other", "'iOS'"),
        ("ua_os_version", "its version, as far as it is told", "'17.5'"),
        ("ua_device", "the family of the device, else Other", "'iPhone'"),
        ("ua_is_bot", "whether it is a known crawler", "FALSE"),
    )
)
