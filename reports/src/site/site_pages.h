// SPDX-License-Identifier: Apache-2.0
// The pages of a site. Links between them are relative; `up` leads from a page to the first one.
#pragma once

#include <string>
#include <vector>

#include "src/html/html.h"
#include "src/report/sections.h"
#include "src/site/site_data.h"

namespace kvgauge::site {

// "methods/snapkv.html". A name with other signs than file names hold gets a number instead.
std::string MethodPath(const std::string& method);

report::Html TodaySection(const Data& data);
// Newest first; `method`: "" for all.
report::Html ChangesSection(const Data& data, const std::string& method, const std::string& up);
report::Html StoresSection(const Data& data);

// A method on all models and tasks: figures of score over bytes, and over time.
std::string MethodPage(const Data& data, const std::string& method);

// Cells that several tables share.
void ScoreCells(report::Html& html, const LeaderboardTable& frame, const Series& series,
                const std::string& key);
std::string DayOf(const Source& source);       // "2026-03-01"
std::string RevisionOf(const Source& source);  // twelve characters, or the version
std::string WhenOf(const Source& source);      // both

}  // namespace kvgauge::site
