#include "formats/trace/trace.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>
#include <unordered_map>

#include "formats/io/error.h"
#include "formats/io/sum.h"
#include "formats/trace/blind.h"
#include "formats/trace/gpu_index.h"
#include "formats/trace/roles.h"

namespace torchprof::formats {
namespace {

// The two samples furthest apart, and how they relate.
struct Baseline {
  ClockSample first;
  ClockSample last;
  uint64_t width() const { return last.ticks.value - first.ticks.value; }
};

Baseline baseline_of(const SpoolReader& spool) {
  const FileHeader& h = spool.header();
  Baseline b{h.start, h.start};
  auto widen = [&b, &spool](const ClockSample& s) {
    if (!spool.plausible(s)) return;
    if (s.ticks < b.first.ticks) b.first = s;
    if (s.ticks > b.last.ticks) b.last = s;
  };
  for (const ChunkView& chunk : spool.chunks()) widen(chunk.base);
  if (const uint64_t ticks = h.last_ticks.load(std::memory_order_relaxed); ticks != 0) {
    widen(
        {{ticks}, h.last_monotonic.load(std::memory_order_relaxed), {h.last_realtime.load(std::memory_order_relaxed)}});
  }
  return b;
}

clock::Converter converter(ClockSource source, Baseline b) {
  b.first.realtime.value = std::clamp<int64_t>(b.first.realtime.value, 0, kLatest);
  // A rate that no machine has comes from damaged samples. Over a short span it also comes from chance.
  const auto ns = static_cast<double>(b.last.monotonic) - static_cast<double>(b.first.monotonic);
  const auto ticks = static_cast<double>(b.width());
  if (ns * kMaxTicksPerNs < ticks || ns > ticks * kMaxTicksPerNs) b.last = b.first;
  return {source, b.first, b.last};
}

// Whether a process whose spool has the baseline `b` counts the very clocks of `common`: the same boot of the same
// machine.
bool same_clocks(const Baseline& common, const Baseline& b) {
  const auto ticks = static_cast<double>(common.width());
  const auto ns = static_cast<double>(common.last.monotonic) - static_cast<double>(common.first.monotonic);
  const double ns_per_tick = ticks > 0 ? ns / ticks : 1;
  const auto ticks_here = static_cast<double>(static_cast<int64_t>(b.first.ticks.value - common.first.ticks.value));
  const auto ns_here = static_cast<double>(b.first.monotonic) - static_cast<double>(common.first.monotonic);
  return std::abs(ticks_here * ns_per_tick - ns_here) <= 1e6 + 1e-3 * std::abs(ns_here);
}

void choose_clocks(std::vector<Process>& processes) {
  std::map<std::pair<std::string_view, ClockSource>, Baseline> common;
  std::vector<Baseline> own;
  for (const Process& p : processes) {
    own.push_back(baseline_of(*p.spool));
    const auto [it, is_new] = common.try_emplace({p.host, p.spool->clock()}, own.back());
    if (!is_new && own.back().width() > it->second.width()) it->second = own.back();
  }
  for (size_t i = 0; i < processes.size(); ++i) {
    const ClockSource source = processes[i].spool->clock();
    const Baseline& shared = common.at({processes[i].host, source});
    processes[i].clock = converter(source, same_clocks(shared, own[i]) ? shared : own[i]);
  }
}

// Builds what load() keeps of one spool.
class Loader {
 public:
  Loader(Process& process, Contents contents) : p_(process), spool_(*process.spool), contents_(contents) {}

  void run() {
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
    p_.strings.shrink_to_fit();
    p_.functions.shrink_to_fit();
  }

  Ticks last_event() const { return last_event_; }
  BlindSums& blind() { return blind_; }
  std::shared_ptr<GpuIndex>& gpu() { return gpu_; }
  std::vector<WindowDef>& windows() { return windows_; }

 private:
  void walk(uint32_t index) {
    const ChunkView& chunk = spool_.chunks()[index];
    if (chunk.kind == ChunkKind::kEvents) {
      track(chunk.track).chunks.push_back(index);
      if (contents_ == Contents::kDefinitions) return;
    }
    RecordCursor cursor(chunk.records);
    RecordView record;
    uint64_t last = 0;
    uint32_t restated = 0;  // records of other chunks that come again
    while (cursor.next(record)) {
      if (record.kind() == Kind::Restate) {
        restated = record.as<Restate>().count_of(record.header());
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
      last_event_ = std::max(last_event_, Ticks{chunk.base.ticks.value + last});
      spool_.release(chunk);
    }
  }

  void count(const RecordView& record, Ticks time, TrackId track) {
    const Kind kind = record.kind();
    ++p_.counts.records;
    if (kind == Kind::PythonBegin || kind == Kind::PythonFrame) ++p_.counts.python;
    if (kind == Kind::CCallBegin || kind == Kind::CCallBeginAt) ++p_.counts.c_calls;
    if (kind == Kind::OpBegin) ++p_.counts.operators;
    blind_.add(record, time, track);
  }

  GpuIndex& gpu_index() {
    if (!gpu_) gpu_ = std::make_shared<GpuIndex>(spool_);
    return *gpu_;
  }

  void define(const RecordView& record) {
    switch (record.kind()) {
      case Kind::GpuDeviceDef:
      case Kind::GpuContextDef:
      case Kind::ThreadHandleDef:
        return gpu_index().define(record);
      case Kind::NativeObjectDef:
      case Kind::NativeFrameDef:
        if (!p_.native) p_.native = std::make_shared<NativeStacks>();
        return p_.native->define(record) ? void() : bad();
      case Kind::StringDef:
        return define_string(record);
      case Kind::ThreadDef: {
        const auto& def = record.as<ThreadDef>();
        if (!def.track) return rename_thread(def);
        of_tid_[def.tid] = def.track;
        Track& t = track(def.track);
        t.tid = def.tid;
        if (def.name) t.name = p_.string(def.name);
        if (def.python_name) t.python_name = p_.string(def.python_name);
        return;
      }
      case Kind::TorchThreadDef: {
        const auto& def = record.as<TorchThreadDef>();
        if (!def.track) return bad();
        track(def.track).torch_threads.push_back(def.torch_thread);
        return;
      }
      case Kind::FunctionDef:
        return define_in(p_.functions, record.as<FunctionDef>());
      case Kind::ObjectDef:
        return define_in(p_.objects, record.as<ObjectDef>());
      case Kind::CallSiteDef:
        return define_in(p_.call_sites, record.as<CallSiteDef>());
      case Kind::ObjectDetailDef:
        return define_detail(record);
      case Kind::WindowDef: {
        const auto& def = record.as<WindowDef>();
        if (def.number != 0 && def.number == windows_.size()) {
          windows_.back().end = def.end;
        } else if (def.number == windows_.size() + 1) {
          windows_.push_back(def);
        } else {
          bad();
        }
        return;
      }
      case Kind::MetaDef: {
        const auto& def = record.as<MetaDef>();
        set(p_.metadata, &Meta::key, {p_.string(def.key), p_.string(def.value)});
        return;
      }
      case Kind::SourceDef: {
        const auto& def = record.as<SourceDef>();
        const SourceState state = std::min(def.state, SourceState::kFailed);
        set(p_.sources, &Source::name, {p_.string(def.source), state, p_.string(def.detail)});
        return;
      }
      default:
        return bad();  // a definition that this build lists and does not know how to keep
    }
  }

  // One that another thread renames is known by its number alone.
  void rename_thread(const ThreadDef& def) {
    const auto it = of_tid_.find(def.tid);
    if (it == of_tid_.end()) return bad();
    track(it->second).python_name = p_.string(def.python_name);
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

  // Ids are dense, so one past all that the file has room for comes from damage.
  template <class T>
  bool room_for(std::vector<T>& table, uint32_t id) {
    if (id == 0 || id > spool_.definition_bytes() / sizeof(StringDef)) {
      bad();
      return false;
    }
    if (id >= table.size()) table.resize(std::max<size_t>(id + 1, table.size() + table.size() / 2));
    return true;
  }

  template <class T>
  void set(std::vector<T>& list, std::string_view T::*key, T value) {
    const auto it = std::ranges::find(list, value.*key, key);
    if (it != list.end()) {
      *it = value;
    } else {
      list.push_back(value);
    }
  }

  Track& track(TrackId id) {
    const auto [it, is_new] = tracks_.try_emplace(id, p_.tracks.size());
    if (is_new) p_.tracks.push_back({.id = id});
    return p_.tracks[it->second];
  }

  // A function of TorchScript is in a file of Python's, whose own functions know what of its path to leave out.
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
  std::unordered_map<uint32_t, TrackId> of_tid_;  // the latest thread that has the number
  BlindSums blind_;
  std::shared_ptr<GpuIndex> gpu_;
  std::vector<WindowDef> windows_;
  Ticks last_event_{};
};

// Once the process knows its clock, its start and its end.
void place_windows(Process& p, const std::vector<WindowDef>& windows) {
  UnixNs last = p.start;
  for (const WindowDef& def : windows) {
    // A forked child has its parent's definitions too.
    if (def.end != 0 && p.clock.to_unix({def.end}) < p.start && !p.forked_from.empty()) continue;
    const UnixNs end = std::max(last, std::min(p.end, def.end == 0 ? p.capture_end : p.clock.to_unix({def.end})));
    p.windows.push_back({.number = def.number,
                         .step = def.step,
                         .begin = std::clamp(p.clock.to_unix({def.begin}), last, end),
                         .end = end,
                         .closed = def.end != 0});
    last = std::max(last, end);
  }
  if (!p.windows.empty()) p.capture_end = std::min(p.capture_end, last);
}

}  // namespace

const char* loss_text(LossCause cause) {
  switch (cause) {
    case LossCause::kSizeLimit:
      return "the size limit was reached (--max-size)";
    case LossCause::kDiskFull:
      return "the spool could not grow: the disk is full";
    case LossCause::kNoMemory:
      return "memory could not be mapped";
    case LossCause::kRunSize:
      return "the size limit of the run was reached (--max-run-size)";
    case LossCause::kSeccomp:
      return "the program entered seccomp, which forbids what recording needs";
    case LossCause::kFileSize:
      return "the limit of file sizes was reached (ulimit -f)";
    case LossCause::kReentry:
      return "they came from inside the profiler's own callbacks";
    case LossCause::kCount:
      break;
  }
  return "cause unknown";
}

EventCounts& EventCounts::operator+=(const EventCounts& other) {
  python += other.python;
  c_calls += other.c_calls;
  operators += other.operators;
  records += other.records;
  unknown += other.unknown;
  return *this;
}

bool Process::has_windows_of_steps() const {
  const std::string_view spec = meta("window");
  return spec.empty() || spec.starts_with("steps=") || spec.starts_with("schedule=") ||
         (spec.starts_with("every=") && spec.find("steps") != spec.npos);
}

std::string_view Process::meta(std::string_view key) const {
  const auto it = std::ranges::find(metadata, key, &Meta::key);
  return it == metadata.end() ? std::string_view{} : it->value;
}

uint64_t Process::lost_events() const {
  uint64_t total = lost[static_cast<size_t>(LossCause::kReentry)];
  // A spool of an earlier version, or of a process that was killed in between: it does not say when.
  for (size_t i = 0; i < lost.size() && !stopped; ++i)
    if (static_cast<LossCause>(i) != LossCause::kReentry) total += lost[i];
  return total;
}

Trace load(const std::vector<std::filesystem::path>& spools, Contents contents) {
  Trace trace;
  std::vector<Ticks> last_events;
  std::vector<BlindSums> blind;
  std::vector<std::shared_ptr<GpuIndex>> gpu;
  std::vector<std::vector<WindowDef>> windows;
  std::filesystem::path directory;
  for (const auto& file : spools) {
    if (file.parent_path() != directory) read_uncaptured(directory = file.parent_path(), trace.uncaptured);
    std::string reason;
    std::shared_ptr<const SpoolReader> spool = SpoolReader::open(file, reason);
    if (!spool) {
      trace.unreadable.push_back({file, reason});
      continue;
    }
    Process& p = trace.processes.emplace_back();
    p.file = file;
    p.spool = std::move(spool);
    Loader loader(p, contents);
    loader.run();
    last_events.push_back(loader.last_event());
    blind.push_back(std::move(loader.blind()));
    gpu.push_back(std::move(loader.gpu()));
    windows.push_back(std::move(loader.windows()));
  }
  choose_clocks(trace.processes);
  for (size_t i = 0; i < trace.processes.size(); ++i) {
    Process& p = trace.processes[i];
    const Baseline b = baseline_of(*p.spool);
    p.start = p.clock.to_unix(b.first.ticks);
    p.end = std::max(p.start, p.clock.to_unix(b.last.ticks));
    if (last_events[i] != Ticks{}) p.end = std::max(p.end, p.clock.to_unix(last_events[i]));
    const Ticks stop{p.spool->header().stop_ticks.load(std::memory_order_relaxed)};
    const bool stopped = stop != Ticks{} && stop > b.first.ticks && stop <= std::max(b.last.ticks, last_events[i]);
    p.capture_end = stopped ? std::clamp(p.clock.to_unix(stop), p.start, p.end) : p.end;
    if (stop > b.first.ticks) p.stopped = p.clock.to_unix(stop);
    place_windows(p, windows[i]);
    p.blind = blind[i].total(p);
    if (gpu[i]) gpu[i]->finish(p.clock, std::max(b.last.ticks, last_events[i]));
    p.gpu = std::move(gpu[i]);
  }
  std::ranges::stable_sort(trace.processes, {}, [](const Process& p) { return std::tuple(p.start, p.pid); });
  assign_roles(trace.processes);
  // Of thousands of processes the definitions alone would fill the memory. Who reads them has the kernel bring them
  // again.
  for (const Process& p : trace.processes)
    for (const ChunkView& chunk : p.spool->chunks()) p.spool->release(chunk);
  // What a process could not do it may have done once it had become another program.
  std::erase_if(trace.uncaptured.processes, [&trace](const Uncaptured& u) {
    return std::ranges::any_of(trace.processes, [&u](const Process& p) { return p.pid == u.pid && p.start >= u.time; });
  });
  for (const Process& p : trace.processes) {
    trace.start = &p == trace.processes.data() ? p.start : std::min(trace.start, p.start);
    trace.end = std::max(trace.end, p.end);
  }
  return trace;
}

std::vector<std::filesystem::path> find_spools(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> found;
  std::error_code error;
  std::filesystem::directory_iterator it(directory, error);
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    if (it->path().extension() == ".spool") found.push_back(it->path());
  }
  if (error) throw Error("cannot list " + directory.string() + ": " + error.message());
  std::ranges::sort(found);
  return found;
}

}  // namespace torchprof::formats
