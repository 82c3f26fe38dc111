#include "formats/trace/names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>
#include <utility>

#include "formats/io/pair_key.h"
#include "formats/trace/roles.h"

namespace torchprof::formats {

Names::Names(const Process& process)
    : process_(process),
      numbers_(process.objects.size()),
      functions_(process.functions.size()),
      objects_(process.objects.size()),
      strings_(process.strings.size()),
      operators_(process.strings.size()),
      unknown_function_(intern("<unknown function>")),
      unknown_string_(intern("<unknown>")) {
  // Others have it of what libraries make as text: the methods of named tuples and data classes.
  const bool has_text = std::ranges::any_of(process.command, [](auto arg) {
    return arg.starts_with('-') && !arg.starts_with("--") && arg.find('c') != arg.npos;  // "-c", "-Ic", "-cimport a"
  });
  is_text_program_ = (has_text || process.command.empty()) && !runs_multiprocessing(process);
  std::vector<uint32_t> order;
  for (uint32_t i = 1; i < process.objects.size(); ++i) {
    if (process.objects[i].id) order.push_back(i);
  }
  // Objects that were never called come last: 0 - 1 is the largest number.
  std::ranges::stable_sort(order, {}, [&process](uint32_t i) { return process.objects[i].first_call - 1; });
  std::unordered_map<std::string, uint32_t> next[2];
  for (const uint32_t i : order) {
    const ObjectDef& def = process.objects[i];
    numbers_[i] = next[def.kind == ObjectKind::kOptimizer][std::string(process.string(def.class_name))]++;
  }
}

const ObjectDef* Names::object(ObjectId id) const {
  if (id.value >= process_.objects.size() || !process_.objects[id.value].id) return nullptr;
  return &process_.objects[id.value];
}

NameId Names::intern(std::string text) {
  if (const auto it = by_text_.find(text); it != by_text_.end()) return it->second;
  const std::string& kept = texts_.emplace_back(std::move(text));
  const NameId id{static_cast<uint32_t>(texts_.size())};
  by_text_.emplace(kept, id);
  roles_.push_back(role_of_name(kept));
  return id;
}

NameId Names::function(FunctionId function, ObjectId object_id) {
  if (object_id) {
    if (const ObjectDef* def = object(object_id)) {
      NameId& cached = objects_[object_id.value];
      if (!cached) {
        const NameRole role = def->kind == ObjectKind::kOptimizer ? NameRole::kOptimizer : NameRole::kModule;
        cached = intern(std::string(prefix_of(role))
                            .append(process_.string(def->class_name))
                            .append("_")
                            .append(std::to_string(numbers_[object_id.value])));
      }
      return cached;
    }
  }
  if (function.value >= functions_.size() || !process_.functions[function.value].id) return unknown_function_;
  NameId& cached = functions_[function.value];
  if (!cached) cached = format_place(function, 0);
  return cached;
}

std::string place_text(const FunctionDef& def, uint32_t line, std::string_view file, std::string_view name) {
  if (def.kind == FunctionKind::kImport) return std::string("import ").append(name);
  file.remove_prefix(std::min<size_t>(def.trim, file.size()));
  return std::string(file).append("(").append(std::to_string(line != 0 ? line : def.line)).append("): ").append(name);
}

PlaceParts split_place(std::string_view text) {
  const size_t end = text.rfind("): "), begin = end == text.npos ? end : text.rfind('(', end);
  PlaceParts parts{.name = text};
  if (begin == text.npos || begin == 0) return parts;
  const auto [stop, error] = std::from_chars(text.data() + begin + 1, text.data() + end, parts.line);
  if (error != std::errc{} || stop != text.data() + end) return {.name = text};
  parts.file = text.substr(0, begin);
  parts.name = text.substr(end + 3);
  return parts;
}

NameId Names::format_place(FunctionId id, uint32_t line) {
  const FunctionDef& def = process_.functions[id.value];
  const NameId name = intern(place_text(def, line, process_.string(def.file), process_.string(def.name)));
  if (name.value >= is_program_.size()) is_program_.resize(std::max<size_t>(name.value + 1, is_program_.size() * 2));
  const std::string_view file = process_.string(def.file);
  if (def.kind == FunctionKind::kImport) return name;
  const bool is_program = is_program_file(file) && (is_text_program_ || file != "<string>");
  is_program_[name.value] = is_program;
  if (is_program) files_.try_emplace(name.value, file);
  const bool is_installed = file.find("-packages/") != file.npos && file.find("-packages/torch/") == file.npos;
  if (is_installed) {
    is_installed_.resize(is_program_.size());
    is_installed_[name.value] = true;
  }
  if (line == 0 && (is_program || is_installed))
    if (const std::string_view qualname = process_.string(def.qualname); !qualname.empty())
      qualnames_.try_emplace(name.value, qualname);
  return name;
}

std::string_view Names::qualname(NameId id) const {
  const auto known = qualnames_.find(id.value);
  return known == qualnames_.end() ? std::string_view{} : known->second;
}

std::string_view Names::file(NameId id) const {
  const auto known = files_.find(id.value);
  return known == files_.end() ? std::string_view{} : known->second;
}

bool is_program_file(std::string_view path) {
  // Packages lie in site-packages or in Debian's dist-packages; an editable install lies elsewhere. What torch.compile
  // has written lies in /tmp/torchinductor_USER (torch/_inductor/runtime/cache_dir_utils.py, 2.0 to 2.15).
  return path.find("/torchinductor_") == path.npos && !path.starts_with("torch/") && !path.starts_with("<frozen ") &&
         path.find("-packages/") == path.npos && path.find("lib/python3") == path.npos;
}

bool is_program_text(std::string_view text) {
  // clang-format off
  constexpr std::array<std::string_view, 129> kOthers = {
      "<built-in ", "<frozen ", "<string>(", "_collections_abc.py(", "_weakrefset.py(", "abc.py(", "argparse.py(",
      "ast.py(", "asyncio/", "base64.py(", "bisect.py(", "bz2.py(", "codecs.py(", "collections/", "concurrent/",
      "configparser.py(", "contextlib.py(", "copy.py(", "copyreg.py(", "csv.py(", "ctypes/", "dataclasses.py(",
      "datetime.py(", "decimal.py(", "difflib.py(", "dis.py(", "email/", "encodings/", "enum.py(", "fnmatch.py(",
      "functools.py(", "genericpath.py(", "gettext.py(", "glob.py(", "gzip.py(", "hashlib.py(", "heapq.py(",
      "hmac.py(", "html/", "http/", "import ", "importlib/", "inspect.py(", "ipaddress.py(", "json/", "keyword.py(",
      "linecache.py(", "locale.py(", "logging/", "lzma.py(", "multiprocessing/", "ntpath.py(", "numbers.py(",
      "opcode.py(", "operator.py(", "optparse.py(", "os.py(", "pathlib.py(", "pathlib/", "pickle.py(", "pkgutil.py(",
      "platform.py(", "posixpath.py(", "pprint.py(", "queue.py(", "random.py(", "re.py(", "re/", "reprlib.py(",
      "runpy.py(", "sched.py(", "secrets.py(", "selectors.py(", "shlex.py(", "shutil.py(", "signal.py(", "socket.py(",
      "socketserver.py(", "sqlite3/", "sre_compile.py(", "sre_parse.py(", "ssl.py(", "stat.py(", "string.py(",
      "struct.py(", "subprocess.py(", "sysconfig.py(", "sysconfig/", "tarfile.py(", "tempfile.py(", "textwrap.py(",
      "threading.py(", "token.py(", "tokenize.py(", "traceback.py(", "types.py(", "typing.py(", "unittest/",
      "urllib/", "uuid.py(", "warnings.py(", "weakref.py(", "xml/", "zipfile.py(", "zipfile/", "zoneinfo/", "PIL/",
      "accelerate/", "datasets/", "deepspeed/", "diffusers/", "jax/", "lightning/", "lightning_fabric/", "numpy/",
      "pandas/", "peft/", "pytorch_lightning/", "requests/", "scipy/", "sklearn/", "tokenizers/", "torchaudio/",
      "torchmetrics/", "torchvision/", "tqdm/", "transformers/", "triton/", "urllib3/"};
  // clang-format on
  const auto begins = [text](std::string_view prefix) { return text.starts_with(prefix); };
  if (begins(prefix_of(NameRole::kModule)) || begins(prefix_of(NameRole::kOptimizer)) ||
      std::ranges::any_of(kOthers, begins))
    return false;
  return text.find("): ") != text.npos && is_program_file(text);
}

NameId Names::place(FunctionId function, uint32_t line) {
  if (line == 0 || function.value >= functions_.size() || !process_.functions[function.value].id)
    return this->function(function, {});
  NameId& cached = places_[pair_key(function.value, line)];
  if (!cached) cached = format_place(function, line);
  return cached;
}

NameId Names::string(StringId id) {
  if (id.value >= strings_.size()) return unknown_string_;
  NameId& cached = strings_[id.value];
  if (!cached) {
    const std::string_view text = process_.strings[id.value];
    cached = text.empty() ? unknown_string_ : intern(std::string(text));
  }
  return cached;
}

NameId Names::operator_name(StringId id) {
  if (id.value >= operators_.size()) return unknown_string_;
  NameId& cached = operators_[id.value];
  if (!cached) {
    const std::string_view text = split_operator_name(process_.strings[id.value]).name;
    cached = text.empty() ? unknown_string_ : intern(std::string(text));
  }
  return cached;
}

}  // namespace torchprof::formats
