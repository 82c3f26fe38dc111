-- What do the collectives of each kind take, how much of it is waiting for the last one, and who is it that is waited for? Those of
-- torchprof report -t comms.
WITH last AS (  -- the rank that began last most often
    SELECT name, group_name, rank AS slowest, count(*) AS times FROM collectives WHERE is_last GROUP BY name, group_name, rank
    QUALIFY row_number() OVER (PARTITION BY name, group_name ORDER BY times DESC, rank) = 1)
SELECT c.name, c.group_name, count(*) AS calls, sum(duration_ns)::BIGINT AS total_ns, sum(bytes)::BIGINT AS bytes,
       sum(waiting_ns)::BIGINT AS waiting_ns, any_value(slowest) AS slowest,
       round(100 * any_value(times) / count(DISTINCT collective), 0) AS slowest_percent
FROM collectives c LEFT JOIN last ON last.name = c.name AND last.group_name IS NOT DISTINCT FROM c.group_name
GROUP BY c.name, c.group_name ORDER BY total_ns DESC;
