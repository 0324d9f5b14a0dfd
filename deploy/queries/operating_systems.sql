-- Operating systems: by the user agent's word, by visitors. What names none is a program or a crawler.
-- Log: combined.
SELECT CASE WHEN cs_user_agent LIKE '%Android%' THEN 'Android'
            WHEN regexp_matches(cs_user_agent, 'iPhone|iPad|iPod') THEN 'iOS'
            WHEN cs_user_agent LIKE '%Windows%' THEN 'Windows'
            WHEN cs_user_agent LIKE '%Mac OS X%' THEN 'macOS'
            WHEN cs_user_agent LIKE '%CrOS%' THEN 'ChromeOS'
            WHEN cs_user_agent LIKE '%Linux%' THEN 'Linux'
            WHEN cs_user_agent LIKE '%BSD%' THEN 'BSD'
            ELSE 'other' END AS system,
       COUNT(DISTINCT concat(c_ip, ' ', cs_user_agent)) AS visitors,
       COUNT(*) AS hits
FROM access
GROUP BY system
ORDER BY visitors DESC
WINDOWING 1 HOUR
