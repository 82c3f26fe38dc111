#include "formats/write/perfetto/arguments.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <protozero/pbf_writer.hpp>

#include "formats/io/perfetto_fields.h"
#include "formats/trace/nvtx.h"
#include "formats/values/collectives.h"
#include "formats/values/inputs.h"

namespace torchprof::formats::perfetto {

using nlohmann::ordered_json;
using protozero::pbf_writer;

const std::string& SliceArguments::of(const Slice& s) {
  out_.clear();
  if (s.kind == SliceKind::kOperator)
    operator_arguments(s);
  else
    python_arguments(s);
  if (!s.finished) out_ += names_.argument("finished", false);
  if (s.drawn_begin > s.begin) out_ += names_.argument("Cut at begin, ns", s.drawn_begin - s.begin);
  if (s.drawn_end < s.end) out_ += names_.argument("Cut at end, ns", s.end - s.drawn_end);
  return out_;
}

void SliceArguments::operator_arguments(const Slice& s) {
  if (s.sequence >= 0) {
    number(sequence_key_, "Sequence number", s.sequence);
    if (s.fwd_thread != 0) number(thread_key_, "Fwd thread id", static_cast<int64_t>(s.fwd_thread));
  }
  if (s.recorded.value < process_.strings.size())
    add(overloads_, s.recorded.value, [&] {
      const std::string_view overload = split_operator_name(process_.string(s.recorded)).overload;
      return overload.empty() ? std::string{} : names_.argument("Overload name", overload);
    });
  if (s.inputs && s.inputs.value < process_.strings.size())
    add(inputs_, s.inputs.value, [&] { return of_json(inputs_json(process_.string(s.inputs))); });
  if (s.collective && s.collective.value < process_.strings.size())
    add(collectives_, s.collective.value, [&] { return of_json(collective_json(process_.string(s.collective))); });
  if (s.collective_sequence >= 0) out_ += names_.argument("Seq", s.collective_sequence);
  if (const uint64_t flops = flops_.of(s.name, replay_.names().text(s.name), s.inputs); flops != 0)
    number(flops_key_, "FLOPs", static_cast<int64_t>(flops));
  if (s.nvtx != nullptr) out_ += of_nvtx(*s.nvtx);
  if (s.inductor != nullptr) out_ += of_json(inductor_json(*s.inductor));
  if (s.is_async) add(flags_, 2, [&] { return names_.argument("Asynchronous", true); });
  place(s.module, s.is_backward);
  if (s.is_recompute) add(flags_, 3, [&] { return names_.argument("Recompute", true); });
}

void SliceArguments::place(ObjectId id, bool is_backward) {
  if (id && id.value < process_.objects.size()) add(modules_, id.value, [&] { return module(id); });
  if (is_backward) add(flags_, 0, [&] { return names_.argument("Backward", true); });
}

const std::string& SliceArguments::of_launch(ObjectId module, bool is_backward) {
  out_.clear();
  place(module, is_backward);
  return out_;
}

std::string SliceArguments::of_nvtx(const NvtxAttributes& attributes) {
  return of_json(nvtx_json(process_, attributes));
}

void SliceArguments::python_arguments(const Slice& s) {
  if (s.is_recompute && s.object && s.object == s.module)
    add(flags_, 3, [&] { return names_.argument("Recompute", true); });
  if (s.object && s.object == s.module && process_.root(s.object))
    add(paths_, s.object.value, [&] {
      return names_.argument("Module path", process_.path(s.object)) +
             names_.argument("Module root", module_name(process_.root(s.object)));
    });
  if (s.site && s.site.value < process_.call_sites.size())
    add(callers_, s.site.value, [&] { return caller(process_.call_sites[s.site.value]); });
  if (s.preexisting) add(flags_, 1, [&] { return names_.argument("preexisting", true); });
  if (s.kind != SliceKind::kGc) return;
  out_ += names_.argument("generation", int64_t{s.generation});
  if (!s.finished) return;
  out_ += names_.argument("collected", s.collected);
  out_ += names_.argument("uncollectable", s.uncollectable);
}

std::string SliceArguments::module(ObjectId id) {
  const std::string name = names_.argument("Module", module_name(id));
  return process_.root(id) ? name + names_.argument("Module path", process_.path(id)) : name;
}

std::string_view SliceArguments::module_name(ObjectId id) {
  return replay_.names().text(replay_.names().function({}, id));
}

std::string SliceArguments::caller(const CallSiteDef& site) {
  if (site.function.value >= process_.functions.size()) return {};
  const FunctionDef& def = process_.functions[site.function.value];
  std::string_view file = process_.string(def.file);
  file.remove_prefix(std::min<size_t>(def.trim, file.size()));
  return names_.argument("CallFrom", std::string(file) + ":" + std::to_string(site.line));
}

// Arguments from the members of a JSON object, as in the Kineto trace: `,"Input Dims":[[2,3]],...`
std::string SliceArguments::of_json(std::string_view members) {
  if (members.empty()) return {};
  std::string text = "{";
  text.append(members.substr(1)).append("}");
  const ordered_json object = ordered_json::parse(text, nullptr, false);
  return object.is_object() ? names_.arguments(object) : std::string{};
}

void SliceArguments::number(std::optional<uint64_t>& key, std::string_view name, int64_t value) {
  if (!key) key = names_.argument_name(name);
  pbf_writer event(out_);
  pbf_writer argument(event, event::kAnnotations);
  argument.add_uint64(annotation::kNameId, *key);
  argument.add_int64(annotation::kInt, value);
}

template <class Make>
void SliceArguments::add(Cache& cache, size_t index, Make make) {
  if (index >= cache.size()) cache.resize(std::max(index + 1, cache.size() * 2));
  std::optional<std::string>& entry = cache[index];
  if (!entry) [[unlikely]]
    entry = make();
  out_ += *entry;
}

}  // namespace torchprof::formats::perfetto
