#include "formats/write/sqlite.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "formats/analysis/python_lines.h"
#include "formats/io/error.h"
#include "formats/io/sqlite_database.h"
#include "formats/io/text.h"
#include "formats/memory/memory.h"
#include "formats/native/site.h"
#include "formats/replay/replay.h"
#include "formats/replay/slice_kind.h"
#include "formats/replay/steps.h"
#include "formats/replay/thread_stack.h"
#include "formats/trace/distributed.h"
#include "formats/trace/gpu_index.h"
#include "formats/values/flops.h"
#include "formats/values/inputs.h"
#include "formats/write/sqlite_schema.h"

namespace torchprof::formats {
namespace {

std::optional<int64_t> some(int64_t value, bool is_known) { return is_known ? std::optional(value) : std::nullopt; }

std::string triple(const uint32_t (&size)[3]) {
  std::string text(1, '[');
  for (const uint32_t n : size) text.append(text.size() > 1 ? "," : "").append(std::to_string(n));
  return text.append(1, ']');
}

// The file and the statements that fill it.
class Tables {
 public:
  explicit Tables(const std::filesystem::path& file) : db_(file, Database::Use::kCreate) {
    db_.run("BEGIN");
    db_.run(kSqliteTables);
    strings_.emplace(db_, into("strings", 2));
    python.emplace(db_, into("python", 14));
    ops.emplace(db_, into("ops", 21));
    calls.emplace(db_, into("cuda_calls", 8));
    kernels.emplace(db_, into("kernels", 19));
    memory.emplace(db_, into("memory", 12));
    marks.emplace(db_, into("marks", 4));
    steps.emplace(db_, into("steps", 6));
  }

  template <class... Values>
  void insert(std::string_view table, const Values&... values) {
    Statement(db_, into(table, sizeof...(values))).insert(values...);
  }
  void run(const char* sql) { db_.run(sql); }

  uint64_t string(std::string_view text) {
    const auto [it, is_new] = ids_.try_emplace(printable(text), ids_.size() + 1);
    if (is_new) strings_->insert(static_cast<int64_t>(it->second), std::string_view(it->first));
    return it->second;
  }

  void finish() {
    strings_.reset();
    for (std::optional<Statement>* s : {&python, &ops, &calls, &kernels, &memory, &marks, &steps}) s->reset();
    db_.run(kSqliteIndexes);
    db_.run(kSqliteViews);
    db_.run(("PRAGMA user_version = " + std::to_string(kSqliteSchemaVersion)).c_str());
    db_.run("COMMIT");
  }

  std::optional<Statement> python, ops, calls, kernels, memory, marks, steps;
  // The last ids given in this file.
  struct {
    uint64_t python = 0, ops = 0, calls = 0, kernels = 0, threads = 0, modules = 0;
  } given;

 private:
  static std::string into(std::string_view table, size_t columns) {
    std::string sql = "INSERT INTO " + std::string(table) + " VALUES(?";
    while (--columns > 0) sql += ",?";
    return sql + ")";
  }

  Database db_;
  std::optional<Statement> strings_;
  std::unordered_map<std::string, uint64_t> ids_;
};

class ProcessTables final : public Sink {
 public:
  ProcessTables(const Process& process, int64_t id, Tables& tables)
      : process_(process), id_(id), tables_(tables), replay_(process), flops_(process) {
    first_.python = tables.given.python;
    first_.ops = tables.given.ops;
    first_.threads = tables.given.threads;
    first_.modules = tables.given.modules;
  }

  void run() {
    write_process();
    const ReplayStats stats = replay_.run(*this);
    tables_.given.python += stats.python_ids;
    tables_.given.ops += stats.external_ids;
    write_threads();
    write_modules();
    if (last_own_step_) finish_steps();
  }

  void slice(const Slice& s) override {
    if (s.kind == SliceKind::kOperator)
      op(s);
    else
      call(s);
  }

  void step(const StepMark& m) override {
    const std::string_view by = m.ended_by ? replay_.names().text(m.ended_by) : std::string_view{};
    tables_.steps->insert(id_, static_cast<int64_t>(m.number), m.begin.value, m.end - m.begin, int64_t{by.empty()},
                          std::string_view(printable(by)));
  }

  void memory(const MemoryEvent& m) override {
    if (m.is_mapped) return;
    const std::string_view kind = m.is_out_of_memory ? "out_of_memory" : m.bytes < 0 ? "free" : "alloc";
    const NameId place = m.function ? replay_.names().place(m.function, m.line) : sites_.of(m.native);
    tables_.memory->insert(id_, thread(m.row), m.time.value, std::string_view(device(m.device_type, m.device_index)),
                           kind, static_cast<int64_t>(m.address), m.bytes, static_cast<int64_t>(m.allocated),
                           static_cast<int64_t>(m.reserved), name(m.op), module(m.module), name(place));
  }

  void python_memory(const MemoryEvent& m) override { memory(m); }

  void gpu_call(const GpuCall& c) override {
    call_ = static_cast<int64_t>(++tables_.given.calls);
    tables_.calls->insert(call_, id_, thread(c.row), name(c.name), op_id(c.external_id), or_null(c.api->correlation),
                          c.begin.value, c.end - c.begin);
  }

  void gpu_activity(const GpuActivity& a) override {
    if (!runs_on_device(a.kind)) return;
    const bool is_kernel = a.kind == Kind::GpuKernel;
    const std::string_view kind = is_kernel ? "kernel" : a.kind == Kind::GpuCopy ? "memcpy" : "memset";
    const GpuCall* call = a.call;
    std::optional<int64_t> bytes, registers, shared;
    std::string grid, block;
    if (is_kernel) {
      const auto& k = a.as<GpuKernel>();
      grid = triple(k.grid);
      block = triple(k.block);
      registers = k.registers;
      shared = int64_t{k.static_shared} + k.dynamic_shared;
    } else {
      bytes = static_cast<int64_t>(a.kind == Kind::GpuCopy ? a.as<GpuCopy>().bytes : a.as<GpuSet>().bytes);
    }
    tables_.kernels->insert(
        static_cast<int64_t>(++tables_.given.kernels), id_, int64_t{a.device}, some(a.stream, a.stream != kNoGpuNumber),
        name(a.name), kind, op_id(call != nullptr ? call->external_id : 0), some(call_, call != nullptr),
        module(call != nullptr ? call->module : ObjectId{}), int64_t{call != nullptr && call->is_backward},
        or_null(a.correlation), a.begin.value, a.end - a.begin, some(a.queue_ns, call != nullptr), bytes,
        std::string_view(grid), std::string_view(block), registers, shared);
  }

  void mark(const Mark& m) override { tables_.marks->insert(id_, thread(m.row), m.time.value, name(m.name)); }

 private:
  // ---- events ----------------------------------------------------------------------------------------------

  void call(const Slice& s) {
    const std::string_view kind = kind_of(s, replay_.names().role(s.name));
    tables_.python->insert(static_cast<int64_t>(first_.python + s.python_id), id_, thread(s.row),
                           python(s.python_parent), name(s.name), kind, module(s.module), s.begin.value,
                           s.end - s.begin, s.self_ns, some(s.module_self_ns, kind == "module"), int64_t{s.outermost},
                           int64_t{s.finished}, int64_t{s.is_recompute});
  }

  void op(const Slice& s) {
    uint64_t parent = 0, caller = 0;
    for (uint32_t i = s.depth; i-- > 0 && (parent == 0 || caller == 0);) {
      uint64_t& id = s.around[i].is_op() ? parent : caller;
      if (id == 0) id = s.around[i].id;
    }
    const std::string_view text = replay_.names().text(s.name);
    const uint64_t flops = flops_.of(s.name, text, s.inputs);
    tables_.ops->insert(static_cast<int64_t>(first_.ops + s.external_id), id_, thread(s.row), op_id(parent),
                        python(caller), name(s.name), kind_of(s, replay_.names().role(s.name)), overload(s.recorded),
                        module(s.module), int64_t{s.is_backward}, some(s.sequence, s.sequence >= 0),
                        or_null(s.fwd_thread), s.begin.value, s.end - s.begin, s.self_ns, s.calls_ns,
                        int64_t{s.outermost}, int64_t{s.finished}, or_null(flops), inputs(s.inputs), name(line(s)));
    if (s.name == last_own_name_) return;
    last_own_name_ = s.name;
    const auto number = step_number(text);
    if (!number) return;
    last_own_step_ = std::max(last_own_step_.value_or(0), *number);
    tables_.steps->insert(id_, static_cast<int64_t>(*number), s.begin.value, s.end - s.begin, int64_t{0},
                          std::string_view("ProfilerStep"));
  }

  NameId line(const Slice& s) {
    if (!s.native) return s.line;
    const NameId of_python = lines_.line_of(s.native, {s.around, s.depth});
    return of_python ? of_python : sites_.of(s.native);
  }

  // ---- ids -------------------------------------------------------------------------------------------------

  int64_t thread(uint32_t row) const { return static_cast<int64_t>(first_.threads + row + 1); }
  std::optional<int64_t> python(uint64_t id) const { return or_null(id == 0 ? 0 : first_.python + id); }
  std::optional<int64_t> op_id(uint64_t id) const { return or_null(id == 0 ? 0 : first_.ops + id); }
  std::optional<int64_t> module(ObjectId id) const {
    return or_null(id.value < process_.objects.size() && id ? first_.modules + id.value : 0);
  }

  // The id from `make`, which is called once for each index; 0 becomes NULL.
  template <class Make>
  std::optional<int64_t> once(std::vector<uint64_t>& made, size_t index, Make make) {
    if (index >= made.size()) made.resize(std::max(index + 1, made.size() * 2));
    if (made[index] == 0) made[index] = make() + 1;
    return or_null(made[index] - 1);
  }
  std::optional<int64_t> name(NameId id) {
    if (!id) return std::nullopt;
    return once(names_, id.value, [&] { return tables_.string(replay_.names().text(id)); });
  }
  std::optional<int64_t> overload(StringId recorded) {
    if (!recorded || recorded.value >= process_.strings.size()) return std::nullopt;
    return once(overloads_, recorded.value, [&] {
      const std::string_view text = split_operator_name(process_.string(recorded)).overload;
      return text.empty() ? 0 : tables_.string(text);
    });
  }
  std::optional<int64_t> inputs(StringId encoded) {
    if (!encoded || encoded.value >= process_.strings.size()) return std::nullopt;
    return once(inputs_, encoded.value, [&] {
      const std::string members = inputs_json(process_.string(encoded));
      return members.empty() ? 0 : tables_.string(std::string(1, '{').append(members, 1).append(1, '}'));
    });
  }
  const std::string& device(int8_t type, int8_t index) {
    std::string& text = devices_[static_cast<uint16_t>(static_cast<uint8_t>(type) << 8 | static_cast<uint8_t>(index))];
    if (text.empty()) text = device_text(type, index);
    return text;
  }

  // ---- processes, threads, modules -------------------------------------------------------------------------

  void write_process() {
    std::string command;
    for (const std::string_view argument : process_.command)
      command.append(command.empty() ? "" : " ").append(argument);
    const std::string host = printable(process_.host), role = printable(process_.role);
    tables_.insert("processes", id_, int64_t{process_.pid}, int64_t{process_.parent_pid}, std::string_view(host),
                   std::string_view(printable(command)), std::string_view(role), distributed_of(process_).rank,
                   process_.start.value, process_.end.value, int64_t{process_.clean_exit},
                   static_cast<int64_t>(process_.lost_events()));
  }

  void write_threads() {
    const std::vector<Row>& rows = replay_.rows();
    for (uint32_t i = 0; i < rows.size(); ++i)
      tables_.insert("threads", thread(i), id_, int64_t{rows[i].is_overflow ? rows[i].sort_tid : rows[i].tid},
                     std::string_view(printable(rows[i].thread_name)), std::string_view(printable(rows[i].python_name)),
                     int64_t{rows[i].is_overflow});
    tables_.given.threads += rows.size();
  }

  void write_modules() {
    for (uint32_t i = 1; i < process_.objects.size(); ++i) {
      const ObjectDef* object = replay_.names().object({i});
      if (object == nullptr || object->kind != ObjectKind::kModule) continue;
      const ObjectId root = process_.root({i});
      const std::string path = printable(process_.path({i}));
      tables_.insert("modules", module({i}), id_,
                     std::string_view(printable(replay_.names().text(replay_.names().function({}, {i})))),
                     std::string_view(path), module(root));
    }
    tables_.given.modules += process_.objects.size();
  }

  // The last mark is the rest after the last step, as in the tables.
  void finish_steps() {
    tables_.run(("UPDATE steps SET is_rest = 1 WHERE process = " + std::to_string(id_) +
                 " AND number = " + std::to_string(*last_own_step_))
                    .c_str());
  }

  const Process& process_;
  const int64_t id_;
  Tables& tables_;
  Replay replay_;
  Flops flops_;
  PythonLines lines_{process_, replay_.names()};
  NativeSites sites_{process_, replay_.names()};
  struct {
    uint64_t python, ops, threads, modules;
  } first_{};
  int64_t call_ = 0;
  NameId last_own_name_{};
  std::optional<uint64_t> last_own_step_;
  std::vector<uint64_t> names_, overloads_, inputs_;  // id plus 1, by name id or string id; 0: not made yet
  std::unordered_map<uint16_t, std::string> devices_;
};

void write_tables(const Trace& trace, Processes processes, const std::filesystem::path& file) {
  Tables tables(file);
  tables.insert("info", std::string_view("schema_version"), int64_t{kSqliteSchemaVersion});
  tables.insert("info", std::string_view("torchprof"), std::string_view(TORCHPROF_VERSION));
  tables.insert("info", std::string_view("start_ns"), trace.start.value);
  tables.insert("info", std::string_view("end_ns"), trace.end.value);
  int64_t id = 0;
  for (const Process& process : processes) ProcessTables(process, ++id, tables).run();
  tables.finish();
}

// An empty file of our own in the directory for temporary files; the destructor removes it.
class ScratchFile {
 public:
  ScratchFile() : name_((std::filesystem::temp_directory_path() / "torchprof-XXXXXX").string()) {
    fd_ = mkstemp(name_.data());
    if (fd_ < 0) throw Error("cannot create " + name_ + ": " + std::strerror(errno));
  }
  ~ScratchFile() {
    close(fd_);
    unlink(name_.c_str());
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  int fd_;
};

}  // namespace

void write_sqlite(const Trace& trace, Processes processes, Output& out) {
  if (const std::filesystem::path file = out.own_file(); !file.empty()) return write_tables(trace, processes, file);
  const ScratchFile scratch;
  write_tables(trace, processes, scratch.name());
  std::ifstream in(scratch.name(), std::ios::binary);
  std::array<char, size_t{64} * 1024> part;
  while (in.read(part.data(), part.size()), in.gcount() > 0) out.write({part.data(), static_cast<size_t>(in.gcount())});
}

}  // namespace torchprof::formats
