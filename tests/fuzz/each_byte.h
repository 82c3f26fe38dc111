// What each_byte.cpp takes of spool_fuzz.cpp: the input goes to every command's reader.
#pragma once

#include <cstddef>
#include <cstdint>

void consume_all(const uint8_t* data, size_t size);
extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments);  // target.h
