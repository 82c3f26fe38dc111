// A tensor as the recorder copied it, and the reader of the recorder's encodings (tracer/objects/values.h): bytes,
// varints, zigzag numbers, tensors. On a hostile encoding it fails; it never reads past the end.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace torchprof::formats {

struct Tensor {
  bool is_readable = false;  // false: its sizes are symbolic, nested or otherwise not plain numbers
  uint8_t type = 0;          // c10::ScalarType
  uint8_t device = 0;        // c10::DeviceType
  int8_t device_index = -1;
  std::vector<int64_t> sizes{};
  std::vector<int64_t> strides{};
};

// "float", "c10::BFloat16" ...; "" if this build does not know the type.
std::string_view type_name(uint8_t scalar_type);
// The reverse; nothing for any other text.
std::optional<uint8_t> type_number(std::string_view name);
// Bytes of an element; 0 if this build does not know the type.
unsigned element_size(uint8_t scalar_type);

class EncodedReader {
 public:
  explicit EncodedReader(std::string_view bytes) : bytes_(bytes) {}

  bool failed() const { return failed_; }
  void fail() { failed_ = true; }
  bool done() const { return failed_ || at_ >= bytes_.size(); }

  char peek() const { return bytes_[at_]; }  // must not be at the end
  uint8_t byte();
  uint64_t varint();
  int64_t zigzag();
  double number();                  // 8 bytes
  std::string_view text();          // a length and that many bytes
  Tensor tensor(bool is_readable);  // the bytes behind 'T' (readable) or 'X'

 private:
  std::string_view bytes_;
  size_t at_ = 0;
  bool failed_ = false;
};

}  // namespace torchprof::formats
