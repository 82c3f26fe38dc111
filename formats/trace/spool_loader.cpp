#include "formats/trace/spool_loader.h"

#include <algorithm>
#include <unordered_map>

#include "formats/trace/endings.h"

namespace torchprof::formats {
namespace {

// Reads one spool: its definitions and, unless Contents says otherwise, its events.
class Loader {
 public:
  Loader(Process& process, Contents contents) : p_(process), spool_(*process.spool), contents_(contents) {}

  SpoolRest run() {
    const FileHeader& h = spool_.header();
    p_.pid = h.pid;
    p_.parent_pid = h.parent_pid;
    p_.host = spool_.host();
    p_.command = spool_.command();
    p_.forked_from = spool_.forked_from();
    p_.clean_exit = h.clean_exit.load(std::memory_order_acquire) == 1;  // pairs with SpoolWriter::finish()
    for (size_t i = 0; i < p_.lost.size(); ++i) p_.lost[i] = h.lost[i].load(std::memory_order_relaxed);
    p_.damage = spool_.damage();
    p_.doubtful_chunks = spool_.doubtful_chunks();
    p_.recycled_bytes = h.recycled.load(std::memory_order_relaxed) * h.chunk_size;
    for (uint32_t i = 0; i < spool_.chunks().size(); ++i) walk(i);
    trim_scripts();
    for (const MetaView& meta : metadata_) p_.metadata.push_back({std::string(meta.key), std::string(meta.value)});
    p_.strings.shrink_to_fit();
    p_.functions.shrink_to_fit();
    return std::move(rest_);
  }

 private:
  void walk(uint32_t index) {
    const ChunkView& chunk = spool_.chunks()[index];
    if (chunk.kind == ChunkKind::kSteps) return walk_steps(chunk);
    if (chunk.kind == ChunkKind::kEvents) {
      if (chunk.window != 0 && chunk.window <= rest_.windows.size() && rest_.windows[chunk.window - 1].is_given_up)
        return;
      track(chunk.track).chunks.push_back(index);
      if (contents_ == Contents::kDefinitions) return;
    }
    RecordCursor cursor(chunk.records);
    RecordView record;
    uint64_t last = 0;
    size_t restated = 0;  // so many of the next records repeat some of other chunks
    while (cursor.next(record)) {
      if (record.kind() == Kind::Restate) {
        restated = record.begins().size();
        continue;
      }
      if (restated > 0) {
        --restated;
        continue;
      }
      last = std::max(last, record.header().time());
      if (is_definition(record.kind())) {
        define(record);
      } else {
        count(record, Ticks{chunk.base.ticks.value + record.header().time()}, chunk.track);
        if (is_gpu(record.kind())) gpu_index().add(index, record);
      }
    }
    p_.damage.bytes += cursor.dropped_bytes();
    p_.counts.unknown += cursor.unknown_records();
    if (chunk.kind == ChunkKind::kEvents) {
      rest_.last_event = std::max(rest_.last_event, Ticks{chunk.base.ticks.value + last});
      spool_.release(chunk);
    }
  }

  void walk_steps(const ChunkView& chunk) {
    RecordCursor cursor(chunk.records);
    for (RecordView record; cursor.next(record);) {
      const Ticks time{chunk.base.ticks.value + record.header().time()};
      if (record.kind() == Kind::StepEnd) {
        const auto& r = record.as<StepEnd>();
        rest_.steps.push_back({time, r.step, r.window, r.was_open, r.switching_us});
      } else if (record.kind() == Kind::Resident) {
        rest_.resident.push_back({time, record.as<Resident>().bytes});
      } else if (record.kind() == Kind::ProcessorTime) {
        rest_.processor_times.push_back({time, record.as<ProcessorTime>()});
      } else if (record.kind() == Kind::MachineTime) {
        rest_.machine_times.push_back({time, record.as<MachineTime>()});
      } else if (record.kind() == Kind::StackNode) {
        define_node(record.as<StackNode>());
      } else if (record.kind() == Kind::Sample) {
        rest_.samples.push_back({time, record.as<torchprof::Sample>()});
      } else if (record.kind() == Kind::ThreadStack) {
        const auto& r = record.as<ThreadStack>();
        SpoolRest::Stack& stack = rest_.stacks[r.tid];
        stack.at = time;
        if (!r.is_same) {
          stack.beyond = r.beyond;
          stack.frames.assign(record.frames().begin(), record.frames().end());
        }
      }
      rest_.last_event = std::max(rest_.last_event, time);
    }
    p_.damage.bytes += cursor.dropped_bytes();
    p_.counts.unknown += cursor.unknown_records();
  }

  // Ids are dense; where a chunk was lost some are missing.
  void define_node(const StackNode& node) {
    const uint64_t most = spool_.chunks().size() * kChunkSize / kFirstBytes<StackNode>;
    if (node.id == 0 || node.caller >= node.id || node.id > most) return bad();
    if (node.id >= p_.sampled_nodes.size()) p_.sampled_nodes.resize(node.id + size_t{1});
    p_.sampled_nodes[node.id] = {node.caller, node.function, node.line};
  }

  void count(const RecordView& record, Ticks time, TrackId track) {
    const Kind kind = record.kind();
    ++p_.counts.records;
    if (kind == Kind::PythonBegin || kind == Kind::PythonFrame) ++p_.counts.python;
    if (kind == Kind::CCallBegin || kind == Kind::CCallBeginAt) ++p_.counts.c_calls;
    if (kind == Kind::OpBegin) ++p_.counts.operators;
    if (kind == Kind::OpInputs) ++p_.counts.inputs;
    if (kind == Kind::Memory) ++p_.counts.memory;
    if (kind == Kind::NativeStack || kind == Kind::AllocationStack) ++p_.counts.stacks;
    if (runs_on_device(kind)) ++p_.counts.gpu_work;
    if (kind == Kind::GpuApi) ++p_.counts.gpu_calls;
    rest_.blind.add(record, time, track);
  }

  GpuIndex& gpu_index() {
    if (!rest_.gpu) rest_.gpu = std::make_shared<GpuIndex>(spool_);
    return *rest_.gpu;
  }

  void define(const RecordView& record) {
    switch (record.kind()) {
      case Kind::GpuDeviceDef:
      case Kind::GpuContextDef:
      case Kind::GpuStuckDef:
      case Kind::ThreadHandleDef:
        return gpu_index().define(record);
      case Kind::NativeObjectDef:
      case Kind::NativeFrameDef:
        if (!p_.native) p_.native = std::make_shared<NativeStacks>();
        return p_.native->define(record) ? void() : bad();
      case Kind::StringDef:
        return define_string(record);
      case Kind::ThreadDef:
        return define_thread(record.as<ThreadDef>());
      case Kind::TorchThreadDef: {
        const auto& def = record.as<TorchThreadDef>();
        if (!def.track) return bad();
        track(def.track).torch_threads.push_back(def.torch_thread);
        return;
      }
      case Kind::FunctionDef:
        return define_in(p_.functions, record.as<FunctionDef>());
      case Kind::LinesDef:
        return define_lines(record);
      case Kind::ObjectDef:
        return define_in(p_.objects, record.as<ObjectDef>());
      case Kind::CallSiteDef:
        return define_in(p_.call_sites, record.as<CallSiteDef>());
      case Kind::ObjectDetailDef:
        return define_detail(record);
      case Kind::InterpreterDef:
        p_.interpreter = record.as<InterpreterDef>();
        return;
      case Kind::WindowDef:
        return define_window(record.as<WindowDef>());
      case Kind::MetaDef: {
        const auto& def = record.as<MetaDef>();
        if (const auto end = child_end_of(p_.string(def.key), p_.string(def.value)))
          p_.children.push_back(*end);
        else
          set(metadata_, places_of_metadata_, {p_.string(def.key), p_.string(def.value)}, &MetaView::key);
        return;
      }
      case Kind::SourceDef: {
        const auto& def = record.as<SourceDef>();
        const SourceState state = std::min(def.state, SourceState::kFailed);
        set(p_.sources, places_of_sources_, {p_.string(def.source), state, p_.string(def.detail)}, &Source::name);
        return;
      }
      default:
        return bad();  // a kind that the record list has and this function does not know
    }
  }

  void define_lines(const RecordView& record) {
    const auto& def = record.as<LinesDef>();
    bool whole = false;
    const std::string_view pairs = record.lines(whole);
    if (!whole || def.length > kMaxLines || !def.function || def.function.value >= p_.functions.size()) return bad();
    if (def.function.value >= p_.lines.size()) p_.lines.resize(def.function.value + 1);
    std::vector<FunctionLines::Row>& rows = p_.lines[def.function.value].rows;
    if (def.instruction == 0) rows.clear();
    size_t at = 0;
    const auto number = [&] {
      uint64_t value = 0;
      for (unsigned shift = 0; at < pairs.size() && shift < 64; shift += 7) {
        const auto byte = static_cast<unsigned char>(pairs[at++]);
        value |= uint64_t{byte & 0x7fu} << shift;
        if ((byte & 0x80) == 0) break;
      }
      return value;
    };
    for (uint64_t instruction = def.instruction, line = def.line; at < pairs.size();) {
      const uint64_t count = number(), more = number();
      line += more >> 1 ^ -(more & 1);
      if ((!rows.empty() && instruction < rows.back().instruction) || instruction > UINT32_MAX) return bad();
      rows.push_back({static_cast<uint32_t>(instruction), static_cast<uint32_t>(line)});
      instruction += count;
    }
  }

  void define_thread(const ThreadDef& def) {
    if (!def.track) return rename_thread(def);
    of_tid_[def.tid] = def.track;
    Track& t = track(def.track);
    t.tid = def.tid;
    if (def.name) t.name = p_.string(def.name);
    if (def.python_name) t.python_name = p_.string(def.python_name);
  }

  // A thread that another thread renames is known only by its number.
  void rename_thread(const ThreadDef& def) {
    const auto it = of_tid_.find(def.tid);
    if (it == of_tid_.end()) return bad();
    track(it->second).python_name = p_.string(def.python_name);
  }

  // The first one of a number opens a window; the same number again brings its end, or says that it is given up, or
  // without a begin has another reason.
  void define_window(const WindowDef& def) {
    if (def.is_given_up && def.number != 0 && def.number <= rest_.windows.size())
      rest_.windows[def.number - 1].is_given_up = 1;
    else if (def.begin == 0 && def.number != 0 && def.number <= rest_.windows.size())
      rest_.windows[def.number - 1].reason = def.reason;
    else if (def.number != 0 && def.number == rest_.windows.size())
      rest_.windows.back().end = def.end;
    else if (def.number == rest_.windows.size() + 1)
      rest_.windows.push_back(def);
    else
      bad();
  }

  void define_string(const RecordView& record) {
    const StringId id = record.as<StringDef>().id;
    bool whole = false;
    const std::string_view text = record.text(whole);
    if (!whole) bad();
    if (room_for(p_.strings, id.value)) p_.strings[id.value] = text;
  }

  void define_detail(const RecordView& record) {
    const auto& def = record.as<ObjectDetailDef>();
    bool whole = false;
    const std::string_view bytes = record.detail(whole);
    if (!whole) bad();
    if (!room_for(p_.details, def.object.value)) return;
    ObjectDetail& detail = p_.details[def.object.value];
    if (def.part == 0) detail = {def.root, def.path, {}};
    if (def.part != detail.parts.size()) return bad();  // a part before it was lost
    detail.parts.push_back(bytes);
  }

  template <class Def>
  void define_in(std::vector<Def>& table, const Def& def) {
    if (room_for(table, def.id.value)) table[def.id.value] = def;
  }

  // Ids are dense, so an id for which the file has no room comes from damage.
  template <class T>
  bool room_for(std::vector<T>& table, uint32_t id) {
    if (id == 0 || id > spool_.definition_bytes() / kFirstBytes<StringDef>) {
      bad();
      return false;
    }
    if (id >= table.size()) table.resize(std::max<size_t>(id + 1, table.size() + table.size() / 2));
    return true;
  }

  using Places = std::unordered_map<std::string_view, size_t>;  // by key: in the list
  template <class T>
  static void set(std::vector<T>& list, Places& places, T value, std::string_view T::*key) {
    const auto [it, is_new] = places.try_emplace(value.*key, list.size());
    if (is_new)
      list.push_back(value);
    else
      list[it->second] = value;
  }

  Track& track(TrackId id) {
    const auto [it, is_new] = tracks_.try_emplace(id, p_.tracks.size());
    if (is_new) p_.tracks.push_back({.id = id});
    return p_.tracks[it->second];
  }

  // A function of TorchScript lies in a file of Python. The Python functions of that file say how much of its path is
  // left out.
  void trim_scripts() {
    if (std::ranges::none_of(p_.functions, [](const FunctionDef& def) { return def.kind == FunctionKind::kScript; }))
      return;
    std::unordered_map<uint32_t, uint16_t> trims;  // by file
    for (const FunctionDef& def : p_.functions) {
      uint16_t& trim = trims[def.file.value];
      trim = std::max(trim, def.trim);
    }
    for (FunctionDef& def : p_.functions)
      if (def.kind == FunctionKind::kScript) def.trim = trims[def.file.value];
  }

  void bad() { ++p_.damage.records; }

  Process& p_;
  const SpoolReader& spool_;
  const Contents contents_;
  std::unordered_map<TrackId, size_t> tracks_;
  std::unordered_map<uint32_t, TrackId> of_tid_;  // the latest thread with this number
  struct MetaView {
    std::string_view key, value;
  };
  std::vector<MetaView> metadata_;  // in the spool; the process has a copy, which all processes are compared by
  Places places_of_metadata_, places_of_sources_;
  SpoolRest rest_{};
};

}  // namespace

SpoolRest load_spool(Process& process, Contents contents) { return Loader(process, contents).run(); }

}  // namespace torchprof::formats
