"""Messages of the forward protocol, as its senders make them."""

from __future__ import annotations

import asyncio
import gzip

import msgspec

from agents.receiving.forward import Boundary
from tests.support.receiving import Side

TIME = msgspec.msgpack.Ext(0, (1_800_000_000).to_bytes(4, "big") + (5_000_000).to_bytes(4, "big"))
pack = msgspec.msgpack.encode


def entries(texts: list[str]) -> list[list[object]]:
    return [[TIME, {"log": f"{text}\n", "stream": "stdout"}] for text in texts]


async def forward(side: Side, *messages: list[object]) -> list[object]:
    """The chunks that were acknowledged, of those messages that have one."""
    reader, writer = await asyncio.open_connection(*side.at)
    writer.write(b"".join(map(pack, messages)))
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    found = []
    while answer:
        end = Boundary().end(answer)
        found.append(msgspec.msgpack.decode(answer[:end])["ack"])
        answer = answer[end:]
    return found


async def forward_each(side: Side, texts: list[str]) -> bool:
    messages: list[list[object]] = [["tag", *one, {"chunk": str(one)}] for one in entries(texts)]
    return len(await forward(side, *messages)) == len(texts)


async def forward_array(side: Side, texts: list[str]) -> bool:
    chunk = f"{texts}"
    return await forward(side, ["tag", entries(texts), {"chunk": chunk}]) == [chunk]


async def forward_packed(side: Side, texts: list[str]) -> bool:
    """As Fluent Bit does since 2.1, with metadata beside the time."""
    block = b"".join(pack([[TIME, {}], record]) for _, record in entries(texts))
    chunk = f"{texts}"
    return await forward(side, ["tag", block, {"chunk": chunk, "size": len(texts)}]) == [chunk]


async def forward_gzip(side: Side, texts: list[str]) -> bool:
    block = gzip.compress(b"".join(map(pack, entries(texts))))
    chunk = f"{texts}"
    return await forward(side, ["tag", block, {"chunk": chunk, "compressed": "gzip"}]) == [chunk]
