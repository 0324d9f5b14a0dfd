"""Inputs: files as chunks of whole lines. ``Tail`` follows growing ones, ``Whole`` reads finite ones once,
``Piped`` a pipe as it comes."""

from agents.inputs.piped import Piped
from agents.inputs.ranges import Range, split_inputs
from agents.inputs.tail import Tail
from agents.inputs.values import Chunk, Counters, Input, Position, Reject, Source
from agents.inputs.whole import Whole

__all__ = [
    "Chunk",
    "Counters",
    "Input",
    "Piped",
    "Position",
    "Range",
    "Reject",
    "Source",
    "Tail",
    "Whole",
    "split_inputs",
]
