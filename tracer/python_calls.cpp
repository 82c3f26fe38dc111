#include "tracer/python_calls.h"

#include "tracer/python_events.h"
#include "tracer/python_gc.h"
#include "tracer/python_monitoring.h"
#include "tracer/python_profile.h"
#include "tracer/python_site.h"
#include "tracer/window.h"

namespace torchprof::python {

void start_calls(PythonLevel level) noexcept {
  if (level == PythonLevel::kOff) {
    session::note_source("python", SourceState::kOff, "switched off (--python off)");
    return;
  }
  const KeepError keep;
  if (!prepare_objects()) {
    session::note_source("python", SourceState::kFailed, "the interpreter has no room for our mark on code objects");
    return;
  }
  check_frames();
  g_level = level;
  ++g_epoch;
  if (level != PythonLevel::kModules) start_gc();
  if (api().minor >= 12)
    start_monitoring();
  else
    start_profile();
  api().error_clear();
  window::announce();
}

}  // namespace torchprof::python
