// SPDX-License-Identifier: Apache-2.0
// The statements behind the tables and figures: those that the page runs itself, and all of them as
// it shows them, to be pasted into sqlite3.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvgauge::report {

inline constexpr char kBytesSql[] =
    "SELECT s.cell_id, count(*) AS samples, avg(s.tokens_in) AS tokens_in,\n"
    "       avg(m.full_bytes) AS full_cache, avg(m.payload_bytes) AS payload,\n"
    "       avg(m.scales_bytes) AS scales, avg(m.indices_bytes) AS indices, avg(m.outliers_bytes) "
    "AS outliers,\n"
    "       avg(m.low_rank_bytes) AS low_rank, avg(m.biases_bytes) AS biases, "
    "avg(m.codebooks_bytes) AS codebooks,\n"
    "       avg(m.projections_bytes) AS projections, avg(m.reader_bytes) AS reader, "
    "avg(m.slack_bytes) AS slack\n"
    "FROM sample s JOIN memory m ON m.sample_id = s.id AND m.moment = 'compressed'\n"
    "WHERE s.status = 'ok' GROUP BY s.cell_id ORDER BY s.cell_id";
inline constexpr char kGridSql[] =
    "SELECT cell_id, json_extract(facts, '$.depth') AS depth,\n"
    "       json_extract(facts, '$.length') AS length, count(score) AS samples, sum(score >= 1) AS "
    R"("right", avg(score) AS score,)"
    "\n"
    "       max(images + frames) > 0 AS pictures\n"
    R"(FROM sample WHERE status = 'ok' AND score IS NOT NULL AND facts LIKE '%"depth"%')"
    "\n"
    "  AND json_valid(facts)\n"
    "GROUP BY cell_id, depth, length ORDER BY cell_id";
inline constexpr char kModalitiesSql[] =
    "SELECT s.cell_id, m.layer, m.modality, count(*) AS samples,\n"
    "       sum(m.entries_before) AS entries_before, sum(m.entries_after) AS entries_after,\n"
    "       avg(m.attention) AS attention, avg(m.attention_kept) AS attention_kept\n"
    "FROM modality_stat m JOIN sample s ON s.id = m.sample_id WHERE s.status = 'ok'\n"
    "GROUP BY s.cell_id, m.layer, m.modality ORDER BY s.cell_id, m.layer, m.modality";
inline constexpr char kHeadsSql[] =
    "WITH few AS (SELECT id, cell_id FROM (SELECT id, cell_id, row_number() OVER (\n"
    "    PARTITION BY cell_id ORDER BY position, sample_key) AS n FROM sample WHERE status = "
    "'ok')\n"
    "  WHERE n <= ?1)\n"
    "SELECT few.cell_id, l.layer, l.head, count(*) AS samples,\n"
    "       avg(1.0 * l.entries_after / nullif(l.entries_before, 0)) AS kept, avg(l.bits) AS "
    "bits,\n"
    "       avg(l.attention_error) AS attention_error, avg(l.answer_kept) AS answer_kept\n"
    "FROM few JOIN layer_stat l ON l.sample_id = few.id\n"
    "GROUP BY few.cell_id, l.layer, l.head ORDER BY few.cell_id, l.layer, l.head";

struct ShownQuery {
  std::string name;  // of what is made from it
  std::string note;  // what the program adds to it; "": nothing
  std::string sql;   // runs as it stands in sqlite3
};
// `layer_samples`: of each cell that means by layer and head are of. `split_keys`: facts of samples
// that tasks report by.
std::vector<ShownQuery> ShownQueries(int64_t layer_samples,
                                     const std::vector<std::string>& split_keys);

}  // namespace kvgauge::report
