"""Wait until something is so. A test that lets time pass for another reason says which."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

T = TypeVar("T")

POLL_SECS = 0.05

Errors = tuple[type[Exception], ...]


@overload
async def eventually(
    condition: Callable[[], Awaitable[T]],
    what: str | Callable[[], str] = ...,
    within: float = ...,
    *,
    despite: Errors = ...,
) -> T: ...


@overload
async def eventually(
    condition: Callable[[], T],
    what: str | Callable[[], str] = ...,
    within: float = ...,
    *,
    despite: Errors = ...,
) -> T: ...


async def eventually(
    condition: Callable[[], object],
    what: str | Callable[[], str] = "what is waited for",
    within: float = 60,
    *,
    despite: Errors = (),
) -> object:
    """The first answer of ``condition`` that is true. An error of ``despite`` means "not yet"."""
    deadline = time.monotonic() + within
    while True:
        seen: Exception | None = None
        try:
            answer = condition()
            if inspect.isawaitable(answer):
                answer = await answer
            if answer:
                return answer
        except despite as error:
            seen = error
        if time.monotonic() > deadline:
            raise _late(what, within) from seen
        await asyncio.sleep(POLL_SECS)


def wait_until(
    condition: Callable[[], T],
    what: str | Callable[[], str] = "what is waited for",
    within: float = 60,
    *,
    despite: Errors = (),
) -> T:
    """The same where nothing is asynchronous."""
    deadline = time.monotonic() + within
    while True:
        seen: Exception | None = None
        try:
            if answer := condition():
                return answer
        except despite as error:
            seen = error
        if time.monotonic() > deadline:
            raise _late(what, within) from seen
        time.sleep(POLL_SECS)


def _late(what: str | Callable[[], str], within: float) -> AssertionError:
    return AssertionError(f"not in {within:g} s: {what if isinstance(what, str) else what()}")
