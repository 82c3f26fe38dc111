#include "cupti/nvtx/nvtx_text.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

namespace torchprof::nvtx {
namespace {

constexpr uint32_t kTensor = 1;  // tag of c10::IValue, 1.13 to 2.14 (tracer/objects/values.cpp)

class Writer {
 public:
  Writer(char* out, size_t size) noexcept : at_(out), end_(out + size - 1) {}
  ~Writer() { *at_ = 0; }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  bool is_full() const noexcept { return at_ == end_; }
  void text(std::string_view text) noexcept {
    const size_t n = std::min(text.size(), static_cast<size_t>(end_ - at_));
    memcpy(at_, text.data(), n);
    at_ += n;
  }
  template <class T>
  void number(T value) noexcept {
    char digits[24];
    const char* past = std::to_chars(digits, digits + sizeof(digits), value).ptr;
    text({digits, static_cast<size_t>(past - digits)});
  }

 private:
  char* at_;
  char* end_;
};

void write_sizes(Writer& out, const torch::PlainTensor& tensor) noexcept {
  out.text("[");
  for (uint64_t i = 0; tensor.sizes && i < tensor.dims && !out.is_full(); ++i) {
    if (i > 0) out.text(", ");
    out.number(tensor.sizes[i]);
  }
  out.text("]");
}

// False: it is no list, or there is no tensor in it.
bool write_list(Writer& out, const torch::ValueRow& row, const char* value) noexcept {
  if (torch::field_at<uint32_t>(value, 8) != row.list) return false;
  const auto* list = torch::field_at<const char*>(value, 0);
  if (!list) return false;
  const auto* element = torch::field_at<const char*>(list, row.refcounted);
  const auto* past = torch::field_at<const char*>(list, row.refcounted + 8);
  bool any = false;
  for (; element < past && !out.is_full(); element += torch::kValueSize) {
    const torch::PlainTensor tensor = torch::read_tensor(row, element);
    if (!tensor.sizes) continue;
    if (any) out.text(", ");
    write_sizes(out, tensor);
    any = true;
  }
  return any;
}

}  // namespace

void write_text(const Operator& op, char* text, size_t size) noexcept {
  Writer out(text, size);
  out.text(op.name);
  if (op.sequence >= 0) {
    out.text(", seq = ");
    out.number(op.sequence);
  }
  if (op.id > 0) {
    out.text(", op_id = ");
    out.number(op.id);
  }
  if (!op.values || op.count == 0) return;
  out.text(", sizes = [");
  for (size_t i = 0; i < op.count && !out.is_full(); ++i) {
    const char* value = op.inputs + i * torch::kValueSize;
    if (i > 0) out.text(", ");
    if (torch::field_at<uint32_t>(value, 8) == kTensor)
      write_sizes(out, torch::read_tensor(*op.values, value));
    else if (!write_list(out, *op.values, value))
      out.text("[]");
  }
  out.text("]");
}

}  // namespace torchprof::nvtx
