"""Access logs of Apache and nginx: what ``combined`` and ``common`` share.

A line is cut at its double quotes, which is several times faster than a regular expression over all of it::

    address identity user [date] "request" status bytes "referer" "user agent"
    ------------ head ----------  request  -- mid ------ referer   agent

Escaped quotes (``\\"``) are taken out of the way first, in the few lines that have them, and put back into
what is extracted, so that escapes stay as written. What follows the last field of the format, after a
blank, is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from agents.formats.base import LINE, Format
from agents.formats.dialect import Dialect, Selection, uncast_count
from elf.errors import InputError
from elf.ql.timestamps import LOG_DATE, USUAL_LOG_DATE, log_date_us, usual_log_date_us
from elf.schema import Column, Schema

EVENT_TIME: Final = "ts"

COLUMNS: Final[tuple[Column, ...]] = (
    Column("ts", "timestamp"),
    Column("c_ip", "text"),
    Column("cs_username", "text"),
    Column("cs_method", "text"),
    Column("cs_uri_stem", "text"),
    Column("cs_uri_query", "text"),
    Column("cs_version", "text"),
    Column("sc_status", "bigint"),
    Column("sc_bytes", "bigint"),
    Column("cs_referer", "text"),
    Column("cs_user_agent", "text"),
    Column("cs_request", "text"),
)

_HEAD: Final = r"[^ ]+ [^ ]+ .+ \[{date}\] "
_MID: Final = " (?:[0-9]{3}|-) (?:[0-9]+|-)"
_METHOD: Final = "[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_VERSION: Final = "[A-Za-z]+/[0-9.]+"
_DATE_LENGTH: Final = 26


class AccessLog(Format):
    """``combined`` says whether referer and user agent follow; ``common`` leaves them NULL."""

    def __init__(self, name: str, *, combined: bool) -> None:
        self.name = name
        self._combined = combined

    def schema(self, samples: pa.StringArray, timestamp: str | None) -> Schema:
        """Always the same columns; the event time is ``ts`` whatever the config says."""
        return Schema(COLUMNS, EVENT_TIME)

    def select(self, dialect: Dialect, columns: Sequence[Column], event_time: str | None) -> Selection:
        """See ``Format``. Raises ``InputError`` for a column that access logs do not have."""
        texts = _texts(dialect, combined=self._combined)
        wanted = [column.name for column in columns]
        unknown = [name for name in (*wanted, event_time or EVENT_TIME) if name not in texts]
        if unknown:
            raise InputError(f'format {self.name} has no column "{unknown[0]}"')
        cast = [column for column in columns if column.type != "text" and column.name != EVENT_TIME]
        values = tuple(
            (f"_c_{column.name}", dialect.cast(f"_t_{column.name}", column.type)) for column in cast
        )
        asked = tuple(
            (f"_t_{column.name}", texts[column.name]) for column in columns if column.name != EVENT_TIME
        )
        pairs = [(f"_t_{column.name}", f"_c_{column.name}") for column in cast]
        steps = [*_steps(dialect), asked, values]
        return Selection(
            dialect=dialect,
            steps=tuple(step for step in steps if step),
            valid=self._valid(dialect),
            event_us="_time" if event_time is not None else "CAST(NULL AS BIGINT)",
            uncast=uncast_count(dialect, pairs),
            columns=tuple((column.name, _output(dialect, column)) for column in columns),
        )

    def _valid(self, dialect: Dialect) -> str:
        rest = f"({dialect.item('_p', 7)} = '' OR {dialect.starts_with(dialect.item('_p', 7), repr(' '))})"
        combined = f"{dialect.matches('_mid', _MID + ' ')} AND {dialect.item('_p', 5)} = ' ' AND {rest}"
        common = dialect.matches("_mid", f"{_MID}(?: .*)?")
        # The date is NULL where the head is not what it should be.
        return f"coalesce(_time IS NOT NULL AND {combined if self._combined else common}, FALSE)"


def _output(dialect: Dialect, column: Column) -> str:
    if column.name == EVENT_TIME:
        return dialect.timestamp("_time")
    return f"_t_{column.name}" if column.type == "text" else f"_c_{column.name}"


def _steps(dialect: Dialect) -> list[tuple[tuple[str, str], ...]]:
    """From the line to its pieces."""
    backslashes, quote, nobody = dialect.mark("b"), dialect.mark("q"), dialect.mark("e")
    slash, escaped, empty = dialect.literal("\\\\"), dialect.literal('\\"'), dialect.literal(' "" [')
    masked = dialect.replace(dialect.replace("line", slash, backslashes), escaped, quote)
    # An authenticated user without a name is logged as "": quotes that are not those of the request.
    masked = dialect.replace(masked, empty, _concat(dialect, "' '", nobody, "' ['"))
    doubled = dialect.literal('""')
    odd = f"({dialect.contains('line', escaped)} OR {dialect.contains('line', doubled)})"
    pieces = [("_head", 1), ("_request", 2), ("_mid", 3)]
    return [
        (("_odd", odd),),
        (("_s", f"CASE WHEN _odd THEN {masked} ELSE line END"),),
        (("_p", dialect.split("_s", '"')),),
        tuple((name, dialect.item("_p", number)) for name, number in pieces),
        (
            ("_time", _time(dialect)),
            ("_q", dialect.split("_request", " ")),
        ),
        (("_proper", _proper(dialect)),),
    ]


def _time(dialect: Dialect) -> str:
    date = f"substr(_head, length(_head) - {_DATE_LENGTH + 1}, {_DATE_LENGTH})"
    usual = dialect.matches("_head", _HEAD.replace("{date}", USUAL_LOG_DATE))
    dated = dialect.matches("_head", _HEAD.replace("{date}", LOG_DATE))
    return (
        f"CASE WHEN {usual} THEN {usual_log_date_us(date, dialect.engine)}"
        f" WHEN {dated} THEN {log_date_us(date, dialect.engine)} END"
    )


def _proper(dialect: Dialect) -> str:
    """Whether the request is METHOD URI [VERSION]; the usual words are compared first, then a pattern."""
    method, uri, version = (dialect.item("_q", number) for number in (1, 2, 3))
    is_method = f"CASE WHEN {method} IN ('GET', 'POST') THEN TRUE ELSE {dialect.matches(method, _METHOD)} END"
    is_version = (
        f"CASE WHEN {version} IN ('HTTP/1.1', 'HTTP/2.0') OR {version} IS NULL THEN TRUE"
        f" ELSE {dialect.matches(version, _VERSION)} END"
    )
    return f"({dialect.items('_q')} IN (2, 3) AND {uri} <> '' AND {is_method} AND {is_version})"


def _texts(dialect: Dialect, *, combined: bool) -> dict[str, str]:
    """Each column as text."""

    def written(text: str) -> str:
        """With marks turned back into what was written."""
        back = dialect.replace(text, dialect.mark("q"), dialect.literal('\\"'))
        back = dialect.replace(back, dialect.mark("b"), dialect.literal("\\\\"))
        back = dialect.replace(back, dialect.mark("e"), dialect.literal('""'))
        return f"CASE WHEN _odd THEN {back} ELSE {text} END"

    def whole(text: str) -> str:
        """As written, ``-`` being NULL."""
        return f"nullif({written(text)}, '-')"

    def request(text: str) -> str:
        return f"CASE WHEN _proper THEN {text} END"

    address, identity = dialect.part("_head", " ", 1), dialect.part("_head", " ", 2)
    before = f"(length({address}) + length({identity}) + 2)"
    user = f"substr(_head, {before} + 1, length(_head) - {before} - {_DATE_LENGTH + 4})"
    uri = dialect.item("_q", 2)
    nothing = "CAST(NULL AS VARCHAR)" if dialect.engine == "duckdb" else "CAST(NULL AS STRING)"
    return {
        EVENT_TIME: nothing,
        "c_ip": whole(address),
        "cs_username": whole(user),
        "cs_method": request(whole(dialect.item("_q", 1))),
        "cs_uri_stem": request(whole(dialect.part(uri, "?", 1))),
        "cs_uri_query": request(written(f"({dialect.behind(uri, '?')})")),
        "cs_version": request(whole(dialect.item("_q", 3))),
        "sc_status": f"nullif({dialect.part('_mid', ' ', 2)}, '-')",
        "sc_bytes": f"nullif({dialect.part('_mid', ' ', 3)}, '-')",
        "cs_referer": whole(dialect.item("_p", 4)) if combined else nothing,
        "cs_user_agent": whole(dialect.item("_p", 6)) if combined else nothing,
        "cs_request": whole("_request"),
        LINE: "line",
    }


def _concat(dialect: Dialect, *texts: str) -> str:
    return dialect.either(f"({' || '.join(texts)})", f"concat({', '.join(texts)})")
