#include "formats/io/sqlite_database.h"

#include <sqlite3.h>

#include "formats/io/error.h"

namespace torchprof::formats {

void Database::Close::operator()(sqlite3* handle) const { sqlite3_close(handle); }
void Statement::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Database::Database(const std::filesystem::path& file, Use use) : file_(file), is_read_(use == Use::kRead) {
  sqlite3* handle = nullptr;
  const int flags = is_read_ ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
  // Without locks: nobody else knows a file that is being created, and a file that is read may lie where nothing can be
  // written or locked.
  const int code =
      sqlite3_open_v2(file.c_str(), &handle, flags | SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_NOMUTEX, "unix-none");
  handle_.reset(handle);
  if (code != SQLITE_OK) fail(handle == nullptr ? "out of memory" : sqlite3_errmsg(handle));
  if (is_read_) {
    sqlite3_db_config(get(), SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    sqlite3_db_config(get(), SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    sqlite3_db_config(get(), SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
    sqlite3_db_config(get(), SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
    run("PRAGMA cell_size_check = on; PRAGMA mmap_size = 0; PRAGMA query_only = on");
  } else {
    run("PRAGMA page_size = 16384; PRAGMA journal_mode = off; PRAGMA synchronous = off; PRAGMA cache_size = -65536; "
        "PRAGMA locking_mode = exclusive");
  }
}

void Database::fail() const { fail(sqlite3_errmsg(get())); }

void Database::fail(const std::string& why) const {
  throw Error((is_read_ ? "cannot read the trace " : "cannot write ") + file_.string() + ": " + why);
}

void Database::run(const char* sql) {
  if (sqlite3_exec(get(), sql, nullptr, nullptr, nullptr) != SQLITE_OK) fail();
}

bool Database::has_table(std::string_view name) const {
  Statement statement(*this, "SELECT name FROM sqlite_master WHERE type = 'table'");
  while (statement.next())
    if (statement.text(0) == name) return true;
  return false;
}

bool Database::has_column(const std::string& table, std::string_view column) const {
  Statement statement(*this, "PRAGMA table_info(\"" + table + "\")");
  while (statement.next())
    if (statement.text(1) == column) return true;
  return false;
}

Statement::Statement(const Database& database, const std::string& sql) : database_(database) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v3(database.get(), sql.c_str(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  statement_.reset(statement);
  if (code != SQLITE_OK) database.fail();
}

void Statement::bind(int place, int64_t value) {
  if (sqlite3_bind_int64(statement_.get(), place, value) != SQLITE_OK) database_.fail();
}

void Statement::bind(int place, const std::optional<int64_t>& value) {
  if ((value ? sqlite3_bind_int64(statement_.get(), place, *value) : sqlite3_bind_null(statement_.get(), place)) !=
      SQLITE_OK)
    database_.fail();
}

void Statement::bind(int place, std::string_view value) {
  // SQLite would take a null pointer for NULL.
  if (sqlite3_bind_text64(statement_.get(), place, value.empty() ? "" : value.data(), value.size(), SQLITE_TRANSIENT,
                          SQLITE_UTF8) != SQLITE_OK)
    database_.fail();
}

void Statement::finish() {
  if (sqlite3_step(statement_.get()) != SQLITE_DONE) database_.fail();
  sqlite3_reset(statement_.get());
}

bool Statement::next() {
  const int code = sqlite3_step(statement_.get());
  if (code != SQLITE_ROW && code != SQLITE_DONE) database_.fail();
  return code == SQLITE_ROW;
}

bool Statement::is_null(int column) const { return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL; }

int64_t Statement::integer(int column) const { return sqlite3_column_int64(statement_.get(), column); }

std::string Statement::text(int column) const {
  const void* text = sqlite3_column_text(statement_.get(), column);
  const auto bytes = static_cast<size_t>(sqlite3_column_bytes(statement_.get(), column));
  return text == nullptr ? std::string{} : std::string(static_cast<const char*>(text), bytes);
}

}  // namespace torchprof::formats
