-- Referring sites: the sites whose links were followed to here. Log: combined.
SELECT lower(url_host(cs_referer)) AS site,
       COUNT(*) AS hits,
       COUNT(DISTINCT c_ip) AS hosts
FROM access
WHERE cs_referer IS NOT NULL
GROUP BY site
ORDER BY hits DESC
LIMIT 30
WINDOWING 1 HOUR
