"""What is made of values that travel, made once in a process: a plan takes some milliseconds, and several
messages tell of one job, one after the other.

What was made of equal values is one and the same while anybody holds it. Who will need it soon may have it
made first, elsewhere (``agents.arrivals``); so a refusal is kept as well. What nobody holds is among the last
``RECENT``. Any thread may ask; if two ask at once, both may make it, and both get the same.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar
from weakref import WeakValueDictionary

import msgspec

from elf.errors import ElfError, QueryError
from elf.ql.fuel import fuelled

RECENT: Final = 64
RECENT_BYTES_MAX: Final = 16 << 20
"""Of the values that the recent ones were made of."""

Source = TypeVar("Source", bound=msgspec.Struct)
T = TypeVar("T")


class Made(Generic[T]):
    """What was made of a value, or why nothing can be."""

    def __init__(self, value: T | None, error: QueryError | None) -> None:
        self._value = value
        self.error = error

    @property
    def value(self) -> T:
        """Raises ``QueryError``, a new one each time, since a raised one holds on to frames."""
        if (it := self.error) is not None:
            raise QueryError(it.text, sql=it.sql, line=it.line, column=it.column)
        return self._value  # type: ignore[return-value]  # one of both is there


_KNOWN: Final[WeakValueDictionary[bytes, Made[Any]]] = WeakValueDictionary()
_RECENT: Final[deque[tuple[Made[Any], int]]] = deque(maxlen=RECENT)
COUNTS: Final[Counter[str]] = Counter()
"""What was made so far, by the type of value that it was made of."""


def once(source: Source, make: Callable[[Source], T]) -> Made[T]:
    """What ``make`` makes of it, with fuel for one plan. Raises nothing."""
    key, size = _key(source)
    made = _KNOWN.get(key)
    if made is None:
        made = _KNOWN.setdefault(key, _made(source, make))
        COUNTS[type(source).__name__] += 1
    _RECENT.append((made, size))
    while len(_RECENT) > 1 and sum(size for _, size in list(_RECENT)) > RECENT_BYTES_MAX:
        _RECENT.popleft()
    return made


def remember(source: msgspec.Struct, value: object) -> Made[Any]:
    """Say what is made of it, for simulators whose engine knows no SQL; they hold what is returned."""
    return _KNOWN.setdefault(_key(source)[0], Made(value, None))


def _made(source: Source, make: Callable[[Source], T]) -> Made[T]:
    try:
        with fuelled():
            return Made(make(source), None)
    except QueryError as error:
        return Made(None, QueryError(error.text, sql=error.sql, line=error.line, column=error.column))
    except ElfError as error:
        return Made(None, QueryError(str(error)))
    except Exception as error:  # whatever the planner trips over, a peer may have sent it
        return Made(None, QueryError(f"no plan can be made: {type(error).__name__}: {error}"))


def _key(source: msgspec.Struct) -> tuple[bytes, int]:
    data = msgspec.msgpack.encode(source)
    return hashlib.sha256(type(source).__name__.encode() + b"\0" + data).digest(), len(data)
