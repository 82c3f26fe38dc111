#include "formats/advice/causes.h"

#include <algorithm>
#include <array>

#include "formats/trace/names.h"

namespace torchprof::formats {
namespace {

constexpr std::string_view kSaveLess =
    "Save less often, or copy the state and write it in a thread (torch.distributed.checkpoint.async_save).";
constexpr std::string_view kReadOnce =
    "Read it once and keep it, read only the part that is needed (mmap_mode=\"r\" of np.load), or ahead, in a thread.";
constexpr std::string_view kWriteLess = "Write less often, or hand it to a thread that writes.";
constexpr std::string_view kAskLess = "Ask less often and keep the answers, or ask ahead, in a thread.";
constexpr std::string_view kTraceOnce = "Do it once, before the steps, and keep what it gives.";
constexpr std::string_view kLogLess = "Log less often, and less: numbers instead of tensors.";
constexpr std::string_view kNoProfiler = "Take it out, or give it a schedule that profiles a few steps.";
constexpr std::string_view kParseOnce = "Do it once and keep the result, or less often.";

constexpr std::array kCauses = std::to_array<Cause>({
    {"torch/serialization.py", "save", Effort::kWorks, "writes a file with torch.save", kSaveLess},
    {"torch/serialization.py", "load", Effort::kWorks, "reads a file with torch.load", kReadOnce},
    {"torch/distributed/checkpoint/*", "save*", Effort::kWorks, "writes a checkpoint", kSaveLess},
    {"safetensors/torch.py", "save*", Effort::kWorks, "writes a file with safetensors", kSaveLess},
    {"safetensors/torch.py", "load*", Effort::kWorks, "reads a file with safetensors", kReadOnce},
    {"torch/jit/_trace.py", "trace*", Effort::kWorks, "traces a model (torch.jit.trace)", kTraceOnce},
    {"torch/jit/_script.py", "script*", Effort::kWorks, "compiles a model (torch.jit.script)", kTraceOnce},
    {"torch/jit/_freeze.py", "*", Effort::kWorks, "freezes a model (torch.jit.freeze)", kTraceOnce},
    {"torch/fx/_symbolic_trace.py", "symbolic_trace", Effort::kWorks, "traces a model (torch.fx)", kTraceOnce},
    {"torch/export/__init__.py", "export*", Effort::kWorks, "exports a model (torch.export)", kTraceOnce},
    {"torch/onnx/utils.py", "export*", Effort::kWorks, "exports a model (torch.onnx)", kTraceOnce},
    {"torch/profiler/profiler.py", "*", Effort::kWorks, "runs torch.profiler", kNoProfiler},
    {"torch/utils/tensorboard/writer.py", "*", Effort::kWorks, "writes for TensorBoard", kLogLess},
    {"tensorboardX/writer.py", "*", Effort::kWorks, "writes for TensorBoard", kLogLess},
    {"wandb/sdk/wandb_run.py", "log*", Effort::kWorks, "logs to Weights & Biases", kLogLess},
    {"torch/hub.py", "*", Effort::kWaits, "downloads with torch.hub", kReadOnce},

    {"subprocess.py", "run", Effort::kWaits, "runs another process and waits for it (subprocess)", kAskLess},
    {"subprocess.py", "check_output", Effort::kWaits, "runs another process and waits for it (subprocess)", kAskLess},
    {"subprocess.py", "check_call", Effort::kWaits, "runs another process and waits for it (subprocess)", kAskLess},
    {"subprocess.py", "call", Effort::kWaits, "runs another process and waits for it (subprocess)", kAskLess},
    {"subprocess.py", "getoutput", Effort::kWaits, "runs a shell's command and waits for it", kAskLess},
    {"subprocess.py", "getstatusoutput", Effort::kWaits, "runs a shell's command and waits for it", kAskLess},
    {"subprocess.py", "communicate", Effort::kWaits, "waits for another process (subprocess)", kAskLess},
    {"subprocess.py", "wait", Effort::kWaits, "waits for another process (subprocess)", kAskLess},
    {"subprocess.py", "__init__", Effort::kWaits, "starts another process (subprocess)", kAskLess},
    {"os.py", "popen", Effort::kWaits, "runs a shell's command (os.popen)", kAskLess},

    {"urllib/request.py", "urlopen", Effort::kWaits, "waits for the answer of a server (HTTP)", kAskLess},
    {"urllib/request.py", "urlretrieve", Effort::kWaits, "downloads a file", kAskLess},
    {"requests/*", "request", Effort::kWaits, "waits for the answer of a server (HTTP)", kAskLess},
    {"requests/*", "get", Effort::kWaits, "waits for the answer of a server (HTTP)", kAskLess},
    {"requests/*", "post", Effort::kWaits, "waits for the answer of a server (HTTP)", kAskLess},
    {"httpx/*", "send", Effort::kWaits, "waits for the answer of a server (HTTP)", kAskLess},
    {"urllib3/*", "urlopen", Effort::kWaits, "waits for the answer of a server (HTTP)", kAskLess},
    {"http/client.py", "getresponse", Effort::kWaits, "waits for the answer of a server (HTTP)", kAskLess},
    {"http/client.py", "request", Effort::kWaits, "sends a request to a server (HTTP)", kAskLess},
    {"socket.py", "create_connection", Effort::kWaits, "connects to a server", kAskLess},
    {"socket.py", "readinto", Effort::kWaits, "waits for a socket", kAskLess},
    {"ssl.py", "*", Effort::kWaits, "waits for a socket (TLS)", kAskLess},
    {"redis/client.py", "*", Effort::kWaits, "waits for Redis", kAskLess},
    {"botocore/client.py", "*", Effort::kWaits, "waits for a service (boto)", kAskLess},

    {"numpy/lib/npyio.py", "load", Effort::kWorks, "reads a file with np.load", kReadOnce},
    {"numpy/lib/_npyio_impl.py", "load", Effort::kWorks, "reads a file with np.load", kReadOnce},
    {"numpy/lib/npyio.py", "loadtxt", Effort::kWorks, "reads a text file with np.loadtxt", kReadOnce},
    {"numpy/lib/_npyio_impl.py", "loadtxt", Effort::kWorks, "reads a text file with np.loadtxt", kReadOnce},
    {"numpy/lib/npyio.py", "genfromtxt", Effort::kWorks, "reads a text file with np.genfromtxt", kReadOnce},
    {"numpy/lib/_npyio_impl.py", "genfromtxt", Effort::kWorks, "reads a text file with np.genfromtxt", kReadOnce},
    {"numpy/lib/npyio.py", "save*", Effort::kWorks, "writes a file with numpy", kWriteLess},
    {"numpy/lib/_npyio_impl.py", "save*", Effort::kWorks, "writes a file with numpy", kWriteLess},
    {"pandas/io/*", "read_*", Effort::kWorks, "reads a file with pandas", kReadOnce},
    {"pandas/*", "to_csv", Effort::kWorks, "writes a file with pandas", kWriteLess},
    {"PIL/Image.py", "open", Effort::kWorks, "reads an image", kReadOnce},
    {"PIL/Image.py", "save", Effort::kWorks, "writes an image", kWriteLess},
    {"matplotlib/figure.py", "savefig", Effort::kWorks, "draws a figure (matplotlib)", kWriteLess},
    {"gzip.py", "*", Effort::kWorks, "packs or unpacks a file (gzip)", kReadOnce},
    {"zipfile.py", "*", Effort::kWorks, "packs or unpacks a file (zipfile)", kReadOnce},
    {"tarfile.py", "*", Effort::kWorks, "packs or unpacks a file (tarfile)", kReadOnce},
    {"h5py/*", "__getitem__", Effort::kWorks, "reads a file (HDF5)", kReadOnce},
    {"shutil.py", "copy*", Effort::kWorks, "copies files", kWriteLess},
    {"glob.py", "*", Effort::kWorks, "searches directories (glob)", kParseOnce},
    {"json/__init__.py", "load*", Effort::kWorks, "reads JSON", kParseOnce},
    {"json/__init__.py", "dump*", Effort::kWorks, "writes JSON", kWriteLess},
    {"yaml/__init__.py", "*load*", Effort::kWorks, "reads YAML", kParseOnce},
    {"csv.py", "*", Effort::kWorks, "reads or writes CSV", kParseOnce},
    {"logging/__init__.py", "*", Effort::kWorks, "logs", kLogLess},
    {"traceback.py", "*", Effort::kWorks, "formats tracebacks", kLogLess},
    {"warnings.py", "*", Effort::kWorks, "warns", "Do what the warning asks for, or filter it once, before the steps."},
    {"inspect.py", "*", Effort::kWorks, "inspects functions (inspect)", kParseOnce},
    {"importlib/metadata/__init__.py", "*", Effort::kWorks, "looks up packages (importlib.metadata)", kParseOnce},
});

// "a*" is what begins with a, "*a*" what has it.
bool fits(std::string_view text, std::string_view pattern) {
  const bool is_open_before = pattern.starts_with('*'), is_open_after = pattern.ends_with('*');
  if (is_open_after) pattern.remove_suffix(1);
  if (is_open_before && !pattern.empty()) pattern.remove_prefix(1);
  if (is_open_before) return text.find(pattern) != text.npos;
  return is_open_after ? text.starts_with(pattern) : text == pattern;
}

// Whether `path` ends in the pattern, at the begin of a directory's or the file's name; "a/*": a file below a.
bool is_file(std::string_view path, std::string_view pattern) {
  const bool is_directory = pattern.ends_with('*');
  if (is_directory) pattern.remove_suffix(1);
  const size_t at = is_directory                   ? path.rfind(pattern)
                    : path.size() < pattern.size() ? path.npos
                                                   : path.size() - pattern.size();
  if (at == path.npos || !path.substr(at).starts_with(pattern)) return false;
  return at == 0 || path[at - 1] == '/';
}

}  // namespace

std::span<const Cause> known_causes() { return kCauses; }

uint8_t cause_of(std::string_view function) {
  const PlaceParts place = split_place(function);
  if (place.file.empty()) return 0;
  static_assert(kCauses.size() < 256);
  for (size_t i = 0; i < kCauses.size(); ++i)
    if (fits(place.name, kCauses[i].name) && is_file(place.file, kCauses[i].file)) return static_cast<uint8_t>(i + 1);
  return 0;
}

}  // namespace torchprof::formats
