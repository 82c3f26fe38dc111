// Writes a pickle of Python piece by piece: lists, dictionaries, texts and whole numbers.
//
// It is protocol 2 with the opcodes that torch's own pickler uses (described in
// docs.python.org/3/library/pickletools.html), because torch's page for memory snapshots (torch/utils/viz/MemoryViz.js)
// reads those. That page passes the items of one opcode as arguments of a call, so an opcode has at most kBatch of
// them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "formats/io/output.h"
#include "formats/io/text.h"

namespace torchprof::formats {

class Pickle {
 public:
  explicit Pickle(Output& out) : out_(out) { out_.write("\x80\x02"); }
  void finish() { op('.'); }

  void dict() { out_.write("}("); }  // then keys and values in turn
  void end_dict() { op('u'); }
  class List {
   public:
    explicit List(Pickle& pickle) : pickle_(pickle) { pickle_.out_.write("]("); }
    // Before each item.
    void next() {
      if (items_ == kBatch) pickle_.out_.write("e(");
      items_ = items_ == kBatch ? 1 : items_ + 1;
    }
    void end() { pickle_.op('e'); }

   private:
    static constexpr uint32_t kBatch = 1000;
    Pickle& pickle_;
    uint32_t items_ = 0;
  };

  void boolean(bool is_true) { op(is_true ? '\x88' : '\x89'); }
  void number(int64_t n) {
    if (n >= 0 && n < 256) {
      op('K');
      little_endian(n, 1);
    } else if (n >= INT32_MIN && n <= INT32_MAX) {
      op('J');
      little_endian(n, 4);
    } else {
      out_.write("\x8a\x08");
      little_endian(n, 8);
    }
  }
  // Any bytes; control characters and bytes that are not UTF-8 are replaced.
  void text(std::string_view bytes) {
    const std::string valid = printable(bytes);
    op('X');
    little_endian(static_cast<int64_t>(valid.size()), 4);
    out_.write(valid);
  }
  // A text that comes often: written once, then recalled.
  void word(std::string_view text) {
    const auto [it, is_new] = words_.try_emplace(std::string(text), uint32_t{0});
    if (!is_new) return recall(it->second);
    this->text(text);
    it->second = remember();
  }
  void member(std::string_view key, int64_t n) {
    word(key);
    number(n);
  }

  // Gives the value that was written last an id for recall().
  uint32_t remember() {
    op('r');
    little_endian(remembered_, 4);
    return remembered_++;
  }
  void recall(uint32_t id) {
    op('j');
    little_endian(id, 4);
  }

 private:
  void op(char code) { out_.write({&code, 1}); }
  void little_endian(int64_t n, size_t bytes) {
    char out[8];
    for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<char>(static_cast<uint64_t>(n) >> (8 * i) & 0xff);
    out_.write({out, bytes});
  }

  Output& out_;
  uint32_t remembered_ = 0;
  std::unordered_map<std::string, uint32_t> words_;
};

}  // namespace torchprof::formats
