// Native stacks as an argument of events.
#pragma once

#include <string>
#include <vector>

#include "formats/io/output.h"
#include "formats/io/text.h"
#include "formats/trace/native_stacks.h"

namespace torchprof::formats::kineto {

class Stacks {
 public:
  explicit Stacks(const NativeStacks* stacks) : stacks_(stacks) {}  // nullptr: no native stacks

  bool has(NativeFrameId innermost) const { return stacks_ != nullptr && stacks_->has(innermost); }
  // ,"stack":["at::add","THPVariable_add"]      innermost first; only if has(innermost)
  void write(NativeFrameId innermost, Output& out) {
    std::string_view before = R"(,"stack":[)";
    stacks_->each_frame(innermost, [&](uint32_t text) {
      out.write(before);
      out.write(of(text));
      before = ",";
    });
    out.write(before == "," ? "]" : R"(,"stack":[])");
  }

 private:
  // Made once for each text.
  const std::string& of(uint32_t text) {
    if (quoted_.size() < stacks_->texts().size()) quoted_.resize(stacks_->texts().size());
    if (quoted_[text].empty()) quoted_[text] = json_string(stacks_->texts()[text]);
    return quoted_[text];
  }

  const NativeStacks* stacks_;
  std::vector<std::string> quoted_;
};

}  // namespace torchprof::formats::kineto
