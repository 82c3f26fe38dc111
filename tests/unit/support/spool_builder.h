// Writes spools for tests of the reader's half: what the recorder would write, and what it never would.
//
// Time is in nanoseconds since the spool was opened; the recording clock is CLOCK_MONOTONIC unless a test says
// otherwise. Chunks are small, so that a handful of records takes several.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/trace/trace.h"
#include "formats/write/format.h"
#include "tests/unit/support/golden.h"
#include "tracer/spool/layout.h"
#include "tracer/spool/record.h"

namespace torchprof::test {

inline constexpr int64_t kStartNs = 1'750'000'000'000'000'000;  // when a test's process starts: Unix, in ns
inline constexpr uint64_t kStartTicks = 5'000'000'000;
inline constexpr uint32_t kTestChunkSize = 4096;
inline constexpr uint32_t kTestPieceSize = 512;

class SpoolBuilder {
 public:
  explicit SpoolBuilder(uint32_t pid = 100, std::vector<std::string> command = {"/usr/bin/python3", "train.py"});

  FileHeader& header() { return header_; }
  void use_tsc(uint64_t ticks_per_ns);  // before the first record
  void use_chunks_of(uint32_t bytes);   // likewise; a record must fit into one
  void split_first_chunks();            // likewise: each thread begins with a piece of a chunk
  void clean_exit(uint64_t at);

  StringId string(std::string_view text);
  TrackId thread(uint32_t tid, std::string_view name = "python3", uint64_t torch_thread = 0);
  FunctionId function(std::string_view file, uint32_t line, std::string_view name, uint16_t trim = 0,
                      FunctionKind kind = FunctionKind::kFunction);
  FunctionId function(std::string_view name);  // in "test.py", line 1
  // It is the program's: so many instructions have this line, and so on.
  void lines(FunctionId function, const std::vector<std::pair<uint32_t, uint32_t>>& rows);
  FunctionId import(std::string_view module);
  void file_of_import(FunctionId import, std::string_view module, std::string_view file, uint16_t trim);
  ObjectId object(std::string_view class_name, ObjectKind kind = ObjectKind::kModule);
  CallSiteId call_site(std::string_view name, FunctionId function, uint32_t line);
  void python_name(TrackId track, uint32_t tid, std::string_view name);
  // It was called as the `call`th of all.
  void called(ObjectId object, std::string_view class_name, uint32_t call);
  void detail(ObjectId object, ObjectId root, std::string_view path, std::string_view encoded = {}, uint32_t part = 0);
  void meta(std::string_view key, std::string_view value);
  void device(GpuDeviceDef device, std::string_view name);
  void context(uint32_t context, uint32_t device, uint32_t default_stream);
  void thread_handle(TrackId track, uint32_t handle);
  void source(std::string_view name, SourceState state, std::string_view detail);

  // Window `number` again when it closes; times in ns, 0: it is open.
  void window(uint32_t number, uint64_t step, uint64_t begin, uint64_t end = 0,
              WindowReason reason = WindowReason::kNone);
  void window_given_up(uint32_t number);
  void window_stands_for(uint32_t number, WindowReason reason);
  // The events that come now lie in chunks of this window.
  SpoolBuilder& in_window(uint16_t number);
  // At the time that at() named last: `step` steps have ended; was_open, switching_us as in StepEnd.
  SpoolBuilder& step_end(uint64_t step, uint32_t window, uint8_t was_open, uint16_t switching_us = 0);
  SpoolBuilder& resident(uint64_t bytes);
  // Their headers are not used.
  SpoolBuilder& used(ProcessorTime time);
  SpoolBuilder& used(MachineTime time);
  SpoolBuilder& seen(StackNode node);
  SpoolBuilder& seen(Sample sample);
  // What a thread of ours saw of a thread; innermost first.
  SpoolBuilder& thread_stack(uint32_t tid, const std::vector<StackFrame>& frames);

  // Events of the thread that on() named last, at the time that at() named last.
  SpoolBuilder& on(TrackId track);
  SpoolBuilder& at(uint64_t ns);
  SpoolBuilder& begin(FunctionId function, ObjectId object = {});
  SpoolBuilder& end(FunctionId function);
  SpoolBuilder& frame(FunctionId function, ObjectId object = {});
  // It has come to this instruction of the function.
  SpoolBuilder& line(FunctionId function, uint32_t instruction);
  SpoolBuilder& sync();
  SpoolBuilder& c_begin(std::string_view name);
  SpoolBuilder& c_begin(CallSiteId site);
  SpoolBuilder& c_end();
  SpoolBuilder& gc_begin(uint32_t generation);
  SpoolBuilder& gc_end(int64_t collected, int64_t uncollectable);
  SpoolBuilder& blind(TrackId track, std::string_view by);
  SpoolBuilder& blind_end(TrackId track, std::string_view by);
  struct Op {
    OpScope scope = OpScope::kFunction;
    int64_t sequence = -1;
    uint64_t fwd_thread = 0;
    bool is_async = false;
    uint64_t handle = 0;
  };
  SpoolBuilder& op(uint64_t key, std::string_view name, Op op);
  SpoolBuilder& op(uint64_t key, std::string_view name) { return this->op(key, name, Op{}); }
  SpoolBuilder& annotation(uint64_t key, std::string_view name);
  SpoolBuilder& op_end(uint64_t key);
  SpoolBuilder& thread_end();
  // A record of a GPU: GpuKernel, GpuApi ...; its times are those of cupti().
  template <class R>
  SpoolBuilder& gpu(R record);
  // What CUPTI's clock says at `ns`, where GpuClock does not say otherwise.
  static uint64_t cupti(uint64_t ns) { return static_cast<uint64_t>(kStartNs) + ns; }
  SpoolBuilder& gpu_clock(int64_t off = 0);  // a sample at the current time; CUPTI's clock is ahead by this many ns
  // The track goes on in a new chunk, with `missing` chunks between. It begins with what was open: the next records,
  // and the times at which they began.
  SpoolBuilder& next_chunk(uint32_t missing, const std::vector<uint64_t>& begins);
  // Any words as one record of the current track: the header is made of `kind`, the length and the current time.
  SpoolBuilder& raw(uint8_t kind, const std::vector<uint64_t>& payload);

  void raw_definition(uint8_t kind, const std::vector<uint64_t>& payload);

  // The same event as a short record (record.h); `more` are its words after the first.
  SpoolBuilder& short_record(uint8_t kind, uint64_t value, const std::vector<uint64_t>& more = {});

  // The file so far, 8-byte aligned.
  std::vector<std::byte> bytes() const;
  void write(const std::filesystem::path& file) const;

 private:
  struct Chunk {
    ChunkKind kind;
    TrackId track;
    uint32_t sequence;
    uint64_t base_ns;
    std::vector<std::byte> records;
    bool is_piece = false;
    uint16_t window = 0;
  };
  uint64_t ticks(uint64_t ns) const { return header_.start.ticks.value + ns * ticks_per_ns_; }
  static constexpr uint32_t kOfSteps = UINT32_MAX;  // in open_chunk_: no track
  bool has_room(const Chunk& chunk, size_t bytes) const {
    return chunk.records.size() + bytes <= header_.chunk_size - sizeof(ChunkHeader);
  }
  template <class R>
  SpoolBuilder& beside_steps(const R& record);
  void append_step(Kind kind, std::vector<std::byte> record);
  void append(bool definition, Kind kind, std::vector<std::byte> record);
  Chunk& chunk_for(bool definition, size_t bytes);
  template <class R>
  SpoolBuilder& event(R record);
  template <class R>
  void define(R record, std::string_view text = {});

  FileHeader header_{};
  bool has_pieces_ = false;
  std::vector<Chunk> chunks_;
  std::map<uint32_t, size_t> open_chunk_;  // by track, 0 for definitions
  uint64_t last_step_ = 0;                 // in the open chunk of steps
  std::map<std::string, StringId, std::less<>> strings_;
  uint32_t threads_ = 0, functions_ = 0, objects_ = 0, call_sites_ = 0;
  TrackId track_;
  uint16_t window_ = 0;
  uint64_t now_ = 0;
  uint64_t ticks_per_ns_ = 1;
};

// A directory that goes away with the test.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// The spools, each written to a file of its own, and loaded.
class LoadedTrace {
 public:
  explicit LoadedTrace(std::span<const SpoolBuilder* const> spools);
  explicit LoadedTrace(const SpoolBuilder& spool);
  const formats::Trace& operator*() const { return trace_; }
  const formats::Trace* operator->() const { return &trace_; }

 private:
  TemporaryDirectory directory_;
  formats::Trace trace_;
};

// What a format makes of a trace, or of a part of its processes.
using Write = void (*)(const formats::Trace&, formats::Processes, formats::Output&);
std::string written(const formats::Trace& trace, formats::Processes processes, Write write);
std::string written(const formats::Trace& trace, Write write);

}  // namespace torchprof::test
