-- Virtual hosts: hits, errors and bytes of each. Log: JSON lines with the host that was asked, as nginx writes
-- them with the fields of examples/access.json.
SELECT lower(host) AS virtual_host,
       COUNT(*) AS hits,
       COUNT(*) FILTER (WHERE status >= 500) AS errors,
       COUNT(DISTINCT remote_addr) AS hosts,
       SUM(body_bytes_sent) AS bytes
FROM access
GROUP BY virtual_host
ORDER BY hits DESC
LIMIT 30
WINDOWING 1 HOUR
