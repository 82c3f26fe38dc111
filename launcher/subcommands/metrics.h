// Numbers of a job that runs, written to a file or served, again and again (launcher/watch/metrics_text.h).
#pragma once

#include <filesystem>
#include <string>

#include "launcher/options/options.h"

namespace torchprof::launcher {

// Until the job has ended, or something can be read from `stop` or its other end is closed. The file is replaced as a
// whole each time and removed at the end, unless somebody else has put another one there. A file that cannot be written
// now is said once, and tried again. Throws Error for what is no run, and for an address that cannot be had.
// `is_there`: the file is one of ours already.
void keep_measuring(const MetricsOptions& options, int stop, bool is_there);

// The same to a file, by a process of its own beside this one, which must have one thread only.
class MetricsBeside {
 public:
  // Throws Error if the file cannot be written. An empty name: nothing is done.
  MetricsBeside(const std::filesystem::path& run, const std::filesystem::path& file);
  ~MetricsBeside() { end(); }
  MetricsBeside(const MetricsBeside&) = delete;
  MetricsBeside& operator=(const MetricsBeside&) = delete;
  // Ends it and waits until the file is gone. If this process ends without that, it ends, too.
  void end();

 private:
  int pid_ = 0;
  int stop_ = -1;  // the end of a pipe
};

}  // namespace torchprof::launcher
