"""An aggregate of one's own for tests: a mean whose state is a sum and a count; and what can go wrong."""

from __future__ import annotations

MEAN = """\
import numpy as np
from elf.paos import PAO

class GeometricMean(PAO):
    arguments = ("double",)
    state = {"logs": "double", "n": "bigint"}
    returns = "double"

    def create(self, groups, x):
        return {"logs": groups.sum(np.log(np.maximum(x, 1e-9))), "n": groups.size()}

    def merge(self, groups, states):
        return {"logs": groups.sum(states["logs"]), "n": groups.sum(states["n"])}

    def finalize(self, states):
        return np.exp(np.divide(states["logs"], states["n"]))
"""
FAILS_AT_13 = MEAN.replace(
    "        return {\"logs\": groups.sum(np",
    "        if 13.0 in x.to_pylist():\n            raise ValueError(\"unlucky\")\n"
    "        return {\"logs\": groups.sum(np",
)  # fmt: skip
FAILS_AT_THE_END = MEAN.replace(
    "        return np.exp",
    "        if 13 in states['n'].to_pylist():\n"
    "            raise ValueError('unlucky')\n        return np.exp",
)
OF_MEANS = MEAN.replace('groups.sum(states["logs"])', 'groups.sum(states["logs"]) / groups.size()')
"""Its merge is not associative."""
