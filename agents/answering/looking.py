"""SELECT of rows, answered at once: of the last lines that some members of the stream keep
(``elf.ql.looks``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from agents.answering.asks import Procedure, ToAddress, offload
from agents.answering.fleet import PATIENCE_MS, Fleet
from elf.batch import ARROW_TYPES, decode, encode
from elf.errors import PeerError, UserError
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.members import Member
from elf.job.messages.inquiries import LookAt, SampledRows
from elf.wire.base import Answer
from elf.wire.clients import Execute, Reply

if TYPE_CHECKING:
    from elf.ql.expressions import Kind
    from elf.ql.looks import Look
    from elf.ql.statements import Query

MEMBERS_MAX: Final = 64
"""How many members are asked."""
BYTES_MAX: Final = 4 << 20
BYTES_TOGETHER_MAX: Final = 32 << 20
"""What a member shows, and all of them."""
_TYPES: Final[Mapping[Kind, pa.DataType]] = dict(
    [*ARROW_TYPES.items(), ("hugeint", pa.decimal128(38, 0)), ("null", pa.int32())]
)
"""As DuckDB gives them."""


def look(asked: Execute, query: Query, log: CatalogLog, fleet: Fleet) -> Procedure:
    """The reply's payload are the rows; its text says what they are of."""
    from elf.ql.looks import look_of, stream_of

    stream = stream_of(query)
    members = fleet.expected(stream)
    if not members:
        streams = ", ".join(log.streams())
        raise UserError(f"there is no stream {stream}; streams: {streams or 'none'}")
    schema = (yield from fleet.view(stream)).schema
    found = yield from offload(partial(look_of, query, schema))
    some = members[:MEMBERS_MAX]
    each = min(BYTES_MAX, BYTES_TOGETHER_MAX // len(some))
    request = LookAt(id=0, origin="", stream=stream, query=query.sql, columns=found.columns, bytes_max=each)
    answers = yield [ToAddress(member.address, request, PATIENCE_MS) for member in some]
    last, silent, kept, large = yield from offload(partial(_last_rows, found, some, answers))
    count = 0 if last is None else last.num_rows
    text = (
        f"a sample: the last {count} rows that match, of {kept:,} lines that {len(some) - len(silent)} of "
        f"{len(members)} agents keep; elf tap {stream} shows rows as they come, GROUP BY is over all of them"
    )
    text += f"; {large:,} rows are more than {each >> 20} MiB of an agent" if large else ""
    text += "".join(f"; no rows of {why}" for why in silent)
    return Reply(request=asked.request, text=text, payload=b"" if last is None else encode(last))


def _last_rows(
    look: Look, members: Sequence[Member], answers: Sequence[Answer]
) -> tuple[pa.Table | None, list[str], int, int]:
    """The last rows of all members, and who has shown none, and why; how many lines they keep, and rows that
    were too large to be shown. Rows without an event time come before all others."""
    from elf.ql.looks import TIME

    schema = pa.schema([(TIME, pa.int64()), *((name, _TYPES[kind]) for name, kind in look.shown)])
    tables, silent, kept, large = [], [], 0, 0
    for member, answer in zip(members, answers, strict=True):
        try:
            if answer.error:
                raise PeerError(answer.error)
            sampled = msgspec.msgpack.decode(answer.body, type=SampledRows)
            if sampled.rows:
                tables.append(as_asked(decode(sampled.rows), schema))
            kept, large = kept + sampled.unseen, large + sampled.hidden
        except (PeerError, msgspec.MsgspecError) as error:
            silent.append(f"{member.name}: {error}")
    if not tables:
        return None, silent, kept, large
    rows = pa.concat_tables(tables)
    rows = rows.take(pc.array_sort_indices(rows[TIME].combine_chunks(), null_placement="at_start"))
    return rows.slice(max(0, rows.num_rows - look.rows)).drop_columns([TIME]), silent, kept, large


def as_asked(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """What a member has sent, in the columns that were asked for. Raises ``PeerError``."""
    try:
        return rows.select(schema.names).cast(schema)
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise PeerError(f"its rows are not what was asked for: {error}") from None
