-- Status codes: how requests ended. Log: combined or common.
SELECT sc_status AS status,
       CASE WHEN sc_status >= 500 THEN 'server error'
            WHEN sc_status >= 400 THEN 'client error'
            WHEN sc_status >= 300 THEN 'redirection'
            WHEN sc_status >= 200 THEN 'success'
            ELSE 'informational' END AS class,
       COUNT(*) AS hits,
       COUNT(DISTINCT c_ip) AS hosts
FROM access
GROUP BY status, class
ORDER BY status
WINDOWING 1 HOUR
