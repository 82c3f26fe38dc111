// The Mann-Whitney U test of two samples, and Holm's correction for many of them.
//
// Asked is whether values of one sample tend to be larger than those of the other; no distribution is assumed, so that
// the long tails of times do no harm. The samples are taken to be independent of each other, within and between: where
// neighbouring steps depend on each other (a machine that is busy for a while) p is too small. Distributions that
// differ in shape alone may count as a difference too. H. B. Mann, D. R. Whitney, Ann. Math. Statist. 18 (1947) 50-60;
// S. Holm, Scand. J. Statist. 6 (1979) 65-70.
#pragma once

#include <cstddef>
#include <vector>

namespace torchprof::formats {

// Two-sided p: exact for at most 40 values without ties, otherwise by the normal distribution, corrected for ties and
// continuity. 1 for an empty sample.
double rank_test(const std::vector<double>& a, const std::vector<double>& b);

// Of as many tests as there are values: with these p each, the chance that any difference is found where there is none
// is at most the p that is asked for. In the same order.
std::vector<double> holm(const std::vector<double>& p);

double median(std::vector<double> values);  // 0 of none

}  // namespace torchprof::formats
