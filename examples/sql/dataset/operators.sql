-- Which operators and annotations take the time of all ranks? Those of torchprof report -t ops. A total counts what is not inside of
-- the same name; a self time leaves out operators that it calls.
SELECT name, count(*) AS calls, sum(duration_ns) FILTER (WHERE is_outermost)::BIGINT AS total_ns, sum(self_ns)::BIGINT AS self_ns,
       round(100 * sum(self_ns) / sum(sum(self_ns)) OVER (), 1) AS percent
FROM slices WHERE kind IN ('op', 'backward', 'annotation')
GROUP BY name ORDER BY self_ns DESC, name LIMIT 20;
