#include "tracer/objects/layouts.h"

namespace torchprof::torch {
namespace {

constexpr Row kRows[] = {
    {200, 248, 256, 264, 208, 0, 32, "1.13 to 2.3, C++11 strings"},      // [M] 1.13.1
    {176, 224, 232, 240, 184, 0, 8, "1.13 to 2.3, old strings"},         // [M] 1.13.1
    {200, 304, 312, 320, 208, 224, 32, "2.4 and later, C++11 strings"},  // [M] 2.6.0, 2.14.1
    {176, 280, 288, 296, 184, 200, 8, "2.4 to 2.6, old strings"},        // [M] 2.6.0
};

// PyObjectSlot shrank from 16 bytes to 8 between 2.11 and 2.14; in which release is not known.
constexpr ObjectRow kObjectRows[] = {
    {24, 72, DeviceOrder::kFlagFirst, "1.13"},                              // [M] 1.13.1; [S] 2.0
    {24, 72, DeviceOrder::kFlagLast, "2.0 to 2.2, std::optional devices"},  // [S]
    {16, 64, DeviceOrder::kFlagLast, "2.3 to 2.11"},                        // [M] 2.6.0, 2.11.0
    {16, 56, DeviceOrder::kFlagLast, "2.14"},                               // [M] 2.14.1
};

// The tags of None (0) and Tensor (1) are the same in all versions.
constexpr TagRow kTagRows[] = {
    {3, 4, 5, 8, 10, 12, 2, "1.13"},          // [M] 1.13.1
    {3, 4, 5, 9, 11, 13, 3, "2.0 to 2.8"},    // [M] 2.6.0
    {3, 4, 5, 10, 12, 14, 3, "2.9 to 2.14"},  // [M] 2.11.0, 2.14.1
};

// The constructor's name: torch::ParamCommsDebugInfo(BEFORE std::string&& name, COUNTS c10::ScalarType,
// std::vector<int64_t>, std::vector<int64_t> AFTER). SUBSTITUTED stands for the vector, which is named once.
#define TORCHPROF_COMMS(before, string, counts, substituted, after) \
  "_ZN5torch19ParamCommsDebugInfoC1E" before string counts "N3c1010ScalarTypeESt6vectorIlSaIlEE" substituted after
#define TORCHPROF_STRING "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"

constexpr CommsRow kCommsRows[] = {
    // C++11 strings
    {TORCHPROF_COMMS("iO", TORCHPROF_STRING, "ii", "SC_", ""), 0, 0, 0, 8, 0, 16, 48, false, 56, 64, 0, 0, 0, 0,
     "1.13, C++11 strings"},  // [M] 1.13.1
    {TORCHPROF_COMMS("iO", TORCHPROF_STRING, "ii", "SC_", "i"), 0, 0, 0, 8, 12, 16, 48, false, 56, 64, 0, 0, 0, 0,
     "2.2, C++11 strings"},  // [S] 2.2.2
    {TORCHPROF_COMMS("iiO", TORCHPROF_STRING, "ii", "SC_", "iii"), 8, 0, 0, 12, 16, 24, 56, false, 64, 72, 120, 0, 0, 0,
     "group by number, C++11 strings"},  // [S]
    {TORCHPROF_COMMS("St5tupleIJ" TORCHPROF_STRING "S7_EEiO", "S7_", "ii", "SE_", "iii"), 0, 40, 8, 72, 76, 80, 112,
     false, 120, 128, 176, 0, 0, 0, "before 2.6, C++11 strings"},  // [S]
    {TORCHPROF_COMMS("St5tupleIJ" TORCHPROF_STRING "S7_EEiO", "S7_", "ll", "SE_", "iii"), 0, 40, 8, 72, 76, 80, 112,
     true, 128, 136, 184, 0, 0, 0, "2.6, C++11 strings"},  // [M] 2.6.0
    {TORCHPROF_COMMS("St5tupleIJ" TORCHPROF_STRING "S7_EEiO", "S7_", "ll", "SE_", "iiib"), 0, 40, 8, 72, 76, 80, 112,
     true, 128, 136, 184, 216, 224, 214, "2.14, C++11 strings"},  // [M] 2.14.1
    // old strings: 8 bytes instead of 32
    {TORCHPROF_COMMS("iO", "Ss", "ii", "S6_", ""), 0, 0, 0, 8, 0, 16, 24, false, 32, 40, 0, 0, 0, 0,
     "1.13, old strings"},  // [S]
    {TORCHPROF_COMMS("iO", "Ss", "ii", "S6_", "i"), 0, 0, 0, 8, 12, 16, 24, false, 32, 40, 0, 0, 0, 0,
     "2.2, old strings"},  // [S]
    {TORCHPROF_COMMS("iiO", "Ss", "ii", "S6_", "iii"), 8, 0, 0, 12, 16, 24, 32, false, 40, 48, 96, 0, 0, 0,
     "group by number, old strings"},  // [S]
    {TORCHPROF_COMMS("St5tupleIJSsSsEEiO", "Ss", "ii", "S8_", "iii"), 0, 16, 8, 24, 28, 32, 40, false, 48, 56, 104, 0,
     0, 0, "before 2.6, old strings"},  // [S]
    {TORCHPROF_COMMS("St5tupleIJSsSsEEiO", "Ss", "ll", "S8_", "iii"), 0, 16, 8, 24, 28, 32, 40, true, 56, 64, 112, 0, 0,
     0, "2.6, old strings"},  // [S]
};
#undef TORCHPROF_COMMS
#undef TORCHPROF_STRING

}  // namespace

std::span<const CommsRow> comms_rows() noexcept { return kCommsRows; }
std::span<const Row> record_function_rows() noexcept { return kRows; }
std::span<const ObjectRow> object_rows() noexcept { return kObjectRows; }
std::span<const TagRow> tag_rows() noexcept { return kTagRows; }

ValueRow compose(const ObjectRow& object, const TagRow& tag) noexcept {
  const auto byte = [](uint32_t number) { return static_cast<uint8_t>(number); };
  return {&object,           &tag,
          object.refcounted, object.sizes,
          object.device,     byte(tag.real),
          byte(tag.complex), byte(tag.integer),
          byte(tag.boolean), byte(tag.string),
          byte(tag.list),    byte(tag.symbols)};
}

}  // namespace torchprof::torch
