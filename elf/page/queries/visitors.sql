-- Visitors: how many clients asked, what they asked for and how much they got, an hour at a time.
-- A visitor is an address with a user agent; crawlers count too. Log: combined or common.
SELECT COUNT(DISTINCT concat(c_ip, ' ', cs_user_agent)) AS visitors,
       COUNT(*) AS hits,
       SUM(sc_bytes) AS bytes
FROM access
WINDOWING 1 HOUR
