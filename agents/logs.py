"""Structured logs: JSON or lines for people, on stderr or in a file, one event a line, with the agent's name
and address in each.

What is logged may come from a peer, a file's name or a library's error: what does not print is escaped, and
a line for people is one line, but for tracebacks.

Rules: set up once a process; what other libraries log goes the same way. Loggers are from here: structlog is
imported nowhere else. A log line never holds row data of a user's stream.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
from collections.abc import Hashable
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final, Literal, TextIO

from elf.client.values import for_terminal, printable_json
from elf.errors import UserError

# structlog would load it for tracebacks in colours, which are not shown: 4 MB, and 60 ms
_HIDDEN: Final = sys.modules.setdefault("rich", None) is None  # type: ignore[arg-type]
import structlog  # noqa: E402
from structlog import get_logger  # noqa: E402
from structlog.typing import FilteringBoundLogger as Logger  # noqa: E402
from structlog.typing import Processor  # noqa: E402

if _HIDDEN:
    del sys.modules["rich"]

__all__ = ["LogFile", "Logger", "Seldom", "configure", "get_logger"]

Format = Literal["json", "console"]

_LEVELS: Final[dict[str, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_COMMON: Final[list[Processor]] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


class LogFile(RotatingFileHandler):
    """A file of a log that is closed at ``bytes_max`` (0: at no size), of which ``files_max`` are kept. One
    that somebody else has renamed is let go, and another one made; what it does not take goes to stderr.
    Raises ``UserError`` where it cannot be written."""

    def __init__(self, path: str, bytes_max: int, files_max: int) -> None:
        try:
            super().__init__(path, maxBytes=bytes_max, backupCount=files_max - 1, encoding="utf-8")
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise UserError(f"log.path: {path} cannot be written: {why}") from None
        self._file = self._mark()

    def emit(self, record: logging.LogRecord) -> None:
        if self._mark() != self._file:
            with contextlib.suppress(OSError):
                if self.stream is not None:
                    self.stream.close()
                self.stream = self._open()
                self._file = self._mark()
        super().emit(record)

    def doRollover(self) -> None:
        super().doRollover()
        self._file = self._mark()

    def handleError(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):
            print(self.format(record), file=sys.stderr)

    def _mark(self) -> tuple[int, int] | None:
        try:
            said = Path(self.baseFilename).stat()
        except OSError:
            return None
        return said.st_dev, said.st_ino


def configure(
    level: str = "info",
    format: str = "json",
    *,
    stream: TextIO | None = None,
    file: LogFile | None = None,
    **bound: str,
) -> None:
    """Set logging up for this process: ``level`` and ``format`` as in ``log.level`` and ``log.format``.

    ``bound`` (``agent``, ``address``) stands in every line, also in those of other libraries. ``stream``:
    stderr; ``file``: in its place.
    """
    handler = logging.StreamHandler(stream or sys.stderr) if file is None else file
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_COMMON,
            processors=[
                _bind(bound),
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_rendered(format, colors=file is None and sys.stderr.isatty()),
            ],
        )
    )
    root = logging.getLogger()
    before, root.handlers = root.handlers, [handler]
    for one in before:
        if isinstance(one, LogFile):
            one.close()
    root.setLevel(_LEVELS[level])
    for chatty, least in (("asyncio", logging.WARNING), ("uvicorn", logging.ERROR)):  # it warns of requests
        logging.getLogger(chatty).setLevel(max(_LEVELS[level], least))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_COMMON,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


class Seldom:
    """Whether it is time to say something again: each of the last ``most`` things once in ``pause``."""

    def __init__(self, pause: float, most: int = 1_024) -> None:
        self._pause = pause
        self._most = most
        self._again: dict[Hashable, float] = {}

    def now(self, what: Hashable, now: float) -> bool:
        """``now`` as ``pause``, in seconds or whatever."""
        if now < self._again.get(what, now):
            return False
        self._again.pop(what, None)
        self._again[what] = now + self._pause
        if len(self._again) > self._most:
            del self._again[next(iter(self._again))]
        return True


def _printable(
    _logger: structlog.typing.WrappedLogger, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    return {str(_line(name)): _line(value) for name, value in event.items()}


def _line(value: object) -> object:
    """A text in one line; also those in lists."""
    if isinstance(value, str):
        return value if value.isprintable() else for_terminal(value).replace("\n", r"\n")
    return [_line(item) for item in value] if isinstance(value, list | tuple) else value


def _rendered(format: str, *, colors: bool) -> list[Processor]:
    if format == "console":
        return [_printable, structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=_traceback)]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(_json)]


def _json(event: object, **more: Any) -> str:
    return printable_json(json.dumps(event, ensure_ascii=False, **more))


def _traceback(out: TextIO, error: structlog.typing.ExcInfo) -> None:
    """Without the values of all variables, which structlog's own shows."""
    text = io.StringIO()
    structlog.dev.plain_traceback(text, error)
    out.write(for_terminal(text.getvalue()))


def _bind(bound: dict[str, str]) -> Processor:
    def bind(
        _logger: structlog.typing.WrappedLogger, _method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        return {**bound, **event}

    return bind
