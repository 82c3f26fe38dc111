-- How long do steps take in each rank? Without the first one, which warms up.
SELECT rank, host, count(*) AS steps, percentile_cont(0.5) WITHIN GROUP (ORDER BY duration_ns) / 1e6 AS median_ms, percentile_cont(0.9) WITHIN GROUP (ORDER BY duration_ns) / 1e6 AS p90_ms,
       percentile_cont(0.99) WITHIN GROUP (ORDER BY duration_ns) / 1e6 AS p99_ms, max(duration_ns) / 1e6 AS longest_ms, max_by(step, duration_ns) AS longest
FROM steps WHERE step > 0 GROUP BY rank, host ORDER BY median_ms DESC, rank;
