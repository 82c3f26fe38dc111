// The schema of the format `sqlite`, exactly as in the file: SQLite keeps the comments, and `sqlite3 trace.sqlite
// .schema` shows them.
//
// A change of meaning, or of an existing table or column, raises kSqliteSchemaVersion; an addition does not.
#pragma once

namespace torchprof::formats {

inline constexpr int kSqliteSchemaVersion = 2;

inline constexpr const char* kSqliteTables = R"sql(
CREATE TABLE info(  -- schema_version, torchprof, start_ns and end_ns of the run
  key TEXT PRIMARY KEY, value) WITHOUT ROWID;
-- Ids are those of the file: unique over all of its processes. Times are nanoseconds since 1970 (UTC), durations
-- nanoseconds. Columns `name` of events are ids of strings.
CREATE TABLE strings(id INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE processes(
  id INTEGER PRIMARY KEY, pid INTEGER, parent_pid INTEGER, host TEXT, command TEXT,
  role TEXT,                  -- 'rank 1', 'DataLoader worker 3'; '': a program like any other
  rank INTEGER,               -- of a distributed program
  start_ns INTEGER, end_ns INTEGER,
  clean_exit INTEGER,         -- 0: killed, replaced by exec, or still running
  lost_events INTEGER);
CREATE TABLE threads(
  id INTEGER PRIMARY KEY, process INTEGER, tid INTEGER, name TEXT, python_name TEXT,
  is_overflow INTEGER);       -- 1: holds what crosses others of thread `tid`
CREATE TABLE modules(
  id INTEGER PRIMARY KEY, process INTEGER,
  name TEXT,                  -- 'nn.Module: Linear_0'
  path TEXT,                  -- in its root, as named_modules() has it; '' for the root and where it is not known
  root INTEGER);              -- modules.id of the model that holds it; NULL: its place is not known
CREATE TABLE python(          -- calls of Python functions, modules, optimizers and C functions
  id INTEGER PRIMARY KEY, process INTEGER, thread INTEGER,
  parent INTEGER,             -- python.id of the caller
  name INTEGER,
  kind TEXT,                  -- 'function', 'module', 'optimizer', 'c_call', 'gc', 'blind' (not recorded)
  module INTEGER,             -- innermost call of a module around it, its own included
  start_ns INTEGER, duration_ns INTEGER,
  self_ns INTEGER,            -- without Python and C calls directly inside
  module_self_ns INTEGER,     -- of a module's call: without calls of other modules directly inside
  is_outermost INTEGER,       -- 0: inside a call of the same name; durations of the others add up to a total
  is_finished INTEGER,        -- 0: was open when the recording ended
  is_recompute INTEGER);      -- 1: in a call of a module that a backward makes to compute again what it needs
CREATE TABLE ops(             -- operators and annotations
  id INTEGER PRIMARY KEY, process INTEGER, thread INTEGER,
  parent INTEGER,             -- ops.id of the operator or annotation around it
  python INTEGER,             -- python.id of the innermost call around it
  name INTEGER,
  kind TEXT,                  -- 'op', 'backward', 'annotation', 'nvtx', 'torchscript', 'other'
  overload INTEGER,           -- strings.id
  module INTEGER,             -- innermost call of a module around it; in the backward: that called the forward operator
  is_backward INTEGER,
  sequence INTEGER, forward_thread INTEGER,  -- autograd's number; torch's number of the forward's thread
  start_ns INTEGER, duration_ns INTEGER,
  self_ns INTEGER,            -- without operators directly inside
  calls_ns INTEGER,           -- the part of self_ns in calls of CUDA
  is_outermost INTEGER, is_finished INTEGER,
  flops INTEGER,              -- estimated; that of the operators inside it included
  inputs INTEGER,             -- strings.id of a JSON object: "Input Dims", "Input type" ... as in a Kineto trace
  line INTEGER);              -- strings.id of what called it: the line of the program; if its stack was taken (--native on)
                              -- that of Python, in a program of C++ the innermost of its own functions
CREATE TABLE cuda_calls(      -- of the CUDA runtime and driver
  id INTEGER PRIMARY KEY, process INTEGER, thread INTEGER, name INTEGER, op INTEGER, correlation INTEGER,
  start_ns INTEGER, duration_ns INTEGER);
CREATE TABLE kernels(         -- work of devices
  id INTEGER PRIMARY KEY, process INTEGER, device INTEGER, stream INTEGER, name INTEGER,
  kind TEXT,                  -- 'kernel', 'memcpy', 'memset'
  op INTEGER, cuda_call INTEGER, module INTEGER,  -- that launched it
  is_backward INTEGER, correlation INTEGER,
  start_ns INTEGER, duration_ns INTEGER,
  queue_ns INTEGER,           -- from the end of the launch to its start
  bytes INTEGER,              -- of copies and sets
  grid TEXT, block TEXT,      -- '[64,1,1]'
  registers INTEGER, shared_bytes INTEGER);
CREATE TABLE memory(          -- allocations and frees of torch's allocators
  process INTEGER, thread INTEGER, time_ns INTEGER,
  device TEXT,                -- 'CPU', 'CUDA 0'
  kind TEXT,                  -- 'alloc', 'free', 'out_of_memory'
  address INTEGER,
  bytes INTEGER,              -- negative: freed
  allocated INTEGER, reserved INTEGER,  -- of the device, after it
  op INTEGER,                 -- strings.id, as `place`: the innermost operator; the line that asked for it
  module INTEGER, place INTEGER);
CREATE TABLE steps(
  process INTEGER, number INTEGER, start_ns INTEGER, duration_ns INTEGER,
  is_rest INTEGER,            -- 1: what came after the last step
  ended_by TEXT);             -- 'ProfilerStep', 'Optimizer: AdamW_0'
CREATE TABLE marks(           -- moments that the program told NVTX of
  process INTEGER, thread INTEGER, time_ns INTEGER, name INTEGER);
)sql";

// Created when the tables are full.
inline constexpr const char* kSqliteIndexes = R"sql(
CREATE INDEX ops_by_name ON ops(process, name, is_outermost, duration_ns, self_ns, calls_ns);
CREATE INDEX ops_by_time ON ops(thread, start_ns);
CREATE INDEX python_by_name ON python(process, name, is_outermost, duration_ns, self_ns);
CREATE INDEX python_by_time ON python(thread, start_ns);
CREATE INDEX python_by_module ON python(module, self_ns) WHERE kind = 'module';
CREATE INDEX kernels_by_name ON kernels(process, name, duration_ns);
CREATE INDEX kernels_by_op ON kernels(op) WHERE op IS NOT NULL;
CREATE INDEX kernels_by_time ON kernels(process, device, stream, start_ns);
CREATE INDEX memory_by_time ON memory(process, time_ns);
)sql";

inline constexpr const char* kSqliteViews = R"sql(
CREATE VIEW op_events AS      -- ops with their texts
  SELECT o.id, p.pid, p.rank, t.tid, n.text AS name, o.kind, v.text AS overload, m.name AS module, m.path AS module_path,
    o.is_backward, o.sequence, o.start_ns, o.duration_ns, o.self_ns, o.calls_ns, o.flops, o.parent, o.python,
    json_extract(i.text, '$."Input Dims"') AS shapes, json_extract(i.text, '$."Input type"') AS types, l.text AS line
  FROM ops o JOIN processes p ON p.id = o.process JOIN threads t ON t.id = o.thread JOIN strings n ON n.id = o.name
    LEFT JOIN strings v ON v.id = o.overload LEFT JOIN strings i ON i.id = o.inputs LEFT JOIN modules m ON m.id = o.module
    LEFT JOIN strings l ON l.id = o.line;
CREATE VIEW python_events AS
  SELECT c.id, p.pid, p.rank, t.tid, n.text AS name, c.kind, m.name AS module, m.path AS module_path,
    c.start_ns, c.duration_ns, c.self_ns, c.parent
  FROM python c JOIN processes p ON p.id = c.process JOIN threads t ON t.id = c.thread JOIN strings n ON n.id = c.name
    LEFT JOIN modules m ON m.id = c.module;
CREATE VIEW kernel_events AS
  SELECT k.id, p.pid, p.rank, k.device, k.stream, n.text AS name, k.kind, o.text AS op, m.name AS module,
    m.path AS module_path, k.is_backward, k.start_ns, k.duration_ns, k.queue_ns, k.bytes, k.grid, k.block
  FROM kernels k JOIN processes p ON p.id = k.process JOIN strings n ON n.id = k.name LEFT JOIN ops ON ops.id = k.op
    LEFT JOIN strings o ON o.id = ops.name LEFT JOIN modules m ON m.id = k.module;
CREATE VIEW op_totals AS      -- as `torchprof report`: a call inside another of the same name adds nothing to the total
  SELECT p.pid, p.rank, n.text AS name, a.calls, a.total_ns, a.self_ns, g.gpu_self_ns
  FROM (SELECT process, name, count(*) AS calls, sum(duration_ns) FILTER (WHERE is_outermost) AS total_ns,
      sum(self_ns - calls_ns) AS self_ns FROM ops GROUP BY process, name) a
    LEFT JOIN (SELECT o.process, o.name, sum(k.duration_ns) AS gpu_self_ns FROM kernels k JOIN ops o ON o.id = k.op
      GROUP BY o.process, o.name) g ON g.process = a.process AND g.name = a.name
    JOIN processes p ON p.id = a.process JOIN strings n ON n.id = a.name;
CREATE VIEW python_totals AS
  SELECT p.pid, p.rank, n.text AS name, a.calls, a.total_ns, a.self_ns
  FROM (SELECT process, name, count(*) AS calls, sum(duration_ns) FILTER (WHERE is_outermost) AS total_ns,
      sum(self_ns) AS self_ns FROM python GROUP BY process, name) a
    JOIN processes p ON p.id = a.process JOIN strings n ON n.id = a.name;
CREATE VIEW kernel_totals AS
  SELECT p.pid, p.rank, n.text AS name, a.calls, a.total_ns, a.average_ns, a.longest_ns
  FROM (SELECT process, name, count(*) AS calls, sum(duration_ns) AS total_ns, avg(duration_ns) AS average_ns,
      max(duration_ns) AS longest_ns FROM kernels GROUP BY process, name) a
    JOIN processes p ON p.id = a.process JOIN strings n ON n.id = a.name;
CREATE VIEW module_totals AS  -- of calls (forward; in a backward: recompute), and of the operators of the backward of what
                              -- they called themselves
  SELECT p.pid, p.rank, m.name, m.path, coalesce(f.calls, 0) AS calls, coalesce(f.total_ns, 0) AS forward_total_ns,
    coalesce(f.self_ns, 0) AS forward_self_ns, coalesce(b.self_ns, 0) AS backward_self_ns, coalesce(f.recompute_self_ns, 0) AS recompute_self_ns, g.gpu_self_ns
  FROM modules m JOIN processes p ON p.id = m.process
    LEFT JOIN (SELECT module, count(*) FILTER (WHERE NOT is_recompute) AS calls,
      sum(duration_ns) FILTER (WHERE is_outermost AND NOT is_recompute) AS total_ns,
      sum(module_self_ns) FILTER (WHERE NOT is_recompute) AS self_ns,
      sum(module_self_ns) FILTER (WHERE is_recompute) AS recompute_self_ns FROM python WHERE kind = 'module' GROUP BY module) f ON f.module = m.id
    LEFT JOIN (SELECT module, sum(self_ns) AS self_ns FROM ops WHERE is_backward GROUP BY module) b ON b.module = m.id
    LEFT JOIN (SELECT module, sum(duration_ns) AS gpu_self_ns FROM kernels GROUP BY module) g ON g.module = m.id
  WHERE f.calls IS NOT NULL OR b.self_ns IS NOT NULL;
CREATE VIEW step_times AS
  SELECT p.pid, p.rank, s.number, s.start_ns, s.duration_ns, s.ended_by
  FROM steps s JOIN processes p ON p.id = s.process WHERE NOT s.is_rest ORDER BY p.id, s.number;
CREATE VIEW memory_events AS
  SELECT p.pid, p.rank, t.tid, e.time_ns, e.device, e.kind, e.address, e.bytes, e.allocated, e.reserved, o.text AS op,
    m.name AS module, m.path AS module_path, l.text AS place
  FROM memory e JOIN processes p ON p.id = e.process JOIN threads t ON t.id = e.thread LEFT JOIN strings o ON o.id = e.op
    LEFT JOIN modules m ON m.id = e.module LEFT JOIN strings l ON l.id = e.place;
)sql";

}  // namespace torchprof::formats
