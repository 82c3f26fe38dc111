// The blocks that torch's CPU allocator has handed out in this window, with their sizes, and how many bytes they are.
//
// torch keeps the same in a table of its own when it profiles memory, behind a lock and with an allocation for each
// block: a third of what a small operator cost with memory. So it is not asked to, and the sizes are kept here.
//
// Any thread. Takes no lock and no memory as long as the blocks fit into a table of fixed size (65,536 of them at the
// most; one that finds its four places taken goes into a second table, under a lock). A block is found by the thread
// that frees it, which is told of it by the thread that has it. errno is kept.
#pragma once

#include <cstdint>

namespace torchprof::inject {

// A block is allocated in the window of this number, or is freed in it: its bytes; 0: it is not from this window.
void add_block(const void* address, int64_t bytes, uint32_t window) noexcept;
int64_t free_block(const void* address, uint32_t window) noexcept;

// Bytes of all blocks; those of earlier windows count on, as in torch's own total. Not for each block: it adds up what
// the threads have.
uint64_t total_of_blocks() noexcept;

}  // namespace torchprof::inject
