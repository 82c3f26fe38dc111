#include "formats/gpu/distinct_names.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "formats/gpu/kernel_names.h"

namespace torchprof::formats {
namespace {

constexpr size_t kMostAdded = 24;  // bytes of the words that are added
constexpr size_t kLongest = 4096;  // bytes of a name that are looked at

std::vector<std::string_view> words_between_marks(std::string_view name) {
  name = name.substr(0, kLongest);
  std::vector<std::string_view> words;
  const auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  for (auto at = name.begin(); at != name.end();) {
    const auto first = std::find_if(at, name.end(), is_part);
    at = std::find_if_not(first, name.end(), is_part);
    if (first != at) words.emplace_back(first, at);
  }
  return words;
}

// The first words of `name` that are not in all names, each once.
std::string own_words(std::string_view name, const std::map<std::string_view, size_t>& in_names, size_t names) {
  std::string text;
  std::set<std::string_view> seen;
  for (const std::string_view word : words_between_marks(name)) {
    if (in_names.at(word) == names || !seen.insert(word).second) continue;
    if (text.size() + 1 + word.size() > kMostAdded) break;
    if (!text.empty()) text += ' ';
    text += word;
  }
  return text;
}

// What tells `names` apart, none of which is another's: their own words, or else numbers.
std::vector<std::string> differences(const std::vector<std::string_view>& names) {
  std::map<std::string_view, size_t> in_names;
  for (const std::string_view name : names) {
    const std::vector<std::string_view> words = words_between_marks(name);
    for (const std::string_view word : std::set<std::string_view>(words.begin(), words.end())) ++in_names[word];
  }
  std::vector<std::string> out;
  std::map<std::string, size_t> times;
  for (const std::string_view name : names) ++times[out.emplace_back(own_words(name, in_names, names.size()))];
  std::map<std::string, size_t> numbers;
  for (std::string& text : out) {
    if (times[text] == 1) continue;
    const size_t number = ++numbers[text];
    if (!text.empty()) text += ' ';
    text += '#';
    text += std::to_string(number);
  }
  return out;
}

}  // namespace

std::vector<std::string> distinct_kernel_names(const std::vector<std::string_view>& names) {
  std::vector<std::string> out;
  std::map<std::string, std::vector<size_t>> rows_of;
  for (size_t i = 0; i < names.size(); ++i) rows_of[out.emplace_back(short_kernel_name(names[i]))].push_back(i);
  for (const auto& [shared, rows] : rows_of) {
    if (rows.size() == 1) continue;
    std::vector<std::string_view> whole;
    for (const size_t row : rows) whole.push_back(names[row]);
    const std::vector<std::string> texts = differences(whole);
    for (size_t i = 0; i < rows.size(); ++i)
      if (!texts[i].empty()) out[rows[i]] += " [" + texts[i] + "]";
  }
  return out;
}

}  // namespace torchprof::formats
