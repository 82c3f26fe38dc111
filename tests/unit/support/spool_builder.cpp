#include "tests/unit/support/spool_builder.h"
#include "tracer/spool/varint.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>

namespace torchprof::test {
namespace fs = std::filesystem;

SpoolBuilder::SpoolBuilder(uint32_t pid, std::vector<std::string> command) {
  header_.magic = kSpoolMagic;
  header_.version = kSpoolVersion;
  header_.chunk_size = kTestChunkSize;
  header_.pid = pid;
  header_.parent_pid = 1;
  header_.start = {{kStartTicks}, static_cast<int64_t>(kStartTicks), {kStartNs}};
  header_.clock = ClockSource::kMonotonic;
  std::strcpy(header_.host, "box");
  for (const std::string& argument : command) {
    std::memcpy(header_.command + header_.command_size, argument.c_str(), argument.size() + 1);
    header_.command_size += static_cast<uint32_t>(argument.size()) + 1;
  }
}

void SpoolBuilder::clean_exit(uint64_t at) {
  header_.clean_exit = 1;
  header_.last_ticks = ticks(at);
  header_.last_monotonic = header_.start.monotonic + static_cast<int64_t>(at);
  header_.last_realtime = header_.start.realtime.value + static_cast<int64_t>(at);
}

void SpoolBuilder::use_tsc(uint64_t ticks_per_ns) {
  header_.clock = ClockSource::kCounter;
  ticks_per_ns_ = ticks_per_ns;
}

void SpoolBuilder::split_first_chunks() { has_pieces_ = true; }

void SpoolBuilder::use_chunks_of(uint32_t bytes) { header_.chunk_size = bytes; }

SpoolBuilder::Chunk& SpoolBuilder::chunk_for(bool definition, size_t bytes) {
  const TrackId track = definition ? TrackId{} : track_;
  const auto room = [this](bool is_piece) {
    return (is_piece ? kTestPieceSize : header_.chunk_size) - sizeof(ChunkHeader);
  };
  if (bytes > room(false)) throw std::length_error("a record must fit into a chunk");
  const auto open = open_chunk_.find(track.value);
  if (open == open_chunk_.end() || (!definition && chunks_[open->second].window != window_) ||
      chunks_[open->second].records.size() + bytes > room(chunks_[open->second].is_piece)) {
    const uint32_t sequence = open == open_chunk_.end() ? 0 : chunks_[open->second].sequence + 1;
    open_chunk_[track.value] = chunks_.size();
    const auto kind = definition ? ChunkKind::kDefinitions : ChunkKind::kEvents;
    const bool is_piece = has_pieces_ && !definition && sequence == 0 && bytes <= room(true);
    chunks_.push_back({kind, track, sequence, now_, {}, is_piece, definition ? uint16_t{0} : window_});
  }
  return chunks_[open_chunk_[track.value]];
}

void SpoolBuilder::append(bool definition, Kind kind, std::vector<std::byte> record) {
  record.resize((record.size() + 7) / 8 * 8);
  Chunk& chunk = chunk_for(definition, record.size());
  const uint64_t time = definition ? 0 : (now_ - chunk.base_ns) * ticks_per_ns_;
  const auto header = RecordHeader::make(kind, record.size() / 8, time);
  std::memcpy(record.data(), &header, sizeof(header));
  chunk.records.insert(chunk.records.end(), record.begin(), record.end());
}

void SpoolBuilder::append_step(Kind kind, std::vector<std::byte> record) {
  const auto open = open_chunk_.find(kOfSteps);
  if (open == open_chunk_.end() || !has_room(chunks_[open->second], record.size())) {
    const uint32_t sequence = open == open_chunk_.end() ? 0 : chunks_[open->second].sequence + 1;
    last_step_ = 0;
    open_chunk_[kOfSteps] = chunks_.size();
    chunks_.push_back({ChunkKind::kSteps, TrackId{}, sequence, now_, {}});
  }
  Chunk& chunk = chunks_[open_chunk_[kOfSteps]];
  const auto header = RecordHeader::make(kind, record.size() / 8, (now_ - chunk.base_ns) * ticks_per_ns_);
  std::memcpy(record.data(), &header, sizeof(header));
  chunk.records.insert(chunk.records.end(), record.begin(), record.end());
}

SpoolBuilder& SpoolBuilder::short_record(uint8_t kind, uint64_t value, const std::vector<uint64_t>& more) {
  std::vector<uint64_t> words{0};
  words.insert(words.end(), more.begin(), more.end());
  Chunk& chunk = chunk_for(false, words.size() * 8);
  words[0] = ShortRecord::make(kind, value, (now_ - chunk.base_ns) * ticks_per_ns_).bits;
  const auto* bytes = reinterpret_cast<const std::byte*>(words.data());
  chunk.records.insert(chunk.records.end(), bytes, bytes + words.size() * 8);
  return *this;
}

template <class R>
void SpoolBuilder::define(R record, std::string_view text) {
  std::vector<std::byte> bytes(sizeof(R) + text.size());
  std::memcpy(bytes.data(), &record, sizeof(R));
  if (!text.empty()) std::memcpy(bytes.data() + sizeof(R), text.data(), text.size());
  append(true, kKindOf<R>, std::move(bytes));
}

template <class R>
SpoolBuilder& SpoolBuilder::event(R record) {
  std::vector<std::byte> bytes(sizeof(R));
  std::memcpy(bytes.data(), &record, sizeof(R));
  append(false, kKindOf<R>, std::move(bytes));
  return *this;
}

template <class R>
SpoolBuilder& SpoolBuilder::gpu(R record) {
  return event(record);
}
template SpoolBuilder& SpoolBuilder::gpu(GpuKernel);
template SpoolBuilder& SpoolBuilder::gpu(GpuCopy);
template SpoolBuilder& SpoolBuilder::gpu(GpuSet);
template SpoolBuilder& SpoolBuilder::gpu(GpuApi);
template SpoolBuilder& SpoolBuilder::gpu(GpuSync);
template SpoolBuilder& SpoolBuilder::gpu(GpuEvent);
template SpoolBuilder& SpoolBuilder::gpu(GpuOverhead);
template SpoolBuilder& SpoolBuilder::gpu(GpuMemory);
template SpoolBuilder& SpoolBuilder::gpu(GpuMemoryPool);
template SpoolBuilder& SpoolBuilder::gpu(GpuEnvironment);
template SpoolBuilder& SpoolBuilder::gpu(GpuClock);
template SpoolBuilder& SpoolBuilder::gpu(GpuDropped);

SpoolBuilder& SpoolBuilder::gpu_clock(int64_t off) {
  const uint64_t cupti_now = cupti(now_) + static_cast<uint64_t>(off);
  return event(GpuClock{.header = {}, .before = ticks(now_), .after = ticks(now_), .cupti = cupti_now});
}

SpoolBuilder& SpoolBuilder::raw(uint8_t kind, const std::vector<uint64_t>& payload) {
  std::vector<std::byte> bytes(8 + 8 * payload.size());
  if (!payload.empty()) std::memcpy(bytes.data() + 8, payload.data(), 8 * payload.size());
  append(false, static_cast<Kind>(kind), std::move(bytes));
  return *this;
}

void SpoolBuilder::raw_definition(uint8_t kind, const std::vector<uint64_t>& payload) {
  std::vector<std::byte> bytes(8 + 8 * payload.size());
  std::memcpy(bytes.data() + 8, payload.data(), 8 * payload.size());
  append(true, static_cast<Kind>(kind), std::move(bytes));
}

SpoolBuilder& SpoolBuilder::next_chunk(uint32_t missing, const std::vector<uint64_t>& begins) {
  const auto open = open_chunk_.find(track_.value);
  const uint32_t sequence = (open == open_chunk_.end() ? 0 : chunks_[open->second].sequence + 1) + missing;
  open_chunk_[track_.value] = chunks_.size();
  chunks_.push_back({ChunkKind::kEvents, track_, sequence, now_, {}, false});
  std::vector<uint64_t> payload{begins.size()};
  for (const uint64_t begin : begins) payload.push_back(ticks(begin));
  return raw(static_cast<uint8_t>(Kind::Restate), payload);
}

StringId SpoolBuilder::string(std::string_view text) {
  if (const auto it = strings_.find(text); it != strings_.end()) return it->second;
  const StringId id{static_cast<uint32_t>(strings_.size()) + 1};
  strings_.emplace(text, id);
  define(StringDef{.header = {}, .id = id, .length = static_cast<uint32_t>(text.size())}, text);
  return id;
}

TrackId SpoolBuilder::thread(uint32_t tid, std::string_view name, uint64_t torch_thread) {
  const TrackId track{++threads_};
  define(ThreadDef{.header = {}, .track = track, .tid = tid, .name = string(name), .python_name = {}});
  if (torch_thread != 0) define(TorchThreadDef{.header = {}, .track = track, .pad = 0, .torch_thread = torch_thread});
  return track_ = track;
}

FunctionId SpoolBuilder::function(std::string_view file, uint32_t line, std::string_view name, uint16_t trim,
                                  FunctionKind kind) {
  FunctionDef def{};
  def.id = {++functions_};
  def.name = string(name);
  def.file = string(file);
  def.line = line;
  def.trim = trim;
  def.kind = kind;
  define(def);
  return def.id;
}

void SpoolBuilder::lines(FunctionId function, const std::vector<std::pair<uint32_t, uint32_t>>& rows) {
  std::string pairs;
  int64_t before = rows.front().second;
  const auto put = [&pairs](uint64_t number) {
    unsigned char bytes[kMostVarint];
    pairs.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(put_varint(bytes, number) - bytes));
  };
  for (const auto& [instructions, line] : rows) {
    put(instructions);
    put(zigzag_of(line - before));
    before = line;
  }
  LinesDef def{};
  def.function = function;
  def.length = static_cast<uint32_t>(pairs.size());
  def.line = rows.front().second;
  define(def, pairs);
}

FunctionId SpoolBuilder::import(std::string_view module) { return function("", 0, module, 0, FunctionKind::kImport); }

void SpoolBuilder::file_of_import(FunctionId import, std::string_view module, std::string_view file, uint16_t trim) {
  FunctionDef def{};
  def.id = import;
  def.name = string(module);
  def.file = string(file);
  def.trim = trim;
  def.kind = FunctionKind::kImport;
  define(def);
}

FunctionId SpoolBuilder::function(std::string_view name) { return function("test.py", 1, name); }

ObjectId SpoolBuilder::object(std::string_view class_name, ObjectKind kind) {
  ObjectDef def{};
  def.id = {++objects_};
  def.class_name = string(class_name);
  def.kind = kind;
  define(def);
  return def.id;
}

CallSiteId SpoolBuilder::call_site(std::string_view name, FunctionId function, uint32_t line) {
  const CallSiteId id{++call_sites_};
  define(CallSiteDef{.header = {}, .id = id, .name = string(name), .function = function, .line = line});
  return id;
}

void SpoolBuilder::python_name(TrackId track, uint32_t tid, std::string_view name) {
  define(ThreadDef{.header = {}, .track = track, .tid = tid, .name = {}, .python_name = string(name)});
}

void SpoolBuilder::called(ObjectId object, std::string_view class_name, uint32_t call) {
  ObjectDef def{};
  def.id = object;
  def.class_name = string(class_name);
  def.kind = ObjectKind::kModule;
  def.first_call = call;
  define(def);
}

void SpoolBuilder::detail(ObjectId object, ObjectId root, std::string_view path, std::string_view encoded,
                          uint32_t part) {
  ObjectDetailDef def{};
  def.object = object;
  def.root = root;
  def.path = string(path);
  def.length = static_cast<uint32_t>(encoded.size());
  def.part = part;
  define(def, encoded);
}

void SpoolBuilder::meta(std::string_view key, std::string_view value) {
  define(MetaDef{.header = {}, .key = string(key), .value = string(value)});
}

void SpoolBuilder::device(GpuDeviceDef device, std::string_view name) {
  device.name = string(name);
  define(device);
}

void SpoolBuilder::context(uint32_t context, uint32_t device, uint32_t default_stream) {
  define(GpuContextDef{.header = {}, .context = context, .device = device, .default_stream = default_stream, .pad = 0});
}

void SpoolBuilder::thread_handle(TrackId track, uint32_t handle) {
  define(ThreadHandleDef{.header = {}, .track = track, .handle = handle});
}

void SpoolBuilder::source(std::string_view name, SourceState state, std::string_view detail) {
  define(SourceDef{.header = {}, .source = string(name), .detail = string(detail), .state = state, .pad = {}});
}

void SpoolBuilder::window(uint32_t number, uint64_t step, uint64_t begin, uint64_t end, WindowReason reason) {
  WindowDef def{};
  def.number = number;
  def.reason = reason;
  def.step = step;
  def.begin = ticks(begin);
  def.end = end == 0 ? 0 : ticks(end);
  define(def);
}

void SpoolBuilder::window_given_up(uint32_t number) {
  WindowDef def{};
  def.number = number;
  def.is_given_up = 1;
  define(def);
}

void SpoolBuilder::window_stands_for(uint32_t number, WindowReason reason) {
  WindowDef def{};
  def.number = number;
  def.reason = reason;
  define(def);
}

SpoolBuilder& SpoolBuilder::in_window(uint16_t number) {
  window_ = number;
  return *this;
}

SpoolBuilder& SpoolBuilder::step_end(uint64_t step, uint32_t window, uint8_t was_open, uint16_t switching_us) {
  const StepEnd record{{}, step, window, was_open, switching_us};
  const auto* bytes = reinterpret_cast<const std::byte*>(&record);
  const auto open = open_chunk_.find(kOfSteps);
  if (open != open_chunk_.end() && ShortStep::can_say(record, last_step_) &&
      has_room(chunks_[open->second], sizeof(ShortStep))) {
    Chunk& chunk = chunks_[open->second];
    const ShortStep word = ShortStep::make(step, (now_ - chunk.base_ns) * ticks_per_ns_);
    const auto* at = reinterpret_cast<const std::byte*>(&word);
    chunk.records.insert(chunk.records.end(), at, at + sizeof(word));
  } else {
    append_step(Kind::StepEnd, {bytes, bytes + sizeof(record)});
  }
  last_step_ = step;
  return *this;
}

SpoolBuilder& SpoolBuilder::resident(uint64_t bytes_of_memory) {
  const Resident record{{}, bytes_of_memory};
  const auto* bytes = reinterpret_cast<const std::byte*>(&record);
  append_step(Kind::Resident, {bytes, bytes + sizeof(record)});
  return *this;
}

template <class R>
SpoolBuilder& SpoolBuilder::beside_steps(const R& record) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&record);
  append_step(kKindOf<R>, {bytes, bytes + sizeof(record)});
  return *this;
}

SpoolBuilder& SpoolBuilder::used(ProcessorTime time) { return beside_steps(time); }
SpoolBuilder& SpoolBuilder::used(MachineTime time) { return beside_steps(time); }
SpoolBuilder& SpoolBuilder::seen(StackNode node) { return beside_steps(node); }
SpoolBuilder& SpoolBuilder::seen(Sample sample) { return beside_steps(sample); }

SpoolBuilder& SpoolBuilder::thread_stack(uint32_t tid, const std::vector<StackFrame>& frames) {
  ThreadStack record{};
  record.tid = tid;
  record.count = static_cast<uint16_t>(frames.size());
  const auto* bytes = reinterpret_cast<const std::byte*>(&record);
  std::vector<std::byte> all(bytes, bytes + sizeof(record));
  const auto* more = reinterpret_cast<const std::byte*>(frames.data());
  all.insert(all.end(), more, more + frames.size() * sizeof(StackFrame));
  append_step(Kind::ThreadStack, all);
  return *this;
}

SpoolBuilder& SpoolBuilder::on(TrackId track) {
  track_ = track;
  return *this;
}

SpoolBuilder& SpoolBuilder::at(uint64_t ns) {
  now_ = ns;
  return *this;
}

SpoolBuilder& SpoolBuilder::begin(FunctionId function, ObjectId object) {
  return event(PythonBegin{.header = {}, .function = function, .object = object});
}
SpoolBuilder& SpoolBuilder::end(FunctionId function) {
  return event(PythonEnd{.header = {}, .function = function, .pad = 0});
}
SpoolBuilder& SpoolBuilder::frame(FunctionId function, ObjectId object) {
  return event(PythonFrame{.header = {}, .function = function, .object = object});
}
SpoolBuilder& SpoolBuilder::line(FunctionId function, uint32_t instruction) {
  return event(PythonLine{.header = {}, .function = function, .instruction = instruction});
}
SpoolBuilder& SpoolBuilder::sync() { return event(PythonSync{}); }
SpoolBuilder& SpoolBuilder::c_begin(std::string_view name) {
  return event(CCallBegin{.header = {}, .name = string(name), .pad = 0});
}
SpoolBuilder& SpoolBuilder::c_begin(CallSiteId site) {
  return event(CCallBeginAt{.header = {}, .site = site, .pad = 0});
}
SpoolBuilder& SpoolBuilder::c_end() { return event(CCallEnd{}); }
SpoolBuilder& SpoolBuilder::gc_begin(uint32_t generation) {
  return event(GcBegin{.header = {}, .generation = generation, .pad = 0});
}
SpoolBuilder& SpoolBuilder::gc_end(int64_t collected, int64_t uncollectable) {
  return event(GcEnd{.header = {}, .collected = collected, .uncollectable = uncollectable});
}
SpoolBuilder& SpoolBuilder::blind(TrackId track, std::string_view by) {
  return event(BlindBegin{.header = {}, .track = track, .by = string(by)});
}
SpoolBuilder& SpoolBuilder::blind_end(TrackId track, std::string_view by) {
  return event(BlindEnd{.header = {}, .track = track, .by = string(by)});
}

SpoolBuilder& SpoolBuilder::op(uint64_t key, std::string_view name, Op op) {
  OpBegin record{};
  record.name = string(name);
  record.scope = op.scope;
  record.is_async = op.is_async;
  record.sequence = op.sequence;
  record.handle = op.handle;
  record.fwd_thread = op.fwd_thread;
  record.key = key;
  return event(record);
}
SpoolBuilder& SpoolBuilder::annotation(uint64_t key, std::string_view name) {
  return op(key, name, {.scope = OpScope::kUserScope});
}
SpoolBuilder& SpoolBuilder::op_end(uint64_t key) { return event(OpEnd{.header = {}, .key = key}); }
SpoolBuilder& SpoolBuilder::thread_end() { return event(ThreadEnd{}); }

std::vector<std::byte> SpoolBuilder::bytes() const {
  std::vector<std::byte> file(first_chunk(header_));
  std::memcpy(file.data(), static_cast<const void*>(&header_), sizeof(header_));
  const auto next_chunk = [&] {
    file.resize(file.size() + header_.chunk_size);
    return file.size() - header_.chunk_size;
  };
  size_t piece = 0, split_end = 0;
  const auto next_piece = [&] {
    if (piece == split_end) {
      piece = next_chunk(), split_end = piece + header_.chunk_size;
      ChunkHeader head{};
      head.magic = kChunkMagic;
      head.kind = ChunkKind::kPieces;
      head.size_log2 = std::bit_width(kTestPieceSize) - 1;
      std::memcpy(file.data() + piece, static_cast<const void*>(&head), sizeof(head));
      piece += kTestPieceSize;
    }
    piece += kTestPieceSize;
    return piece - kTestPieceSize;
  };
  for (const Chunk& chunk : chunks_) {
    ChunkHeader header{};
    header.magic = kChunkMagic;
    header.kind = chunk.kind;
    header.window = chunk.window;
    header.track = chunk.track;
    header.sequence = chunk.sequence;
    header.committed = static_cast<uint32_t>(chunk.records.size());
    const auto base_ns = static_cast<int64_t>(chunk.base_ns);
    header.base = {{ticks(chunk.base_ns)}, header_.start.monotonic + base_ns, {header_.start.realtime.value + base_ns}};
    const size_t place = chunk.is_piece ? next_piece() : next_chunk();
    std::byte* at = file.data() + place;
    std::memcpy(at, static_cast<const void*>(&header), sizeof(header));
    if (!chunk.records.empty()) std::memcpy(at + sizeof(header), chunk.records.data(), chunk.records.size());
  }
  return file;
}

void SpoolBuilder::write(const fs::path& file) const {
  const auto content = bytes();
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(content.data()), static_cast<std::streamsize>(content.size()));
}

TemporaryDirectory::TemporaryDirectory() {
  std::string name = (fs::temp_directory_path() / "torchprof-test-XXXXXX").string();
  REQUIRE(mkdtemp(name.data()) != nullptr);
  path_ = name;
}
TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

LoadedTrace::LoadedTrace(std::span<const SpoolBuilder* const> spools) {
  std::vector<fs::path> files;
  for (const SpoolBuilder* spool : spools) {
    files.push_back(directory_ / (std::to_string(files.size()) + ".spool"));
    spool->write(files.back());
  }
  trace_ = formats::load(files);
}
LoadedTrace::LoadedTrace(const SpoolBuilder& spool) : LoadedTrace(std::vector<const SpoolBuilder*>{&spool}) {}

std::string written(const formats::Trace& trace, formats::Processes processes, Write write) {
  std::string text;
  formats::Output out(text);
  write(trace, processes, out);
  out.commit();
  return text;
}

std::string written(const formats::Trace& trace, Write write) { return written(trace, trace.processes, write); }

}  // namespace torchprof::test
