#include "formats/ranks/calls.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <tuple>

#include "formats/io/parallel.h"
#include "formats/trace/distributed.h"
#include "formats/trace/gpu_index.h"
#include "formats/values/collectives.h"
#include "formats/values/inputs.h"

namespace torchprof::formats {
namespace {

constexpr uint64_t kMostBytesOfCall = uint64_t{1} << 50;  // more than that comes from a damaged record

uint64_t bytes_of(int64_t elements, uint8_t type) {
  return elements <= 0 ? 0 : std::min(static_cast<uint64_t>(elements), kMostBytesOfCall) * element_size(type);
}

struct Sent {
  uint64_t bytes = 0;  // 0: not known
  uint8_t type = CommsCall::kNoType;
};

Sent sent_by(std::string_view inputs) {
  if (is_cut(inputs)) return {};
  uint64_t bytes = 0;
  std::optional<uint8_t> type;
  for (const Input& input : decode_inputs(inputs)) {
    for (const Tensor& tensor : input.tensors) {
      type = type.value_or(tensor.type) == tensor.type ? tensor.type : CommsCall::kNoType;
      uint64_t elements = element_size(tensor.type);
      for (const int64_t size : tensor.sizes) {
        if (size <= 0) elements = 0;
        if (elements == 0) break;
        elements = static_cast<uint64_t>(size) > kMostBytesOfCall / elements ? kMostBytesOfCall
                                                                             : elements * static_cast<uint64_t>(size);
      }
      bytes = std::min(kMostBytesOfCall, bytes + elements);
    }
  }
  return {bytes, type.value_or(CommsCall::kNoType)};
}

// The group that all ranges of gloo, MPI and UCC are of: none if they may be of several.
std::optional<ProcessGroup> group_of_ranges(const Distributed& distributed) {
  // Backends of a group: "gloo", "cpu:gloo,cuda:nccl"; "undefined" is both of these (distributed_c10d.py).
  const auto may_be = [](const ProcessGroup& group) {
    constexpr std::array<std::string_view, 4> kBackends = {"gloo", "mpi", "ucc", "undefined"};
    return group.backends.empty() || std::ranges::any_of(kBackends, [&group](std::string_view backend) {
             return group.backends.find(backend) != std::string::npos;
           });
  };
  std::optional<ProcessGroup> first;
  for (const ProcessGroup& group : distributed.groups) {
    if (!may_be(group)) continue;
    if (first && first->ranks != group.ranks) return std::nullopt;
    if (!first) first = group;
  }
  return first ? first : ProcessGroup{};
}

NumberList listed(const std::vector<int64_t>& ranks) {
  NumberList list{ranks.size(), ranks};
  if (ranks.size() > kMaxListedRanks) {
    list.listed.resize(kMaxListedRanks);
    list.listed.back() = ranks.back();
  }
  return list;
}

// The global rank of the one with this number in its group; -1: not known.
int32_t global_rank(const NumberList& ranks, int64_t in_group) {
  const bool is_known =
      in_group >= 0 && ranks.count == ranks.listed.size() && static_cast<uint64_t>(in_group) < ranks.count;
  return is_known ? static_cast<int32_t>(ranks.listed[static_cast<size_t>(in_group)]) : -1;
}

bool is_recorded_whole(const Process& p) {
  return p.windows.empty() && p.recycled_bytes == 0 && p.doubtful_chunks == 0 && !p.damage &&
         p.lost[static_cast<size_t>(LossCause::kReentry)] == 0;
}

// "gloo:recvAnySource", "recv", "gloo:send"
bool is_send(std::string_view name) { return name.substr(name.find(':') + 1).starts_with("send"); }
bool is_receive(std::string_view name) { return name.substr(name.find(':') + 1).starts_with("recv"); }

class CommsSink final : public Sink {
 public:
  CommsSink(const Process& process, Replay& replay) : replay_(replay), collector_(process) {}
  void slice(const Slice& s) override {
    if (s.kind == SliceKind::kOperator) collector_.slice(s, replay_.names().text(s.name));
  }
  void gpu_activity(const GpuActivity& a) override {
    if (runs_on_device(a.kind)) collector_.gpu(a);
  }
  CommsCalls finish() { return collector_.finish(); }

 private:
  Replay& replay_;
  CommsCollector collector_;
};

bool may_have_collectives(const Process& process) {
  return std::ranges::any_of(process.strings, [](std::string_view text) {
    return is_backend_range(text) || text.starts_with("record_param_comms");
  });
}

}  // namespace

bool is_backend_range(std::string_view name) {
  constexpr std::array<std::string_view, 3> kBackends = {"gloo:", "mpi:", "ucc:"};
  return std::ranges::any_of(kBackends, [name](std::string_view backend) { return name.starts_with(backend); });
}

bool is_work_range(std::string_view name) {
  return is_backend_range(name) || name.starts_with("nccl:") || name.starts_with("xccl:");
}

bool is_pair(std::string_view name) { return is_send(name) || is_receive(name); }

CommsCollector::CommsCollector(const Process& process) : process_(process), is_whole_(is_recorded_whole(process)) {
  const Distributed distributed = distributed_of(process);
  calls_.rank = distributed.rank;
  calls_.machine = process.machine;
  calls_.reference = process.clock_reference;
  calls_.error_ns = process.clock_error_ns;
  const std::optional<ProcessGroup> group = group_of_ranges(distributed);
  calls_.has_one_group = group.has_value();
  if (!group || group->ranks.empty()) return;
  of_ranges_.group = group->description.empty() ? group->name : group->description;
  of_ranges_.ranks = text_of(listed(group->ranks));
  of_ranges_.id = group->name + ":" + of_ranges_.ranks;
  ranks_of_ranges_ = group->ranks;
}

void CommsCollector::slice(const Slice& s, std::string_view name) {
  if (s.kind != SliceKind::kOperator) return;
  if (s.collective) {
    Collective c;
    if (!decode_collective(process_.string(s.collective), c)) return;
    // The step of the call, not of its kernels: these run behind it, not equally far in all processes.
    CommsCall call{s.begin.value, s.end.value, bytes_of(std::max(c.in_elements, c.out_elements), c.type),
                   step_of(s.begin.value), s.collective_sequence};
    call.type = c.type;
    if (is_pair(c.name)) call.peer = global_rank(c.ranks, c.rank);
    if (const auto kernels = kernels_.find(s.external_id); kernels != kernels_.end()) {
      std::tie(call.begin, call.end) = kernels->second;
      call.is_until_done = true;
      kernels_.erase(kernels);
    }
    const std::string ranks = text_of(c.ranks);
    calls_[{c.name, c.description.empty() ? c.group : c.description, c.group + ":" + ranks, ranks}].push_back(call);
    return;
  }
  if (s.name.value >= is_.size()) is_.resize(std::max<size_t>(s.name.value + 1, is_.size() * 2));
  Is& is = is_[s.name.value];
  if (is == Is::kNotLookedUp)
    is = is_backend_range(name)           ? Is::kRange
         : name == "c10d::send"           ? Is::kSend
         : name.starts_with("c10d::recv") ? Is::kReceive
                                          : Is::kNothing;
  if (is == Is::kSend || is == Is::kReceive) post(s, is == Is::kSend);
  if (is != Is::kRange) return;
  of_ranges_.name = name;
  const Sent sent = sent_by(process_.string(s.inputs));
  calls_[of_ranges_].push_back({.begin = s.begin.value,
                                .end = s.end.value,
                                .bytes = sent.bytes,
                                .step = step_of(s.begin.value),
                                .is_until_done = s.finished,
                                .type = sent.type});
}

// c10d::send(Tensor[] tensors, ProcessGroup group, int dst, int tag), recv_ likewise
// (torch/csrc/distributed/c10d/Ops.cpp, 1.13 to 2.14).
void CommsCollector::post(const Slice& s, bool is_send) {
  Post& post = posts_.emplace_back(Post{s.begin.value, s.end.value, -1, 0, is_send});
  const std::string_view encoded = process_.string(s.inputs);
  if (is_cut(encoded) || ranks_of_ranges_.empty()) return;
  const std::vector<Input> inputs = decode_inputs(encoded);
  constexpr size_t kOther = 2, kTag = 3;
  if (inputs.size() <= kTag || inputs[kOther].integers.size() != 1 || inputs[kTag].integers.size() != 1) return;
  const int64_t other = inputs[kOther].integers.front();
  if (other < 0 || static_cast<uint64_t>(other) >= ranks_of_ranges_.size()) return;
  post.peer = static_cast<int32_t>(ranks_of_ranges_[static_cast<size_t>(other)]);
  post.tag = static_cast<int32_t>(inputs[kTag].integers.front());
}

// A range of a send or receive begins once that is under way: what it is, and when the program asked for it, says the
// operator that made it.
void CommsCollector::take_posts() {
  std::ranges::stable_sort(posts_, {}, &Post::begin);
  for (auto& [kind, calls] : calls_.kinds) {
    if (!is_pair(kind.name)) continue;
    for (CommsCall& call : calls) {
      auto post = std::ranges::upper_bound(posts_, call.begin, {}, &Post::begin);
      while (post != posts_.begin() && (--post)->is_send != is_send(kind.name))
        ;
      if (post == posts_.end() || post->begin > call.begin || post->end < call.begin ||
          post->is_send != is_send(kind.name))
        continue;
      call.begin = post->begin;
      call.peer = post->peer;
      call.tag = post->tag;
    }
  }
}

void CommsCollector::gpu(const GpuActivity& a) {
  if (a.call == nullptr || !a.call->collective) return;
  const auto [it, is_first] = kernels_.try_emplace(a.call->external_id, a.begin.value, a.end.value);
  if (is_first) return;
  it->second.first = std::min(it->second.first, a.begin.value);
  it->second.second = std::max(it->second.second, a.end.value);
}

int64_t CommsCollector::step_of(int64_t begin) const {
  if (is_whole_) return 0;
  const auto step = std::ranges::upper_bound(process_.steps, begin, {}, [](const StepTime& s) { return s.end.value; });
  constexpr uint64_t kMostSteps = uint64_t{1} << 48;  // more than that comes from a damaged record
  return step != process_.steps.end() && step->in_full && step->step < kMostSteps ? static_cast<int64_t>(step->step) + 1
                                                                                  : CommsCall::kNoStep;
}

CommsCalls CommsCollector::finish() {
  take_posts();
  for (auto& [kind, calls] : calls_.kinds) std::ranges::stable_sort(calls, {}, &CommsCall::begin);
  return std::move(calls_);
}

std::vector<CommsCalls> calls_of(const std::vector<const Process*>& processes) {
  std::vector<CommsCalls> all;
  all.reserve(processes.size());
  const auto make = [&processes](size_t i) -> CommsCalls {
    const Process& process = *processes[i];
    if (!may_have_collectives(process)) return {};
    Replay replay(process);
    CommsSink sink(process, replay);
    replay.run(sink);
    process.spool->release();
    return sink.finish();
  };
  in_order(processes.size(), make, [&all](size_t, CommsCalls calls) { all.push_back(std::move(calls)); });
  return all;
}

}  // namespace torchprof::formats
