"""How a command ends: every failure is one clear text on standard error and an exit status, never a
traceback.

0 done; 1 it cannot be done; 2 the command line is wrong; 70 a bug of elf; 78 the configuration is wrong; 130
ended by Ctrl-C or SIGTERM. A command whose own result may be 1 or 2 (``elf compare``) ends with 69 where it
cannot be done, and with 64 where the command line is wrong.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Final

import typer

from elf.errors import ConfigError, ElfBug, ElfError

FAILED: Final = 1
USAGE: Final = 2
USAGE_APART: Final = 64
UNAVAILABLE: Final = 69
"""In place of ``USAGE`` and ``FAILED``, of commands to which 2 and 1 are results."""
_APART: Final = frozenset({"compare"})
BUG: Final = 70
CONFIG: Final = 78
INTERRUPTED: Final = 130

_COMMAND_LINE: Final[type[BaseException]] = typer.BadParameter.mro()[2]
"""Base of what is raised for a wrong command line; typer does not export it by name."""


_PLAIN: Final = {
    "is not a valid int range": "is no whole number",
    "is not a valid int": "is no whole number",
    "is not a valid float range": "is no number",
    "is not a valid float": "is no number",
}
"""What typer says of values, and how it is said here."""


def exit_status(command: Callable[[], object]) -> int:
    """Run a command and say how it ended. SIGTERM ends it like Ctrl-C, so that it cleans up. Output has a
    buffer: without one (PYTHONUNBUFFERED) Python loses what a pipe does not take at once."""
    signal.signal(signal.SIGTERM, _terminate)
    if isinstance(sys.stdout, io.TextIOWrapper) and isinstance(sys.stdout.buffer, io.RawIOBase):
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(sys.stdout.detach()), line_buffering=True)
    try:
        result = command()
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except typer.Exit as done:
        return done.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has gone (`elf run … | head`). Python would complain about the flush at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except ElfError as error:
        return fail(error)
    except OSError as error:
        path = f"{error.filename}: " if error.filename else ""
        return _say(f"{path}{(error.strerror or str(error)).lower()}", FAILED)
    except Exception as error:
        if isinstance(error, _COMMAND_LINE):
            message = getattr(error, "format_message", error.__str__)()
            name = getattr(getattr(error, "ctx", None), "info_name", "")
            usage = USAGE_APART if name in _APART else USAGE
            if message.lstrip().startswith("Usage:"):  # a command that is nothing without another
                print(message.strip("\n"), file=sys.stderr)
                return usage
            return _say(_one_line(message), usage)
        return _say(f"bug: {type(error).__name__}: {error}", BUG)


def fail(error: ElfError) -> int:
    """Print an error for whoever must act on it; the exit status is returned."""
    if isinstance(error, ElfBug):
        return _say(f"bug: {error}", BUG)
    return _say(str(error), CONFIG if isinstance(error, ConfigError) else FAILED)


@contextlib.contextmanager
def ended_at_once(folder: Path, once: Callable[[], None] | None = None) -> Iterator[None]:
    """Meanwhile Ctrl-C and SIGTERM end the process there and then, for work that leaves nothing behind but
    this folder: Python would wait for its threads first, which may be in the middle of anything. ``once``:
    what the first Ctrl-C does in place of that."""
    first = [] if once is None else [once]

    def end(which: int, _frame: FrameType | None) -> None:
        if first and which == signal.SIGINT:
            first.pop()()
            return
        shutil.rmtree(folder, ignore_errors=True)
        os.write(2, b"elf: interrupted: this is not the whole answer\n")
        os._exit(INTERRUPTED)

    told = [which for which in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(which) != signal.SIG_IGN]
    if threading.current_thread() is not threading.main_thread():
        told = []  # of a program that has ways of its own
    before = [signal.signal(which, end) for which in told]
    try:
        yield
    finally:
        for which, handler in zip(told, before, strict=True):
            signal.signal(which, handler)


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    """As Ctrl-C, which a loop that runs takes care of; a shell starts what is in the background without."""
    if callable(signal.getsignal(signal.SIGINT)):
        signal.raise_signal(signal.SIGINT)
    else:
        raise KeyboardInterrupt


def _say(text: str, status: int) -> int:
    from elf.client.values import for_terminal  # Arrow, which `elf --help` does without

    print(for_terminal(f"elf: {text}"), file=sys.stderr)
    return status


def _one_line(text: str) -> str:
    text = " ".join(text.split()).rstrip(".")
    for words, plain in _PLAIN.items():
        text = text.replace(words, plain)
    return f"{text[:1].lower()}{text[1:]} (see --help)" if text else "wrong command line (see --help)"
