-- Static files: images, styles, scripts, fonts, media and downloads that were asked for most.
-- Log: combined or common.
SELECT cs_uri_stem AS file, COUNT(*) AS hits, COUNT(DISTINCT c_ip) AS hosts, SUM(sc_bytes) AS bytes
FROM access
WHERE regexp_matches(lower(cs_uri_stem), '\.(css|js|map|png|jpe?g|gif|svg|ico|webp|avif|woff2?|ttf|eot|mp[34]|webm|pdf|zip|gz)$')
GROUP BY cs_uri_stem
ORDER BY hits DESC
LIMIT 30
WINDOWING 1 HOUR
