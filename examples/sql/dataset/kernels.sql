-- Which work of GPUs takes longest, and does it take as long in each rank? A rank with a slow GPU has more of all.
WITH of_rank AS (
    SELECT name, rank, count(*) AS calls, sum(duration_ns) AS ns FROM slices WHERE kind IN ('kernel', 'memcpy', 'memset') GROUP BY ALL)
SELECT name, sum(calls)::BIGINT AS calls, sum(ns)::BIGINT AS ns, min(ns) / 1e6 AS least_ms, max(ns) / 1e6 AS most_ms, max_by(rank, ns) AS most_in
FROM of_rank GROUP BY name ORDER BY ns DESC, name LIMIT 20;
