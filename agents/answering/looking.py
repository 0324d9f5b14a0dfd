"""SELECT of rows, answered at once: of the last lines that some members of the stream keep
(``elf.ql.looks``).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from agents.answering.asks import Procedure, ToAddress, offload
from agents.answering.fleet import Fleet
from elf.batch import decode, encode
from elf.errors import PeerError, UserError
from elf.job.catalog.log import CatalogLog
from elf.job.messages.inquiries import LookAt, SampledRows
from elf.wire.clients import Execute, Reply

if TYPE_CHECKING:
    from elf.ql.statements import Query

MEMBERS_MAX = 64
"""How many members are asked."""
PATIENCE_MS = 2_000
BYTES_MAX = 4 << 20
BYTES_TOGETHER_MAX = 32 << 20
"""What a member shows, and all of them."""


def look(asked: Execute, query: Query, log: CatalogLog, fleet: Fleet) -> Procedure:
    """The reply's payload are the rows; its text says what they are of."""
    from elf.ql.looks import TIME, look_of, stream_of

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
    tables, silent, kept, large = [], [], 0, 0
    for member, answer in zip(some, answers, strict=True):
        try:
            if answer.error:
                raise PeerError(answer.error)
            sampled = msgspec.msgpack.decode(answer.body, type=SampledRows)
            kept, large = kept + sampled.unseen, large + sampled.hidden
            if sampled.rows:
                tables.append(decode(sampled.rows))
        except (PeerError, msgspec.MsgspecError) as error:
            silent.append(f"{member.name}: {error}")
    rows = pa.concat_tables(tables, promote_options="permissive").sort_by(TIME) if tables else None
    last = None if rows is None else rows.slice(max(0, rows.num_rows - found.rows)).drop_columns([TIME])
    count = 0 if last is None else last.num_rows
    text = (
        f"a sample: the last {count} rows that match, of {kept:,} lines that {len(some) - len(silent)} of "
        f"{len(members)} agents keep; elf tap {stream} shows rows as they come, GROUP BY is over all of them"
    )
    text += f"; {large:,} rows are more than {each >> 20} MiB of an agent" if large else ""
    text += "".join(f"; no rows of {why}" for why in silent)
    return Reply(request=asked.request, text=text, payload=b"" if last is None else encode(last))
