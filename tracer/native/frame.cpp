#include "tracer/native/frame.h"

#include <dlfcn.h>

#include <atomic>
#include <cstring>

#include "tracer/processor/registers.h"

namespace torchprof::native {
namespace {

// libgcc's, unwind-dw2-fde.h: the same in every version since 3.0.
struct Bases {
  void* text;
  void* data;
  void* function;
};
using FindEntry = const uint8_t* (*)(void*, Bases*);

constexpr uint64_t kBpRegister = processor::kFrameRegister, kReturnRegister = processor::kReturnRegister;

// Never reads past the end: there it returns zeros, and `is_whole` becomes false.
struct Reader {
  const uint8_t* at;
  const uint8_t* end;
  bool is_whole = true;

  template <class T>
  T fixed() {
    T value{};
    if (static_cast<size_t>(end - at) < sizeof(T)) {
      at = end;
      is_whole = false;
    } else {
      memcpy(&value, at, sizeof(T));
      at += sizeof(T);
    }
    return value;
  }
  uint64_t unsigned_leb() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = fixed<uint8_t>();
      value |= uint64_t{byte & 0x7fu} << shift;
      if (!(byte & 0x80)) return value;
    }
    is_whole = false;
    return 0;
  }
  int64_t signed_leb() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = fixed<uint8_t>();
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte & 0x80) continue;
      if ((byte & 0x40) && shift + 7 < 64) value |= ~uint64_t{0} << (shift + 7);
      return static_cast<int64_t>(value);
    }
    is_whole = false;
    return 0;
  }
  Reader block() {
    const uint64_t size = unsigned_leb();
    if (size > static_cast<uint64_t>(end - at)) is_whole = false;
    const uint8_t* from = at;
    at = is_whole ? at + size : end;
    return {from, at};
  }
  bool done() const { return at >= end; }
};

// DW_EH_PE_*: bytes of a pointer in this encoding; 0: the length varies.
size_t size_of_pointer(uint8_t encoding) {
  switch (encoding & 0x07) {
    case 0x00:
    case 0x04:
      return 8;
    case 0x02:
      return 2;
    case 0x03:
      return 4;
    default:
      return 0;
  }
}

struct Common {  // of a CIE
  uint64_t code_align = 1;
  int64_t data_align = 1;
  uint8_t pointers = 0;  // the encoding of pointers
  bool has_augmentation = false;
  bool is_signal = false;
  Reader instructions{};
};

// 64-bit lengths, which no compiler writes into .eh_frame, are refused.
bool read_common(const uint8_t* cie, Common& out) {
  uint32_t length = 0;
  memcpy(&length, cie, sizeof(length));
  if (length == 0 || length >= 0xfffffff0) return false;
  Reader r{cie + 8, cie + 4 + length};
  const auto version = r.fixed<uint8_t>();
  const char* augmentation = reinterpret_cast<const char*>(r.at);
  while (r.fixed<uint8_t>() != 0 && r.is_whole) {
  }
  if (version != 1 && version != 3) return false;
  out.code_align = r.unsigned_leb();
  out.data_align = r.signed_leb();
  const uint64_t return_register = version == 1 ? r.fixed<uint8_t>() : r.unsigned_leb();
  if (!r.is_whole || return_register != kReturnRegister) return false;
  out.has_augmentation = *augmentation == 'z';
  Reader data = out.has_augmentation ? r.block() : Reader{r.at, r.at};
  for (const char* c = augmentation; *c; ++c) {
    if (*c == 'R') {
      out.pointers = data.fixed<uint8_t>();
    } else if (*c == 'P') {
      const size_t size = size_of_pointer(data.fixed<uint8_t>());
      if (size == 0) return false;
      data.at += size;
    } else if (*c == 'L') {
      data.fixed<uint8_t>();
    } else if (*c == 'S') {
      out.is_signal = true;
    } else if (*c != 'z' && *c != 'B') {  // B: return addresses are signed with the second key (AArch64)
      return false;
    }
  }
  out.instructions = r;
  return data.is_whole && r.is_whole;
}

struct Saved {  // where a caller's register is
  enum Is : uint8_t { kSame, kAtCfa, kAtBp, kUndefined, kOther } is = kSame;
  int64_t offset = 0;
};

struct Row {
  enum Cfa : uint8_t { kRegister, kAtBp, kOther } cfa_is = kOther;
  uint64_t cfa_register = 0;
  int64_t cfa_offset = 0;
  Saved bp;
  Saved ra;
};

constexpr uint8_t kOpBreg0 = 0x70, kOpDeref = 0x06;

// Only what compilers write for a frame that was realigned: *(bp + n).
void define_cfa(Row& row, Reader expression) {
  row.cfa_is = Row::kOther;
  if (expression.fixed<uint8_t>() != kOpBreg0 + kBpRegister) return;
  row.cfa_offset = expression.signed_leb();
  if (expression.fixed<uint8_t>() == kOpDeref && expression.done() && expression.is_whole) row.cfa_is = Row::kAtBp;
}

Saved saved_at(Reader expression) {
  if (expression.fixed<uint8_t>() != kOpBreg0 + kBpRegister) return {Saved::kOther};
  const int64_t offset = expression.signed_leb();
  return {expression.done() && expression.is_whole ? Saved::kAtBp : Saved::kOther, offset};
}

// Instructions of call frame information (DWARF 5, 7.24), DW_CFA_...
enum CallFrameOp : uint8_t {
  kNop = 0x00,
  kOffsetExtended = 0x05,
  kRestoreExtended = 0x06,
  kUndefined = 0x07,
  kSameValue = 0x08,
  kRegister = 0x09,
  kRememberState = 0x0a,
  kRestoreState = 0x0b,
  kDefCfa = 0x0c,
  kDefCfaRegister = 0x0d,
  kDefCfaOffset = 0x0e,
  kDefCfaExpression = 0x0f,
  kExpression = 0x10,
  kOffsetExtendedSigned = 0x11,
  kDefCfaSigned = 0x12,
  kDefCfaOffsetSigned = 0x13,
  kValueOffset = 0x14,
  kValueOffsetSigned = 0x15,
  kValueExpression = 0x16,
  kSignsWithPc = 0x2c,    // AArch64's: whether the return address is signed, which unsigned_address() need not know
  kSigns = 0x2d,          // as well
  kArgumentsSize = 0x2e,  // GNU's
};
constexpr bool is_of_register(uint8_t op) {
  return (op >= kOffsetExtended && op <= kRegister) || op == kExpression || op == kOffsetExtendedSigned ||
         (op >= kValueOffset && op <= kValueExpression);
}

// Runs the instructions of a CIE and its FDE up to `pc`.
class Program {
 public:
  Program(const Common& common, uintptr_t pc) : common_(common), pc_(pc) {}

  // False: something in them is not known.
  bool run(Reader r, uintptr_t location) {
    while (!r.done() && location <= pc_) {
      const auto op = r.fixed<uint8_t>();
      const uint64_t low = op & 0x3f;
      if (op >> 6 == 1) {
        location += low * common_.code_align;
      } else if (op >> 6 == 2) {
        set(low, {Saved::kAtCfa, static_cast<int64_t>(r.unsigned_leb()) * common_.data_align});
      } else if (op >> 6 == 3) {
        restore(low);
      } else if (op >= 0x02 && op <= 0x04) {
        const uint64_t delta = op == 2 ? r.fixed<uint8_t>() : op == 3 ? r.fixed<uint16_t>() : r.fixed<uint32_t>();
        location += delta * common_.code_align;
      } else if (!run_one(op, r)) {
        return false;
      }
    }
    return r.is_whole;
  }
  void keep_initial() { initial_ = row; }

  Row row;

 private:
  bool run_one(uint8_t op, Reader& r) {
    switch (op) {
      case kNop:
        return true;
      case kSigns:
      case kSignsWithPc:
        return !processor::kCallPushes;
      case kRememberState:
        if (remembered_ == kMostRemembered) return false;
        stack_[remembered_++] = row;
        return true;
      case kRestoreState:
        if (remembered_ == 0) return false;
        row = stack_[--remembered_];
        return true;
      case kArgumentsSize:
        r.unsigned_leb();
        return true;
      default:
        return change_cfa(op, r) || change_register(op, r);
    }
  }

  // False: it does not concern the CFA.
  bool change_cfa(uint8_t op, Reader& r) {
    switch (op) {
      case kDefCfa:
      case kDefCfaSigned:
        row.cfa_is = Row::kRegister;
        row.cfa_register = r.unsigned_leb();
        row.cfa_offset = op == kDefCfa ? static_cast<int64_t>(r.unsigned_leb()) : r.signed_leb() * common_.data_align;
        return true;
      case kDefCfaRegister:
        row.cfa_is = Row::kRegister;
        row.cfa_register = r.unsigned_leb();
        return true;
      case kDefCfaOffset:
        row.cfa_offset = static_cast<int64_t>(r.unsigned_leb());
        return true;
      case kDefCfaOffsetSigned:
        row.cfa_offset = r.signed_leb() * common_.data_align;
        return true;
      case kDefCfaExpression:
        define_cfa(row, r.block());
        return true;
      default:
        return false;
    }
  }

  // The register comes first. False: it is not known.
  bool change_register(uint8_t op, Reader& r) {
    if (!is_of_register(op)) return false;
    const uint64_t reg = r.unsigned_leb();
    switch (op) {
      case kOffsetExtended:
        set(reg, {Saved::kAtCfa, static_cast<int64_t>(r.unsigned_leb()) * common_.data_align});
        return true;
      case kOffsetExtendedSigned:
        set(reg, {Saved::kAtCfa, r.signed_leb() * common_.data_align});
        return true;
      case kRestoreExtended:
        restore(reg);
        return true;
      case kUndefined:
        set(reg, {Saved::kUndefined});
        return true;
      case kSameValue:
        set(reg, {Saved::kSame});
        return true;
      case kRegister:
      case kValueOffset:
      case kValueOffsetSigned:
        r.unsigned_leb();
        set(reg, {Saved::kOther});
        return true;
      case kExpression:
        set(reg, saved_at(r.block()));
        return true;
      case kValueExpression:
        r.block();
        set(reg, {Saved::kOther});
        return true;
      default:
        return false;
    }
  }

  void set(uint64_t reg, Saved saved) {
    if (reg == kBpRegister) row.bp = saved;
    if (reg == kReturnRegister) row.ra = saved;
  }
  void restore(uint64_t reg) {
    if (reg == kBpRegister) row.bp = initial_.bp;
    if (reg == kReturnRegister) row.ra = initial_.ra;
  }

  static constexpr int kMostRemembered = 8;
  const Common& common_;
  const uintptr_t pc_;
  Row initial_;
  Row stack_[kMostRemembered];
  int remembered_ = 0;
};

FrameRule rule_of(const Row& row, uintptr_t pc) {
  FrameRule rule{.pc = pc};
  if (row.ra.is == Saved::kUndefined) {
    rule.cfa_is = FrameRule::kEnd;
    return rule;
  }
  if (row.ra.is != Saved::kAtCfa || !rule.return_at.set(row.ra.offset)) return rule;
  if (row.cfa_offset != static_cast<int32_t>(row.cfa_offset)) return rule;
  rule.cfa = static_cast<int32_t>(row.cfa_offset);
  if (row.bp.is == Saved::kAtCfa || row.bp.is == Saved::kAtBp) {
    rule.bp = static_cast<decltype(rule.bp)>(row.bp.offset);
    if (row.bp.offset != rule.bp) return rule;
    rule.bp_is = row.bp.is == Saved::kAtCfa ? FrameRule::kAtCfa : FrameRule::kAtFrameBp;
  }
  // A bp that is saved in another way counts as unchanged: nearly all callers are found by the stack pointer and do not
  // need it, and step() checks addresses before it reads there.
  if (row.cfa_is == Row::kAtBp)
    rule.cfa_is = FrameRule::kAtBp;
  else if (row.cfa_is == Row::kRegister && row.cfa_register == processor::kStackRegister)
    rule.cfa_is = FrameRule::kSp;
  else if (row.cfa_is == Row::kRegister && row.cfa_register == kBpRegister)
    rule.cfa_is = FrameRule::kBp;
  return rule;
}

extern "C" const uint8_t* _Unwind_Find_FDE(void* pc, Bases* bases);

// _Unwind_Find_FDE of the program's own libgcc: it knows what JIT compilers have registered.
std::atomic<FindEntry> g_theirs{nullptr};

struct Entry {  // of a function: its FDE
  Common common;
  Reader instructions{};
  uintptr_t start = 0;
  uintptr_t size = 0;
};

// DW_EH_PE_*: the plain number, whatever it is relative to.
uintptr_t plain_number(Reader& r, size_t size) {
  return size == 8 ? r.fixed<uint64_t>() : size == 4 ? r.fixed<uint32_t>() : r.fixed<uint16_t>();
}

bool find_entry(uintptr_t pc, Entry& entry) noexcept {
  Bases bases{};
  // The call instruction lies before the address to which it returns.
  auto* const inside = reinterpret_cast<void*>(pc - 1);
  const uint8_t* fde = _Unwind_Find_FDE(inside, &bases);
  if (!fde)
    if (const FindEntry theirs = g_theirs.load(std::memory_order_relaxed)) fde = theirs(inside, &bases);
  if (!fde) return false;
  uint32_t length = 0, to_cie = 0;
  memcpy(&length, fde, sizeof(length));
  memcpy(&to_cie, fde + 4, sizeof(to_cie));
  if (length == 0 || length >= 0xfffffff0 || to_cie == 0) return false;
  if (!read_common(fde + 4 - to_cie, entry.common)) return false;
  const size_t pointer = size_of_pointer(entry.common.pointers);
  if (pointer == 0) return false;
  Reader r{fde + 8, fde + 4 + length};
  r.at += pointer;  // the address of the function, which `bases` has
  entry.size = plain_number(r, pointer);
  entry.start = reinterpret_cast<uintptr_t>(bases.function);
  if (entry.common.has_augmentation) r.block();
  entry.instructions = r;
  return r.is_whole;
}

}  // namespace

void find_registered_frames() noexcept {
  g_theirs.store(reinterpret_cast<FindEntry>(dlsym(RTLD_DEFAULT, "_Unwind_Find_FDE")), std::memory_order_relaxed);
}

CodeRange function_at(uintptr_t pc) noexcept {
  Entry entry;
  return find_entry(pc, entry) ? CodeRange{entry.start, entry.size} : CodeRange{};
}

FrameRule find_rule(uintptr_t pc) noexcept {
  const FrameRule unknown{.pc = pc};
  Entry entry;
  if (!find_entry(pc, entry) || entry.common.is_signal) return unknown;
  const auto& [common, r, start, size] = entry;
  Program program(common, pc - 1);
  if (!r.is_whole || !program.run(common.instructions, start)) return unknown;
  program.keep_initial();
  if (!program.run(r, start)) return unknown;
  return rule_of(program.row, pc);
}

}  // namespace torchprof::native
