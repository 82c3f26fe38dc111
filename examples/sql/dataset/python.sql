-- Which Python functions take time of their own? Those of torchprof report -t python --waits.
SELECT name, count(*) AS calls, sum(duration_ns) FILTER (WHERE is_outermost)::BIGINT AS total_ns, sum(self_ns)::BIGINT AS self_ns
FROM slices WHERE kind IN ('function', 'module', 'optimizer', 'c_call')
GROUP BY name ORDER BY self_ns DESC, name LIMIT 20;
