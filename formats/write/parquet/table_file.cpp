#include "formats/write/parquet/table_file.h"

#include <zlib.h>

#include <algorithm>

#include "formats/io/text.h"
#include "formats/write/parquet/encodings.h"

namespace torchprof::formats::parquet {
namespace {

// Numbers of parquet.thrift (apache/parquet-format 2.10).
constexpr int kBoolean = 0, kInt64 = 2, kByteArray = 6;
constexpr int kPlain = 0, kRle = 3, kDeltaBinaryPacked = 5, kRleDictionary = 8;
constexpr int kGzip = 2;
constexpr int kDataPage = 0, kDictionaryPage = 2;
constexpr int kRequired = 0, kOptional = 1;
constexpr int kUtf8 = 0;  // ConvertedType
constexpr std::string_view kMagic = "PAR1";

int type_of(ColumnKind kind) {
  return kind == ColumnKind::kText ? kByteArray : kind == ColumnKind::kFlag ? kBoolean : kInt64;
}

bool has_dictionary(ColumnKind kind) { return kind == ColumnKind::kText || kind == ColumnKind::kCategory; }

template <class T>
void put_little(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<char>(static_cast<uint64_t>(value) >> 8 * i));
}

std::string little(int64_t value) {
  std::string out;
  put_little(out, value);
  return out;
}

}  // namespace

TableFile::TableFile(Output& out, const std::vector<ColumnSpec>& columns,
                     std::vector<std::pair<std::string, std::string>> about)
    : out_(out), about_(std::move(about)) {
  for (const ColumnSpec& spec : columns) columns_.push_back({spec});
  out_.write(kMagic);
}

uint32_t TableFile::text(std::string_view text) {
  const auto [it, is_new] = ids_.try_emplace(printable(text), static_cast<uint32_t>(texts_.size()));
  if (is_new) texts_.push_back(it->first);
  return it->second;
}

void TableFile::end_row_group() {
  if (rows_of_group() == 0) return;
  std::vector<Chunk>& chunks = row_groups_.emplace_back();
  for (Column& column : columns_) chunks.push_back(write_column(column));
}

void TableFile::finish() {
  end_row_group();
  write_footer();
}

TableFile::Chunk TableFile::write_column(Column& column) {
  Chunk chunk;
  std::vector<int64_t>& values = column.values;
  const size_t rows = column.spec.is_optional ? column.is_there.size() : values.size();
  chunk.rows = static_cast<int64_t>(rows);
  chunk.nulls = static_cast<int64_t>(rows - values.size());
  std::string page;
  if (column.spec.is_optional) {
    std::string levels;
    put_hybrid(levels, column.is_there, 1);
    put_little(page, static_cast<uint32_t>(levels.size()));
    page += levels;
  }
  const ColumnKind kind = column.spec.kind;
  if (type_of(kind) == kInt64 && !values.empty()) {
    const auto [least, most] = std::ranges::minmax_element(values);
    chunk.range = {*least, *most};
  }
  int encoding = kPlain;
  if (has_dictionary(kind)) {
    encoding = kRleDictionary;
    std::unordered_map<int64_t, uint32_t> places;
    std::vector<uint32_t> indexes;
    std::string dictionary;
    for (const int64_t value : values) {
      const auto [it, is_new] = places.try_emplace(value, static_cast<uint32_t>(places.size()));
      indexes.push_back(it->second);
      if (!is_new) continue;
      if (kind == ColumnKind::kCategory) {
        put_little(dictionary, value);
        continue;
      }
      const std::string& text = texts_[static_cast<size_t>(value)];
      put_little(dictionary, static_cast<uint32_t>(text.size()));
      dictionary += text;
    }
    chunk.dictionary_at = at();
    write_page(true, kPlain, places.size(), dictionary, chunk);
    const int width = places.empty() ? 0 : width_of(places.size() - 1);
    page.push_back(static_cast<char>(width));
    put_hybrid(page, indexes, width);
  } else if (kind == ColumnKind::kNumber) {
    encoding = kDeltaBinaryPacked;
    put_deltas(page, values);
  } else {
    put_bits(page, std::vector<bool>(values.begin(), values.end()));
  }
  chunk.data_at = at();
  write_page(false, encoding, rows, page, chunk);
  values.clear();
  column.is_there.clear();
  return chunk;
}

void TableFile::write_page(bool is_dictionary, int encoding, size_t values, const std::string& page, Chunk& chunk) {
  const std::string packed = compressed(page);
  Thrift header;
  header.i32(1, is_dictionary ? kDictionaryPage : kDataPage);
  header.i32(2, static_cast<int32_t>(page.size()));
  header.i32(3, static_cast<int32_t>(packed.size()));
  header.structure(is_dictionary ? 7 : 5);
  header.i32(1, static_cast<int32_t>(values));
  header.i32(2, encoding);
  if (!is_dictionary) {
    header.i32(3, kRle);  // levels of definition and repetition
    header.i32(4, kRle);
  }
  header.end();
  header.end();
  out_.write(header.out);
  out_.write(packed);
  chunk.bytes += static_cast<int64_t>(header.out.size() + page.size());
  chunk.compressed_bytes += static_cast<int64_t>(header.out.size() + packed.size());
}

// A gzip member (RFC 1952).
std::string TableFile::compressed(std::string_view page) {
  scratch_.assign(page);
  scratch_.append(Deflate::kPadding, '\0');
  std::string out("\x1f\x8b\x08\0\0\0\0\0\0\xff", 10);
  const size_t head = out.size();
  out.resize(head + Deflate::bound(page.size()));
  out.resize(head + deflate_.run(std::string_view(scratch_).substr(0, page.size()), 0, true, out.data() + head));
  put_little(out, static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(page.data()), page.size())));
  put_little(out, static_cast<uint32_t>(page.size()));
  return out;
}

void TableFile::write_footer() {
  Thrift t;
  t.i32(1, 2);  // version of the format
  t.list(2, Thrift::Element::kStructure, columns_.size() + 1);
  t.begin();
  t.text(4, "schema");
  t.i32(5, static_cast<int32_t>(columns_.size()));
  t.end();
  for (const Column& column : columns_) {
    t.begin();
    t.i32(1, type_of(column.spec.kind));
    t.i32(3, column.spec.is_optional ? kOptional : kRequired);
    t.text(4, column.spec.name);
    if (column.spec.kind == ColumnKind::kText) {
      t.i32(6, kUtf8);
      t.structure(10);  // LogicalType: STRING
      t.structure(1);
      t.end();
      t.end();
    }
    t.end();
  }
  int64_t rows = 0;
  for (const std::vector<Chunk>& chunks : row_groups_) rows += chunks.front().rows;
  t.i64(3, rows);
  t.list(4, Thrift::Element::kStructure, row_groups_.size());
  for (const std::vector<Chunk>& chunks : row_groups_) {
    t.begin();
    t.list(1, Thrift::Element::kStructure, chunks.size());
    int64_t bytes = 0;
    for (size_t i = 0; i < chunks.size(); ++i) {
      const Chunk& chunk = chunks[i];
      const ColumnSpec& spec = columns_[i].spec;
      bytes += chunk.bytes;
      t.begin();
      t.i64(2, 0);  // no metadata beside the footer's
      t.structure(3);
      t.i32(1, type_of(spec.kind));
      const int encoding = spec.kind == ColumnKind::kNumber ? kDeltaBinaryPacked : kPlain;
      t.list(2, Thrift::Element::kI32, has_dictionary(spec.kind) ? 3 : 2);
      t.element(encoding);
      t.element(kRle);
      if (has_dictionary(spec.kind)) t.element(kRleDictionary);
      t.list(3, Thrift::Element::kText, 1);
      t.element(spec.name);
      t.i32(4, kGzip);
      t.i64(5, chunk.rows);
      t.i64(6, chunk.bytes);
      t.i64(7, chunk.compressed_bytes);
      t.i64(9, chunk.data_at);
      if (chunk.dictionary_at >= 0) t.i64(11, chunk.dictionary_at);
      t.structure(12);
      t.i64(3, chunk.nulls);
      if (chunk.range) {
        t.text(5, little(chunk.range->second));
        t.text(6, little(chunk.range->first));
      }
      t.end();
      t.end();
      t.end();
    }
    t.i64(2, bytes);
    t.i64(3, chunks.front().rows);
    t.end();
  }
  t.list(5, Thrift::Element::kStructure, about_.size());
  for (const auto& [key, value] : about_) {
    t.begin();
    t.text(1, key);
    t.text(2, value);
    t.end();
  }
  t.text(6, "torchprof version " TORCHPROF_VERSION);
  t.list(7, Thrift::Element::kStructure, columns_.size());  // their order is that of their type
  for (size_t i = 0; i < columns_.size(); ++i) {
    t.begin();
    t.structure(1);
    t.end();
    t.end();
  }
  t.end();
  put_little(t.out, static_cast<uint32_t>(t.out.size()));
  t.out += kMagic;
  out_.write(t.out);
}

}  // namespace torchprof::formats::parquet
