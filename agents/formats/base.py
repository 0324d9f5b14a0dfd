"""What a format is: the columns of a stream, and the SQL that gets them out of its lines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agents.formats.dialect import SPARK, Dialect, Selection
from elf.schema import Column, Schema

Int64s = npt.NDArray[np.int64]

LINE: str = "_line"
"""The column that every stream has: the raw text of the record."""


class Format(ABC):
    """How lines become columns. Values, so one instance serves everybody."""

    name: str

    @abstractmethod
    def schema(self, samples: pa.StringArray, timestamp: str | None) -> Schema:
        """The columns, known or inferred from sample lines; ``timestamp`` is the event time column that the
        config names."""

    @abstractmethod
    def select(self, dialect: Dialect, columns: Sequence[Column], event_time: str | None) -> Selection:
        """How to extract ``columns``, and ``event_time`` (None: no event time), in an engine's SQL."""

    def spark_select(self, columns: Sequence[Column], event_time: str | None) -> Selection:
        """``select`` for the offline engine: the same values for every line that an agent accepts."""
        return self.select(SPARK, columns, event_time)

    def why_not(self, line: str) -> str:
        """What is wrong with a line that was rejected, in a few words; empty where nothing is to be said."""
        return ""

    def refused(self, lines: pa.StringArray) -> Int64s:
        """Numbers of lines that the SQL would take although they are not of this format."""
        return np.zeros(0, dtype=np.int64)
