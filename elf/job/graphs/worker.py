"""What an agent does in a graph computation: it sends the edges of its own rows to those who have their
vertices, and looks after a part of the vertices itself, if it has one.

    load ─▶ pieces ─▶ part ─▶ wants ─▶ ready        a layout is made: who has which slots, and whose values
    go n ─▶ gather ─▶ scatter ─▶ done               an iteration
    plan ─▶ moved  ─▶ part ─▶ wants ─▶ ready        the next layout is made, while iterations go on
    go n, held ─▶ gather ─▶ done;  go n + 1 ─▶ own ─▶ scatter ─▶ gather …      it is turned to

Messages come once, and in no certain order: each is put down, and ``_advance`` does what can be done then.
What it has is in the agent's checkpoint, and what it sends leaves when that is durable, so a crash takes it
back to where everybody else believes it to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from elf.batch import encode
from elf.fields import replace
from elf.job.graphs.algorithm import Algorithm
from elf.job.graphs.part import (
    Part,
    Pieces,
    Places,
    Range,
    Values,
    cut,
    of_image,
    overlap,
    part_of,
    pieces_of,
    points_of,
    within,
)
from elf.job.program.host import JobError

Word = dict[str, Any]
Sends = list[tuple[str, Word]]
"""To whom (an agent's address; empty: the master), and what."""
Layout = dict[str, Range]
"""Who has which slots; together they are all."""

SENT_BYTES_MAX: Final = 7 << 20
"""What an agent may have to send at once: more would be dropped (``elf.job.program.keeping``)."""
PART_BYTES_MAX: Final = 6 << 20
"""Of a part, with its values where a vertex has several numbers; while it changes there are two, and a state
has 16 MiB."""
HAD_BYTES_MAX: Final = 12 << 20
"""Of all that an agent has of a graph: the rest of its state are the groups of its own rows."""
MESSAGE_ROWS: Final = 100_000
MESSAGE_BYTES: Final = 2 << 20
"""Of pieces in one message, on the mean."""


@dataclass
class Making:
    """A layout that is being made. ``of``: who has which slots; ``froms``: who sends pieces of them."""

    of: Layout | None = None
    froms: list[str] = field(default_factory=list)
    pieces: dict[str, list[Pieces]] = field(default_factory=dict)
    pieces_bytes: int = 0
    """That these have in the agent's state."""
    chunks: dict[str, int] = field(default_factory=dict)
    part: Part | None = None
    wants: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)
    lists: dict[str, Places] | None = None
    """Whom to send the values of which vertices."""
    own: dict[str, bytes] = field(default_factory=dict)
    """The values of vertices that come with it."""

    def has_all(self, who: str) -> bool:
        return len(self.pieces.get(who, ())) == self.chunks.get(who)

    @property
    def bytes(self) -> int:
        """About what it has in the agent's state."""
        wants = sum(len(ids) + len(weights) for ids, weights in self.wants.values())
        lists = sum(places.nbytes for places in (self.lists or {}).values())
        return self.pieces_bytes + len(_image(self.part)) + wants + lists + sum(map(len, self.own.values()))


class Worker:
    """See the module's docstring. ``edges``: the groups of the agent's own rows. ``kept``: what ``kept`` has
    given."""

    def __init__(
        self, me: str, algorithm: Algorithm, edges: Callable[[], pa.Table], kept: Word | None = None
    ) -> None:
        self.me, self._algorithm, self._edges = me, algorithm, edges
        self._reset(0)
        if kept is not None:
            self._restore(kept)

    def _reset(self, run: int) -> None:
        self.run = run
        self.number, self.layout = -1, -1
        """The last iteration that its values are of, and in which layout."""
        self.part: Part | None = None
        self.values: Values | None = None
        self._of: Layout = {}
        self._lists: dict[str, Places] = {}
        self._making: dict[int, Making] = {}
        self._go: Word | None = None
        self._handed = False
        self._told: dict[tuple[int, str], bytes] = {}
        """Values of other parts: by iteration and agent."""

    # -- what it keeps ---------------------------------------------------------------------------------------

    def kept(self) -> Word:
        values = None if self.values is None else self.values.tobytes()
        told = [[number, who, value] for (number, who), value in self._told.items()]
        making = {layout: _kept(one) for layout, one in self._making.items()}
        found = {"run": self.run, "number": self.number, "layout": self.layout, "of": self._of}
        found |= {"part": _image(self.part), "values": values, "lists": _lists_kept(self._lists)}
        return found | {"making": making, "go": self._go, "handed": self._handed, "told": told}

    def _restore(self, kept: Word) -> None:
        self.run, self.number, self.layout = kept["run"], kept["number"], kept["layout"]
        self._of, self.part = _layout(kept["of"]), _part(kept["part"])
        self.values = None if kept["values"] is None else self._values(kept["values"])
        self._lists = _lists(kept["lists"])
        self._making = {layout: _making(one) for layout, one in kept["making"].items()}
        self._go, self._handed = kept["go"], kept["handed"]
        self._told = {(number, who): value for number, who, value in kept["told"]}

    @property
    def _type(self) -> type[np.int64 | np.float64]:
        return np.int64 if self._algorithm.integers else np.float64

    def _shape(self, vertices: int) -> tuple[int, ...]:
        """Of values."""
        return (vertices, self._algorithm.width) if self._algorithm.width else (vertices,)

    def _values(self, data: bytes) -> Values:
        return np.frombuffer(data, dtype=self._type).reshape(self._shape(-1))

    # -- what comes ------------------------------------------------------------------------------------------

    def recv(self, word: Word) -> Sends:
        """A message for this agent. What is of an earlier run is of nobody's any more."""
        if word["run"] < self.run:
            return []
        if word["run"] > self.run:
            self._reset(word["run"])
        try:
            sends = list(self._take(word))
            sends += self._advance()
            size = sum(_size(message) for _, message in sends)
            if size > SENT_BYTES_MAX:
                raise JobError(f"agent {self.me} would have {size} bytes to send; at most {SENT_BYTES_MAX}")
        except JobError as error:
            return self.refused(word.get("layout", -1), error)
        if (had := self._bytes()) > HAD_BYTES_MAX:
            why = f"agent {self.me} would have {had} bytes of the graph; at most {HAD_BYTES_MAX}"
            newest = max(self._making, default=-1)  # what can be spared, if another one counts already
            return [*sends, *self.refused(newest, JobError(f"{why}: spread it over more agents"))]
        return sends

    def refused(self, layout: int, why: JobError) -> Sends:
        """Something of a layout cannot be done: this agent forgets it, or the run if that is the one that
        counts, and the master gives it up."""
        if layout > max(self.layout, 0):
            self._making[layout] = Making({})
        else:
            self._reset(self.run)
        return [("", self._word("refused", layout=layout, why=str(why)))]

    def _bytes(self) -> int:
        told = sum(map(len, self._told.values())) + (0 if self.values is None else self.values.nbytes)
        return len(_image(self.part)) + told + sum(making.bytes for making in self._making.values())

    def _take(self, word: Word) -> Iterator[tuple[str, Word]]:
        match word["graph"]:
            case "load":
                making = self._of_layout(0)
                making.of, making.froms = _layout(word["of"]), word["agents"]
                whole = self._whole_pieces()
                for who, slots in making.of.items():
                    yield from self._ship(who, 0, cut(whole, slots))
                yield "", self._word("loaded")
            case "plan" | "given up" | "pieces" | "wants" | "own" if word["layout"] <= self.layout:
                return  # it comes late: another layout counts by now
            case "plan" if self._of_layout(word["layout"]).of != {}:  # it may be given up already
                making = self._of_layout(word["layout"])
                making.of, before = _layout(word["of"]), _layout(word["before"])
                ours = making.of.get(self.me, (0, 0))
                making.froms = [who for who, slots in before.items() if overlap(ours, slots)]
                if self.me in before and self.part is not None:
                    for who, slots in making.of.items():
                        if common := overlap(slots, before[self.me]):
                            yield from self._ship(who, word["layout"], self.part.cut(common))
            case "given up":
                self._making[word["layout"]] = Making({})
            case "pieces" | "wants" | "own":
                self._put_down(word, self._of_layout(word["layout"]))
            case "values":
                self._told[word["number"], word["agent"]] = word["values"]
            case "go":
                self._go, self._handed = word, False
            case "end" if self.part is not None and self.values is not None:
                table = self._algorithm.answer(self.values, self.part)
                yield "", self._word("answer", rows=table)

    def _whole_pieces(self) -> Pieces:
        """Of the agent's own rows."""
        algorithm = self._algorithm
        try:
            if algorithm.columns:
                return points_of(self._edges())
            ways = {"weighted": bool(algorithm.weight), "both_ways": algorithm.both_ways}
            return pieces_of(self._edges(), **ways)
        except pa.ArrowException as error:
            raise JobError(f"edges cannot be taken: {error}") from None

    def _of_layout(self, layout: int) -> Making:
        return self._making.setdefault(layout, Making())

    def _put_down(self, word: Word, making: Making) -> None:
        """What an agent has for us, of a layout; of one that was given up nothing is wanted."""
        who = word["agent"]
        if making.of == {}:
            return
        match word["graph"]:
            case "pieces":
                making.chunks[who] = word["of"]
                making.pieces.setdefault(who, []).append(word["pieces"])
                making.pieces_bytes += sum(len(encode(table)) for table in word["pieces"].values())
            case "wants":
                making.wants[who] = (word["ids"], word["weights"])
            case "own":
                making.own[who] = word["values"]

    def _word(self, kind: str, **more: Any) -> Word:
        return {"graph": kind, "run": self.run, "agent": self.me, **more}

    def _ship(self, who: str, layout: int, pieces: Pieces) -> Iterator[tuple[str, Word]]:
        """Pieces of a layout, in messages of some rows."""
        rows, size = (max(of) for of in zip(*((t.num_rows, t.nbytes) for t in pieces.values()), strict=True))
        step = max(1, min(MESSAGE_ROWS, rows * MESSAGE_BYTES // max(size, 1)))
        starts = range(0, max(rows, 1), step)
        for start in starts:
            some = {what: table.slice(start, step) for what, table in pieces.items()}
            word = self._word("pieces", layout=layout, of=len(starts), pieces=some)
            if who == self.me:
                list(self._take(word))
            else:
                yield who, word

    # -- what can be done ------------------------------------------------------------------------------------

    def _advance(self) -> Iterator[tuple[str, Word]]:
        for layout, making in sorted(self._making.items()):
            if making.of is not None and self.me in making.of:
                yield from self._make(layout, making)
        if self._go is not None:
            yield from self._iterate(self._go)

    def _make(self, layout: int, making: Making) -> Iterator[tuple[str, Word]]:
        of = making.of or {}
        if making.part is None and all(making.has_all(who) for who in making.froms):
            pieces = (one for who in making.froms for one in making.pieces[who])
            weighted = bool(self._algorithm.weight) or layout > 0
            making.part, making.pieces, making.pieces_bytes = part_of(pieces, weighted=weighted), {}, 0
            size = len(making.part.image) + 8 * self._algorithm.width * len(making.part.ids)
            if size > PART_BYTES_MAX:
                raise JobError(
                    f"the part of agent {self.me} has {size} bytes; at most {PART_BYTES_MAX}: spread the "
                    "graph over more agents"
                )
            weights = making.part.weights_in()
            for who, slots in of.items():
                first, last = within(making.part.sources, slots)
                ids, sums = making.part.sources[first:last].tobytes(), weights[first:last].tobytes()
                if who == self.me:
                    making.wants[who] = (ids, sums)
                else:
                    yield who, self._word("wants", layout=layout, ids=ids, weights=sums)
        if making.part is not None and making.lists is None and making.wants.keys() >= of.keys():
            making.part = self._listed(making, making.part, new=layout == 0)
            edges = len(making.part.places)
            yield "", self._word("ready", layout=layout, vertices=len(making.part.ids), edges=edges)

    def _listed(self, making: Making, part: Part, *, new: bool) -> Part:
        """All have said what they want: publish lists, and in a new graph the weights out of vertices."""
        making.lists, out = {}, part.out.copy()
        for who, (ids, weights) in sorted(making.wants.items()):
            places = part.published(np.frombuffer(ids, dtype=np.int64))
            if new:
                out[places] += np.frombuffer(weights)
            if len(places):
                making.lists[who] = places
        making.wants = {}
        return replace(part, out=out) if new else part

    # -- iterations ------------------------------------------------------------------------------------------

    def _iterate(self, go: Word) -> Iterator[tuple[str, Word]]:
        if go["layout"] != self.layout:
            making = self._of_layout(go["layout"])
            if making.of is None or (self.me in making.of and making.lists is None):
                return
            if not self._handed:
                yield from self._hand_over(making.of, go["layout"])
                self._handed = True
            if self.me not in making.of:
                return self._leave(go)
            if not all(who == self.me or who in making.own for who in making.froms if go["number"]):
                return
            self._turn(making, go["layout"])
            if go["number"]:
                yield from self._scatter()
        part = self.part
        if part is None or not all((self.number, who) in self._told for who in self._publishers(part)):
            return
        before, values = self.values, self._next(part, go)
        self.values, self.number, self._go = values, go["number"], None
        if not go["hold"]:
            yield from self._scatter()
        low, high = self._of[self.me]
        measured = self._algorithm.measure(before, values, part).astype(np.float64)
        sums = np.bincount(part.slots - low, weights=measured, minlength=high - low)
        report = self._algorithm.report(values, part, go["total"])
        yield "", self._word("done", number=self.number, low=low, sums=sums.tobytes(), report=report)

    def _publishers(self, part: Part) -> Iterator[str]:
        """Those whose values this part needs."""
        if self.number < 0:
            return
        for who, slots in self._of.items():
            first, last = within(part.sources, slots)
            if first < last:
                yield who

    def _next(self, part: Part, go: Word) -> Values:
        if self.values is None:
            return self._whole(self._algorithm.first(part, go["count"]), part)
        told = np.empty(self._shape(len(part.sources)), dtype=self.values.dtype)
        for who in list(self._publishers(part)):
            first, last = within(part.sources, self._of[who])
            told[first:last] = self._values(self._told.pop((self.number, who)))
        if self._algorithm.width:  # a number at a time: edges are many
            heard = np.stack([self._heard(number, part) for number in told.T], axis=1)
        else:
            heard = self._heard(told, part)
        return self._whole(self._algorithm.update(self.values, heard, part, go["count"], go["total"]), part)

    def _heard(self, told: Values, part: Part) -> Values:
        along = self._algorithm.along(told[part.places], part.weights)
        return part.heard(along, self._algorithm.combine)

    def _whole(self, values: Values, part: Part) -> Values:
        """Values as they are kept and told: of one type, and one for each vertex."""
        if np.shape(values) != self._shape(len(part.ids)):
            raise JobError(f"values of shape {np.shape(values)}, for {len(part.ids)} vertices")
        return np.asarray(values, dtype=self._type)

    def _scatter(self) -> Iterator[tuple[str, Word]]:
        """Send the values of this iteration to those who want them."""
        if self.part is None or self.values is None:
            return
        told = self._whole(self._algorithm.tell(self.values, self.part), self.part)
        for who, places in self._lists.items():
            word = self._word("values", number=self.number, values=told[places].tobytes())
            if who == self.me:
                list(self._take(word))
            else:
                yield who, word

    def _hand_over(self, of: Layout, layout: int) -> Iterator[tuple[str, Word]]:
        """The values of vertices that are at another agent from now on."""
        if self.part is None or self.values is None:
            return
        for who, slots in of.items():
            if who != self.me and (common := overlap(slots, self._of[self.me])):
                first, last = within(self.part.ids, common)
                own = self.values[first:last].tobytes()
                yield who, self._word("own", layout=layout, values=own)

    def _turn(self, making: Making, layout: int) -> None:
        """The new layout counts. Where the graph goes on, values of its vertices are there."""
        of, part = making.of or {}, making.part
        if self._go and self._go["number"]:
            found = []
            for who in making.froms:  # in the order of slots
                if who == self.me and self.part is not None and self.values is not None:
                    first, last = within(self.part.ids, overlap(of[self.me], self._of[who]) or (0, 0))
                    found.append(self.values[first:last])
                else:
                    found.append(self._values(making.own[who]))
            self.values, self.number = np.concatenate(found), self._go["number"] - 1
        self.part, self._of, self._lists, self.layout = part, of, making.lists or {}, layout
        self._forget(layout)

    def _leave(self, go: Word) -> None:
        """Others have it all from now on."""
        self.part, self.values, self._of, self._lists = None, None, {}, {}
        self.layout, self.number, self._go = go["layout"], -1, None
        self._forget(go["layout"])

    def _forget(self, layout: int) -> None:
        """This layout counts now, and those before it never will."""
        self._making = {one: making for one, making in self._making.items() if one > layout}


def _size(word: Word) -> int:
    data = sum(len(one) for one in word.values() if isinstance(one, bytes))
    pieces: Pieces = word.get("pieces", {})
    return data + sum(int(table.nbytes) for table in pieces.values())


# -- as it is kept -------------------------------------------------------------------------------------------


def _image(part: Part | None) -> bytes:
    return b"" if part is None else part.image


def _part(image: bytes) -> Part | None:
    return of_image(image) if image else None


def _layout(of: dict[str, Any]) -> Layout:
    """In the order of slots."""
    return {who: (low, high) for who, (low, high) in sorted(of.items(), key=lambda one: one[1])}


def _lists_kept(lists: dict[str, Places]) -> dict[str, bytes]:
    return {who: places.tobytes() for who, places in lists.items()}


def _lists(kept: dict[str, bytes]) -> dict[str, Places]:
    return {who: np.frombuffer(data, dtype=np.int32) for who, data in kept.items()}


def _kept(one: Making) -> Word:
    lists = None if one.lists is None else _lists_kept(one.lists)
    found: Word = {"of": one.of, "froms": one.froms, "pieces": one.pieces, "chunks": one.chunks}
    found["pieces_bytes"] = one.pieces_bytes
    return found | {"part": _image(one.part), "wants": one.wants, "lists": lists, "own": one.own}


def _making(kept: Word) -> Making:
    return Making(
        None if kept["of"] is None else _layout(kept["of"]),
        kept["froms"],
        kept["pieces"],
        kept["pieces_bytes"],
        kept["chunks"],
        _part(kept["part"]),
        {who: (ids, weights) for who, (ids, weights) in kept["wants"].items()},
        None if kept["lists"] is None else _lists(kept["lists"]),
        kept["own"],
    )
