"""Server-sent events: what several streams tell is encoded once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from elf.page.events import EventStreams, Once


def test_it_is_made_once_for_the_last_ones() -> None:
    made: list[object] = []

    def make(value: list[int]) -> int:
        made.append(value)
        return sum(value)

    once = Once(make, lambda value, _: len(value) < 3)
    first, equal, other = [1, 2], [1, 2], [3]
    assert [once.of(first), once.of(first), once.of(equal)] == [3, 3, 3]
    assert made == [first, equal]
    assert made[0] is first  # equal ones are told apart
    assert [once.of(other), once.of(equal), once.of(first)] == [3, 3, 3]
    assert len(made) == 4  # the first had to make room
    large = [1, 1, 1]
    assert [once.of(large), once.of(large)] == [3, 3]
    assert len(made) == 6


async def test_streams_tell_the_same_bytes() -> None:
    data: Mapping[str, object] = {"rows": [1, 2]}

    async def events() -> AsyncIterator[tuple[str, Mapping[str, object]]]:
        yield "window", data
        yield "end", {}

    streams = EventStreams()
    told = [[piece async for piece in streams.of(events())] for _ in range(3)]
    assert told == 3 * [
        [b": here they come\n\n", b'event: window\ndata: {"rows":[1,2]}\n\n', b"event: end\ndata: {}\n\n"]
    ]
    await streams.settle()
