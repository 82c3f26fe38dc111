// What sources keep of each thread. Here is only where it lies and how large it is: what is in it is the source's own,
// and begins as zeros. A source states a type with the place that it takes:
//
//     struct OnThread {
//       static constexpr Part kPart = Part::kPython;
//       uint32_t epoch;
//     };
//     buffer.sources.part<OnThread>().epoch
//
// A part lies in the thread's buffer: for the few bytes that are looked at on every event. A mapping (kMapping) is
// memory of its own, made when the thread first needs it and given back at its end: for what is large, or what most
// threads never need.
//
// Belongs to one thread; no source sees another thread's. A forked child begins without any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>

namespace torchprof {

enum class Part : uint8_t { kPython, kTorch, kPythonCall };
// Operators look at theirs every time: the first lies in the second cache line of a buffer.
enum class Mapping : uint8_t { kTorchInputs, kPythonLines, kNative, kNvtx, kPythonImports };

class SourceMemory {
 public:
  template <class T>
  T& part() noexcept {
    static_assert(sizeof(T) <= kPartBytes[static_cast<size_t>(T::kPart)] && alignof(T) <= alignof(uint64_t));
    static_assert(std::is_trivially_destructible_v<T>);
    return *reinterpret_cast<T*>(parts_ + begin_of(T::kPart));
  }

  // nullptr: map() has not made it.
  template <class T>
  T* mapped() noexcept {
    static_assert(std::is_trivially_destructible_v<T>);
    return static_cast<T*>(mappings_[static_cast<size_t>(T::kMapping)]);
  }
  // Makes it if need be; nullptr: there is no memory, or the process is sealed (process/seal.h).
  template <class T>
  T* map() noexcept {
    T* known = mapped<T>();
    return known ? known : static_cast<T*>(map(T::kMapping, sizeof(T)));
  }
  // From now on a thread that seals the process has it made before. Any thread, any number of times.
  template <class T>
  static void map_before_seal() noexcept {
    map_before_seal(T::kMapping, sizeof(T));
  }

  // For the session: at the seal, and at the thread's end.
  void map_ahead() noexcept;
  void unmap() noexcept;

 private:
  // In the order of Part. They lie in the second cache line of a buffer (thread_buffer.h).
  static constexpr size_t kPartBytes[] = {8, 8, 24};
  static constexpr size_t begin_of(Part part) noexcept {
    size_t at = 0;
    for (size_t i = 0; i < std::size(kPartBytes) && i < static_cast<size_t>(part); ++i) at += kPartBytes[i];
    return at;
  }
  static constexpr size_t kAllParts = 8 + 8 + 24;
  static constexpr size_t kMappings = 5;

  void* map(Mapping mapping, size_t bytes) noexcept;
  static void map_before_seal(Mapping mapping, size_t bytes) noexcept;

  alignas(uint64_t) std::byte parts_[kAllParts] = {};
  void* mappings_[kMappings] = {};
};

}  // namespace torchprof
