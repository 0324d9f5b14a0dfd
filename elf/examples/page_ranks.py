"""The ranks of a site's pages, over several agents: how people walk from the page of the ``Referer`` to
the one that was asked for (*Assured cloud computing*, 6.5.2, LFGraph).

    elf submit elf/examples/page_ranks.py --set parts=2
    elf query page_ranks '{"begin": true}'
    elf query page_ranks '{"top": 5}'
    elf sql -e "ALTER JOB page_ranks SCALE OUT 1"

For a graph that fits one process a query does it, with more exactness about windows: ``WITH GRAPH pagerank``.

To change it: the class's base (``Components``, ``ShortestPaths``), ``edges``, and with ``--set`` what stands
at the top of ``GraphJob``, ``Algorithm`` and ``PageRank``.
"""

from elf.job.graphs import PageRank


class PageRanks(PageRank):
    """Ranks of pages.

    Attributes:
        edges (str): a step from a page to the next one, and how often it was taken.
        ends (tuple[str, str]): its columns with both pages.
        weight (str): its column with that number.

    A query is as in ``GraphJob``.
    """

    edges = (
        "SELECT regexp_extract(cs_referer, '://[^/]*(/[^?]*)', 1) AS page, cs_uri_stem AS next, "
        "COUNT(*) AS steps FROM access WHERE cs_referer LIKE '%://%/%' GROUP BY page, next"
    )
    ends = ("page", "next")
    weight = "steps"
