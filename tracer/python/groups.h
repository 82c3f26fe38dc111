// The process groups of torch.distributed, from its own tables: facts "distributed.*" of the process.
//
//     distributed.rank, distributed.world_size, distributed.backend     of the default group
//     distributed.group.N     SIZE tab RANKS tab BACKENDS tab NAME tab DESCRIPTION; a group of a known name has its N
//     again
//
// RANKS are runs, FIRST[-LAST[/STEP]], with commas between them; empty where they have no room.
//
// Source: torch/distributed/distributed_c10d.py, 1.13 to 2.14: _pg_names {group: name}, in the order in which they were
// made, the default group first; _pg_map {group: (backend, store)}; _pg_group_ranks {group: {global rank: rank}};
// _pg_backend_config {group: text} and ProcessGroup.group_desc of later versions. ProcessGroup.rank() and size() are
// C++.
#pragma once

namespace torchprof::python {

inline constexpr unsigned kMaxGroups = 256;

// A function of FunctionKind::kProcessGroup has ended. With the GIL held; a pending exception is kept.
void record_groups() noexcept;

}  // namespace torchprof::python
