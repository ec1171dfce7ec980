// SPDX-License-Identifier: Apache-2.0
// The tables of a result store, and how older files become newer ones. Every file, a new one too,
// goes through all migrations in order, so that there is one way to every schema.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "src/sqlite.h"

namespace kvgauge {

inline constexpr int64_t kSchemaVersion = 12;
inline constexpr int64_t kApplicationId = 0x4b564753;  // "KVGS", at byte 68 of the file

// Brings the tables from `version` (0: empty) to kSchemaVersion and makes the views, in one
// transaction.
Status Migrate(Database& database, int64_t version);

// Every table has the columns of kSchemaVersion, and nothing else is there.
Status CheckTables(Database& database);

// What must be equal when the same plan was run twice: for each result table a query over its
// result columns in an order that does not depend on how the rows came in.
std::span<const char* const> ResultQueries();

}  // namespace kvgauge
