// Native stacks as arguments of events.
#pragma once

#include <string>
#include <vector>

#include "formats/native_stacks.h"
#include "formats/output.h"
#include "formats/text.h"

namespace torchprof::formats {

class KinetoStacks {
 public:
  // ,"stack":["at::add","THPVariable_add"]      innermost first
  void write(const NativeStacks& stacks, NativeFrameId innermost, Output& out) {
    std::string_view before = R"(,"stack":[)";
    stacks.each_frame(innermost, [&](uint32_t text) {
      out.write(before);
      out.write(of(stacks, text));
      before = ",";
    });
    out.write(before == "," ? "]" : R"(,"stack":[])");
  }

 private:
  // Made once for each text.
  const std::string& of(const NativeStacks& stacks, uint32_t text) {
    if (quoted_.size() < stacks.texts().size()) quoted_.resize(stacks.texts().size());
    if (quoted_[text].empty()) quoted_[text] = json_string(stacks.texts()[text]);
    return quoted_[text];
  }

  std::vector<std::string> quoted_;
};

}  // namespace torchprof::formats
