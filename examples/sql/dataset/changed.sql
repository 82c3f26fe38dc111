-- What changed from an earlier run to this one? Self time a step and rank, of operators and Python functions. The earlier run's dataset,
-- before the views are made:
--
--     SET VARIABLE base = 'OTHER DATASET';
WITH spent AS (
    SELECT 'now' AS run, name, kind, sum(self_ns) AS ns FROM slices WHERE step IS NOT NULL GROUP BY ALL
    UNION ALL
    SELECT 'base', name, kind, sum(self_ns) FROM base_slices WHERE step IS NOT NULL GROUP BY ALL),
counted AS (  -- of steps of all ranks
    SELECT 'now' AS run, count(*) AS steps FROM steps UNION ALL
    SELECT 'base', count(*) FROM base_steps)
SELECT name, kind, sum(ns / steps) FILTER (WHERE run = 'base') / 1e6 AS base_ms, sum(ns / steps) FILTER (WHERE run = 'now') / 1e6 AS now_ms,
       coalesce(now_ms, 0) - coalesce(base_ms, 0) AS more_ms
FROM spent JOIN counted USING (run) GROUP BY name, kind ORDER BY abs(more_ms) DESC, name LIMIT 20;
