-- Operating systems: families by visitors. What names none is a program or a crawler. Log: combined.
SELECT operating_system(cs_user_agent) AS system,
       COUNT(DISTINCT concat(c_ip, ' ', cs_user_agent)) AS visitors,
       COUNT(*) AS hits
FROM access
GROUP BY system
ORDER BY visitors DESC
WINDOWING 1 HOUR
