-- How much of the communication of each process and GPU does no computing hide? Both are kernels; what overlaps counts once.
WITH work AS (
    SELECT rank, host, pid, device, name ILIKE '%nccl%' AS is_communication, start_ns, start_ns + duration_ns AS end_ns
    FROM slices WHERE kind = 'kernel' AND duration_ns > 0),
edges AS (  -- where one begins or ends, and how many of both kinds go on from there
    SELECT rank, host, pid, device, time,
           sum(sum(communicates)) OVER (w) AS communicating, sum(sum(computes)) OVER (w) AS computing,
           lead(time) OVER (w) - time AS ns
    FROM (SELECT rank, host, pid, device, start_ns AS time, is_communication::INT AS communicates, (NOT is_communication)::INT AS computes FROM work
          UNION ALL
          SELECT rank, host, pid, device, end_ns, -is_communication::INT, -(NOT is_communication)::INT FROM work)
    GROUP BY rank, host, pid, device, time
    WINDOW w AS (PARTITION BY rank, host, pid, device ORDER BY time))
SELECT rank, host, pid, device, sum(ns) FILTER (WHERE communicating > 0)::BIGINT AS communication_ns,
       sum(ns) FILTER (WHERE communicating > 0 AND computing = 0)::BIGINT AS exposed_ns
FROM edges GROUP BY rank, host, pid, device ORDER BY rank, host, pid, device;
