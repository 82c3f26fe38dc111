// Errors of Boost's have the line where they were made otherwise, with the path of the header on the machine that
// compiled it.
#define BOOST_DISABLE_CURRENT_LOCATION

#include "formats/io/json_stream.h"

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/src.hpp>
#include <string>

#include "formats/io/text.h"

namespace torchprof::formats {
namespace {

namespace json = boost::json;
using ErrorCode = boost::json::error_code;

// What basic_parser calls: a text may come in parts, where a block of the file ends in it.
class PartsOfTokens {
 public:
  // What it asks of whoever it calls; the stream limits the length of a value.
  static constexpr size_t max_object_size = SIZE_MAX, max_array_size = SIZE_MAX, max_key_size = SIZE_MAX,
                          max_string_size = SIZE_MAX;

  PartsOfTokens(ByteStream& stream, JsonTokens& tokens) : stream_(stream), tokens_(tokens) {}

  bool on_document_begin(ErrorCode&) { return true; }
  bool on_document_end(ErrorCode&) { return true; }
  bool on_object_begin(ErrorCode&) {
    return token([this] { tokens_.start_object(); });
  }
  bool on_object_end(size_t, ErrorCode&) {
    return token([this] { tokens_.end_object(); });
  }
  bool on_array_begin(ErrorCode&) {
    return token([this] { tokens_.start_array(); });
  }
  bool on_array_end(size_t, ErrorCode&) {
    return token([this] { tokens_.end_array(); });
  }
  bool on_key_part(json::string_view part, size_t, ErrorCode&) { return add(part); }
  bool on_key(json::string_view rest, size_t, ErrorCode&) {
    return text_token(rest, [this](std::string_view text) { tokens_.key(text); });
  }
  bool on_string_part(json::string_view part, size_t, ErrorCode&) { return add(part); }
  bool on_string(json::string_view rest, size_t, ErrorCode&) {
    return text_token(rest, [this](std::string_view text) { tokens_.string(text); });
  }
  bool on_number_part(json::string_view part, ErrorCode&) { return add(part); }
  bool on_int64(int64_t, json::string_view rest, ErrorCode&) { return number(rest); }
  bool on_uint64(uint64_t, json::string_view rest, ErrorCode&) { return number(rest); }
  bool on_double(double, json::string_view rest, ErrorCode&) { return number(rest); }
  bool on_bool(bool value, ErrorCode&) {
    return token([this, value] { tokens_.boolean(value); });
  }
  bool on_null(ErrorCode&) {
    return token([this] { tokens_.null(); });
  }
  bool on_comment_part(json::string_view, ErrorCode&) { return true; }
  bool on_comment(json::string_view, ErrorCode&) { return true; }

 private:
  template <class Give>
  bool token(Give give) {
    stream_.value_ends();
    give();
    return true;
  }
  template <class Give>
  bool text_token(json::string_view rest, Give give) {
    stream_.value_ends();
    if (text_.empty()) {
      give(std::string_view(rest.data(), rest.size()));
      return true;
    }
    add(rest);
    give(std::string_view(text_));
    text_.clear();
    return true;
  }
  bool number(json::string_view rest) {
    return text_token(rest, [this](std::string_view text) { tokens_.number(text); });
  }
  bool add(json::string_view part) {
    text_.append(part.data(), part.size());
    return true;
  }

  ByteStream& stream_;
  JsonTokens& tokens_;
  std::string text_;  // the parts of a text so far
};

[[noreturn]] void fail_at(const ByteStream& stream, size_t byte, const std::string& why) {
  constexpr size_t kWidestError = 200;
  stream.fail("it is not JSON at byte " + std::to_string(byte + 1) + ": " + shorten(printable(why), kWidestError));
}

size_t first_after_space(std::string_view text) { return std::min(text.find_first_not_of(" \t\n\r"), text.size()); }

}  // namespace

bool read_json(ByteStream& stream, JsonTokens& tokens, const std::function<bool()>& may_be_cut) {
  json::parse_options options;
  options.max_depth = kDeepestJson;
  json::basic_parser<PartsOfTokens> parser(options, stream, tokens);
  ErrorCode error;
  size_t taken = 0;
  for (std::string_view block; !(block = stream.take_block()).empty();) {
    size_t at = taken == 0 && block.starts_with("\xef\xbb\xbf") ? 3 : 0;
    if (!parser.done()) {
      at += parser.write_some(true, block.data() + at, block.size() - at, error);
      if (error) fail_at(stream, taken + at, error.message());
    }
    if (parser.done()) {
      stream.value_ends();
      if ((at += first_after_space(block.substr(at))) != block.size())
        fail_at(stream, taken + at, "something follows the document");
    }
    taken += block.size();
  }
  if (parser.done()) return true;
  if (taken == 0) stream.fail("it is empty");
  parser.write_some(false, nullptr, 0, error);  // a number as a whole document has no other end
  if (!error && parser.done()) return true;
  if (may_be_cut()) return false;
  stream.fail("it is cut off after " + std::to_string(taken) + " bytes");
}

}  // namespace torchprof::formats
