"""Queries over the bundled log: ELF-QL, and the same question put to DuckDB by hand.

``W(n)`` in DuckDB's text is the start of the tumbling window of n seconds; every result is ordered by window
first.
"""

from __future__ import annotations

QUERIES: dict[str, tuple[str, str]] = {
    "count": ("SELECT COUNT(*) AS n FROM log", "SELECT COUNT(*) AS n FROM log"),
    "count of nothing": (
        "SELECT COUNT(*) AS n, SUM(sc_bytes) AS b FROM log WHERE sc_status = 999",
        "SELECT COUNT(*) AS n, SUM(sc_bytes) AS b FROM log WHERE sc_status = 999",
    ),
    "by method": (
        "SELECT cs_method, COUNT(*) AS n FROM log GROUP BY cs_method ORDER BY n DESC",
        "SELECT cs_method, COUNT(*) AS n FROM log GROUP BY 1 ORDER BY n DESC, cs_method NULLS LAST",
    ),
    "top pages": (
        "SELECT cs_uri_stem, COUNT(*) AS hits, SUM(sc_bytes) AS bytes FROM log GROUP BY cs_uri_stem "
        "ORDER BY hits DESC LIMIT 10",
        "SELECT cs_uri_stem, COUNT(*) AS hits, SUM(sc_bytes) AS bytes FROM log GROUP BY 1 "
        "ORDER BY hits DESC, 1 NULLS LAST LIMIT 10",
    ),
    "not found": (
        "SELECT cs_uri_stem, COUNT(*) AS n FROM log WHERE sc_status = 404 GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 5",
        "SELECT cs_uri_stem, COUNT(*) AS n FROM log WHERE sc_status = 404 GROUP BY 1 ORDER BY 2 DESC, 1 NULLS LAST LIMIT 5",
    ),
    "status classes": (
        "SELECT sc_status - sc_status % 100 AS class, COUNT(*) AS n FROM log GROUP BY class ORDER BY class",
        "SELECT sc_status - sc_status % 100 AS class, COUNT(*) AS n FROM log GROUP BY 1 ORDER BY 1",
    ),
    "average size": (
        "SELECT cs_method, AVG(sc_bytes) AS mean, MIN(sc_bytes) AS low, MAX(sc_bytes) AS high FROM log "
        "GROUP BY cs_method ORDER BY cs_method",
        "SELECT cs_method, AVG(sc_bytes) AS mean, MIN(sc_bytes) AS low, MAX(sc_bytes) AS high FROM log "
        "GROUP BY 1 ORDER BY 1 NULLS LAST",
    ),
    "having": (
        "SELECT c_ip, COUNT(*) AS n FROM log GROUP BY c_ip HAVING COUNT(*) > 2 ORDER BY n DESC",
        "SELECT c_ip, COUNT(*) AS n FROM log GROUP BY 1 HAVING COUNT(*) > 2 ORDER BY n DESC, c_ip NULLS LAST",
    ),
    "having on what is not selected": (
        "SELECT cs_uri_stem FROM log GROUP BY cs_uri_stem HAVING SUM(sc_bytes) > 100000 ORDER BY SUM(sc_bytes)",
        "SELECT cs_uri_stem FROM log GROUP BY 1 HAVING SUM(sc_bytes) > 100000 ORDER BY SUM(sc_bytes), 1 NULLS LAST",
    ),
    "no order": (
        "SELECT sc_status, COUNT(*) AS n FROM log GROUP BY sc_status",
        "SELECT sc_status, COUNT(*) AS n FROM log GROUP BY 1 ORDER BY 1",
    ),
    "two keys": (
        "SELECT cs_method, sc_status, COUNT(*) AS n FROM log GROUP BY cs_method, sc_status ORDER BY 1, 2 DESC",
        "SELECT cs_method, sc_status, COUNT(*) AS n FROM log GROUP BY 1, 2 ORDER BY 1 NULLS LAST, 2 DESC",
    ),
    "text functions": (
        "SELECT LOWER(cs_method) AS m, LENGTH(cs_uri_stem) AS l, COUNT(*) AS n FROM log "
        "WHERE cs_uri_stem LIKE '/%' GROUP BY m, l ORDER BY n DESC, m, l LIMIT 20",
        "SELECT LOWER(cs_method) AS m, LENGTH(cs_uri_stem) AS l, COUNT(*) AS n FROM log "
        "WHERE cs_uri_stem LIKE '/%' GROUP BY 1, 2 ORDER BY n DESC, m NULLS LAST, l NULLS LAST LIMIT 20",
    ),
    "case": (
        "SELECT CASE WHEN sc_status >= 500 THEN 'server' WHEN sc_status >= 400 THEN 'client' ELSE 'fine' END AS kind, "
        "COUNT(*) AS n FROM log GROUP BY kind ORDER BY kind",
        "SELECT CASE WHEN sc_status >= 500 THEN 'server' WHEN sc_status >= 400 THEN 'client' ELSE 'fine' END AS kind, "
        "COUNT(*) AS n FROM log GROUP BY 1 ORDER BY 1",
    ),
    "in and between": (
        "SELECT sc_status, COUNT(*) FROM log WHERE cs_method IN ('GET', 'POST') AND sc_bytes BETWEEN 100 AND 20000 "
        "GROUP BY sc_status ORDER BY sc_status",
        "SELECT sc_status, COUNT(*) AS \"COUNT(*)\" FROM log WHERE cs_method IN ('GET', 'POST') "
        "AND sc_bytes BETWEEN 100 AND 20000 GROUP BY 1 ORDER BY 1",
    ),
    "nulls": (
        "SELECT COUNT(*) AS n, COUNT(sc_bytes) AS sized, COUNT(cs_referer) AS referred FROM log WHERE cs_username IS NULL",
        "SELECT COUNT(*) AS n, COUNT(sc_bytes) AS sized, COUNT(cs_referer) AS referred FROM log WHERE cs_username IS NULL",
    ),
    "expressions over aggregates": (
        "SELECT cs_method, SUM(sc_bytes) / COUNT(*) AS per, ROUND(100 * COUNT(sc_bytes) / COUNT(*), 1) AS share FROM log "
        "GROUP BY cs_method ORDER BY per DESC",
        "SELECT cs_method, SUM(sc_bytes) / COUNT(*) AS per, ROUND(100 * COUNT(sc_bytes) / COUNT(*), 1) AS share FROM log "
        "GROUP BY 1 ORDER BY per DESC NULLS LAST, 1 NULLS LAST",
    ),
    "coalesce": (
        "SELECT COALESCE(cs_referer, '(none)') AS referer, COUNT(*) AS n FROM log GROUP BY 1 ORDER BY n DESC LIMIT 3",
        "SELECT COALESCE(cs_referer, '(none)') AS referer, COUNT(*) AS n FROM log GROUP BY 1 ORDER BY n DESC, 1 LIMIT 3",
    ),
    "hours": (
        "SELECT HOUR(ts) AS hour, MINUTE(ts) AS minute, COUNT(*) AS n FROM log GROUP BY 1, 2 ORDER BY 1, 2",
        "SELECT HOUR(ts) AS hour, MINUTE(ts) AS minute, COUNT(*) AS n FROM log GROUP BY 1, 2 ORDER BY 1, 2",
    ),
    "first and last": (
        "SELECT cs_method, MIN(ts) AS first, MAX(ts) AS last FROM log GROUP BY cs_method ORDER BY first",
        "SELECT cs_method, MIN(ts) AS first, MAX(ts) AS last FROM log GROUP BY 1 ORDER BY first, 1 NULLS LAST",
    ),
    "tumbling": (
        "SELECT COUNT(*) AS n, SUM(sc_bytes) AS bytes FROM log WINDOWING 60 SECONDS",
        "SELECT W(60) AS window_start, W(60) + INTERVAL 60 SECOND AS window_end, COUNT(*) AS n, SUM(sc_bytes) AS bytes "
        "FROM log GROUP BY 1, 2 ORDER BY 1",
    ),
    "tumbling by key": (
        "SELECT cs_method, COUNT(*) AS n FROM log GROUP BY cs_method ORDER BY n DESC WINDOWING 5 MINUTES",
        "SELECT W(300) AS window_start, W(300) + INTERVAL 300 SECOND AS window_end, cs_method, COUNT(*) AS n FROM log "
        "GROUP BY 1, 2, 3 ORDER BY 1, n DESC, cs_method NULLS LAST",
    ),
    "top of each window": (
        "SELECT cs_uri_stem, COUNT(*) AS n FROM log WHERE sc_status < 400 GROUP BY cs_uri_stem ORDER BY n DESC LIMIT 3 "
        "WINDOWING 10 MINUTES",
        "SELECT W(600) AS window_start, W(600) + INTERVAL 600 SECOND AS window_end, cs_uri_stem, COUNT(*) AS n FROM log "
        "WHERE sc_status < 400 GROUP BY 1, 2, 3 QUALIFY ROW_NUMBER() OVER (PARTITION BY window_start "
        "ORDER BY n DESC, cs_uri_stem NULLS LAST) <= 3 ORDER BY 1, n DESC, cs_uri_stem NULLS LAST",
    ),
    "windows with few": (
        "SELECT sc_status, COUNT(*) AS n FROM log WHERE sc_status >= 500 GROUP BY sc_status HAVING COUNT(*) > 1 "
        "WINDOWING 2 MINUTES",
        "SELECT W(120) AS window_start, W(120) + INTERVAL 120 SECOND AS window_end, sc_status, COUNT(*) AS n FROM log "
        "WHERE sc_status >= 500 GROUP BY 1, 2, 3 HAVING COUNT(*) > 1 ORDER BY 1, sc_status",
    ),
    "sliding": (
        "SELECT COUNT(*) AS n, MAX(sc_bytes) AS most FROM log WINDOWING 120 SECONDS SLIDE 30 SECONDS",
        "SELECT s AS window_start, s + INTERVAL 120 SECOND AS window_end, COUNT(*) AS n, MAX(sc_bytes) AS most "
        "FROM (SELECT UNNEST(range(4)) AS i, * FROM log), LATERAL (SELECT W(30) - i * INTERVAL 30 SECOND AS s) "
        "GROUP BY 1, 2 ORDER BY 1",
    ),
    "sliding by key, pane below the slide": (
        "SELECT cs_method, COUNT(*) AS n FROM log GROUP BY cs_method ORDER BY n DESC LIMIT 2 "
        "WINDOWING 90 SECONDS SLIDE 60 SECONDS",
        "SELECT s AS window_start, s + INTERVAL 90 SECOND AS window_end, cs_method, COUNT(*) AS n "
        "FROM (SELECT UNNEST(range(2)) AS i, * FROM log), LATERAL (SELECT W(60) - i * INTERVAL 60 SECOND AS s) "
        "WHERE ts < s + INTERVAL 90 SECOND GROUP BY 1, 2, 3 QUALIFY ROW_NUMBER() OVER (PARTITION BY window_start "
        "ORDER BY n DESC, cs_method NULLS LAST) <= 2 ORDER BY 1, n DESC, cs_method NULLS LAST",
    ),
    "ksqlDB's tumbling": (
        "SELECT sc_status, COUNT(*) AS n FROM log WINDOW TUMBLING (SIZE 15 MINUTES) GROUP BY sc_status",
        "SELECT W(900) AS window_start, W(900) + INTERVAL 900 SECOND AS window_end, sc_status, COUNT(*) AS n FROM log "
        "GROUP BY 1, 2, 3 ORDER BY 1, sc_status",
    ),
    "milliseconds": (
        "SELECT COUNT(*) AS n FROM log WHERE cs_method == 'DELETE' WINDOWING 1500 MILLISECONDS",
        "SELECT make_timestamp(epoch_us(ts) - epoch_us(ts) % 1500000) AS window_start, "
        "make_timestamp(epoch_us(ts) - epoch_us(ts) % 1500000 + 1500000) AS window_end, COUNT(*) AS n FROM log "
        "WHERE cs_method = 'DELETE' GROUP BY 1, 2 ORDER BY 1",
    ),
    "deviation": (
        "SELECT cs_method, STDDEV(sc_bytes) AS s, VAR_POP(sc_bytes) AS v, VARIANCE(sc_status) AS w, STDDEV_POP(sc_bytes / 7) AS d "
        "FROM log GROUP BY cs_method",
        "SELECT cs_method, STDDEV(sc_bytes) AS s, VAR_POP(sc_bytes) AS v, VARIANCE(sc_status) AS w, STDDEV_POP(sc_bytes / 7) AS d "
        "FROM log GROUP BY 1 ORDER BY 1 NULLS LAST",
    ),
    "first and last by event time": (
        "SELECT cs_method, FIRST(cs_uri_stem) AS a, LAST(sc_bytes) AS b, LAST(cs_referer) AS c, FIRST(sc_bytes / 7) AS d, "
        "LAST(sc_status = 200) AS e, FIRST(ts) AS f FROM log GROUP BY cs_method",
        "SELECT cs_method, FIRST(cs_uri_stem ORDER BY ts, cs_uri_stem) FILTER (WHERE cs_uri_stem IS NOT NULL) AS a, "
        "LAST(sc_bytes ORDER BY ts, sc_bytes) FILTER (WHERE sc_bytes IS NOT NULL) AS b, "
        "LAST(cs_referer ORDER BY ts, cs_referer) FILTER (WHERE cs_referer IS NOT NULL) AS c, "
        "FIRST(sc_bytes / 7 ORDER BY ts, sc_bytes) FILTER (WHERE sc_bytes IS NOT NULL) AS d, "
        "LAST(sc_status = 200 ORDER BY ts, sc_status = 200) AS e, MIN(ts) AS f FROM log GROUP BY 1 ORDER BY 1 NULLS LAST",
    ),
    "last in sliding windows": (
        "SELECT FIRST(c_ip) AS a, LAST(sc_bytes) AS b, BOOL_AND(sc_status < 500) AS c, BOOL_OR(sc_status = 404) AS d, "
        "STDDEV(sc_bytes) AS e FROM log WINDOWING 120 SECONDS SLIDE 30 SECONDS",
        "SELECT s AS window_start, s + INTERVAL 120 SECOND AS window_end, FIRST(c_ip ORDER BY ts, c_ip) AS a, "
        "LAST(sc_bytes ORDER BY ts, sc_bytes) FILTER (WHERE sc_bytes IS NOT NULL) AS b, BOOL_AND(sc_status < 500) AS c, "
        "BOOL_OR(sc_status = 404) AS d, STDDEV(sc_bytes) AS e "
        "FROM (SELECT UNNEST(range(4)) AS i, * FROM log), LATERAL (SELECT W(30) - i * INTERVAL 30 SECOND AS s) "
        "GROUP BY 1, 2 ORDER BY 1",
    ),
    "all and any": (
        "SELECT cs_method, BOOL_AND(sc_bytes > 100) AS a, EVERY(sc_status < 500) AS b, BOOL_OR(cs_referer LIKE '%e%') AS c "
        "FROM log GROUP BY cs_method",
        "SELECT cs_method, BOOL_AND(sc_bytes > 100) AS a, BOOL_AND(sc_status < 500) AS b, BOOL_OR(cs_referer LIKE '%e%') AS c "
        "FROM log GROUP BY 1 ORDER BY 1 NULLS LAST",
    ),
    "visitors": (
        "SELECT cs_uri_stem, COUNT(DISTINCT c_ip) AS visitors, COUNT(*) AS hits, SUM(DISTINCT sc_bytes) AS b, "
        "AVG(DISTINCT sc_status) AS s FROM log GROUP BY cs_uri_stem HAVING COUNT(DISTINCT c_ip) > 1 ORDER BY visitors DESC LIMIT 7",
        "SELECT cs_uri_stem, COUNT(DISTINCT c_ip) AS visitors, COUNT(*) AS hits, SUM(DISTINCT sc_bytes) AS b, "
        "AVG(DISTINCT sc_status) AS s FROM log GROUP BY 1 HAVING COUNT(DISTINCT c_ip) > 1 "
        "ORDER BY visitors DESC, 1 NULLS LAST LIMIT 7",
    ),
    "visitors of nothing": (
        "SELECT COUNT(DISTINCT c_ip) AS n, APPROX_COUNT_DISTINCT(c_ip) AS d, MEDIAN(sc_bytes) AS m, APPROX_TOP_K(c_ip, 2) AS t, "
        "SUM(sc_bytes) AS b, COUNT(*) AS c FROM log WHERE sc_status = 999",
        "SELECT 0 AS n, 0 AS d, NULL AS m, NULL AS t, NULL AS b, 0 AS c",
    ),
    "visitors of tumbling windows": (
        "SELECT COUNT(DISTINCT c_ip) AS n, MEDIAN(sc_bytes) AS m, COUNT(*) FILTER (WHERE sc_status >= 400) AS wrong "
        "FROM log WINDOWING 2 MINUTES",
        "SELECT W(120) AS window_start, W(120) + INTERVAL 120 SECOND AS window_end, COUNT(DISTINCT c_ip) AS n, "
        "MEDIAN(sc_bytes) AS m, COUNT(*) FILTER (WHERE sc_status >= 400) AS wrong FROM log GROUP BY 1, 2 ORDER BY 1",
    ),
    "visitors of sliding windows": (
        "SELECT cs_method, COUNT(DISTINCT c_ip) AS n, PERCENTILE(sc_bytes, 0.9) AS p FROM log GROUP BY cs_method "
        "ORDER BY n DESC LIMIT 2 WINDOWING 120 SECONDS SLIDE 30 SECONDS",
        "SELECT s AS window_start, s + INTERVAL 120 SECOND AS window_end, cs_method, COUNT(DISTINCT c_ip) AS n, "
        "QUANTILE_CONT(sc_bytes, 0.9) AS p "
        "FROM (SELECT UNNEST(range(4)) AS i, * FROM log), LATERAL (SELECT W(30) - i * INTERVAL 30 SECOND AS s) "
        "GROUP BY 1, 2, 3 QUALIFY ROW_NUMBER() OVER (PARTITION BY window_start ORDER BY n DESC, cs_method NULLS LAST) <= 2 "
        "ORDER BY 1, n DESC, cs_method NULLS LAST",
    ),
    "percentiles": (
        "SELECT sc_status, MEDIAN(sc_bytes) AS m, PERCENTILE(sc_bytes, 0.95) AS p, APPROX_PERCENTILE(sc_bytes % 100, 0.9) AS a "
        "FROM log GROUP BY sc_status",
        "SELECT sc_status, MEDIAN(sc_bytes) AS m, QUANTILE_CONT(sc_bytes, 0.95) AS p, QUANTILE_DISC(sc_bytes % 100, 0.9) AS a "
        "FROM log GROUP BY 1 ORDER BY 1",
    ),
    "top methods of each status": (
        "SELECT sc_status, APPROX_TOP_K(cs_method, 2) AS t FROM log GROUP BY sc_status",
        "SELECT sc_status, '{' || STRING_AGG('\"' || cs_method || '\": ' || n, ', ' ORDER BY n DESC, cs_method) || '}' AS t "
        "FROM (SELECT sc_status, cs_method, COUNT(*) AS n FROM log WHERE cs_method IS NOT NULL GROUP BY 1, 2 "
        "QUALIFY ROW_NUMBER() OVER (PARTITION BY sc_status ORDER BY n DESC, cs_method) <= 2) GROUP BY 1 ORDER BY 1",
    ),
    "filters": (
        "SELECT cs_method, COUNT(*) FILTER (WHERE sc_status >= 400) AS bad, SUM(sc_bytes) FILTER (WHERE sc_status < 400) AS b, "
        "COUNT(DISTINCT c_ip) FILTER (WHERE sc_status = 200) AS v FROM log GROUP BY cs_method",
        "SELECT cs_method, COUNT(*) FILTER (WHERE sc_status >= 400) AS bad, SUM(sc_bytes) FILTER (WHERE sc_status < 400) AS b, "
        "COUNT(DISTINCT c_ip) FILTER (WHERE sc_status = 200) AS v FROM log GROUP BY 1 ORDER BY 1 NULLS LAST",
    ),
}


def by_hand(sql: str) -> str:
    """DuckDB's text with its windows written out."""
    for seconds in (30, 60, 120, 300, 600, 900, 3600, 86400):
        sql = sql.replace(
            f"W({seconds})", f"make_timestamp(epoch_us(ts) - epoch_us(ts) % {seconds * 1_000_000})"
        )
    return sql
