-- Hosts: the addresses that asked most, what share of it failed, and when they were last seen.
-- Log: combined or common.
SELECT c_ip AS host,
       COUNT(*) AS hits,
       COUNT(*) FILTER (WHERE sc_status >= 400) AS failed,
       SUM(sc_bytes) AS bytes,
       MAX(ts) AS last_seen
FROM access
GROUP BY c_ip
ORDER BY hits DESC
LIMIT 30
WINDOWING 1 HOUR
