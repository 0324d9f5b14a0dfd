"""Log files to try elf on: an e-commerce click stream (the paper's Figure 4), a web access log, and posts of
a social network (its section 4.1).

``Clicks``, ``Access`` and ``Posts`` write lines for given event times; ``write_finite`` and ``write_live``
put them into files.
"""

from __future__ import annotations

from lab.generator.access import Access
from lab.generator.clicks import Clicks
from lab.generator.feed import Pace, Source, write_finite, write_live
from lab.generator.posts import Posts

__all__ = ["Access", "Clicks", "Pace", "Posts", "Source", "write_finite", "write_live"]
