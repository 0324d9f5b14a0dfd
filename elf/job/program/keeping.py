"""What a job in Python on one agent keeps through crashes (protocol 14.1).

Its calls are numbered. With some of them its process tells the state that it has after them. A *checkpoint*
is that state, with everything that came in by then and what it has sent: how far the rows of each tap were
given, the names of the slices that were received, and the slices that others do not have yet. It is one
value, so that after a crash all of it is as it was at one moment:

    rows, slices ──▶ call n ──▶ state n ──▶ ``Checkpoint`` ──▶ durable ──▶ slices, multicasts, answers leave

- What leaves rests on a checkpoint that is durable, so nothing that was taken back is ever heard of.
- A slice is named by its sender's agent id and a number. The sender keeps it until the receiver says that its
  durable state has it; the receiver drops the names that it knows.
- Rows come again from the stream task, until a checkpoint has them (``elf.job.worker.taps``).
- ``Lasting``: where the process alone ends, it goes on from the last state that it told, with the calls that
  were made since.

Pure: nothing here writes, sends or waits.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from elf.errors import ElfBug
from elf.job.program.calls import AskFor, FeedOut, MulticastOut, RouteOut, SendTo, is_again
from elf.job.program.port import CallProgram
from overlay.timers import Timers

CHECKPOINT_MS: Final = 1_000
"""So long a job may have rows or slices that no checkpoint has."""
UNKEPT_BYTES_MAX: Final = 8 << 20
"""So many bytes of them."""
WAITING_BYTES_MAX: Final = 8 << 20
WAITING_MAX: Final = 10_000
"""What a job on one agent keeps for others that do not take it."""
RESEND_MS: Final = 2_000
RESEND_MS_MAX: Final = 16_000
"""A slice is sent again after the first, and then after pauses up to the second."""
RESENDS_MAX: Final = 100
RESENDS_MS: Final = 100
"""So many slices are sent again at once; the others wait so long for their turn, and go before these."""
ALIKE_MAX: Final = 1 << 20
"""A checkpoint that is larger is written even if the last one says the same."""
SOURCES_MAX: Final = 4_096
"""Sources of taps that are remembered: those that were read last."""

Tapped = tuple[str, str]
"""A tap's name, and a source of its stream."""
Sender = tuple[str, int]
"""The address that a slice came from, and the seat there."""


class Slice(msgspec.Struct, frozen=True, array_like=True):
    """A slice that its receiver at ``to``, an address or a master's name, is not known to have. It goes up
    that ``tree`` of the job."""

    number: int
    to: str
    value: bytes
    tree: int = 0


Leaves = MulticastOut | FeedOut | RouteOut | Slice
"""What leaves the agent when the state behind it is durable."""


class Received(msgspec.Struct, frozen=True, array_like=True):
    """Of a sender: all of its slices below ``settled`` are no longer sent; which of the others came."""

    agent: str
    settled: int
    numbers: tuple[int, ...] = ()


class Checkpoint(msgspec.Struct, frozen=True, array_like=True):
    """See the module's docstring. ``given``: (tap, source, end of the rows given); ``slices``: how many it
    has ever sent; ``pane``: the next that is to be told; ``asks``: the keys of which feedback is wanted."""

    state: bytes
    given: tuple[tuple[str, str, int], ...] = ()
    received: tuple[Received, ...] = ()
    waiting: tuple[Slice, ...] = ()
    slices: int = 0
    pane: int | None = None
    asks: bytes = b""

    def ends(self) -> dict[Tapped, int]:
        """How far the rows of each tap were given, by source."""
        return {(tap, source): end for tap, source, end in self.given}


_checkpoint_of: Final = msgspec.msgpack.Decoder(Checkpoint).decode


def read(record: bytes) -> Checkpoint:
    """A checkpoint as it was stored. Raises ``ElfBug`` for what is none: it is of this agent's own disk."""
    try:
        return _checkpoint_of(record)
    except (ValueError, TypeError, RecursionError) as error:
        raise ElfBug(f"the checkpoint of a job in Python cannot be read: {error}") from error


@dataclass
class Lasting:
    """What the next process of a job begins with: the last ``state`` that was told, and the calls since."""

    state: bytes = b""
    _since: list[CallProgram] = field(default_factory=list)

    def made(self, call: CallProgram) -> None:
        """It is being made."""
        if is_again(call.event):
            self._since.append(call)

    def acted(self, state: bytes | None) -> None:
        """A call has returned, perhaps with the state after it."""
        if state is not None:
            self.state = state
            self._since.clear()

    def again(self) -> list[CallProgram]:
        """The process has ended: the calls to make in the next one, which is given ``state``."""
        since, self._since = self._since, []
        return since


class _Steps:
    """A value that grows with the calls: (number of a call, value after it)."""

    def __init__(self, value: int | None) -> None:
        self._steps: deque[tuple[int, int | None]] = deque([(0, value)])

    @property
    def last(self) -> int | None:
        return self._steps[-1][1]

    def put(self, number: int, value: int) -> None:
        if self._steps[-1][0] == number:
            self._steps.pop()
        self._steps.append((number, value))

    def at(self, number: int) -> int | None:
        """After that call; what was before is forgotten."""
        while len(self._steps) > 1 and self._steps[1][0] <= number:
            self._steps.popleft()
        return self._steps[0][1]


@dataclass
class _Sender:
    """Of one sender: ``known``: the call that took a slice, by the slice's number."""

    settled: int = 0
    known: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Release:
    """What may leave with a durable checkpoint: effects in their order; (sender, number) of slices that are
    kept, which the senders are to be told; and how far rows of taps are in it: tap, source, end."""

    effects: tuple[Leaves, ...] = ()
    kept: tuple[tuple[Sender, int], ...] = ()
    given: tuple[tuple[str, str, int], ...] = ()


class Keeping:
    """See the module's docstring. ``kept``: the checkpoint that the job goes on from, if there is one, and
    its ``version``; the next ones have higher ones."""

    def __init__(self, kept: Checkpoint | None, now_ms: int, version: int = 0) -> None:
        kept = kept or Checkpoint(b"")
        self.state = kept.state
        self.asks = kept.asks
        """The hashes of the keys of which feedback is wanted."""
        self.number = 0
        """Of the last call."""
        self._upto = self._saved = 0
        """The last calls that ``state`` has, and that a durable checkpoint has."""
        self._given = {tapped: _Steps(end) for tapped, end in kept.ends().items()}
        self._pane = _Steps(kept.pane)
        self._senders = {
            one.agent: _Sender(one.settled, dict.fromkeys(one.numbers, 0)) for one in kept.received
        }
        self._untold: deque[tuple[int, Sender, int]] = deque()
        """Slices whose senders are to be told: call, sender, number."""
        self._waiting = {one.number: one for one in kept.waiting}
        """By number, which ascend."""
        self._waiting_bytes = sum(len(one.value) for one in kept.waiting)
        self._due: Timers[int] = Timers()
        """When slices are sent again."""
        self._pauses = dict.fromkeys(self._waiting, RESEND_MS)
        """So long a slice waits after it was sent the next time."""
        self._turn_ms = now_ms
        """Before it no slice is sent again."""
        for number in self._waiting:
            self._due.set(number, now_ms)
        self._slices = kept.slices
        self._version = self._written = version
        """Of what the next checkpoint has, and of the last one."""
        self._digest = b""
        """Of the last one."""
        self._writes, self._writing = False, 0
        """Whether one is being written, and the last call that it has."""
        self._held: deque[tuple[int, Leaves]] = deque()
        """What waits for a checkpoint of that version."""
        self._unkept_bytes = self._asked = 0
        self._since_ms: int | None = None

    # -- what comes in ---------------------------------------------------------------------------------------

    def calls(self, now_ms: int, size: int) -> int:
        """The number of the next call, which has so many bytes."""
        self.number += 1
        self._unkept_bytes += size
        if self._since_ms is None:
            self._since_ms = now_ms
        return self.number

    def grows(self, size: int) -> None:
        """The last call has so many bytes more."""
        self._unkept_bytes += size

    def has_rows(self, tapped: Tapped, end: int) -> bool:
        """Whether the rows of a tap were given up to there."""
        steps = self._given.get(tapped)
        return steps is not None and end <= (steps.last or 0)

    def gave_rows(self, tapped: Tapped, end: int) -> None:
        """The last call gives them; or there are none, up to there."""
        steps = self._given.pop(tapped, None) or _Steps(0)
        self._given[tapped] = steps
        steps.put(self.number, end)
        if len(self._given) > SOURCES_MAX:
            del self._given[next(iter(self._given))]

    @property
    def pane(self) -> int | None:
        """The next pane that is to be told."""
        return self._pane.last

    def told_panes(self, next_: int) -> None:
        """The last call tells of the pane before this one."""
        self._pane.put(self.number, next_)

    def received(self, agent: str, number: int, settled: int) -> bool | None:
        """Whether a slice is kept for good; None: it is new, and ``takes`` is to be called."""
        sender = self._senders.setdefault(agent, _Sender())
        if settled > sender.settled:
            sender.settled = settled
            sender.known = {one: call for one, call in sender.known.items() if one >= settled}
        if number < sender.settled:
            return True
        call = sender.known.get(number)
        return None if call is None else call <= self._saved

    def takes(self, agent: str, sender: Sender, number: int) -> None:
        """The last call takes a slice."""
        self._senders[agent].known[number] = self.number
        self._untold.append((self.number, sender, number))

    def lost(self, numbers: Iterable[int]) -> None:
        """These calls were not made: their slices are welcome again."""
        gone = frozenset(numbers)
        for sender in self._senders.values():
            sender.known = {one: call for one, call in sender.known.items() if call not in gone}
        self._untold = deque(one for one in self._untold if one[0] not in gone)
        self._asked = 0

    # -- what the job has made of it -------------------------------------------------------------------------

    def acted(self, number: int, state: bytes) -> None:
        """Its process has told the state after a call."""
        self.state, self._upto = state, max(self._upto, number)
        self._version += 1
        self._asked = min(self._asked, self._upto)  # a host drops what asks again while another one waits
        if self._upto == self.number:
            self._since_ms, self._unkept_bytes = None, 0

    def sends(self, effect: SendTo | MulticastOut | FeedOut | AskFor | RouteOut, now_ms: int) -> bool:
        """The state that was told last is behind this effect; False: too much waits for others already."""
        if isinstance(effect, SendTo):
            size = self._waiting_bytes + len(effect.value)
            if len(self._waiting) >= WAITING_MAX or size > WAITING_BYTES_MAX:
                return False
            self._wait(effect.to, effect.value, effect.tree)
        elif isinstance(effect, AskFor):
            self.asks = effect.value
        else:
            self._held.append((self._version, effect))
        return True

    def _wait(self, to: str, value: bytes, tree: int) -> None:
        self._slices += 1
        self._pauses[self._slices] = RESEND_MS
        slice_ = self._waiting[self._slices] = Slice(self._slices, to, value, tree)
        self._waiting_bytes += len(value)
        self._held.append((self._version, slice_))

    # -- checkpoints -----------------------------------------------------------------------------------------

    def asks_at(self) -> int | None:
        """When the state is to be asked for, since it has more than the last checkpoint; None: it has not."""
        if self._since_ms is None or self._asked >= self.number:
            return None
        return self._since_ms + (0 if self._unkept_bytes >= UNKEPT_BYTES_MAX else CHECKPOINT_MS)

    def asked(self, now_ms: int) -> None:
        """The last call asks for it."""
        self._asked, self._since_ms, self._unkept_bytes = self.number, now_ms, 0

    def take_checkpoint(self) -> tuple[int, bytes] | None:
        """(version, what is to be written now); None while another one is being written, and without news. It
        is empty if the last one, which is durable, says the same: nothing is to be written."""
        if self._writes or self._version == self._written:
            return None
        self._writes, self._written, self._writing = True, self._version, self._upto
        received = (self._received(agent, one) for agent, one in self._senders.items())
        found = Checkpoint(
            self.state,
            self._ends(),
            tuple(received),
            tuple(self._waiting.values()),
            self._slices,
            self._pane.at(self._upto),
            self.asks,
        )
        record = msgspec.msgpack.encode(found)
        last, self._digest = self._digest, hashlib.sha1(record).digest() if len(record) <= ALIKE_MAX else b""
        return self._written, b"" if last and last == self._digest else record

    def _ends(self) -> tuple[tuple[str, str, int], ...]:
        """How far rows of taps are in ``state``, or in the checkpoint that is being written."""
        upto = self._writing if self._writes else self._upto
        return tuple((*tapped, steps.at(upto) or 0) for tapped, steps in self._given.items())

    def _received(self, agent: str, sender: _Sender) -> Received:
        known = sorted(number for number, call in sender.known.items() if call <= self._upto)
        return Received(agent, sender.settled, tuple(known))

    def saved(self, version: int, now_ms: int) -> Release:
        """A checkpoint is durable."""
        given, self._writes, self._saved = self._ends(), False, self._writing
        effects: list[Leaves] = []
        kept: list[tuple[Sender, int]] = []
        while self._held and self._held[0][0] <= version:
            effects.append(one := self._held.popleft()[1])
            if isinstance(one, Slice) and one.number in self._waiting:
                self._sent(one.number, now_ms)
        while self._untold and self._untold[0][0] <= self._saved:
            _, sender, slice_ = self._untold.popleft()
            kept.append((sender, slice_))
        return Release(tuple(effects), tuple(kept), given)

    # -- slices of ours --------------------------------------------------------------------------------------

    def settled(self, to: str) -> int:
        """All slices to this receiver below that number are kept there."""
        return next((n for n, one in self._waiting.items() if one.to == to), self._slices + 1)

    def is_kept(self, to: str, numbers: Iterable[int]) -> None:
        """The receiver there has these for good."""
        for number in numbers:
            slice_ = self._waiting.get(number)
            if slice_ is not None and slice_.to == to:
                self._drop(slice_)

    def _drop(self, slice_: Slice) -> None:
        del self._waiting[slice_.number], self._pauses[slice_.number]
        self._due.cancel(slice_.number)
        self._waiting_bytes -= len(slice_.value)

    def moves(self, slice_: Slice, to: str) -> None:
        """Its receiver has left for good: another one gets it, under another name, when a checkpoint says
        so."""
        self._drop(slice_)
        self._version += 1
        self._wait(to, slice_.value, slice_.tree)

    def resends_at(self) -> int | None:
        """When slices are to be sent again."""
        at = self._due.next()
        return None if at is None else max(at, self._turn_ms)

    def resends(self, now_ms: int) -> list[Slice]:
        """Those that are due, some at a time; they count as sent."""
        found: list[Slice] = []
        while len(found) < RESENDS_MAX and (due := self._due.pop_due(now_ms)) is not None:
            found.append(self._waiting[due[0]])
            self._sent(due[0], now_ms)
        self._turn_ms = now_ms + RESENDS_MS
        return found

    def _sent(self, number: int, now_ms: int) -> None:
        """A slice is sent: again after its pause, and then after twice that."""
        self._due.set(number, now_ms + self._pauses[number])
        self._pauses[number] = min(2 * self._pauses[number], RESEND_MS_MAX)
