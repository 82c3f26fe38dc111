#include "tracer/torch_layouts.h"

namespace torchprof::torch {
namespace {

constexpr Row kRows[] = {
    {200, 248, 256, 264, 208, 0, 32, "1.13 to 2.3, C++11 strings"},      // [M] 1.13.1
    {176, 224, 232, 240, 184, 0, 8, "1.13 to 2.3, old strings"},         // [M] 1.13.1
    {200, 304, 312, 320, 208, 224, 32, "2.4 and later, C++11 strings"},  // [M] 2.6.0, 2.14.1
    {176, 280, 288, 296, 184, 200, 8, "2.4 to 2.6, old strings"},        // [M] 2.6.0
};

// None 0, Tensor 1, Double 3, ComplexDouble 4 and Int 5 are the same in all.
constexpr ValueRow kValueRows[] = {
    {113, 113, 24, 72, 8, 10, 12, DeviceOrder::kFlagFirst, "1.13"},          // [M] 1.13.1
    {200, 202, 24, 72, 9, 11, 13, DeviceOrder::kEither, "2.0 to 2.2"},       // [S]
    {203, 208, 16, 64, 9, 11, 13, DeviceOrder::kFlagLast, "2.3 to 2.8"},     // [M] 2.6.0
    {209, 209, 16, 64, 10, 12, 14, DeviceOrder::kFlagLast, "2.9"},           // [S]
    {210, 214, 16, 56, 10, 12, 14, DeviceOrder::kFlagLast, "2.10 to 2.14"},  // [M] 2.14.1
};

}  // namespace

std::span<const Row> record_function_rows() noexcept { return kRows; }
std::span<const ValueRow> value_rows() noexcept { return kValueRows; }

}  // namespace torchprof::torch
