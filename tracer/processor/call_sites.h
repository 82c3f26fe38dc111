// What code does with the answer of a function that it calls, read from the code. Shows of a library that nobody has
// tried whether the answer may be another one.
//
// x86-64 alone; elsewhere nothing is known of any code. Reads all of it once, a millisecond for a megabyte or so.
// Allocates nothing. Any thread; the code stays mapped.
//
// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2 (CALL, JMP, JCC, MOV, TEST, ENDBR64);
// the code that gcc and clang make of `if (f())` and `if (f() != nullptr)` for a function that is imported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace torchprof::processor {

struct Code {
  const unsigned char* begin = nullptr;
  const unsigned char* end = nullptr;
};

// Whether the code behind a call looks at nothing of a returned pointer but whether it is nullptr: it tests the whole
// register and branches; before that it may only load other registers from the stack or from an object. `size` bytes
// can be read.
inline bool is_compared_with_null(const unsigned char* after_call, size_t size) noexcept {
#if defined(__x86_64__)
  constexpr int kMostLoads = 4;
  const unsigned char *p = after_call, *const end = after_call + size;
  for (int loads = 0; end - p >= 16; ++loads) {
    constexpr unsigned char kTest[] = {0x48, 0x85, 0xc0};  // test %rax, %rax
    if (memcmp(p, kTest, sizeof(kTest)) == 0)
      return p[3] == 0x74 || p[3] == 0x75 || (p[3] == 0x0f && (p[4] == 0x84 || p[4] == 0x85));
    // mov from memory into a register of 8 bytes: REX.W, 8b, ModRM, SIB, displacement.
    const unsigned rex = p[0], modrm = p[2], mode = modrm >> 6, base = modrm & 7;
    const bool is_load = (rex & 0xf8) == 0x48 && p[1] == 0x8b && mode != 3;
    const bool is_into_rax = (rex & 4) == 0 && (modrm >> 3 & 7) == 0;
    const bool is_from_rax = (rex & 1) == 0 && base == 0;
    const bool has_sib = base == 4;
    // An index, or an address relative to the instruction.
    const bool is_odd = (has_sib && (p[3] >> 3 & 7) != 4) || (mode == 0 && base == 5);
    if (loads == kMostLoads || !is_load || is_into_rax || is_from_rax || is_odd) return false;
    p += 3 + (has_sib ? 1 : 0) + (mode == 1 ? 1 : mode == 2 ? 4 : 0);
  }
#else
  (void)after_call, (void)size;
#endif
  return false;
}

namespace detail {
#if defined(__x86_64__)
inline constexpr size_t kMostStubs = 8;

inline int32_t distance_at(const unsigned char* code) noexcept {
  int32_t distance = 0;
  memcpy(&distance, code, sizeof(distance));
  return distance;
}

// For each instruction of `size` bytes that begins with these, and ends with a distance from the next instruction.
template <class Visit>
void for_each_relative(const Code& code, const char* begins, size_t prefix, Visit visit) noexcept {
  const size_t size = prefix + sizeof(int32_t);
  for (const unsigned char* p = code.begin; p && p + size <= code.end; ++p) {
    p = static_cast<const unsigned char*>(memchr(p, static_cast<unsigned char>(begins[0]), code.end - p - size + 1));
    if (!p) break;
    if (prefix == 1 || p[1] == static_cast<unsigned char>(begins[1])) visit(p, p + size + distance_at(p + prefix));
  }
}

class Calls {
 public:
  explicit Calls(std::span<const void* const> slots) noexcept : slots_(slots) {}

  // Of all code, before look().
  void find_stubs(const Code& code) noexcept {
    for_each_relative(code, "\xff\x25", 2, [this](const unsigned char* jump, const unsigned char* slot) {
      if (!is_slot(slot)) return;
      if (stub_count_ < kMostStubs) stubs_[stub_count_++] = jump;
      if (stub_count_ == kMostStubs) is_right_ = false;
    });
  }
  void look(const Code& code) noexcept {
    for_each_relative(code, "\xe8", 1, [&](const unsigned char* call, const unsigned char* called) {
      if (is_stub(called)) count(call + 5, code.end);
    });
    for_each_relative(code, "\xff\x15", 2, [&](const unsigned char* call, const unsigned char* slot) {
      if (is_slot(slot)) count(call + 6, code.end);
    });
    // Whoever called the function that ends so has the answer.
    for_each_relative(code, "\xe9", 1, [&](const unsigned char*, const unsigned char* target) {
      if (is_stub(target)) is_right_ = false;
    });
  }
  bool are_right() const noexcept { return is_right_ && count_ >= 2; }

 private:
  bool is_slot(const void* address) const noexcept {
    for (const void* slot : slots_)
      if (slot == address) return true;
    return false;
  }
  // A stub's jump may have `bnd` and ENDBR64 before it.
  bool is_stub(const unsigned char* target) const noexcept {
    for (size_t i = 0; i < stub_count_; ++i)
      if (const ptrdiff_t before = stubs_[i] - target; before == 0 || before == 1 || before == 4 || before == 5)
        return true;
    return false;
  }
  void count(const unsigned char* after, const unsigned char* end) noexcept {
    ++count_;
    if (!is_compared_with_null(after, static_cast<size_t>(end - after))) is_right_ = false;
  }

  std::span<const void* const> slots_;
  const unsigned char* stubs_[kMostStubs] = {};
  size_t stub_count_ = 0, count_ = 0;
  bool is_right_ = true;
};
#endif
}  // namespace detail

// Whether `code` calls the function whose address these slots hold (of its GOT) in at least two places, and does the
// above behind every call.
inline bool only_compares_with_null(std::span<const Code> code, std::span<const void* const> slots) noexcept {
#if defined(__x86_64__)
  detail::Calls calls(slots);
  for (const Code& part : code) calls.find_stubs(part);
  for (const Code& part : code) calls.look(part);
  return calls.are_right();
#else
  (void)code, (void)slots;
  return false;
#endif
}

}  // namespace torchprof::processor
