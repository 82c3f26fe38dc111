#include "launcher/attach/remote_script.h"

namespace torchprof::launcher {
namespace {

// In _Py_DebugOffsets; the same in both versions.
constexpr uint64_t kVersion = 8, kInterpretersHead = 40, kInterpreterSize = 48, kMainThread = 80, kGilLocked = 144,
                   kGilHolder = 152;
// Of its member debugger_support: {eval_breaker, remote_debugger_support, remote_debugging_enabled,
// debugger_pending_call, debugger_script_path, debugger_script_path_size}.
constexpr uint64_t kBreaker = 0, kSupport = 8, kEnabled = 16, kPending = 24, kPath = 32, kPathSize = 40;
constexpr uint64_t kPleaseStop = 1 << 5;  // _PY_EVAL_PLEASE_STOP_BIT

struct Row {
  uint32_t minor;
  uint64_t support;  // byte of debugger_support in the table
};
constexpr Row kRows[] = {{14, 712}, {15, 840}};

}  // namespace

RemoteScript::RemoteScript(const Image& image) : image_(image) {
  runtime_ = image.symbol("", "_PyRuntime").address;
  char cookie[8] = "";
  if (runtime_ == 0 || !image.read(runtime_, cookie, sizeof(cookie)) || std::string_view(cookie, 8) != "xdebugpy") {
    why_ = "its interpreter has no table of offsets (PEP 768)";
    return;
  }
  const auto minor = static_cast<uint32_t>(offset(kVersion) >> 16 & 0xff);
  for (const Row& row : kRows)
    if (row.minor == minor) support_ = row.support;
  if (support_ == 0) {
    why_ = "Python 3." + std::to_string(minor) + " is newer than this version knows";
    return;
  }
  interpreter_ = image.value<uint64_t>(runtime_ + offset(kInterpretersHead));
  constexpr uint64_t kLargestPath = 4096;
  const uint64_t room = offset(support_ + kPathSize);
  if (interpreter_ == 0 || room == 0 || room > kLargestPath || offset(support_ + kEnabled) >= offset(kInterpreterSize))
    why_ = "its table of offsets (PEP 768) is not what this version knows";
  else if (image.value<int32_t>(interpreter_ + offset(support_ + kEnabled)) != 1)
    why_ = "remote debugging was switched off for it (PYTHON_DISABLE_REMOTE_DEBUG or -X disable-remote-debug)";
}

bool RemoteScript::ask(uint64_t thread, const std::string& path) {
  if (thread == 0 || path.size() >= offset(support_ + kPathSize)) return false;
  asked_.push_back(thread);
  const uint64_t support = thread + offset(support_ + kSupport);
  const int32_t pending = 1;
  if (!image_.write(support + offset(support_ + kPath), path.c_str(), path.size() + 1) ||
      !image_.write(support + offset(support_ + kPending), &pending, sizeof(pending)))
    return false;
  const uint64_t breaker_at = thread + offset(support_ + kBreaker);
  uint64_t breaker = 0;
  if (!image_.read(breaker_at, &breaker, sizeof(breaker))) return false;
  breaker |= kPleaseStop;
  return image_.write(breaker_at, &breaker, sizeof(breaker));
}

void RemoteScript::cancel() {
  const int32_t none = 0;
  for (const uint64_t thread : asked_)
    image_.write(thread + offset(support_ + kSupport) + offset(support_ + kPending), &none, sizeof(none));
  asked_.clear();
}

bool RemoteScript::ask_main(const std::string& path) {
  return ask(image_.value<uint64_t>(interpreter_ + offset(kMainThread)), path);
}

bool RemoteScript::ask_holder(const std::string& path) {
  if (image_.value<int32_t>(interpreter_ + offset(kGilLocked)) == 0) return false;
  return ask(image_.value<uint64_t>(interpreter_ + offset(kGilHolder)), path);
}

}  // namespace torchprof::launcher
