// SPDX-License-Identifier: Apache-2.0
// Tables of plain cells made of boards: what the page lets readers download, and what the terminal
// and Markdown show.
#pragma once

#include <vector>

#include "reports/capacity.h"
#include "reports/report_tables.h"
#include "reports/speculation.h"
#include "src/html/html.h"
#include "src/report/board.h"
#include "src/report/queries.h"

namespace kvgauge::report {

// Every one names method, variant and budget first, and the model where there are several boards.
ReportTable GroupTable(const PageData& data);
ReportTable TaskTable(const PageData& data);
ReportTable BytesTable(const PageData& data, const std::vector<BytesByKind>& bytes);
ReportTable TimesTable(const PageData& data);
ReportTable NeedleTable(const PageData& data, const std::vector<GridCount>& grid);
// Names the model in any case: its scores may be elsewhere.
ReportTable CapacityTable(const std::vector<CapacityBoard>& capacities);
ReportTable SpeculationTable(const std::vector<SpeculationBoard>& speculations);  // the same

// For scripts: {"ID":{"columns":[..],"rows":[[..]]}} of those that have rows.
Html TablesData(const std::vector<ReportTable>& tables);
// A button that downloads the table; nothing of one without rows.
Html DownloadButton(const ReportTable& table);

}  // namespace kvgauge::report
