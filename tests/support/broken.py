"""A network that breaks: a TCP proxy before each agent delays, corrupts, stops and cuts what passes."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections import Counter
from dataclasses import dataclass

CHUNK_BYTES = 16 << 10


@dataclass(frozen=True)
class Trouble:
    """What befalls a chunk of bytes: it takes up to ``delay_s``; in these shares of all cases one of its bits
    turns over, or its connection is cut and it is lost."""

    delay_s: float = 0.0
    corrupt: float = 0.0
    checkpoint: float = 0.0


class BrokenNetwork:
    """Proxies on a thread of their own. ``trouble`` may be set at any time, and ``stopped``: ports of those
    who have connected, whose words wait until they are taken out; ``done``: how often what befell a chunk."""

    def __init__(self, seed: int = 1) -> None:
        self.trouble = Trouble()
        self.stopped: frozenset[int] = frozenset()
        self.done: Counter[str] = Counter()
        self._rng = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def before(self, host: str, port: int) -> str:
        """A proxy before what listens there; its own address."""

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, asyncio.CancelledError):  # asyncio would print a trace of it
                there = await asyncio.open_connection(host, port)
                await self._both((reader, writer), there)
            writer.close()

        async def listen() -> str:
            server = await asyncio.start_server(accept, "127.0.0.1", 0)
            return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

        return asyncio.run_coroutine_threadsafe(listen(), self._loop).result(10)

    async def _both(self, one: _Ends, other: _Ends) -> None:
        port = one[1].get_extra_info("peername")[1]
        ways = [(one[0], other[1], port), (other[0], one[1], 0)]
        tasks = [asyncio.ensure_future(self._pump(*way)) for way in ways]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        for _, writer in (one, other):
            writer.transport.abort()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        """Until one end closes, or the connection is cut. ``port``: of who has connected and writes."""
        rng = self._rng
        while data := await reader.read(CHUNK_BYTES):
            trouble = self.trouble
            if rng.random() < trouble.checkpoint:
                self.done["cut"] += 1
                return
            if rng.random() < trouble.corrupt:
                self.done["corrupted"] += 1
                at = rng.randrange(len(data))
                data = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
            while port in self.stopped:
                await asyncio.sleep(0.05)  # nothing passes
            if trouble.delay_s:
                await asyncio.sleep(rng.random() * trouble.delay_s)
            writer.write(data)
            await writer.drain()

    def close(self) -> None:
        async def end() -> None:
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


_Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]
