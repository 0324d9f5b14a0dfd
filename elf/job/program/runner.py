"""Runs one job: its text becomes an object, events become calls, calls become effects.

What the job has of all calls so far, its state, goes out as bytes, and comes back as bytes into the object
that takes its place (``elf.job.program.keeping`` says when).

Pure: no socket, no clock. The caller (a sandbox process, a test) supplies ``ask``, which waits for the reply
to a query. An exception of the user's code is reported with the line of the user's own file.
"""

from __future__ import annotations

import inspect
import linecache
import sys
import traceback
import types
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from typing import Any

import msgspec
import pyarrow as pa

from elf.aggregates import State
from elf.batch import decode, encode
from elf.cbt import BufferTree, WindowedTree
from elf.job.program import calls
from elf.job.program.api import Job
from elf.job.program.calls import JobEffect, Loaded, Place, Subscription
from elf.job.program.host import JobError, QueryFailed
from elf.job.program.keyed import ENTRY_BYTES_MAX, KEYS_MAX, cut, hash_of
from elf.job.program.seats import TREES_MAX
from elf.job.program.spec import SETTINGS, Tap
from elf.job.program.values import Message, NoMessage, pack_value, unpack_value

Ask = Callable[[bytes, str, bytes, tuple[str, ...], int], tuple[bytes, str]]
"""(app id, its name, message, path, timeout in ms) → (reply, error)."""

TEXT_MAX = 400
NAME_MAX = 64
"""Of a tree."""


class UserCodeError(Exception):
    """The user's file is not a valid job."""


class NotKept(Exception):
    """What the job has cannot be kept: it is too much, or of another type."""


class _State(msgspec.Struct, frozen=True):
    """What a job has: ``Job.state``, what its class keeps beside it, and its buffer trees by name. ``panes``:
    those with a window, by name and pane."""

    value: bytes
    own: bytes
    trees: dict[str, bytes]
    panes: dict[str, dict[int, bytes]] = {}


class Failure(msgspec.Struct, frozen=True):
    """What the user's code raised. ``kind``: ``raised``, ``memory`` or ``state``; ``line`` of the user's
    file, 0 for none; ``source``: that line."""

    kind: str
    text: str
    line: int
    source: str


def load(text: str, filename: str) -> dict[str, object]:
    """Run a file's text as a module of its own; returns its names."""
    code = compile(text, filename, "exec", dont_inherit=True)
    module = types.ModuleType("user_code")
    module.__file__ = filename
    sys.modules[module.__name__] = module
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    exec(code, module.__dict__)
    return module.__dict__


def failure_of(error: BaseException, filename: str) -> Failure:
    """An exception as one line, at the innermost line of the user's file that it passed."""
    kind = "memory" if isinstance(error, MemoryError) else "raised"
    kind = "state" if isinstance(error, NotKept) else kind
    what = " ".join(str(error).split())[:TEXT_MAX]
    ours = isinstance(error, UserCodeError | NotKept)
    text = what if ours else f"{type(error).__name__}: {what}".rstrip(": ")
    if isinstance(error, SyntaxError):
        return Failure(
            kind, f"SyntaxError: {error.msg}", error.lineno or 0, (error.text or "").strip()[:TEXT_MAX]
        )
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == filename]
    if not frames:
        return Failure(kind, text, 0, "")
    return Failure(kind, text, frames[-1].lineno or 0, (frames[-1].line or "")[:TEXT_MAX])


def job_class(names: dict[str, object], filename: str) -> type[Job]:
    """The one subclass of ``Job`` that a file defines."""
    found = [
        thing
        for thing in names.values()
        if isinstance(thing, type) and issubclass(thing, Job) and thing.__module__ == "user_code"
    ]
    lowest = [one for one in found if not any(other is not one and issubclass(other, one) for other in found)]
    if len(lowest) != 1:
        many = ", ".join(one.__name__ for one in lowest) or "none"
        raise UserCodeError(f"{filename} must define one subclass of elf.job.Job; it has {many}")
    made = lowest[0]
    for name in sorted(getattr(made, "__abstractmethods__", ())):
        wanted = ", ".join(inspect.signature(getattr(made, name)).parameters)
        raise UserCodeError(f"{made.__name__} must define {name}({wanted})")
    for name, value in dict(names.get(SETTINGS) or {}).items():  # type: ignore[call-overload]
        ours = {n for kind in made.__mro__ if kind not in Job.__mro__ for n in vars(kind)}
        known = sorted(n for n in ours if not n.startswith("_") and not callable(getattr(made, n)))
        if name not in ("every", "timer_at_master", "trees") and name not in known:
            raise UserCodeError(f"{made.__name__} has no setting {name}; it has {', '.join(known) or 'none'}")
        setattr(made, name, value)
    return made


def names_of(trees: object) -> tuple[str, ...]:
    """What people call the trees of a job. Raises ``UserCodeError``."""
    if isinstance(trees, int) and 1 <= trees <= TREES_MAX:
        return tuple(map(str, range(trees)))
    names = tuple(trees) if isinstance(trees, list | tuple) else ()
    if not 1 <= len(names) <= TREES_MAX or len(set(names)) < len(names) or not all(map(_is_name, names)):
        raise UserCodeError(f"trees = {trees!r}: how many, or their names: at most {TREES_MAX}")
    return names


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name.isprintable() and 0 < len(name) <= NAME_MAX


class JobRunner:
    """One job on one agent; it is its ``Host``. ``taps``: the shapes of its queries' partial aggregates;
    ``trees``: how many trees it has, 0 where that is not known yet."""

    def __init__(
        self,
        text: str,
        filename: str,
        name: str,
        creator: str,
        ask: Ask,
        taps: tuple[Tap, ...] = (),
        trees: int = 0,
    ) -> None:
        self._count = trees
        self._label = f"{creator}/{name}"
        self._ask = ask
        self._taps = {tap.name: tap for tap in taps}
        self._trees = {tap.name: tap.tree() for tap in taps if tap.states}
        self._images: dict[str, bytes] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._open = False
        self._place = Place("", 0)
        self._effects: list[JobEffect] = []
        self._path: tuple[str, ...] = ()
        self._query = ""
        self._parts: tuple[bytes, ...] = ()
        self._sent = 0
        self.job = job_class(load(text, filename), filename)(name, creator, self)

    def start(self, place: Place, state: bytes = b"") -> Loaded:
        """Call the job's ``start``, with the state that it had, if there is one; returns its
        subscriptions."""
        self._place, self._open = place, True
        self._effects = []
        if state:
            self._restore(msgspec.msgpack.decode(state, type=_State))
        self.job.start()
        self._open = False
        if self._effects:
            raise UserCodeError("start() only subscribes: send, multicast and route from a callback")
        every = self.job.every
        if every is not None and (not isinstance(every, int | float) or every < 0.01):
            raise UserCodeError(f"every = {every!r}: seconds between two on_timer, at least 0.01, or None")
        pane = self.job.every_pane
        if pane is not None and (not isinstance(pane, int | float) or pane < 0.001):
            raise UserCodeError(f"every_pane = {pane!r}: seconds of event time, at least 0.001, or None")
        subscriptions = tuple(self._subscriptions.values())
        trees = names_of(self.job.trees)
        for one in subscriptions:
            if one.tree and (isinstance(self.job.trees, int) or one.tree not in trees):
                raise UserCodeError(
                    f"subscription {one.name} has tree={one.tree!r}; trees = {self.job.trees!r}"
                )
        if self._count and self._count != len(trees):
            raise UserCodeError(f"trees = {self.job.trees!r} here; there were {self._count} when it was sent")
        if pane is not None and all(one.app for one in subscriptions):
            raise UserCodeError("every_pane goes with rows: subscribe to a query, or to a stream")
        every_ms, pane_ms = (round((secs or 0) * 1000) for secs in (every, pane))
        at_master = bool(self.job.timer_at_master)
        return Loaded(type(self.job).__name__, every_ms, subscriptions, pane_ms, trees, at_master)

    def state(self) -> bytes:
        """All that the job has now. Raises ``NotKept``."""
        try:
            value, own = (
                pack_value(one, calls.STATE_BYTES_MAX) for one in (self.job.state, self.job.kept_beside())
            )
        except NoMessage as error:
            raise NotKept(f"self.state cannot be kept: {error}") from None
        trees: dict[str, bytes] = {}
        panes: dict[str, dict[int, bytes]] = {}
        for name, tree in self._trees.items():
            if isinstance(tree, WindowedTree):
                panes[name] = tree.images()
            else:
                trees[name] = self._image(name, tree)
        sizes = [len(one) for images in panes.values() for one in images.values()]
        size = len(value) + len(own) + sum(map(len, trees.values())) + sum(sizes)
        if size > calls.STATE_BYTES_MAX:
            raise NotKept(
                f"self.state and its queries' groups have {size} bytes; at most {calls.STATE_BYTES_MAX} are "
                "kept: empty() its queries, and forget what is not needed"
            )
        return msgspec.msgpack.encode(_State(value, own, trees, panes))

    def _image(self, name: str, tree: BufferTree) -> bytes:
        """A buffer tree as bytes, made anew only where it has changed."""
        if name not in self._images:
            self._images[name] = encode(tree.partials())
        return self._images[name]

    def _restore(self, state: _State) -> None:
        value: Any = unpack_value(state.value)
        self.job.state = value
        self.job.restore_beside(unpack_value(state.own))
        for name, tree in self._trees.items():
            if isinstance(tree, WindowedTree):
                tree.load(state.panes.get(name, {}))
            elif name in state.trees:
                tree.insert_partials(decode(state.trees[name]))

    def handle(self, event: calls.Event, place: Place, payload: bytes, effects: list[JobEffect]) -> None:
        """Call the callback; what it wants done is appended to ``effects``, also when it raises.

        May be called again from within ``ask``, for messages that are delivered meanwhile.
        """
        kept = self._place, self._effects, self._path, self._query, self._parts, self._sent
        self._place, self._effects, self._path, self._query, self._sent = place, effects, (), "", 0
        try:
            self._call(event, payload)
        finally:
            self._place, self._effects, self._path, self._query, self._parts, self._sent = kept

    def _call(self, event: calls.Event, payload: bytes) -> None:
        job = self.job
        match event:
            case calls.Timer():
                job.on_timer()
            case calls.Pane():
                job.on_pane(event.start_us / 1e6, event.end_us / 1e6)
            case calls.Keep():
                pass
            case calls.Rows():
                self._all_rows(((event.subscription, payload), *event.beside))
            case calls.Sent():
                job.on_recv(event.sender, unpack_value(event.value))
            case calls.Cast():
                job.on_multicast(event.app, unpack_value(event.value))
            case calls.Fed():
                job.on_feedback({_key(key): message for key, message in map(_pair, event.values)})
            case calls.Missing():
                job.on_missed(event.app, event.count)
            case calls.Delivered():
                self._path, self._query, self._parts = event.path, event.query, event.parts
                returned = job.deliver(event.app, unpack_value(event.value))
                if self._query:
                    self.reply(returned)

    def _all_rows(self, given: Iterable[tuple[str, bytes]]) -> None:
        """Of a chunk: where some cannot be merged, the others are there all the same."""
        failed: Exception | None = None
        for name, encoded in given:
            try:
                self._rows(name, decode(encoded))
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def _rows(self, name: str, table: pa.Table) -> None:
        tap, tree = self._taps[name], self._trees.get(name)
        match tree:
            case None:
                self.job.on_batch(table, name)
            case WindowedTree():
                tree.insert_panes(tap.named(table), table["_pane"])
            case BufferTree():
                self._images.pop(name, None)
                tree.insert_partials(tap.named(table))

    def asked_beside(self, effects: list[JobEffect]) -> None:
        """What other callbacks have asked for while this one waited for a reply."""
        for effect in effects:
            self._put(effect)

    # -- as the job's host -----------------------------------------------------------------------------------

    def place(self) -> Place:
        return self._place

    def subscribe(self, subscription: Subscription) -> None:
        if not self._open:
            raise JobError(
                "subscribe in start(), not later: agents plan a job's subscriptions when it is sent"
            )
        if subscription.name in self._subscriptions:
            raise JobError(f"two subscriptions are called {subscription.name}: give one a name=")
        self._subscriptions[subscription.name] = subscription

    def send_to(self, node: str, message: Message, tree: int, *, at_once: bool = False) -> None:
        kind = calls.RemarkTo if at_once else calls.SendTo
        self._put(kind(node, _packed(message), tree))

    def multicast(self, message: Message, *, at_once: bool = False) -> None:
        kind = calls.RemarkOut if at_once else calls.MulticastOut
        self._put(kind(_packed(message, calls.MULTICAST_BYTES_MAX)))

    def feed_back(self, messages: Mapping[Any, Message]) -> None:
        entries = []
        for key, message in messages.items():
            pair = _packed([key, message])
            if len(pair) > ENTRY_BYTES_MAX:
                raise JobError(f"feed_back: {key!r} and its message have more than {ENTRY_BYTES_MAX} bytes")
            entries.append((hash_of(_packed(key)), pair))
        try:
            pieces = cut(entries)
        except ValueError as error:
            raise JobError(f"feed_back: {error}") from None
        value, ends = b"".join(pieces), tuple(accumulate(map(len, pieces)))
        if len(value) > calls.MULTICAST_BYTES_MAX:
            raise JobError(f"feed_back: {len(value)} bytes; at most {calls.MULTICAST_BYTES_MAX} can be sent")
        self._put(calls.FeedOut(value, ends))

    def ask_for(self, keys: Iterable[Any]) -> None:
        hashes = {hash_of(_packed(key)) for key in keys}
        if len(hashes) > KEYS_MAX:
            raise JobError(f"ask_for: {len(hashes)} keys; at most {KEYS_MAX}")
        self._put(calls.AskFor(b"".join(sorted(hashes))))

    def route(self, app: bytes, message: Message) -> None:
        self._put(calls.RouteOut(app, _packed(message)))

    def reply(self, message: Message) -> None:
        if not self._query:
            raise JobError("there is nothing to reply to: reply belongs into deliver, once")
        if self._parts:
            message = self.job.together([message, *map(unpack_value, self._parts)])
        self._put(calls.ReplyOut(self._query, _packed(message)))
        self._query = ""

    def _put(self, effect: JobEffect) -> None:
        self._sent += len(effect.value)
        if self._sent > calls.CALLBACK_BYTES_MAX or len(self._effects) >= calls.CALLBACK_SENDS_MAX:
            raise JobError(
                f"one callback sends more than {calls.CALLBACK_BYTES_MAX >> 20} MiB or "
                f"{calls.CALLBACK_SENDS_MAX} messages"
            )
        self._effects.append(effect)

    def query(self, app: bytes, name: str, message: Message, timeout: float) -> Message:
        if not 0 < timeout <= 60:
            raise JobError(f"timeout={timeout}: seconds, at most 60")
        value, error = self._ask(app, name, _packed(message), (*self._path, self._label), int(timeout * 1000))
        if error:
            raise QueryFailed(error)
        return unpack_value(value)

    def tree_of(self, name: str) -> str:
        subscription = self._subscriptions.get(name)
        return "" if subscription is None else subscription.tree

    def tree(
        self, name: str, *, changes: bool = False
    ) -> tuple[BufferTree | WindowedTree, tuple[str, ...], tuple[State, ...]]:
        if changes:
            self._images.pop(name, None)
        if name not in self._trees:
            known = ", ".join(self._trees) or "none"
            raise JobError(f"there is no query {name} here; subscribed queries: {known}")
        tap = self._taps[name]
        return self._trees[name], tap.key_names(), tap.named_states()


def _pair(value: bytes) -> tuple[Any, Message]:
    pair: Any = unpack_value(value)
    return pair[0], pair[1]


def _key(key: Any) -> Any:
    """A key as it was: lists cannot be keys."""
    return tuple(map(_key, key)) if isinstance(key, list) else key


def _packed(message: Message, bytes_max: int = calls.VALUE_BYTES_MAX) -> bytes:
    try:
        return pack_value(message, bytes_max)
    except NoMessage as error:
        raise JobError(str(error)) from None
