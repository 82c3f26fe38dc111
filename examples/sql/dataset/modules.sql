-- Which modules take the time of a step, forward and backward? The time in operators of a module itself, without modules inside.
SELECT module, sum(self_ns) FILTER (WHERE NOT is_backward) / 1e6 AS forward_ms, sum(self_ns) FILTER (WHERE is_backward) / 1e6 AS backward_ms,
       count(DISTINCT (host, pid, step)) AS steps
FROM slices WHERE kind IN ('op', 'backward') AND module IS NOT NULL
GROUP BY module ORDER BY sum(self_ns) DESC, module LIMIT 20;
