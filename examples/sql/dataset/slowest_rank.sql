-- Which collectives cost the others most, because one rank came late? The ones in which the waits of all add up to most.
SELECT collective, any_value(name) AS name, min(step) AS step, count(*) AS ranks, any_value(rank) FILTER (WHERE is_last) AS slowest,
       max(waiting_ns) / 1e6 AS longest_wait_ms, sum(waiting_ns) / 1e6 AS waited_ms, max(clock_error_ns) / 1e6 AS clocks_within_ms
FROM collectives WHERE collective IS NOT NULL
GROUP BY collective ORDER BY waited_ms DESC, collective LIMIT 20;
