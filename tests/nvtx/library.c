/* NVTX for programs that are not C, and for those with several clients: each copy of this library is one of its own. */
#include "client.h"

int push(const char* name) { return nvtxRangePushA(name); }
int pop(void) { return nvtxRangePop(); }
void mark(const char* name) { nvtxMarkA(name); }
uint64_t start(const char* name) { return nvtxRangeStartA(name); }
void end(uint64_t id) { nvtxRangeEnd(id); }
