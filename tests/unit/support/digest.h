// Digests of dumps: what stands as a golden file for a text of thousands of lines, which nobody would read.
//
// A dump is text, a record a line: KIND, then NAME=NUMBER of each field, then anything, such as a kernel's name. No
// kind is called "all", no field "lines", "hash" or "texts".
// Its digest has a line for the whole and one for each kind, by name: how many lines, their hash, the sum of each
// field, and how many different ends ("texts"):
//
//     all lines=1954 hash=0123456789abcdef
//     kernel lines=3 hash=fedcba9876543210 duration=4711 correlation=6 texts=2
//
// A hash is FNV-1a with 64 bits over the lines, each with its '\n', in their order; it tells what no sum tells. It
// guards against a mistake, not against somebody who wants to deceive. A sum is that of all numbers modulo 2^64.
//
// tests/golden_diff.py shows which records of two dumps differ.
#pragma once

#include <string>

namespace torchprof::test {

std::string digest_of(const std::string& dump);

// What another digest has otherwise, one line a kind: "kernel: lines 3 -> 4, duration 4711 -> 4712". Where the hash
// alone differs it says so: numbers that have changed places, or texts. Empty: they are the same.
std::string difference_of_digests(const std::string& before, const std::string& now);

// Compares the dump's digest with the golden file NAME.digest; TORCHPROF_UPDATE_GOLDEN=1 writes it instead. Where they
// differ, the message says what and where the whole dump was written: NAME.txt in golden_dumps/ beside the program.
// TORCHPROF_DUMP_GOLDEN=FOLDER writes each dump there, whether or not it differs: for tests/golden_diff.py.
void check_digest(const std::string& name, const std::string& dump);

}  // namespace torchprof::test
