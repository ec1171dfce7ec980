// SPDX-License-Identifier: Apache-2.0
// docs/formats/store.md tells the truth: its queries and those of docs/read-results.md run, and it
// names every column.
#include <gtest/gtest.h>
#include <sqlite3.h>

#include "core/files.h"
#include "reports/store_fixture.h"

namespace kvgauge {
namespace {

class StoreDoc : public ::testing::Test {
 protected:
  void SetUp() override {
    text_ = Must(ReadFile(StrCat(KVG_SOURCE_DIR, "/docs/formats/store.md")));
    const std::string path = scratch_.File("r.db");
    Fill(*MustOpen(path), "r1", 3, 0, 8);
    ASSERT_EQ(sqlite3_open_v2(path.c_str(), &db_, SQLITE_OPEN_READONLY, nullptr), SQLITE_OK);
  }
  void TearDown() override { sqlite3_close(db_); }

  std::vector<std::vector<std::string>> Query(const std::string& sql) {
    std::vector<std::vector<std::string>> rows;
    const auto add = [](void* out, int count, char** values, char**) {
      auto& row = static_cast<std::vector<std::vector<std::string>>*>(out)->emplace_back();
      for (int i = 0; i < count; ++i) row.emplace_back(values[i] ? values[i] : "NULL");
      return 0;
    };
    EXPECT_EQ(sqlite3_exec(db_, sql.c_str(), add, &rows, nullptr), SQLITE_OK)
        << sql << sqlite3_errmsg(db_);
    return rows;
  }

  static std::vector<std::string> QueriesIn(const std::string& text) {
    std::vector<std::string> queries;
    for (size_t at = text.find("```sql\n"); at != std::string::npos;) {
      const size_t begin = at + 7, end = text.find("```", begin);
      queries.push_back(text.substr(begin, end - begin));
      at = text.find("```sql\n", end);
    }
    return queries;
  }

  ScratchDirectory scratch_;
  std::string text_;
  sqlite3* db_ = nullptr;
};

TEST_F(StoreDoc, QueriesRun) {
  const std::vector<std::string> queries = QueriesIn(text_);
  ASSERT_EQ(queries.size(), 3u);
  const auto board = Query(queries[0]);
  ASSERT_EQ(board.size(), 3u);
  EXPECT_EQ(board[0][0], "1");
  // Samples 1 and 5 are wrong at 10% and right at full size; at 20% it is 2 and 6.
  const auto broken = Query(queries[1]);
  ASSERT_EQ(broken.size(), 2u);
  EXPECT_EQ(broken[0][0], "needle-2");
  EXPECT_EQ(broken[0][1], "The number is 2.");
  EXPECT_EQ(Query(queries[2]).size(), 4u);
}

TEST_F(StoreDoc, QueriesOfTheGuideRun) {
  const std::vector<std::string> queries =
      QueriesIn(Must(ReadFile(StrCat(KVG_SOURCE_DIR, "/docs/read-results.md"))));
  ASSERT_EQ(queries.size(), 4u);
  EXPECT_EQ(Query(queries[0]).size(), 3u);  // rows of the board
  EXPECT_EQ(Query(queries[1]).size(), 2u);  // samples that were lost
  EXPECT_EQ(Query(queries[2]).size(), 2u);  // layers
  EXPECT_EQ(Query(queries[3]).size(), 1u);  // runs
}

TEST_F(StoreDoc, NamesEveryColumn) {
  const auto columns = Query(
      "SELECT m.name, p.name FROM sqlite_schema m, pragma_table_xinfo(m.name) p"
      " WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%'");
  ASSERT_GT(columns.size(), 100u);
  for (const auto& column : columns) {
    // A table's section begins with its name at the start of a line, and ends with its table.
    const size_t section = text_.find(StrCat("\n`", column[0], "`"));
    ASSERT_NE(section, std::string::npos) << "table " << column[0];
    const size_t table = text_.find("\n|", section), end = text_.find("\n\n", table);
    EXPECT_NE(text_.substr(table, end - table).find(StrCat("`", column[1], "`")), std::string::npos)
        << column[0] << "." << column[1];
  }
}

}  // namespace
}  // namespace kvgauge
