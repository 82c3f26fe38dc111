// How many samples or tokens the steps of a process work on, as far as the shapes of what its operators were given tell
// it for certain; where they do not, nothing is known.
//
//   call     of the one model of a step, that of a root module, which contains no call of a module around it. Where the
//            program trains only calls with gradients count, and a step may have several if it has as many backward
//            passes (gradients are accumulated)
//   samples  the first dimension of what the first convolution of a call is given, with as many dimensions as its
//            weight: those have a batch first (torch.nn.functional.conv1d to conv3d)
//   tokens   the elements of the indices of the first embedding of a call, with two dimensions, where the call has
//            attention or a recurrent layer and gradients. What a generation makes is no such number
//
// A model that begins with neither, several models in a step, as of a GAN, and steps that differ in this are not known.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/timeline/timeline.h"

namespace torchprof::formats {

// Of a typical step (the median); 0: not known, or none. One of them at most is known.
struct StepInput {
  int64_t samples = 0;
  int64_t tokens = 0;
};

// `row`: of the thread that runs the program. `steps`: sorted by begin, without overlaps.
StepInput step_input_of(const Timeline& timeline, uint32_t row, const std::vector<StepSpan>& steps);
// Of one of these ranks; known where it is of all of them.
StepInput mean_of(const std::vector<StepInput>& ranks);

}  // namespace torchprof::formats
