-- Visit times: hits and visitors by the hour of the day (UTC), a day at a time. Log: combined or common.
SELECT hour(ts) AS hour,
       COUNT(*) AS hits,
       COUNT(DISTINCT concat(c_ip, ' ', cs_user_agent)) AS visitors,
       SUM(sc_bytes) AS bytes
FROM access
GROUP BY hour
ORDER BY hour
WINDOWING 1 DAY
