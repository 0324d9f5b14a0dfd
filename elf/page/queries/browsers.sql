-- Browsers: families by visitors; crawlers and programs are families too. Log: combined.
SELECT browser(cs_user_agent) AS browser,
       COUNT(DISTINCT concat(c_ip, ' ', cs_user_agent)) AS visitors,
       COUNT(*) AS hits
FROM access
GROUP BY browser
ORDER BY visitors DESC
WINDOWING 1 HOUR
