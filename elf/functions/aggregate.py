"""An aggregate of one's own in a sandbox: what an agent asks of it, and how it answers, as batches.

A call is a batch whose schema says what is wanted (``CALL``):

    create    ``group`` and a column for each argument    →  ``state`` of each group, in order
    merge     ``group``, ``state`` and ``times``           →  ``state`` of each group, in order
    value     ``group``, ``state`` and ``times``           →  ``value`` of each group, in order
    laws      a column for each argument: some rows        →  ``broken``: the law that is, if one is

So what is done for functions over batches is done for these: limits, walls, and the kept input of a call that
fails. The agent looks at what comes: as many rows as there are groups, of the right type, and states that are
not larger than they may be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elf.batch import ARROW_TYPES
from elf.errors import ElfError, UserError
from elf.functions.function import Done, Failed
from elf.job.program.runner import UserCodeError, failure_of
from elf.paos.laws import broken_law
from elf.paos.pao import PAO
from elf.paos.running import Calls, Misbehaved
from elf.paos.states import STATE_BYTES_MAX
from elf.paos.texts import signature_of
from elf.ql.own import OwnAggregate

Wanted = Literal["create", "merge", "value", "laws"]
Int64s = npt.NDArray[np.int64]
Call = Callable[[pa.RecordBatch], Done | Failed]

CALL: Final = b"call"
ROWS_MAX: Final = 1 << 17
BYTES_MAX: Final = 32 << 20
"""Of one call, or a little more where one group has more."""


class AggregateFailed(ElfError):
    """A call has failed. ``failed``: how."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(str(failed))
        self.failed = failed


class Aggregate:
    """One in a process; ``call`` runs it. Groups are numbered from 0, without gaps. All raise
    ``AggregateFailed``."""

    def __init__(self, own: OwnAggregate, call: Call) -> None:
        self.own = own
        self._call = call

    def create(self, ids: Int64s, columns: Sequence[pa.Array]) -> pa.Array:
        """The state of each group of rows, as bytes."""
        return self._all("create", ids, {f"x{place}": column for place, column in enumerate(columns)})

    def merge(self, ids: Int64s, states: pa.Array, times: pa.Array) -> pa.Array:
        """The state of each group of states, each of which is there so many times."""
        return self._all("merge", ids, {"state": states, "times": times})

    def value(self, ids: Int64s, states: pa.Array, times: pa.Array) -> pa.Array:
        """The value of each group of states."""
        return self._all("value", ids, {"state": states, "times": times})

    def broken_law(self, columns: Sequence[pa.Array] = ()) -> str:
        """A law that is broken, of drawn rows or of these, in one line; empty: none."""
        kinds = [ARROW_TYPES[kind] for kind in self.own.signature.arguments]
        given = columns or [pa.array([], kind) for kind in kinds]
        batch = pa.RecordBatch.from_arrays(given, names=[f"x{place}" for place in range(len(given))])
        made = self._made("laws", batch, "broken", pa.string())
        return str(made[0].as_py()) if len(made) else ""

    def _all(self, wanted: Wanted, ids: Int64s, columns: dict[str, pa.Array]) -> pa.Array:
        name, kind = "state", pa.binary()
        if wanted == "value":
            name, kind = "value", ARROW_TYPES[self.own.signature.returns]
        whole = pa.RecordBatch.from_pydict({"group": pa.array(ids), **columns})
        found = []
        for part in _parts(whole):
            made = self._made(wanted, part, name, kind)
            groups = len(np.unique(part["group"].to_numpy()))
            if len(made) != groups or (wanted != "value" and made.null_count):
                self._output(f"{len(made)} rows for {groups} groups")
            found.append(made)
        made = pa.concat_arrays(found) if found else pa.array([], kind)
        if wanted != "value" and len(made):
            longest = int(pc.max(pc.binary_length(made)).as_py())
            if longest > STATE_BYTES_MAX:
                self._output(f"a state of {longest:,} bytes")
        return made

    def _made(self, wanted: Wanted, batch: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
        done = self._call(batch.replace_schema_metadata({CALL: wanted.encode()}))
        if isinstance(done, Failed):
            raise AggregateFailed(done)
        if done.batch.schema.names != [name] or done.batch.schema.types != [kind]:
            self._output(f"columns {done.batch.schema.names} for {name}")
        return done.batch.column(0)

    def _output(self, what: str) -> None:
        raise AggregateFailed(Failed("output", f"{self.own.filename}: it gives {what}", 0))


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Whole groups, ascending, not too much at a time."""
    if batch.num_rows <= ROWS_MAX and batch.nbytes <= BYTES_MAX:
        if batch.num_rows:
            yield batch
        return
    batch = batch.take(pa.array(np.argsort(batch["group"].to_numpy(), kind="stable")))
    groups, at = batch["group"].to_numpy(), 0
    rows = max(1, min(ROWS_MAX, batch.num_rows * BYTES_MAX // max(1, batch.nbytes)))
    while at < len(groups):
        end = int(np.searchsorted(groups, groups[min(at + rows, len(groups)) - 1], side="right"))
        yield batch.slice(at, end - at)
        at = end


# -- in the sandbox ------------------------------------------------------------------------------------------


def aggregate_of(names: dict[str, object], text: str, filename: str) -> Callable[[pa.RecordBatch], object]:
    """What answers such calls: an object of the class that a text has made. Raises ``UserCodeError``."""
    try:
        signature = signature_of(text, filename)
        made = names.get(signature.title)
        if not (isinstance(made, type) and issubclass(made, PAO)):
            raise UserCodeError(f"{filename}: {signature.title} is no subclass of elf.paos.PAO when it runs")
        calls = Calls(made(), signature)
    except (UserError, Misbehaved) as error:
        raise UserCodeError(str(error)) from None

    def answered(batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return _answered(calls, filename, batch)
        except Misbehaved as error:
            raise UserCodeError(str(error)) from None

    return answered


def _answered(calls: Calls, filename: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    wanted = (batch.schema.metadata or {}).get(CALL, b"").decode()
    if wanted == "laws":
        broken = _broken(calls, filename, batch)
        return pa.RecordBatch.from_pydict({"broken": pa.array([broken] if broken else [], pa.string())})
    ids, *columns = batch.columns
    groups = ids.to_numpy()
    if wanted == "create":
        return pa.RecordBatch.from_pydict({"state": calls.created(groups, columns)})
    states, times = columns
    if wanted == "merge":
        return pa.RecordBatch.from_pydict({"state": calls.merged(groups, states, times.to_numpy())})
    if wanted == "value":
        return pa.RecordBatch.from_pydict({"value": calls.values(groups, states, times.to_numpy())})
    raise UserCodeError(f"a call for {wanted}")


def _broken(calls: Calls, filename: str, batch: pa.RecordBatch) -> str:
    """A law that is broken; or what the class raises, which it may not on any rows."""
    try:
        return broken_law(calls, batch.columns if batch.num_rows else ())
    except Misbehaved as error:
        return str(error)
    except Exception as error:
        failure = failure_of(error, filename)
        at = f"line {failure.line}: " if failure.line else ""
        inside = f" in `{failure.source}`" if failure.source else ""
        return f"{at}{calls.title} fails on rows of its types: {failure.text}{inside}"
