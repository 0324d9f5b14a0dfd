"""The journal of systemd, as ``journalctl -o json`` gives it: the system's, or files and folders of journals.

The cursor of the last entry is the key of what is in the spool with it, so it is durable with the entry
itself, and the next start goes on behind it. While there is no room nothing is read. journalctl is started
again when it ends; where the cursor is gone (entries were vacuumed away unread) what is left is read from its
beginning, and the gap is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from agents.receiving.intake import Intake
from agents.receiving.records import rendered
from elf.errors import UserError

PROGRAM: Final = "journalctl"
AGAIN_S: Final = 2.0
"""From its end to the next start."""
BATCH_BYTES: Final = 1 << 20
ORIGIN: Final = "system"
_LOST_PLACE: Final = ("Failed to seek to cursor", "Failed to test cursor")


class Journal:
    """``places``: files and folders (none: the system's journal); ``matches``: what journalctl is to show."""

    def __init__(
        self,
        intake: Intake,
        places: Sequence[str],
        matches: Sequence[str],
        *,
        from_end: bool,
        whole: bool,
        entry_bytes_max: int,
    ) -> None:
        check()
        self._intake = intake
        self._places = places
        self._matches = matches
        self._from_end = from_end
        self._whole = whole
        self._most = entry_bytes_max
        self._lines_max = min(entry_bytes_max, intake.spool.record_bytes_max)
        self._seek_lost = False

    async def serve(self) -> None:
        """Until it is cancelled."""
        while True:
            said = await self._follow()
            if any(text in said for text in _LOST_PLACE):
                self._seek_lost = True
                self._intake.spool.lost(self._intake.origin(ORIGIN), 0, 0)
            self._intake.refuse("journalctl", text=f"{PROGRAM} has ended: {said or 'without a word'}")
            await asyncio.sleep(AGAIN_S)

    def command(self) -> list[str]:
        """What is run."""
        cursor = "" if self._seek_lost else self._intake.spool.last_key.decode("ascii", "replace")
        found = [PROGRAM, "--output=json", "--all", "--follow", "--no-pager", "--quiet"]
        found += [
            f"--directory={place}" if Path(place).is_dir() else f"--file={place}" for place in self._places
        ]
        if cursor:
            found += [f"--after-cursor={cursor}", "--no-tail"]
        else:
            found.append("--lines=0" if self._from_end and not self._seek_lost else "--no-tail")
        return [*found, *self._matches]

    async def _follow(self) -> str:
        """What it says at its end."""
        process = await asyncio.create_subprocess_exec(
            *self.command(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=self._most,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        said = asyncio.ensure_future(process.stderr.read(1 << 12))
        try:
            rest, is_over = bytearray(), False
            while data := await process.stdout.read(BATCH_BYTES):
                if is_over:
                    _, newline, data = data.partition(b"\n")
                    is_over = not newline
                if end := data.rfind(b"\n") + 1:
                    await self._take((bytes(rest) + data[: end - 1]).split(b"\n"))
                    rest.clear()
                rest += data[end:]
                if len(rest) > self._most:
                    self._pass_over()
                    rest.clear()
                    is_over = True
            return (await said).decode(errors="replace").strip()
        finally:
            said.cancel()
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _take(self, entries: Sequence[bytes]) -> None:
        """Returns when they are durable."""
        lines, cursor = bytearray(), b""
        for text in entries:
            one, behind = self._line(text)
            if len(one) > self._lines_max:
                self._pass_over()
                continue
            if len(lines) + len(one) > self._lines_max:
                await self._keep(bytes(lines), cursor)
                lines.clear()
            lines += one
            cursor = behind or cursor
        if lines:
            await self._keep(bytes(lines), cursor)

    async def _keep(self, lines: bytes, cursor: bytes) -> None:
        while not await self._intake.keep(ORIGIN, lines, cursor):
            await self._intake.room()
        self._seek_lost = False

    def _line(self, text: bytes) -> tuple[bytes, bytes]:
        """Of an entry, and its cursor (empty: it has none)."""
        try:
            entry = msgspec.json.decode(text, type=dict[object, object])
            micros = int(str(entry.get("__REALTIME_TIMESTAMP", 0)))
            cursor = str(entry.get("__CURSOR", "")).encode()
            if isinstance(message := entry.get("MESSAGE"), list):  # bytes that are no UTF-8
                entry["MESSAGE"] = bytes(message).decode(errors="replace") if self._whole else bytes(message)
        except (msgspec.MsgspecError, ValueError, TypeError):
            return text + b"\n", b""  # it is no line of a format, and counted as such
        return rendered(entry, micros * 1_000, {}, whole=self._whole), cursor

    def _pass_over(self) -> None:
        """An entry: whoever writes one that large stops nobody."""
        text = f"an entry has more than {self._lines_max} bytes (receive.body_bytes_max), and is passed over"
        self._intake.refuse("large", text=text)


def check() -> None:
    """Raises ``UserError`` where it cannot be read."""
    if shutil.which(PROGRAM) is None:
        raise UserError(f"streams of type journal need {PROGRAM}, which this machine does not have")
