// A diff as a page for the browser: each table in a tab of its own, and the two runs side by side. As
// formats/report/page.h, it is one file that fetches nothing.
#pragma once

#include <string>

#include "formats/diff/diff.h"
#include "formats/io/output.h"

namespace torchprof::formats {

struct RunOfPair {
  std::string name;  // as the user named it
  std::string json;  // of run_for_pair() (formats/report/page.h)
};
void write_diff_html(const Diff& diff, const RunOfPair& base, const RunOfPair& now, Output& out);

}  // namespace torchprof::formats
