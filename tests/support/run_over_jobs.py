"""Queries over jobs' windows, over the bundled log: the jobs, the query, and the same for DuckDB by hand.

By hand ``W(n)`` is the start of the tumbling window of n seconds, and ``minutes`` the log with ``a`` and
``b``, the bounds of each row's ten minutes.
"""

from __future__ import annotations

from dataclasses import dataclass

HOSTS = (
    "CREATE JOB hosts AS SELECT c_ip, sc_status, COUNT(*) AS hits, COUNT(DISTINCT cs_uri_stem) AS pages FROM log "
    "GROUP BY c_ip, sc_status HAVING COUNT(*) > 1 ORDER BY hits DESC LIMIT 5 WINDOWING 10 MINUTES"
)
BY_HAND = """
    (SELECT a, a + INTERVAL 10 MINUTES AS b, c_ip, sc_status, COUNT(*) AS hits, COUNT(DISTINCT cs_uri_stem) AS
    pages
     FROM (SELECT *, W(600) AS a FROM log) GROUP BY a, c_ip, sc_status HAVING COUNT(*) > 1
     QUALIFY ROW_NUMBER() OVER (PARTITION BY a ORDER BY hits DESC, c_ip NULLS LAST, sc_status NULLS LAST) <=
     5)
"""


def ends(size: int, step: int) -> str:
    """Windows of so many minutes, one each ``step``, that may hold a row of the log."""
    return (
        f"(SELECT make_timestamp(n * {step * 60_000_000}) AS window_start, window_start + INTERVAL {size} MINUTES AS "
        "window_end FROM (SELECT unnest(range(lo, hi)) AS n FROM (SELECT "
        f"epoch_us(min(ts)) // {step * 60_000_000} - {size // step} AS lo, "
        f"epoch_us(max(ts)) // {step * 60_000_000} + 1 AS hi FROM log)))"
    )


PAGES = "SELECT W(600) AS a, cs_method, sc_status AS status, SUM(sc_bytes) AS bytes FROM log WHERE sc_bytes > 100 GROUP BY ALL"


@dataclass(frozen=True)
class Case:
    """``jobs`` are created, then ``asked`` is answered."""

    jobs: tuple[str, ...]
    asked: str
    by_hand: str


CASES: dict[str, Case] = {
    "larger windows": Case(
        (HOSTS,),
        "SELECT sc_status, SUM(hits) AS hits, COUNT(DISTINCT c_ip) AS ips, MAX(pages) AS most, COUNT(*) AS n "
        "FROM JOB hosts WHERE pages > 1 GROUP BY sc_status HAVING SUM(hits) > 3 ORDER BY hits DESC LIMIT 3 "
        "WINDOWING 1 HOUR, 40 MINUTES SLIDE 20 MINUTES",
        "SELECT window_start, window_end, sc_status, SUM(hits) AS hits, COUNT(DISTINCT c_ip) AS ips, MAX(pages) AS most, "
        f"COUNT(*) AS n FROM {BY_HAND}, (SELECT * FROM {ends(60, 60)} UNION ALL SELECT * FROM {ends(40, 20)}) "
        "WHERE a >= window_start AND b <= window_end AND pages > 1 GROUP BY 1, 2, sc_status HAVING SUM(hits) > 3 QUALIFY ROW_NUMBER() "
        "OVER (PARTITION BY window_start, window_end ORDER BY SUM(hits) DESC, sc_status) <= 3 ORDER BY 1, 2, hits DESC",
    ),
    "windows over larger windows": Case(
        (
            HOSTS,
            "CREATE JOB totals AS SELECT sc_status, SUM(hits) AS hits, AVG(pages) AS pages FROM JOB hosts "
            "GROUP BY sc_status WINDOWING 30 MINUTES",
            "CREATE JOB well AS SELECT sc_status AS status, hits, pages FROM JOB totals WHERE sc_status < 300 "
            "ORDER BY hits DESC LIMIT 1",
        ),
        "SELECT COUNT(*) AS n, MIN(hits) AS low, SUM(pages) AS pages FROM JOB well WINDOWING CUMULATE 2 HOURS STEP 1 HOUR",
        "WITH t AS (SELECT h, SUM(hits) AS hits, AVG(pages) AS pages FROM (SELECT *, make_timestamp(epoch_us(a) - "
        f"epoch_us(a) % 1800000000) AS h FROM {BY_HAND} WHERE sc_status < 300) GROUP BY h, sc_status QUALIFY ROW_NUMBER() "
        "OVER (PARTITION BY h ORDER BY SUM(hits) DESC, sc_status) = 1), "
        f"w AS (SELECT * FROM {ends(120, 120)} UNION ALL SELECT window_start, window_end - INTERVAL 1 HOUR FROM "
        f"{ends(120, 120)}) SELECT window_start, window_end, COUNT(*) AS n, MIN(hits) AS low, SUM(pages) AS pages FROM t, w "
        "WHERE h >= window_start AND h + INTERVAL 30 MINUTES <= window_end GROUP BY ALL ORDER BY 1, 2",
    ),
    "since the landmark": Case(
        (HOSTS,),
        "SELECT c_ip, SUM(hits) AS hits FROM (SELECT c_ip, hits FROM JOB hosts WHERE sc_status = 200) GROUP BY c_ip "
        "ORDER BY hits DESC, c_ip LIMIT 2 WINDOWING LANDMARK EVERY 20 MINUTES",
        f"WITH h AS (SELECT *, make_timestamp(epoch_us(a) - epoch_us(a) % 1200000000) AS s FROM {BY_HAND} WHERE "
        "sc_status = 200), e AS (SELECT DISTINCT (SELECT min(s) FROM h) AS window_start, s + INTERVAL 20 MINUTES AS "
        "window_end FROM h) SELECT window_start, window_end, c_ip, SUM(hits) AS hits FROM h, e WHERE b <= window_end "
        "GROUP BY 1, 2, c_ip QUALIFY ROW_NUMBER() OVER (PARTITION BY window_end ORDER BY SUM(hits) DESC, c_ip) <= 2 "
        "ORDER BY 1, 2, hits DESC, c_ip",
    ),
    "a landmark job": Case(
        (
            "CREATE JOB ever AS SELECT c_ip, COUNT(*) AS hits FROM log GROUP BY c_ip WINDOWING LANDMARK EVERY 20 MINUTES",
        ),
        "SELECT c_ip, hits FROM JOB ever ORDER BY hits DESC LIMIT 2",
        "WITH s AS (SELECT *, make_timestamp(epoch_us(ts) - epoch_us(ts) % 1200000000) AS s FROM log), e AS (SELECT DISTINCT (SELECT min(s) FROM s) AS window_start, s + "
        "INTERVAL 20 MINUTES AS window_end FROM s) SELECT window_start, window_end, c_ip, COUNT(*) AS hits FROM s, e WHERE "
        "ts < window_end GROUP BY 1, 2, c_ip QUALIFY ROW_NUMBER() OVER (PARTITION BY window_end ORDER BY COUNT(*) DESC, "
        "c_ip NULLS LAST) <= 2 ORDER BY 1, 2, hits DESC, c_ip",
    ),
    "jobs joined": Case(
        (
            HOSTS,
            "CREATE JOB pages AS SELECT cs_method, sc_status AS status, SUM(sc_bytes) AS bytes FROM log WHERE "
            "sc_bytes > 100 GROUP BY cs_method, status WINDOWING 10 MINUTES TREES 3",
        ),
        "SELECT h.c_ip, p.cs_method AS method, MAX(p.bytes) AS bytes, SUM(h.hits) AS hits FROM JOB hosts AS h JOIN JOB pages "
        "AS p ON h.sc_status = p.status AND p.bytes > 3000 WHERE h.hits > 2 GROUP BY h.c_ip, method ORDER BY bytes DESC, "
        "h.c_ip, method LIMIT 4",
        f"WITH p AS ({PAGES}), h AS (SELECT * FROM {BY_HAND}) SELECT a AS window_start, b AS window_end, c_ip, cs_method AS "
        "method, MAX(bytes) AS bytes, SUM(hits) AS hits FROM h JOIN p USING (a) WHERE sc_status = status AND bytes > 3000 "
        "AND hits > 2 GROUP BY a, b, c_ip, cs_method QUALIFY ROW_NUMBER() OVER (PARTITION BY a ORDER BY MAX(bytes) DESC, "
        "c_ip NULLS LAST, cs_method NULLS LAST) <= 4 ORDER BY 1, 2, 5 DESC, 3, 4 NULLS LAST",
    ),
    "jobs joined, rows without a partner too": Case(
        (
            HOSTS,
            "CREATE JOB pages AS SELECT cs_method, sc_status AS status, SUM(sc_bytes) AS bytes FROM log WHERE "
            "sc_bytes > 100 GROUP BY cs_method, status WINDOWING 10 MINUTES",
            "CREATE JOB never AS SELECT upper(c_ip) AS c_ip, COUNT(DISTINCT cs_method) AS ways FROM log WHERE sc_status = 99 "
            "GROUP BY 1 WINDOWING 10 MINUTES",
        ),
        "SELECT hits, k.c_ip, bytes, ways FROM (SELECT hosts.c_ip, hits, cs_method, bytes, ways FROM JOB hosts AS hosts LEFT JOIN JOB "
        "pages ON sc_status = status AND bytes > 200000 LEFT JOIN JOB never AS n ON n.c_ip = hosts.c_ip) AS k WHERE ways IS "
        "NULL ORDER BY hits, k.c_ip, bytes",
        "SELECT h.a AS window_start, b AS window_end, hits, c_ip, bytes, NULL::BIGINT AS ways FROM "
        f"{BY_HAND} AS h LEFT JOIN ({PAGES}) AS p ON h.a = p.a AND sc_status = status AND bytes > 200000 "
        "ORDER BY 1, 2, 3, 4, 5 NULLS LAST",
    ),
}
