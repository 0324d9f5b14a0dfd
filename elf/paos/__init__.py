"""Partial aggregation objects: the aggregates that elf has (``elf.paos.builtin``), and those of one's own.

An aggregate of one's own is a class with three methods (paper, section 2.2: create, merge, finalize)::

    import numpy as np

    from elf.paos import PAO

    class GeometricMean(PAO):
        arguments = ("double",)
        state = {"logs": "double", "n": "bigint"}
        returns = "double"

        def create(self, groups, x):
            return {"logs": groups.sum(np.log(x)), "n": groups.size()}

        def merge(self, groups, states):
            return {"logs": groups.sum(states["logs"]), "n": groups.sum(states["n"])}

        def finalize(self, states):
            return np.exp(np.divide(states["logs"], states["n"]))

Each works on columns: of many groups at once. A group is never empty, and no value of a column is NULL: rows
with a NULL in any argument are passed over.

**How it travels.** The state of a group is one text of bytes (``elf.paos.states``), and a group that was not
merged yet has several of them: a *cell* for each different state, with how often it is there
(``elf.ql.cells``). So trees, commits, windows and Spark merge them as they merge everything, by keys and
sums, and know nothing of the class. Merging states with the class is then only a way to have fewer of them:
it is done where it pays and where the agent runs code, and what an agent does not merge, another does. Only
``create`` on the agents and ``finalize`` at the master must happen.

That is right for what merges in any order and any grouping, and for nothing else. So ``elf.paos.laws`` tries
that before an aggregate is taken.

``elf.paos.texts`` says what the text of an aggregate promises, without running it; ``elf.paos.running`` calls
the class and believes nothing that it returns.
"""

from __future__ import annotations

from elf.paos.groups import Groups
from elf.paos.pao import PAO

__all__ = ["PAO", "Groups"]
