-- What do the slow steps of each rank have more of than its median steps? Self time a step, of operators and Python functions.
WITH ranked AS (
    SELECT rank, host, step, duration_ns, percent_rank() OVER (PARTITION BY rank, host ORDER BY duration_ns) AS place
    FROM steps WHERE step > 0 AND in_full),
chosen AS (
    SELECT rank, host, step, place >= 0.95 AS is_slow FROM ranked WHERE place >= 0.95 OR place BETWEEN 0.25 AND 0.75),
counted AS (SELECT rank, host, is_slow, count(*) AS steps FROM chosen GROUP BY ALL),
spent AS (
    SELECT s.rank, s.host, c.is_slow, s.name, sum(s.self_ns) AS ns
    FROM slices s JOIN chosen c ON c.rank IS NOT DISTINCT FROM s.rank AND c.host = s.host AND c.step = s.step
    WHERE s.kind NOT IN ('cuda_call', 'kernel', 'memcpy', 'memset') GROUP BY ALL)
SELECT spent.rank, spent.host, name, sum(ns / steps) FILTER (WHERE spent.is_slow) / 1e6 AS slow_ms, sum(ns / steps) FILTER (WHERE NOT spent.is_slow) / 1e6 AS median_ms,
       coalesce(slow_ms, 0) - coalesce(median_ms, 0) AS more_ms
FROM spent JOIN counted ON counted.rank IS NOT DISTINCT FROM spent.rank AND counted.host = spent.host AND counted.is_slow = spent.is_slow
GROUP BY spent.rank, spent.host, name ORDER BY more_ms DESC, name LIMIT 20;
