"""Access logs of Apache and nginx: what ``combined`` and ``common`` share.

A line is cut at its double quotes, which is several times faster than a regular expression over all of it::

    client identity user [date] "request" status bytes "referer" "user agent"
    ----------- head ----------  request  -- mid ------ referer   agent

Escaped quotes (``\\"``) are taken out of the way first, in the few lines that have them, and put back into
what is extracted, so that escapes stay as written. What follows the last field of the format, after a
blank, are the columns ``extra_1``, ``extra_2`` and so on; the agent counts such lines and says so.

The head says who asked, and perhaps of which virtual host: ``client identity user [date] ``, nearly always. A
line that only looks like it would have a wrong client or user in silence, so it is refused unless its fields
are certain:

- the identity is ``-`` or a word that is no name of a host and no address;
- a user name may have blanks where the identity is ``-``, and no word of it is a lone ``-``, which is an
  empty field;
- the client has no comma, and is not the name of a host with a port.

In front of that may be a byte order mark and blanks; a virtual host (Apache's ``vhost_combined``, ``%v:%p``),
which is certain if it has a port, or if an address follows; and in place of the client a list of addresses
with commas between them (``X-Forwarded-For``), of which the first is the client, by convention: the others
are those of proxies.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from agents.formats import usual
from agents.formats.dialect import ARCHIVED_US, SPARK, Dialect, Format, Selection, Step, uncast_count
from agents.formats.fields import EVENT_TIME, EXTRA, extra_columns, extra_name, nothing_null
from agents.formats.layout import masked, words
from agents.formats.requests import request_steps
from elf.errors import InputError
from elf.fields import replace
from elf.native import AccessReader, Field, Reader
from elf.ql.timestamps import LOG_DATE, USUAL_LOG_DATE, log_date_us, usual_log_date_us
from elf.schema import LINE, Column, Schema

_MARK: Final = "\ufeff"
_CLIENT: Final = f"(?:[^ ,:{_MARK}]+|[0-9.]+:[0-9]+|unix:[^ ,]*|[^ ,:{_MARK}]*:[^ ,:]*:[^ ,]*)"
_IDENTITY: Final = "[^ .:,]+"
_WORD: Final = "(?:-[^ ]+|[^ -][^ ]*)"
_BLANKS_MAX: Final = 9
"""In a user name: each more is a frame on Java's stack."""
_USER: Final = f"-|{_WORD}(?: +{_WORD}){{0,{_BLANKS_MAX}}}"
_PLAIN: Final = rf"{_CLIENT} {_IDENTITY} (?:-|{_WORD}) \[{USUAL_LOG_DATE}\] "

_FOUR: Final = "[0-9]{1,3}(?:[.][0-9]{1,3}){3}"
_SIX: Final = "[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*"
_ADDRESS: Final = rf"(?:{_FOUR}(?::[0-9]+)?|{_SIX}|\[{_SIX}\](?::[0-9]+)?)"
_OTHERS: Final = r"(?:,[0-9A-Fa-f.:,\[\] ]*[0-9A-Fa-f:\]])?"
_WITH_PORT: Final = rf"(?:[^ ,:]+|\[{_SIX}\]):[0-9]{{1,5}}"
_NAMED: Final = "[0-9.]*[^ ,:0-9.][^ ,:]*"
"""No four numbers: which of two addresses is the client is anybody's guess."""
_NO_DASH: Final = "-*[^ ,-][^ ,]*"
_FRONTED: Final = (
    f"^[{_MARK} ]*(?:(?:"
    f"(?:({_WITH_PORT}|{_NAMED}) )?({_ADDRESS}){_OTHERS}|({_WITH_PORT}) ({_NO_DASH})|({_CLIENT})"
    rf") - ({_USER})|({_CLIENT}) {_IDENTITY} (-|{_WORD})) \[{LOG_DATE}\] \z"
)
_CLIENT_USER_HOST: Final = ((2, 4, 5, 7), (6, 8), (1, 3))
_DATE_LENGTH: Final = 26


_CERTAIN: Final = re.compile(_FRONTED.replace(r"\z", r"\Z"), re.DOTALL)

DATE: Final = "_date"
EXTRA_TEXT: Final = "_extra"
"""The date, and what follows the last field, as they are written, for who puts lines together again; no
columns of a stream."""
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
    Column("cs_host", "text"),
    Column("s_port", "bigint"),
)
_MID: Final = " (?:[0-9]{3}|-) (?:[0-9]+|-)"
_PIECES: Final = ("_head", "_request", "_mid", "_referer", "_between", "_agent", "_behind")


def _date_of(head: str) -> str:
    return f"substr({head}, length({head}) - {_DATE_LENGTH + 1}, {_DATE_LENGTH})"


def is_head(head: str) -> bool:
    """Whether the fields of what stands before the request are certain."""
    return _CERTAIN.match(head) is not None


def head_steps(dialect: Dialect) -> list[Step]:
    """From ``_head`` to ``_time`` (µs; NULL where the fields are not what they should be), ``_client``,
    ``_user`` and ``_host``, which is the virtual host in front."""
    date = _date_of("_head")
    usual, other = (read(date, dialect.engine) for read in (usual_log_date_us, log_date_us))
    fronted = dialect.separate("_head", _FRONTED, _CLIENT_USER_HOST)
    is_fronted = dialect.is_separated("_fronted")
    client, user, host = (dialect.separated("_fronted", part) for part in (1, 2, 3))
    return [
        (("_plain", dialect.matches("_head", _PLAIN)),),
        (("_fronted", f"CASE WHEN NOT _plain THEN {fronted} END"),),
        (
            ("_time", f"CASE WHEN _plain THEN {usual} WHEN {is_fronted} THEN {other} END"),
            ("_client", f"CASE WHEN _plain THEN {dialect.part('_head', ' ', 1)} ELSE {client} END"),
            ("_user", f"CASE WHEN _plain THEN {dialect.part('_head', ' ', 3)} ELSE {user} END"),
            ("_host", f"nullif({host}, '')"),
        ),
    ]


class AccessLog(Format):
    """``combined`` says whether referer and user agent follow; ``common`` leaves them NULL."""

    def __init__(self, name: str, *, combined: bool) -> None:
        self.name = name
        self._combined = combined

    def schema(self, samples: pa.StringArray, timestamp: str | None) -> Schema:
        """The columns of the format, and those of what samples have behind its last field; the event time is
        ``ts`` whatever the config says."""
        return Schema((*COLUMNS, *extra_columns(self._behind(samples))), EVENT_TIME)

    def _behind(self, samples: pa.StringArray) -> list[list[str]]:
        """What follows the last field, of the lines where anything does."""
        quoted = ' "[^"]*" "[^"]*"' if self._combined else ""
        pattern = rf'^(?s)[^"]*"[^"]*" [^ ]+ [^ ]+{quoted} (?P<behind>.*[^ ].*)\z'
        found = pc.extract_regex(masked(samples), pattern).field(0)
        return [words(text, " ") for text in found.filter(pc.is_valid(found)).to_pylist()]

    def select(self, dialect: Dialect, columns: Sequence[Column], event_time: str | None) -> Selection:
        """See ``Format``. Raises ``InputError`` for a column that access logs do not have."""
        return self._select(dialect, columns, event_time)

    def archived_select(self, columns: Sequence[Column]) -> Selection:
        """See ``Format``. Lines that are usual for all of the columns are not cut at their quotes; the others
        are, and all of them if a column needs it."""
        names = list(dict.fromkeys(one.name for one in columns if one.name != LINE))
        is_read = (usual.is_read(one, combined=self._combined) for one in columns if one.name != LINE)
        if not names or not all(is_read):
            return super().archived_select(columns)
        whether = usual.is_found("_usual_line", names)
        first: tuple[Step, ...] = (
            (("_usual_line", usual.find("line", names)),),
            (("_cut", f"CASE WHEN {whether} THEN NULL ELSE line END"),),
        )
        texts = usual.found("_usual_line", names)
        found = {name: f"CASE WHEN {whether} THEN {text}" for name, text in texts.items()}
        cut = self._select(SPARK, columns, None, "_cut", found)
        return replace(cut, steps=(*first, *cut.steps), valid="TRUE", event_us=ARCHIVED_US, beyond=None)

    def _select(
        self,
        dialect: Dialect,
        columns: Sequence[Column],
        event_time: str | None,
        line: str = "line",
        found: Mapping[str, str] = {},
    ) -> Selection:
        """``line``: what is cut. ``found``: the beginning of a CASE that finds a column's text
        without that, by column."""
        texts = _texts(dialect, combined=self._combined)
        extras = [int(extra[1]) for column in columns if (extra := EXTRA.fullmatch(column.name)) is not None]
        texts |= {extra_name(number): nothing_null(f"_x{number}") for number in extras}
        wanted = [column.name for column in columns]
        unknown = [name for name in (*wanted, event_time or EVENT_TIME) if name not in texts]
        if unknown:
            raise InputError(f'format {self.name} has no column "{unknown[0]}"')
        cast = [column for column in columns if column.type != "text" and column.name != EVENT_TIME]
        texts |= {name: f"{case} ELSE {texts[name]} END" for name, case in found.items()}
        values = tuple(
            (f"_c_{column.name}", dialect.cast(f"_t_{column.name}", column.type)) for column in cast
        )
        asked = tuple(
            (f"_t_{column.name}", texts[column.name]) for column in columns if column.name != EVENT_TIME
        )
        pairs = [(f"_t_{column.name}", f"_c_{column.name}") for column in cast]
        steps = [*_steps(dialect, line), (("_bare", self._bare(dialect)),)]
        if extras:
            items = tuple((f"_x{n}", dialect.unmarked(dialect.item("_w", n))) for n in dict.fromkeys(extras))
            steps += [(("_w", dialect.words(_extra(dialect, combined=self._combined), " ")),), items]
        steps += [asked, values]
        return Selection(
            dialect=dialect,
            steps=tuple(step for step in steps if step),
            valid=self._valid(dialect),
            event_us="_time" if event_time is not None else "CAST(NULL AS BIGINT)",
            uncast=uncast_count(dialect, pairs),
            columns=tuple((column.name, _output(dialect, column)) for column in columns),
            beyond=self._beyond(dialect),
        )

    def reader(
        self, columns: Sequence[Column], event_time: str | None, library: ctypes.CDLL
    ) -> Reader | None:
        """See ``Format``."""
        read = [column for column in columns if column.name != LINE]
        if any((column.name == EVENT_TIME) != (column.type == "timestamp") for column in read):
            return None
        if any(EXTRA.fullmatch(column.name) for column in read):
            return None
        fields, names = [Field(column.type) for column in read], [column.name for column in read]
        if event_time is not None:
            fields.append(Field("timestamp", counted=False))
            names.append(EVENT_TIME)
        return AccessReader(fields, names, library, combined=self._combined)

    def why_not(self, line: str) -> str:
        """See ``Format``."""
        head, *rest = re.sub(r"\\.", "  ", line).replace(' "" [', " - [").split('"')
        if not re.search(rf" \[{LOG_DATE}\] \Z", head):
            return "no date, such as [10/Oct/2000:13:55:36 -0700], before the request"
        if not is_head(head):
            return "more or less than client, identity and user before the date"
        if len(rest) % 2:
            return "a quote that has no fellow"
        fields = 'status, bytes, "referer" and "user agent"' if self._combined else "status and bytes"
        return f"no {fields} behind the request"

    def _bare(self, dialect: Dialect) -> str:
        """Whether nothing follows the last field: so it is in most lines, and all else shall cost them
        little."""
        return "_pieces = 7 AND _behind = ''" if self._combined else dialect.matches("_mid", f"{_MID} *")

    def _valid(self, dialect: Dialect) -> str:
        paired = "_pieces % 2 = 1"  # else a quote has no fellow, and cut a field in two
        if self._combined:
            more = f"{paired} AND {dialect.starts_with('_behind', repr(' '))}"
            fields = f"{dialect.matches('_mid', _MID + ' ')} AND _between = ' '"
        else:
            more, fields = dialect.matches("_mid", f"{_MID} .*"), paired
        # The date is NULL where the head is not what it should be.
        return (
            f"coalesce(_time IS NOT NULL AND {fields} AND CASE WHEN _bare THEN TRUE ELSE {more} END, FALSE)"
        )

    def _beyond(self, dialect: Dialect) -> str:
        if not self._combined:
            return "NOT (_bare AND _pieces = 3)"
        more = f"_pieces > 7 OR {dialect.trimmed('_behind')} <> ''"
        return f"CASE WHEN _bare THEN FALSE ELSE {more} END"


def _output(dialect: Dialect, column: Column) -> str:
    if column.name == EVENT_TIME:
        return dialect.timestamp("_time")
    return f"_t_{column.name}" if column.type == "text" else f"_c_{column.name}"


def _steps(dialect: Dialect, line: str) -> list[Step]:
    """From the line to its pieces."""
    backslashes, quote, nobody = dialect.mark("b"), dialect.mark("q"), dialect.mark("e")
    slash, escaped, empty = dialect.literal("\\\\"), dialect.literal('\\"'), dialect.literal(' "" [')
    masked = dialect.replace(dialect.replace(line, slash, backslashes), escaped, quote)
    # An authenticated user without a name is logged as "": quotes that are not those of the request.
    masked = dialect.replace(masked, empty, f"(' ' || {nobody} || ' [')")
    doubled = dialect.literal('""')
    odd = f"({dialect.contains(line, escaped)} OR {dialect.contains(line, doubled)})"
    return [
        (("_odd", odd),),
        (("_s", f"CASE WHEN _odd THEN {masked} ELSE {line} END"),),
        (("_p", dialect.split("_s", '"')),),
        (*dialect.named_items("_p", _PIECES), ("_pieces", dialect.items("_p"))),
        *head_steps(dialect),
        *request_steps(dialect),
    ]


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

    nothing = "CAST(NULL AS VARCHAR)" if dialect.engine == "duckdb" else "CAST(NULL AS STRING)"
    return {
        EVENT_TIME: nothing,
        "c_ip": whole("_client"),
        "cs_username": whole("_user"),
        "cs_method": whole("_method"),
        "cs_uri_stem": whole(dialect.part("_target", "?", 1)),
        "cs_uri_query": written(f"({dialect.behind('_target', '?')})"),
        "cs_version": "_version",
        "sc_status": f"nullif({dialect.part('_mid', ' ', 2)}, '-')",
        "sc_bytes": f"nullif({dialect.part('_mid', ' ', 3)}, '-')",
        "cs_referer": whole("_referer") if combined else nothing,
        "cs_user_agent": whole("_agent") if combined else nothing,
        "cs_request": whole("_request"),
        "cs_host": whole(dialect.without("_host", ":[0-9]+$")),
        "s_port": dialect.extract("_host", ":([0-9]+)$"),
        EXTRA_TEXT: written(_extra(dialect, combined=combined)),
        LINE: "line",
        DATE: _date_of("_head"),
    }


def _extra(dialect: Dialect, *, combined: bool) -> str:
    """What follows the last field of the format; NULL where it is nothing, or blank."""
    pieces = [f"length({name}) + 1" for name in _PIECES[: 6 if combined else 2]]
    before = " + ".join(pieces if combined else [*pieces, _length_of_mid(dialect)])
    return f"nullif({dialect.trimmed(f'substr(_s, {before} + 1)')}, '')"


def _length_of_mid(dialect: Dialect) -> str:
    """Of status and bytes, with the blank before each."""
    status, size = dialect.part("_mid", " ", 2), dialect.part("_mid", " ", 3)
    return f"(length({status}) + length({size}) + 2)"


COMBINED: Final = AccessLog("combined", combined=True)
"""Apache's and nginx's ``combined``: the common log format with referer and user agent."""
COMMON: Final = AccessLog("common", combined=False)
"""The common log format."""
