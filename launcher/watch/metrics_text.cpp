#include "launcher/watch/metrics_text.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <map>
#include <string_view>

#include "formats/io/text.h"
#include "formats/memory/memory.h"
#include "launcher/watch/top_groups.h"

namespace torchprof::launcher {
namespace {

using formats::LiveView;

constexpr std::string_view kPrefix = "torchprof_";

std::string number(double value) {
  char text[32];
  snprintf(text, sizeof(text), "%.15g", value);
  return text;
}
std::string number(uint64_t value) { return std::to_string(value); }
std::string seconds_text(int64_t ns) { return number(static_cast<double>(ns) / 1e9); }

// With a point, as OpenMetrics wants bounds.
std::string bound_text(double seconds) {
  std::string text = number(seconds);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

std::string label(std::string_view name, std::string_view value) {
  std::string out = std::string(name) + "=\"";
  for (const char c : formats::printable(value)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string role_of(const TopProcess& process) {
  return !process.view.worker.empty() ? process.view.worker : process.view.rank ? "rank" : "other";
}

// The labels of each process, without braces.
std::vector<std::string> labels_of(const Measured& measured) {
  std::vector<std::string> all;
  std::map<std::string, size_t> times;
  for (const auto& [process, ignored] : measured.processes) {
    std::string labels = label("run", measured.run) + "," + label("host", process.host);
    if (process.view.rank) labels += "," + label("rank", std::to_string(*process.view.rank));
    labels += "," + label("role", role_of(process));
    ++times[labels];
    all.push_back(std::move(labels));
  }
  for (size_t i = 0; i < all.size(); ++i)
    if (const TopProcess& process = measured.processes[i].process;
        times[all[i]] > 1 || !process.view.rank || !process.view.worker.empty())
      all[i] += "," + label("pid", std::to_string(process.pid));
  return all;
}

class Text {
 public:
  explicit Text(const Measured& measured) : measured_(measured), labels_(labels_of(measured)) {}

  std::string write() {
    of_run();
    of_steps();
    of_parts();
    of_memory();
    of_recording();
    return out_ + "# EOF\n";
  }

 private:
  using Value = std::optional<std::string>;

  void head(std::string_view name, std::string_view type, std::string_view help) {
    const std::string full = std::string(kPrefix) + std::string(name);
    if (!type.empty()) out_ += "# TYPE " + full + " " + std::string(type) + "\n";
    out_ += "# HELP " + full + " " + std::string(help) + "\n";
  }
  void sample(std::string_view name, const std::string& labels, const std::string& value) {
    out_.append(kPrefix).append(name).append("{").append(labels).append("} ").append(value).append("\n");
  }

  // A name with a sample for each process of which it is known; none: no line at all.
  void each(std::string_view name, std::string_view type, std::string_view help,
            const std::function<Value(const MeasuredProcess&)>& value_of) {
    bool has_head = false;
    for (size_t i = 0; i < labels_.size(); ++i) {
      const Value value = value_of(measured_.processes[i]);
      if (!value) continue;
      if (!std::exchange(has_head, true)) head(name, type, help);
      sample(name, labels_[i], *value);
    }
  }
  void gauge(std::string_view name, std::string_view help, const std::function<Value(const LiveView&)>& value_of) {
    each(name, "gauge", help, [&](const MeasuredProcess& m) { return value_of(m.process.view); });
  }
  void counter(std::string_view name, std::string_view help, const std::function<Value(const LiveView&)>& value_of) {
    each(name, "", help, [&](const MeasuredProcess& m) { return value_of(m.process.view); });
  }
  static Value if_known(bool is_known, std::string value) { return is_known ? Value(std::move(value)) : std::nullopt; }

  void of_run() {
    const std::string run = label("run", measured_.run);
    head("written_timestamp_seconds", "gauge", "When this was written, in seconds since 1970.");
    const auto whole_ms = measured_.unix_ns / 1'000'000;
    sample("written_timestamp_seconds", run, number(static_cast<double>(whole_ms) / 1e3));
    head("processes", "gauge", "Processes that are recorded now.");
    sample("processes", run, number(uint64_t{measured_.processes.size()}));
    head("metrics_cpu_seconds_total", "", "Time of a processor that it took to find out all of this so far.");
    sample("metrics_cpu_seconds_total", run, seconds_text(measured_.looked_ns));
  }

  void of_steps() {
    counter("steps_total", "Steps that have ended.",
            [](const LiveView& v) { return if_known(v.has_every_step, number(v.steps)); });
    bool has_head = false;
    for (size_t i = 0; i < labels_.size(); ++i) {
      const LiveView& view = measured_.processes[i].process.view;
      if (!view.has_every_step) continue;
      if (!std::exchange(has_head, true)) head("step_seconds", "histogram", "How long steps took, all so far.");
      const formats::StepSizes& sizes = view.step_sizes;
      uint64_t count = 0;
      for (size_t k = 0; k < sizes.counts.size(); ++k) {
        count += sizes.counts[k];
        const std::string bound = k < sizes.kBounds.size() ? bound_text(sizes.kBounds[k]) : "+Inf";
        sample("step_seconds_bucket", labels_[i] + "," + label("le", bound), number(count));
      }
      sample("step_seconds_sum", labels_[i], seconds_text(sizes.sum_ns));
      sample("step_seconds_count", labels_[i], number(count));
    }
    gauge("since_step_seconds", "Since the last step ended. Far more than a step takes: it hangs.",
          [](const LiveView& v) {
            return if_known(v.has_all_steps && v.since_step_ns, seconds_text(v.since_step_ns.value_or(0)));
          });
    counter(
        "step_thread_cpu_seconds_total",
        "Time of a processor that the thread of the steps has had. Of ranks that wait for each other the slow one has "
        "most.",
        [](const LiveView& v) { return if_known(v.ran_ns.has_value(), seconds_text(v.ran_ns.value_or(0))); });
    counter("step_thread_queued_seconds_total", "Time that this thread was ready to run and had no processor.",
            [](const LiveView& v) { return if_known(v.queued_ns.has_value(), seconds_text(v.queued_ns.value_or(0))); });
    counter("process_cpu_seconds_total", "Time of processors that all threads of the program have had.",
            [](const LiveView& v) {
              return if_known(v.process_ran_ns.has_value(), seconds_text(v.process_ran_ns.value_or(0)));
            });
  }

  // Of the time that was recorded last.
  void of_parts() {
    const auto share = [](const LiveView& view, const std::optional<int64_t>& ns) {
      return if_known(ns && view.since_covered_ns && view.covered_ns > 0,
                      number(std::min(1.0, static_cast<double>(ns.value_or(0)) /
                                               static_cast<double>(std::max<int64_t>(1, view.covered_ns)))));
    };
    gauge(
        "covered_seconds",
        "The time that was recorded last, to which the ratios refer: the window, or the last seconds.",
        [](const LiveView& v) { return if_known(v.since_covered_ns && v.covered_ns > 0, seconds_text(v.covered_ns)); });
    gauge("covered_age_seconds", "How long ago that time ended.", [](const LiveView& v) {
      return if_known(v.covered_ns > 0 && v.since_covered_ns, seconds_text(v.since_covered_ns.value_or(0)));
    });
    gauge("loading_ratio", "Part of that time in which the next batch was waited for.",
          [&](const LiveView& v) { return share(v, v.loading_ns); });
    gauge("collectives_ratio", "Part of that time in collectives.",
          [&](const LiveView& v) { return share(v, v.collective_ns); });
    gauge("gpu_busy_ratio", "Part of that time in which the GPU worked.",
          [](const LiveView& v) { return if_known(v.gpu_busy.has_value(), number(v.gpu_busy.value_or(0))); });
  }

  void of_memory() {
    each("resident_bytes", "gauge", "Memory of the process.",
         [](const MeasuredProcess& m) { return if_known(m.process.resident != 0, number(m.process.resident)); });
    bool has_head = false;
    for (size_t i = 0; i < labels_.size(); ++i)
      for (const formats::LiveMemory& memory : measured_.processes[i].process.view.memory) {
        if (!std::exchange(has_head, true))
          head("allocated_bytes", "gauge", "Memory of torch's allocators when something was last recorded.");
        sample("allocated_bytes",
               labels_[i] + "," + label("device", formats::device_text(memory.device_type, memory.device_index)),
               number(memory.bytes));
      }
  }

  void of_recording() {
    gauge("window_open", "1: everything is recorded now.",
          [](const LiveView& v) { return number(uint64_t{!v.has_stopped && (v.window.empty() || v.is_window_open)}); });
    counter("windows_total", "Windows that were opened.",
            [](const LiveView& v) { return if_known(!v.window.empty(), number(uint64_t{v.window_number})); });
    gauge("capture_stopped", "1: nothing more is recorded, as there was no more room.",
          [](const LiveView& v) { return number(uint64_t{v.has_stopped}); });
    gauge("spool_bytes", "Size of the raw records.", [](const LiveView& v) { return number(v.spool_bytes); });
    counter("lost_events_total", "Events that could not be recorded.",
            [](const LiveView& v) { return number(v.lost_events); });
    counter("recycled_bytes_total", "Raw records that made room for later ones.",
            [](const LiveView& v) { return number(v.recycled_bytes); });
    counter("switch_seconds_total", "Time that opening and closing windows took.", [](const LiveView& v) {
      return if_known(v.switching_ns.has_value(), seconds_text(v.switching_ns.value_or(0)));
    });
    each("recorder_cpu_seconds_total", "", "Time of a processor that the thread of torchprof in the program has had.",
         [](const MeasuredProcess& m) {
           return if_known(m.recorder_ns.has_value(), seconds_text(m.recorder_ns.value_or(0)));
         });
  }

  const Measured& measured_;
  const std::vector<std::string> labels_;
  std::string out_;
};

}  // namespace

std::string metrics_text(const Measured& measured) { return Text(measured).write(); }

}  // namespace torchprof::launcher
