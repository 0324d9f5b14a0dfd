"""Log files to try elf on: an e-commerce click stream (the paper's Figure 4) and a web access log.

``Clicks`` and ``Access`` write lines for given event times; ``write_finite`` and ``write_live`` put them into
files.
"""

from __future__ import annotations

from elf.generator.access import Access
from elf.generator.clicks import Clicks
from elf.generator.feed import Pace, Source, write_finite, write_live

__all__ = ["Access", "Clicks", "Pace", "Source", "write_finite", "write_live"]
