// torchprof export: writes formats again. Reads spools, and never removes them.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "formats/io/error.h"
#include "formats/io/open_file.h"
#include "formats/io/output.h"
#include "formats/native/names.h"
#include "formats/ranks/choose.h"
#include "formats/read/read_trace.h"
#include "formats/write/parquet/dataset.h"
#include "launcher/run/too_large.h"
#include "launcher/run/write_run.h"
#include "launcher/run_dir/input.h"
#include "launcher/run_dir/our_files.h"
#include "launcher/run_dir/still_running.h"
#include "launcher/run_dir/temporary_directory.h"
#include "launcher/run_dir/writers.h"
#include "launcher/subcommands/export.h"
#include "launcher/subcommands/subcommands.h"
#include "launcher/terminal/progress.h"
#include "launcher/terminal/say.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;

// Why something cannot be made of an input without spools.
std::string without_records(const Input& input) {
  return input.run ? "the raw records are gone (run --discard removes them): "
                   : "a trace file has no raw records, which a run of torchprof has: ";
}

// Copies a trace, compressed or not as the new name says. zlib reads both.
void copy_trace(const fs::path& from, formats::Output& out) {
  std::string error;
  const int fd = formats::open_file(from, error);
  if (fd < 0) throw Error(from.string() + ": " + error);
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> in(gzdopen(fd, "rb"), gzclose);
  if (!in) {
    close(fd);
    throw Error(from.string() + ": out of memory");
  }
  std::string part(formats::Output::kMaxReserve, '\0');
  int n;
  while ((n = gzread(in.get(), part.data(), static_cast<unsigned>(part.size()))) > 0)
    out.write({part.data(), static_cast<size_t>(n)});
  int code = Z_OK;
  const char* message = gzerror(in.get(), &code);
  if (n < 0 || code != Z_OK) throw Error(from.string() + ": " + (code == Z_BUF_ERROR ? "ends too early" : message));
}

void export_trace(const Input& input, const formats::Format& format, const fs::path& file,
                  formats::Existing existing = formats::Existing::kReplaced) {
  const fs::path& trace = input.trace;
  const bool is_table = format.name == "table";
  if (!is_table && formats::form_of(trace) != formats::TraceForm::kJson)
    throw Error(trace.string() + ": only tables can be written from a file of this kind");
  if (!is_table && format.name != "kineto")
    throw Error((input.run ? "" : trace.string() + ": ") + without_records(input) + std::string(format.name) +
                " cannot be written from a trace");
  if (!formats::may_be_trace(trace))
    throw Error(trace.string() + ": is neither a run directory nor a spool nor a trace");
  formats::Output out(file, existing);
  if (is_table)
    out.write(formats::summary_text(trace));
  else
    copy_trace(trace, out);
  out.commit();
}

formats::Trace load_part(const Input& input, const ExportOptions& options) {
  formats::Trace trace = load(input, options.input, options.align);
  choose_step(trace, options.step, input.run ? input.run->read_info() : Info::object());
  if (!options.ranks.empty() && options.ranks != formats::kAllRanks) {
    const std::vector<formats::ChosenRank> chosen = formats::choose_ranks(trace, options.ranks);
    if (chosen.empty()) throw Error("--ranks " + options.ranks + ": the run has no ranks");
    trace = formats::part_of(trace, chosen);
    say("ranks " + formats::text_of(chosen));
  }
  formats::name_native_frames(trace, options.frames);
  if (!options.slice.is_all())
    formats::select(options.slice, trace);
  else if (const std::string line = too_large_line(trace, options.formats, options.input); !line.empty())
    say(line);
  for (formats::Process& process : trace.processes) process.selection.has_critical_path = options.has_critical_path;
  return trace;
}

// Whether -o names a directory: always with a dataset, with several formats, or with one that has a file for each rank;
// with another, if the directory exists or the name ends in '/'.
bool is_directory_meant(const ExportOptions& options) {
  if (options.outputs.size() != 1) return false;
  std::error_code ignored;
  const fs::path& output = options.outputs.front();
  return options.has_dataset || options.formats.size() > 1 || options.formats.front()->stem.empty() ||
         !output.has_filename() || fs::is_directory(output, ignored);
}

// Writes formats one by one: one that fails does not keep the others from being written.
class EachFormat {
 public:
  template <class Write>
  void operator()(Write write) {
    try {
      write();
    } catch (const Error& error) {
      complain(error.what());
      has_failed_ = true;
    }
  }
  int status() const { return has_failed_ ? 125 : 0; }

 private:
  bool has_failed_ = false;
};

int export_into(const fs::path& directory, const Input& input, const ExportOptions& options) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw Error(directory.string() + ": cannot make the directory: " + error.message());
  const BackgroundProgress progress([directory] { return bytes_in(directory); });
  EachFormat each;
  // The user has not chosen the names of files in a directory, so only the run's own files are replaced.
  std::vector<std::string> own;
  if (input.run && fs::equivalent(directory, input.run->path(), error)) own = own_files(input.run->read_info());
  if (input.spools.empty()) {
    for (const formats::Format* format : options.formats) {
      const std::string name = formats::run_file(*format);
      const bool is_own = std::ranges::find(own, name) != own.end();
      each([&] {
        export_trace(input, *format, directory / name, is_own ? formats::Existing::kOwn : formats::Existing::kKept);
      });
    }
  } else {
    const formats::Trace trace = load_part(input, options);
    std::vector<std::string> files, traces(trace.processes.size());
    for (const formats::Format* format : options.formats)
      each([&] { write_format(*format, trace, directory, own, files, traces); });
    if (options.has_dataset)
      each([&] { formats::write_dataset(trace, trace.processes, directory, formats::Existing::kKept); });
  }
  return each.status();
}

uintmax_t bytes_of(const std::vector<fs::path>& files) {
  uintmax_t bytes = 0;
  for (const fs::path& file : files)
    for (const fs::path& name : {file, formats::Output::temporary_of(file)}) {
      std::error_code error;
      if (const uintmax_t size = fs::is_regular_file(name, error) ? fs::file_size(name, error) : 0; !error)
        bytes += size;
    }
  return bytes;
}

// Whether a terminal would act upon what the file has: it is no text.
bool is_binary(const fs::path& file) {
  constexpr size_t kLooked = 4096;
  std::string begin(kLooked, '\0');
  std::ifstream in(file, std::ios::binary);
  in.read(begin.data(), kLooked);
  begin.resize(static_cast<size_t>(in.gcount()));
  return std::ranges::any_of(begin, [](unsigned char c) { return c < ' ' && c != '\n' && c != '\t' && c != '\r'; });
}

// -o -: the file goes to stdout once it is whole, JSON without compression.
int export_to_stdout(const Input& input, ExportOptions options) {
  const TemporaryDirectory directory("torchprof-export-");
  std::string name = formats::run_file(*options.formats.front());
  if (name.ends_with(".json.gz")) name.resize(name.size() - std::string_view(".gz").size());
  options.outputs = {directory.path() / name};
  if (const int status = export_files(input, options); status != 0) return status;
  const fs::path& file = options.outputs.front();
  if (isatty(STDOUT_FILENO) != 0 && is_binary(file))
    throw Error("export: -o -: " + std::string(options.formats.front()->name) +
                " is binary, and stdout is a terminal: `> FILE`, or -o FILE");
  std::ifstream in(file, std::ios::binary);
  std::string part(formats::Output::kMaxReserve, '\0');
  do {
    in.read(part.data(), static_cast<std::streamsize>(part.size()));
    print(std::string_view(part).substr(0, static_cast<size_t>(in.gcount())));
  } while (in);
  if (!in.eof()) throw Error(file.string() + ": cannot be read");
  return 0;
}

// Removes temporary files of dead writers from the run's directory. The pid of a writer on another machine or in a
// container means nothing here, so files that were written just now stay.
void remove_dead_temporaries(const fs::path& directory) {
  constexpr time_t kJustNow = 10;  // seconds
  const Descriptor fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (const std::string& name : names_in(fd.get())) {
    const pid_t writer = formats::Output::writer_of(name);
    struct stat status {};
    if (writer <= 0 || kill(writer, 0) == 0 || errno != ESRCH ||
        fstatat(fd.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 ||
        time(nullptr) - status.st_mtime < kJustNow)
      continue;
    remove_file(fd.get(), name);
  }
}

// Writes what a launcher that died has not written.
int complete_run(const Input& input, const ExportOptions& options) {
  if (!input.run)
    throw Error(options.input.string() + ": -o FILE is missing: without it only a run directory can be exported");
  demand_no_archive(input, options.input, "-o FILE or -o DIR/ says where to write");
  if (input.spools.empty())
    throw Error(options.input.string() +
                ": is exported already, and its raw records are gone; -o FILE copies its trace");
  if (!input.run->newer_version().empty())
    throw Error(options.input.string() + ": its run.json " + input.run->newer_version() + "; -o FILE writes elsewhere");
  if (input.run->is_live())
    throw Error(options.input.string() + ": the run still goes on; -o FILE writes what there is so far");
  Info info = input.run->read_info();
  const bool was_here = is_this_host(info.value("host", ""));  // otherwise its process ids are not ours
  info["still_running"] =
      those_that_still_run(was_here ? info.value("still_running", Info::array()) : Info::array(), input.spools);
  if (!options.step.empty()) info["step"] = options.step;
  if (!options.align.empty()) info["align"] = options.align;
  if (!options.ranks.empty()) info["ranks"] = options.ranks;
  const auto formats = options.formats.empty() ? formats_named("kineto,table") : options.formats;
  remove_dead_temporaries(input.run->path());
  input.run->remove_dead_doors();
  const auto written = [&] {
    const BackgroundProgress progress([&input] { return bytes_in(input.run->path()); });
    return write_run(*input.run, info, formats, options.frames, say_each);
  }();
  say(written.text);
  complain(written.trouble);
  return written.is_complete ? 0 : 125;
}

}  // namespace

int export_files(const Input& input, const ExportOptions& options) {
  for (const fs::path& output : options.outputs) demand_not_input(input, options.input, output);
  const BackgroundProgress progress([&options] { return bytes_of(options.outputs); });
  EachFormat each;
  formats::Trace trace;
  if (!input.spools.empty()) trace = load_part(input, options);
  for (size_t i = 0; i < options.formats.size(); ++i)
    each([&] {
      if (input.spools.empty())
        export_trace(input, *options.formats[i], options.outputs[i]);
      else
        formats::write_file(*options.formats[i], trace, trace.processes, options.outputs[i]);
    });
  return each.status();
}

int export_(const Arguments& arguments) {
  const ExportOptions options = parse_export(arguments);
  const Input input = find_input(options.input);
  if (options.outputs.empty()) return complete_run(input, options);
  if (input.spools.empty() && (!options.slice.is_all() || !options.ranks.empty()))
    throw Error(options.input.string() + ": " + without_records(input) + "a part of it cannot be selected");
  if (input.spools.empty() && options.frames == formats::NativeFrames::kAll)
    throw Error(options.input.string() + ": " + without_records(input) + "its native frames cannot be selected again");
  if (input.spools.empty() && options.has_dataset)
    throw Error(options.input.string() + ": " + without_records(input) + "a dataset cannot be written from a trace");
  if (input.spools.empty()) one_trace(input);  // before a directory is made
  if (options.outputs.front() == kStdout) return export_to_stdout(input, options);
  const int status =
      is_directory_meant(options) ? export_into(options.outputs.front(), input, options) : export_files(input, options);
  if (status == 0)
    for (const fs::path& output : options.outputs) say(output.string() + ": written");
  return status;
}

}  // namespace torchprof::launcher
