"""How many cases there are: few for ``make test``, many for ``make long``, which sets ``ELF_TEST_LONG``."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")

LONG = bool(os.environ.get("ELF_TEST_LONG"))


def cases(few: T, many: T) -> T:
    return many if LONG else few
