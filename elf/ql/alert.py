"""What CREATE ALERT asks of the windows of a job. What comes of it is ``elf.job.alerts``."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from elf.fields import Label, Statement

WINDOWS_MAX: Final = 60
"""Of FOR n WINDOWS."""
COLUMNS_MAX: Final = 16
"""After BY."""


class Alert(msgspec.Struct, frozen=True, array_like=True):
    """``WHEN when BY by FOR windows WINDOWS COVERAGE >= coverage``. Rows with the same values in the columns
    ``by`` are a group; where there are none all rows are one group."""

    when: Statement
    windows: Annotated[int, Meta(ge=1, le=WINDOWS_MAX)] = 1
    coverage: Annotated[float, Meta(ge=0, le=1)] = 1.0
    by: Annotated[tuple[Label, ...], Meta(max_length=COLUMNS_MAX)] = ()
