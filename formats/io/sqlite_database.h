// A database of SQLite and its prepared statements, for our writer (formats/write/sqlite.h) and for the readers of
// other tools' files (formats/read).
//
// Errors of SQLite are thrown as Error with the file's name and SQLite's words. One thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace torchprof::formats {

class Database {
 public:
  enum class Use : uint8_t {
    kCreate,  // an empty file that nobody else looks at yet: no journal, no locks, no waiting for the disk
    kRead,    // as it is on the disk, whoever writes to it meanwhile; views and triggers are never followed
  };
  Database(const std::filesystem::path& file, Use use);

  void run(const char* sql);  // one or several statements without results
  bool has_table(std::string_view name) const;
  bool has_column(const std::string& table, std::string_view column) const;

  [[noreturn]] void fail() const;  // with SQLite's last error
  [[noreturn]] void fail(const std::string& why) const;
  sqlite3* get() const { return handle_.get(); }

 private:
  struct Close {
    void operator()(sqlite3* handle) const;
  };
  std::filesystem::path file_;
  bool is_read_ = false;
  std::unique_ptr<sqlite3, Close> handle_;
};

class Statement {
 public:
  Statement(const Database& database, const std::string& sql);

  // Binds all parameters in their order and runs it to its end: a statement without results. Text is copied.
  template <class... Values>
  void insert(const Values&... values) {
    int place = 0;
    (bind(++place, values), ...);
    finish();
  }

  bool next();  // to the next row of the result; false: there is none
  bool is_null(int column) const;
  int64_t integer(int column) const;  // 0 for NULL; anything else as SQLite converts it
  std::string text(int column) const;

 private:
  void bind(int place, int64_t value);
  void bind(int place, const std::optional<int64_t>& value);
  void bind(int place, std::string_view value);
  void finish();

  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  const Database& database_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

// The id of a row of another table, for a column; 0 becomes NULL.
inline std::optional<int64_t> or_null(uint64_t id) {
  return id == 0 ? std::nullopt : std::optional(static_cast<int64_t>(id));
}

}  // namespace torchprof::formats
