-- How long do steps take in each rank? Without the first one, which warms up.
SELECT rank, host, count(*) AS steps, quantile_cont(duration_ns, 0.5) / 1e6 AS median_ms, quantile_cont(duration_ns, 0.9) / 1e6 AS p90_ms,
       quantile_cont(duration_ns, 0.99) / 1e6 AS p99_ms, max(duration_ns) / 1e6 AS longest_ms, arg_max(step, duration_ns) AS longest
FROM steps WHERE step > 0 GROUP BY rank, host ORDER BY median_ms DESC, rank;
