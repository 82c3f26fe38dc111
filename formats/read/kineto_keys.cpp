#include "formats/read/kineto_keys.h"

namespace torchprof::formats {
namespace {

using Key = KinetoKey;

constexpr std::array<std::pair<std::string_view, Key>, 55> kKeys = {{
    {"Device Type", Key::kDeviceType},
    {"Device Id", Key::kDeviceId},
    {"Addr", Key::kAddress},
    {"Bytes", Key::kBytes},
    {"Total Allocated", Key::kAllocated},
    {"Total Reserved", Key::kReserved},
    {"Step ends with", Key::kEndsWith},
    {"Backward", Key::kBackward},
    {"Asynchronous", Key::kAsync},
    {"Cut at begin, ns", Key::kCutBegin},
    {"Cut at end, ns", Key::kCutEnd},
    {"name", Key::kName},
    {"path", Key::kPath},
    {"ph", Key::kPhase},
    {"cat", Key::kCategory},
    {"pid", Key::kPid},
    {"tid", Key::kTid},
    {"ts", Key::kTime},
    {"dur", Key::kDuration},
    {"labels", Key::kLabels},
    {"Python line", Key::kLine},
    {"Module", Key::kModule},
    {"Module path", Key::kModulePath},
    {"Module root", Key::kModuleRoot},
    {"FLOPs", Key::kFlops},
    {"External id", Key::kExternalId},
    {"external id", Key::kExternalId},
    {"correlation", Key::kCorrelation},
    {"blocks per SM", Key::kBlocksPerSm},
    {"est. achieved occupancy %", Key::kOccupancy},
    {"id", Key::kId},
    {"traceEvents", Key::kTraceEvents},
    {"modules", Key::kModules},
    {"window", Key::kWindow},
    {"device", Key::kDevice},
    {"stream", Key::kStream},
    {"bytes", Key::kWorkBytes},
    {"cuda_sync_kind", Key::kSyncKind},
    {"wait_on_stream", Key::kWaitsForStream},
    {"wait_on_cuda_event_record_corr_id", Key::kWaitsForRecord},
    {"Collective name", Key::kCollective},
    {"In msg nelems", Key::kInElements},
    {"Out msg nelems", Key::kOutElements},
    {"dtype", Key::kType},
    {"Process Group Name", Key::kGroup},
    {"Process Group Description", Key::kGroupDescription},
    {"Process Group Ranks", Key::kGroupRanks},
    {"distributedInfo", Key::kDistributed},
    {"rank", Key::kRank},
    {"Sequence number", Key::kSequence},
    {"Input Dims", Key::kInputDims},
    {"Input Strides", Key::kInputStrides},
    {"Input type", Key::kInputTypes},
    {"Concrete Inputs", Key::kInputConcrete},
    {"Inputs left out", Key::kInputsLeftOut},
}};

}  // namespace

KinetoKeys::KinetoKeys() {
  for (const Entry& key : kKeys) {
    size_t place = place_of(key.first);
    while (places_[place] != nullptr) place = (place + 1) % kPlaces;
    places_[place] = &key;
  }
}

KinetoKey KinetoKeys::of(std::string_view text) const {
  if (text.empty()) return Key::kOther;
  for (size_t place = place_of(text); places_[place] != nullptr; place = (place + 1) % kPlaces)
    if (places_[place]->first == text) return places_[place]->second;
  return Key::kOther;
}

}  // namespace torchprof::formats
