// JSON of any size, token by token, in constant memory.
//
// What RFC 8259 says, and a byte order mark in front. Numbers come as their text, since a double has not all digits of
// a time; a text is UTF-8. Lists and objects may be nested kDeepestJson deep: the parser calls itself for each.
//
// Errors: Error, by ByteStream::fail(): "it is not JSON at byte N: cause", "it is cut off after N bytes", "it is
// empty".
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

#include "formats/io/byte_stream.h"

namespace torchprof::formats {

class JsonTokens {
 public:
  virtual void null() = 0;
  virtual void boolean(bool value) = 0;
  virtual void number(std::string_view text) = 0;
  virtual void string(std::string_view text) = 0;
  virtual void key(std::string_view text) = 0;
  virtual void start_object() = 0;
  virtual void end_object() = 0;
  virtual void start_array() = 0;
  virtual void end_array() = 0;

 protected:
  ~JsonTokens() = default;
};

inline constexpr size_t kDeepestJson = 1000;

// Gives all tokens of one document. `may_be_cut`: asked where the text ends before the document does. False: it does,
// and may.
bool read_json(ByteStream& stream, JsonTokens& tokens, const std::function<bool()>& may_be_cut);

}  // namespace torchprof::formats
