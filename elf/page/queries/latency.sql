-- Latency: percentiles of the time that requests took, by the page, slowest first. Log: JSON lines with
-- request_time in seconds, as in examples/access.json. APPROX_PERCENTILE is within 0.8 % of the value.
SELECT url_path(request_uri) AS page,
       COUNT(*) AS hits,
       MEDIAN(request_time) AS median,
       APPROX_PERCENTILE(request_time, 0.95) AS p95,
       APPROX_PERCENTILE(request_time, 0.99) AS p99,
       MAX(request_time) AS slowest
FROM access
GROUP BY page
ORDER BY slowest DESC
LIMIT 30
WINDOWING 1 HOUR
