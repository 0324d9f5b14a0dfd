-- Browsers: families by visitors. The order of the tests matters: most browsers also name the older ones.
-- Log: combined.
SELECT CASE WHEN regexp_matches(lower(cs_user_agent), 'bot|crawl|spider|slurp') THEN 'crawler'
            WHEN regexp_matches(cs_user_agent, 'Edge?/|EdgA/|EdgiOS/') THEN 'Edge'
            WHEN regexp_matches(cs_user_agent, 'OPR/|Opera') THEN 'Opera'
            WHEN regexp_matches(cs_user_agent, 'Firefox/|FxiOS/') THEN 'Firefox'
            WHEN regexp_matches(cs_user_agent, 'Chrome/|CriOS/|Chromium/') THEN 'Chrome'
            WHEN cs_user_agent LIKE '%Safari/%' THEN 'Safari'
            WHEN regexp_matches(cs_user_agent, 'MSIE |Trident/') THEN 'Internet Explorer'
            WHEN regexp_matches(lower(cs_user_agent), '^(curl|wget|python|go-http|okhttp|java)') THEN 'program'
            ELSE 'other' END AS browser,
       COUNT(DISTINCT concat(c_ip, ' ', cs_user_agent)) AS visitors,
       COUNT(*) AS hits
FROM access
GROUP BY browser
ORDER BY visitors DESC
WINDOWING 1 HOUR
