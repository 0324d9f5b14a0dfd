-- Bandwidth: bytes sent, a minute at a time, and how many a second that is. Log: combined or common.
SELECT COUNT(*) AS hits,
       SUM(sc_bytes) AS bytes,
       SUM(sc_bytes) / 60 AS bytes_a_second,
       MAX(sc_bytes) AS largest
FROM access
WINDOWING 1 MINUTE
