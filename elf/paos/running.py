"""Calls of an aggregate of one's own: what it returns is looked at before it is used.

States are bytes here (``elf.paos.states``). A state that is there several times is merged with itself, by
doubling: a million equal states take twenty calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elf.batch import NO_CAST
from elf.errors import UserError
from elf.paos import states as encoding
from elf.paos.groups import Groups, Int64s, column
from elf.paos.pao import PAO
from elf.paos.states import COLUMNS_MAX, NAMED, NoState, state_type
from elf.paos.texts import Signature

States = list[pa.Array]
"""The columns of some states."""
_NOT_A_COLUMN: Final = (*NO_CAST, pa.ArrowTypeError, TypeError, ValueError, OverflowError)


class Misbehaved(UserError):
    """The class returns what it must not. One line."""


class Calls:
    """Of one object. ``signature``: what its text promises; without one, what the class says. Raises
    ``Misbehaved`` for a class that is no aggregate."""

    def __init__(self, pao: PAO, signature: Signature | None = None) -> None:
        self._pao = pao
        self.title = type(pao).__name__
        told = pao.arguments
        if isinstance(told, str) or not told or not all(kind in NAMED for kind in told):
            raise Misbehaved(
                f"{self.title}.arguments is a tuple of types out of {', '.join(NAMED)}, not {told!r}"
            )
        if pao.returns not in NAMED:
            raise Misbehaved(f"{self.title}.returns is one of {', '.join(NAMED)}, not {pao.returns!r}")
        self.arguments = tuple(NAMED[kind] for kind in told)
        self.returns = NAMED[pao.returns]
        if signature is not None and (*told, pao.returns) != (*signature.arguments, signature.returns):
            raise Misbehaved(f"{self.title} has other types when it runs than its text says")
        if not isinstance(pao.state, Mapping) or not 1 <= len(pao.state) <= COLUMNS_MAX:
            raise Misbehaved(f"{self.title}.state is a dict of 1 to {COLUMNS_MAX} columns: {{'n': 'bigint'}}")
        try:
            self.kinds = {str(name): state_type(kind) for name, kind in pao.state.items()}
        except NoState as error:
            raise Misbehaved(f"{self.title}.state: {error}") from None

    # -- over columns ----------------------------------------------------------------------------------------

    def create(self, groups: Groups, columns: Sequence[pa.Array]) -> States:
        """The states of groups of rows; the columns are without NULLs."""
        return self._states("create", self._pao.create(groups, *columns), groups.count)

    def merge(self, groups: Groups, states: States) -> States:
        """The states of groups of states."""
        return self._states("merge", self._pao.merge(groups, self._batch(states)), groups.count)

    def finalize(self, states: States) -> pa.Array:
        """The value of each state, of type ``returns``."""
        given = self._pao.finalize(self._batch(states))
        return self._column("finalize", "the values", given, self.returns, len(states[0]))

    def _batch(self, states: States) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(states, names=list(self.kinds))

    def _states(self, method: str, given: Any, count: int) -> States:
        if isinstance(given, pa.Table | pa.RecordBatch):
            given = dict(zip(given.schema.names, given.columns, strict=True))
        if not isinstance(given, Mapping):
            what = type(given).__name__
            raise Misbehaved(f"{self.title}.{method}() gives {what}, not a dict of the columns of its state")
        if set(given) != set(self.kinds):
            has, wants = (", ".join(map(str, names)) or "none" for names in (given, self.kinds))
            raise Misbehaved(f"{self.title}.{method}() gives the columns {has}; its state has {wants}")
        found = []
        for name, kind in self.kinds.items():
            made = self._column(method, name, given[name], kind, count)
            if made.null_count:
                raise Misbehaved(f"{self.title}.{method}() gives NULL in {name}: a state has none")
            found.append(made)
        return found

    def _column(self, method: str, name: str, given: Any, kind: pa.DataType, count: int) -> pa.Array:
        try:
            made = column(given)
            made = made if made.type == kind else made.cast(kind)
        except _NOT_A_COLUMN as error:
            why = " ".join(str(error).split())[:200]
            raise Misbehaved(f"{self.title}.{method}(): {name} is no column of {kind}: {why}") from None
        if len(made) != count:
            what = "states" if method == "finalize" else "groups"
            raise Misbehaved(f"{self.title}.{method}() gives {len(made)} of {name} for {count} {what}")
        return made

    # -- over bytes ------------------------------------------------------------------------------------------

    def created(self, ids: Int64s, columns: Sequence[pa.Array]) -> pa.Array:
        """The state of each group, ascending by its number."""
        groups = _groups(ids)
        return self._encoded(self.create(groups, columns), groups.count)

    def merged(self, ids: Int64s, states: pa.Array, times: Int64s) -> pa.Array:
        """Likewise, of states that are there so many times."""
        merged = self._merged(ids, states, times)
        return self._encoded(merged, len(merged[0]))

    def values(self, ids: Int64s, states: pa.Array, times: Int64s) -> pa.Array:
        """The value of each group of states."""
        return self.finalize(self._merged(ids, states, times))

    def _encoded(self, states: States, count: int) -> pa.Array:
        try:
            return encoding.encode(states, count)
        except NoState as error:
            raise Misbehaved(f"{self.title}: {error}") from None

    def _merged(self, ids: Int64s, states: pa.Array, times: Int64s) -> States:
        try:
            whole = encoding.decode(states, list(self.kinds.values()))
        except NoState as error:
            raise Misbehaved(f"{self.title}: {error}") from None
        if len(times) and int(times.min()) < 1:
            raise Misbehaved(f"{self.title}: a state is there {int(times.min())} times")
        powers: list[States] = []
        places: list[Int64s] = []
        while len(ids):
            odd = (times & 1).astype(np.bool_)
            powers.append(_chosen(whole, odd))
            places.append(ids[odd])
            more, times = times > 1, times >> 1
            whole, ids, times = _chosen(whole, more), ids[more], times[more]
            if len(ids):
                pairs = Groups(np.tile(np.arange(len(ids)), 2), len(ids))
                whole = self.merge(pairs, [pa.concat_arrays([one, one]) for one in whole])
        if not places:
            return whole
        all_ids = np.concatenate(places)
        together = [pa.concat_arrays(some) for some in zip(*powers, strict=True)]
        groups = _groups(all_ids)
        if groups.count == len(all_ids):  # nothing to merge
            return [one.take(pa.array(groups.order)) for one in together]
        return self.merge(groups, together)


def _groups(ids: Int64s) -> Groups:
    """Groups that are numbered without gaps."""
    numbers, places = np.unique(ids, return_inverse=True)
    return Groups(places, len(numbers))


def _chosen(states: States, mask: npt.NDArray[np.bool_]) -> States:
    return [one.filter(pa.array(mask)) for one in states]
