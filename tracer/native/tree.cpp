#include "tracer/native/tree.h"

#include "tracer/native/objects.h"
#include "tracer/process/seal.h"

namespace torchprof::native {
namespace {

constexpr uint64_t kFirstSlots = 8192;
constexpr uint32_t kOutermost = uint32_t{1} << 31;

}  // namespace

uint32_t FrameTree::find(const Table* table, uint32_t caller, uintptr_t pc) noexcept {
  if (!table) return 0;
  for (uint64_t i = hash(caller, pc);; ++i) {
    const Slot& slot = table->slots[i & table->mask];
    const uint32_t id = slot.id.load(std::memory_order_acquire);  // pairs with the release in put(): pc, caller are set
    if (id == 0 || (slot.pc == pc && slot.caller == caller)) return id;
  }
}

NativeFrameId FrameTree::frame(NativeFrameId caller, uintptr_t pc) noexcept {
  const uint32_t from = caller ? caller.value : kOutermost | age_.load(std::memory_order_relaxed);
  const uint32_t id = find(table_.load(std::memory_order_acquire), from, pc);  // pairs with grow(): the slots are set
  return id != 0 ? NativeFrameId{id} : add(from, pc);
}

void FrameTree::put(Table& table, uint32_t caller, uintptr_t pc, uint32_t id) noexcept {
  uint64_t i = hash(caller, pc);
  while (table.slots[i & table.mask].id.load(std::memory_order_relaxed) != 0) ++i;
  Slot& slot = table.slots[i & table.mask];
  slot.pc = pc;
  slot.caller = caller;
  slot.id.store(id, std::memory_order_release);  // pairs with find()
}

bool FrameTree::grow() noexcept {
  const Table* old = table_.load(std::memory_order_relaxed);
  const uint64_t slots = old ? (old->mask + 1) * 2 : kFirstSlots;
  void* memory = seal::map(sizeof(Table) + slots * sizeof(Slot));
  if (!memory) return false;
  auto* table = static_cast<Table*>(memory);  // zeroed by the kernel: every slot is free
  table->mask = slots - 1;
  for (uint64_t k = 0; old && k <= old->mask; ++k)
    if (const uint32_t id = old->slots[k].id.load(std::memory_order_relaxed); id != 0)
      put(*table, old->slots[k].caller, old->slots[k].pc, id);
  // The old table is leaked: a reader may be in it. All tables together are twice the last one.
  table_.store(table, std::memory_order_release);  // pairs with frame()
  return true;
}

[[gnu::noinline]] NativeFrameId FrameTree::add(uint32_t caller, uintptr_t pc) noexcept {
  session::DefinitionLock lock;
  Table* table = table_.load(std::memory_order_relaxed);
  if (const uint32_t id = find(table, caller, pc); id != 0) return {id};
  if ((!table || uint64_t{count_} * 2 > table->mask) && !grow()) return {};
  NativeFrameDef frame{};
  frame.id = {count_ + 1};
  if ((caller & kOutermost) == 0) frame.caller = {caller};
  const bool is_python = pc >> 63 != 0;
  if (is_python) frame.function = {static_cast<uint32_t>(pc >> 32) & 0x7fffffff};
  if (pc != 0 && !is_python) frame.object = object_at(lock, pc - 1);
  frame.pc = is_python ? pc & 0xffffffff : pc;
  if (frame.id.value >= kOutermost || !lock.define(frame)) return {};
  ++count_;
  put(*table_.load(std::memory_order_relaxed), caller, pc, frame.id.value);
  return frame.id;
}

}  // namespace torchprof::native
