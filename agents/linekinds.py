"""Kinds of values of settings that say what lines mean (``agents.settings.kinds``).

Arrow is imported when such a value is read, since who starts agents reads none.
"""

from __future__ import annotations

from agents.settings.kinds import Kind, Unfit
from elf.errors import ConfigError
from elf.schema import ZONED


def log_format() -> Kind[str]:
    """The name of a format, or its text."""

    def read(value: object) -> str:
        if not isinstance(value, str) or not value.strip():
            raise Unfit("must be the name of a format, such as combined, or its text")
        from agents.formats import get_format, written_out

        try:
            found = get_format(written_out(value)).name
        except ConfigError as error:
            raise Unfit(f"is wrong: {error}") from None
        if found.startswith(ZONED):
            raise Unfit("has no zone in front here: set timezone beside it")
        return found

    return Kind("a format's name, such as combined, or its text", read)


def time_zone() -> Kind[str]:
    """The name of a time zone."""

    def read(value: object) -> str:
        if not isinstance(value, str):
            raise Unfit("must be the name of a time zone, such as Europe/Berlin")
        from agents.formats.zones import check_zone

        try:
            return check_zone(value)
        except ConfigError as error:
            raise Unfit(f"is wrong: {error}") from None

    return Kind("the name of a time zone, such as Europe/Berlin", read)


def expression() -> Kind[str]:
    """A regular expression in what RE2 reads."""

    def read(value: object) -> str:
        if not isinstance(value, str):
            raise Unfit("must be a regular expression")
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            pc.match_substring_regex(pa.array([""]), value)
        except pa.ArrowInvalid as error:
            raise Unfit(f"is no regular expression (RE2): {error}") from None
        return value

    return Kind("a regular expression (RE2)", read)
