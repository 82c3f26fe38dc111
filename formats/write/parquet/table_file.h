// A file of Apache Parquet with one flat table.
//
//   * Rows are added a column at a time: as many values to each column as rows, then end_row_group(). Readers skip row
//     groups by the least and the largest value of a column.
//   * Types: INT64, BOOLEAN, and text (BYTE_ARRAY, UTF-8, always in a dictionary). A column may have nulls.
//   * Encodings that readers have had for years: DELTA_BINARY_PACKED, RLE_DICTIONARY, PLAIN; pages of version 1; GZIP
//     (deflate.h).
//   * Texts are held once a file, and once in each row group that has them.
// Memory: a row group (8 bytes a number, 4 a text) and the texts. One thread. Throws what Output throws.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/io/deflate.h"
#include "formats/io/output.h"

namespace torchprof::formats::parquet {

enum class ColumnKind : uint8_t {
  kNumber,    // of values that are close to the one before
  kCategory,  // a number of which there are few
  kText,
  kFlag,
};

struct ColumnSpec {
  std::string_view name;
  ColumnKind kind = ColumnKind::kNumber;
  bool is_optional = false;
};

class TableFile {
 public:
  // `about`: keys and values of the file.
  TableFile(Output& out, const std::vector<ColumnSpec>& columns,
            std::vector<std::pair<std::string, std::string>> about);
  TableFile(const TableFile&) = delete;
  TableFile& operator=(const TableFile&) = delete;

  // The number of a text for add(). Ill-formed UTF-8 and control characters are replaced (printable()).
  uint32_t text(std::string_view text);
  // The next value of a column: a number, a flag (0 or 1), or text().
  void add(size_t column, int64_t value) {
    columns_[column].values.push_back(value);
    if (columns_[column].spec.is_optional) columns_[column].is_there.push_back(1);
  }
  void add(size_t column, std::optional<int64_t> value) {
    if (value) return add(column, *value);
    columns_[column].is_there.push_back(0);
  }
  void end_row_group();
  size_t rows_of_group() const {  // since the last one ended
    return columns_[0].spec.is_optional ? columns_[0].is_there.size() : columns_[0].values.size();
  }
  // Writes what the last row group lacks, and the end of the file; then nothing can be added.
  void finish();

 private:
  struct Column {
    ColumnSpec spec;
    std::vector<int64_t> values{};     // without nulls
    std::vector<uint32_t> is_there{};  // for each row, where the column is optional
  };
  struct Chunk {  // a column of a row group, in the file
    int64_t rows = 0, nulls = 0;
    int64_t dictionary_at = -1, data_at = 0;
    int64_t bytes = 0, compressed_bytes = 0;
    std::optional<std::pair<int64_t, int64_t>> range{};  // of a number
  };

  Chunk write_column(Column& column);
  void write_page(bool is_dictionary, int encoding, size_t values, const std::string& page, Chunk& chunk);
  std::string compressed(std::string_view page);
  void write_footer();
  int64_t at() const { return static_cast<int64_t>(out_.bytes_in()); }

  Output& out_;
  std::vector<Column> columns_;
  const std::vector<std::pair<std::string, std::string>> about_;
  std::vector<std::string> texts_;
  std::unordered_map<std::string, uint32_t> ids_;
  std::vector<std::vector<Chunk>> row_groups_;
  Deflate deflate_;
  std::string scratch_;
};

}  // namespace torchprof::formats::parquet
