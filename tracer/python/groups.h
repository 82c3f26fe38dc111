// The process groups of torch.distributed, from its own tables: facts "distributed.*" of the process.
//
//     distributed.rank          rank in the default group
//     distributed.world_size    size of the default group
//     distributed.backend       backend of the default group
//     distributed.group.N       SIZE tab RANKS tab BACKENDS tab NAME tab DESCRIPTION; a group whose name is known gets
//                               its old N
//
// RANKS are runs, FIRST[-LAST[/STEP]], separated by commas; empty where there is no room for them.
//
// Source: torch/distributed/distributed_c10d.py, 1.13 to 2.14: _pg_names {group: name}, in the order in which they were
// made, the default group first; _pg_map {group: (backend, store)}; _pg_group_ranks {group: {global rank: rank}};
// _pg_backend_config {group: text} and ProcessGroup.group_desc in later versions. ProcessGroup.rank() and size() are
// functions of C++.
#pragma once

namespace torchprof::python {

inline constexpr unsigned kMaxGroups = 256;

// A function of FunctionKind::kProcessGroup has ended. With the GIL held; a pending exception is kept.
void record_groups() noexcept;

}  // namespace torchprof::python
