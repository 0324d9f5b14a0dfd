"""A command in a terminal of its own, as a person runs it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable

from elf.cli.processes import environment

CTRL_C = b"\x03"
HOME = "\x1b[H"
"""Where a picture begins that is drawn in place."""

OTHER_SCREEN, BACK = "\x1b[?1049h", "\x1b[?1049l"

_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def plain(text: str) -> str:
    return _CONTROLS.sub("", text)


def watch(
    args: list[str], columns: int, lines: int, enough: Callable[[str], bool], limit_s: float = 40
) -> tuple[int, str]:
    """Run ``elf`` until it has written enough, then press Ctrl-C; its status, and all that it wrote."""
    others = ("COLUMNS", "LINES")  # xdist sets them, which would hide the terminal's size
    env = {key: value for key, value in environment().items() if key not in others}
    env["TERM"] = "xterm-256color"
    command = [sys.executable, "-m", "elf.cli.main", *args]
    child, terminal = pty.fork()
    if not child:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        os.execve(sys.executable, command, env)
    written, pressed, deadline = b"", False, time.monotonic() + limit_s
    try:
        while time.monotonic() < deadline:
            if not select.select([terminal], [], [], 0.1)[0]:
                continue
            try:
                written += os.read(terminal, 1 << 16)
            except OSError:  # the other end is closed
                return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), written.decode()
            if not pressed and enough(written.decode(errors="replace")):
                os.write(terminal, CTRL_C)
                pressed = True
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise AssertionError(f"not in {limit_s} s; it wrote: {written.decode(errors='replace')}")
    finally:
        os.close(terminal)
