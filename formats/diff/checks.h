// Judges a diff by the limits of --fail-over and of a budget.
#pragma once

#include <string>

#include "formats/diff/diff.h"

namespace torchprof::formats {

void add_checks(Diff& diff, const DiffOptions& options);

// The quantity of a metric in a row of its table.
const Quantity& quantity(Metric metric, const DiffRow& row);
// The metric whose table has this metric.
Metric table_of(Metric metric);
// "+12.3 %", "new", "gone"
std::string change_text(const Quantity& quantity, Fate fate);
// "<0.001"; "-" if nothing was tested.
std::string p_text(const Quantity& quantity);
std::string amount_text(Metric metric, double value);
// Of a table, for people.
std::string diff_title(Metric metric, bool by_step);
// "slower", "faster"; empty: nothing can be said.
std::string verdict(const DiffRow& row);

}  // namespace torchprof::formats
