-- Not found: addresses that were answered with 404, how often, for how many hosts, and a page that leads there.
-- Log: combined (common has no referrers).
SELECT cs_uri_stem AS file, COUNT(*) AS hits, COUNT(DISTINCT c_ip) AS hosts, LAST(cs_referer) AS led_from
FROM access
WHERE sc_status = 404
GROUP BY cs_uri_stem
ORDER BY hits DESC
LIMIT 30
WINDOWING 1 HOUR
