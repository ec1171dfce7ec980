// SPDX-License-Identifier: Apache-2.0
// What the readers of foreign files share: bounds, checks and messages.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "src/foreign/foreign_rows.h"

namespace kvgauge {

// A foreign file's text; one that is too large is an error.
Result<std::string> ReadForeignText(const std::string& path);
Result<Json> ReadForeignJson(const std::string& path, std::string& text);
// "results.json (sha256 0123456789ab)"
std::string ForeignSource(const std::string& path, const std::string& text);

// Fit to be shown: a name that is empty, too long or holds control characters is an error that
// names `where`.
Status CheckForeignName(const std::string& where, const std::string& name);
// Names and numbers of all rows, and that none is there twice.
Status CheckForeignRows(const std::string& where, const std::vector<ForeignRow>& rows);

}  // namespace kvgauge
