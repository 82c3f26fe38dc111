#include "formats/replay/slice_kind.h"

namespace torchprof::formats {

std::string_view kind_of(const Slice& slice, NameRole role) {
  switch (slice.kind) {
    case SliceKind::kPython:
      return role == NameRole::kModule ? "module" : role == NameRole::kOptimizer ? "optimizer" : "function";
    case SliceKind::kCCall:
      return "c_call";
    case SliceKind::kGc:
      return "gc";
    case SliceKind::kBlind:
      return "blind";
    case SliceKind::kOperator:
      break;
  }
  switch (slice.scope) {
    case OpScope::kFunction:
      return "op";
    case OpScope::kBackwardFunction:
      return "backward";
    case OpScope::kTorchScriptFunction:
      return "torchscript";
    case OpScope::kUserScope:
      return "annotation";
    case OpScope::kNvtx:
      return "nvtx";
    default:
      return "other";
  }
}

}  // namespace torchprof::formats
