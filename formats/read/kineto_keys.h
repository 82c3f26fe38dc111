// The keys of Kineto's JSON that a reader looks at.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace torchprof::formats {

enum class KinetoKey : uint8_t {
  kOther,
  kDeviceType,  // the first of kMemoryArguments arguments of "[memory]"
  kDeviceId,
  kAddress,
  kBytes,
  kAllocated,
  kReserved,
  kEndsWith,
  kBackward,
  kAsync,
  kName,
  kPath,
  kPhase,
  kCategory,
  kPid,
  kTid,
  kTime,
  kDuration,
  kLabels,
  kLine,
  kModule,
  kModulePath,
  kModuleRoot,
  kFlops,
  kExternalId,
  kCorrelation,
  kBlocksPerSm,
  kOccupancy,
  kId,
  kTraceEvents,
  kModules,
  kWindow,
  kDevice,
  kStream,
  kWorkBytes,
  kSyncKind,
  kWaitsForStream,
  kWaitsForRecord,
  kCollective,
  kInElements,
  kOutElements,
  kType,
  kGroup,
  kGroupDescription,
  kGroupRanks,
  kDistributed,
  kRank,
  kCutBegin,
  kCutEnd,
  kSequence,
  kInputDims,  // the first of those that KinetoInputs takes, in the order of its lists
  kInputStrides,
  kInputTypes,
  kInputConcrete,
  kInputsLeftOut,
};
inline constexpr size_t kMemoryArguments = 6;

// Finds a key by its text, whatever the depth at which it stands; kOther for any other text. Most of a file are
// arguments that nobody asks for: nearly all of them are told from every key by their length and three characters.
class KinetoKeys {
 public:
  KinetoKeys();
  KinetoKey of(std::string_view text) const;

 private:
  using Entry = std::pair<std::string_view, KinetoKey>;
  static constexpr size_t kPlaces = 256;  // several times as many as there are keys
  // With these factors each of today's keys has a place of its own.
  static size_t place_of(std::string_view text) {
    const auto at = [text](size_t i) { return static_cast<size_t>(static_cast<unsigned char>(text[i])); };
    return (text.size() + at(0) * 2 + at(text.size() - 1) * 10 + at(text.size() / 2) * 4) % kPlaces;
  }
  std::array<const Entry*, kPlaces> places_{};
};

}  // namespace torchprof::formats
