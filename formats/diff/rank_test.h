// The Mann-Whitney U test of two samples, and Holm's correction for many of them.
//
// The test asks whether values of one sample tend to be larger than those of the other. It assumes no distribution, so
// the long tails of times do no harm. It does assume that all values are independent: where neighbouring steps depend
// on each other (a machine that is busy for a while) p is too small. Distributions that differ only in shape may count
// as a difference, too.
// Sources: H. B. Mann, D. R. Whitney, Ann. Math. Statist. 18 (1947) 50-60; S. Holm, Scand. J. Statist. 6 (1979) 65-70.
#pragma once

#include <cstddef>
#include <vector>

namespace torchprof::formats {

// Two-sided p: exact for at most 40 values without ties, otherwise by the normal distribution, corrected for ties and
// continuity. 1 for an empty sample.
double rank_test(const std::vector<double>& a, const std::vector<double>& b);

// The p values, corrected for their number, in the same order: with the corrected ones the chance that any of the tests
// finds a difference where there is none is at most the limit that is applied to them.
std::vector<double> holm(const std::vector<double>& p);

double median(std::vector<double> values);  // 0 if there are none

}  // namespace torchprof::formats
