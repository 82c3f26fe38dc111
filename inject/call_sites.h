// What a loaded library does with the answer of a function that it imports, read from its code. Shows of a version that
// nobody has tried whether the answer may be another one.
//
// x86-64 alone; elsewhere nothing is known of any library. Reads all of the library's code once, 1 ms for a megabyte or
// so: not for what is known already. Allocates nothing. One thread at a time.
//
// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2 (CALL, JMP, JCC, MOV, TEST, ENDBR64);
// the code that gcc and clang make of `if (f())` and `if (f() != nullptr)` for a function that is imported.
#pragma once

#include <cstddef>

namespace torchprof::inject {

// Whether the code behind a call looks at nothing of a returned pointer but whether it is nullptr: it tests the whole
// register and branches; before that it may only load other registers from the stack or from an object. `size` bytes
// can be read.
bool is_compared_with_null(const unsigned char* after_call, size_t size) noexcept;

// What a library (the beginning of its file name) does with what an imported function returns. kNullCheck: it is called
// in at least two places, and the above comes behind every call.
enum class Use { kNotImported, kNullCheck, kOther };
Use use_of(const char* library, const char* symbol) noexcept;

}  // namespace torchprof::inject
