"""Structured logs: JSON or lines for people, on stderr, one event a line, with the agent's name and address
in each.

Rules: set up once a process; what other libraries log goes the same way. A log line never holds row data of a
user's stream.
"""

from __future__ import annotations

import logging
import sys
from typing import Final, Literal, TextIO

import structlog
from structlog.typing import Processor

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


def configure(
    level: str = "info", format: str = "json", *, stream: TextIO | None = None, **bound: str
) -> None:
    """Set logging up for this process: ``level`` and ``format`` as in ``log.level`` and ``log.format``.

    ``bound`` (``agent``, ``address``) stands in every line, also in those of other libraries. ``stream``:
    stderr.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_COMMON,
            processors=[
                _bind(bound),
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_rendered(format),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(_LEVELS[level])
    for chatty in ("asyncio", "uvicorn"):
        logging.getLogger(chatty).setLevel(max(_LEVELS[level], logging.WARNING))
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


def _rendered(format: str) -> list[Processor]:
    if format == "console":
        plain = structlog.dev.plain_traceback  # the default shows the values of all variables
        return [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]


def _bind(bound: dict[str, str]) -> Processor:
    def bind(
        _logger: structlog.typing.WrappedLogger, _method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        return {**bound, **event}

    return bind
