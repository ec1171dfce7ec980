// SPDX-License-Identifier: Apache-2.0
#include "src/report/sql.h"

#include "core/strings.h"
#include "reports/gate.h"

namespace kvgauge::report {
namespace {

constexpr char kGroups[] =
    "(SELECT DISTINCT name, coalesce(json_extract(spec, '$.group'),\n"
    "   CASE instr(name, '/') WHEN 0 THEN name ELSE substr(name, 1, instr(name, '/') - 1) END)\n"
    "   AS task_group FROM task)";

constexpr char kPairsSql[] =
    "SELECT f.id AS full_sample, s.id AS sample, s.cell_id, f.score AS full_score, s.score\n"
    "FROM sample s JOIN cell c ON c.id = s.cell_id JOIN method m ON m.id = c.method_id\n"
    "JOIN (SELECT b.task_id, b.model_id, b.seed, b.compress_at, b.signature_id,\n"
    "             x.id, x.sample_key, x.hash, x.score\n"
    "      FROM cell b JOIN method h ON h.id = b.method_id AND h.full_cache = 1\n"
    "      JOIN sample x ON x.cell_id = b.id WHERE x.score IS NOT NULL) f\n"
    "  ON f.task_id = c.task_id AND f.model_id = c.model_id AND f.seed = c.seed\n"
    "  AND f.compress_at = c.compress_at AND f.signature_id = c.signature_id\n"
    "  AND f.sample_key = s.sample_key AND f.hash = s.hash\n"
    "WHERE m.full_cache = 0 AND s.score IS NOT NULL";

constexpr char kMeansSql[] =
    "SELECT model, compress_at, method, variant, budget, count(*) AS tasks,\n"
    "       avg(held) AS held_of_full, avg(logical) AS logical_of_full,\n"
    "       avg(kl) AS kl_divergence, avg(top1) AS top1_agreement\n"
    "FROM (SELECT model.name AS model, c.compress_at, m.name AS method, m.variant, c.budget,\n"
    "             1.0 * sum(b.resident_bytes) / sum(b.full_bytes) AS held,\n"
    "             1.0 * sum(b.logical_bytes) / sum(b.full_bytes) AS logical,\n"
    "             avg(s.kl_divergence) AS kl, avg(s.top1_agreement) AS top1\n"
    "      FROM cell c JOIN model ON model.id = c.model_id JOIN method m ON m.id = c.method_id\n"
    "      JOIN task t ON t.id = c.task_id\n"
    "      JOIN sample s ON s.cell_id = c.id AND s.status = 'ok'\n"
    "      LEFT JOIN memory b ON b.sample_id = s.id AND b.moment = 'compressed'\n"
    "      GROUP BY model.name, c.compress_at, m.name, m.variant, c.budget, t.name)\n"
    "GROUP BY model, compress_at, method, variant, budget\n"
    "ORDER BY model, compress_at, held_of_full";

// Isolated rows that other programs did not disturb; all of a point where every one was disturbed.
std::string CalmTimes() {
  return StrCat(
      "calm AS (SELECT * FROM (SELECT l.*, m.name AS method, m.variant, c.budget, c.compress_at,\n"
      "      min(l.others_share) OVER (PARTITION BY m.name, m.variant, c.budget, c.compress_at,\n"
      "        c.model_id, l.context_tokens) AS least, c.model_id\n"
      "    FROM latency l JOIN cell c ON c.id = l.cell_id JOIN method m ON m.id = c.method_id\n"
      "    WHERE l.isolated = 1)\n"
      "  WHERE others_share <= ",
      GateMargins().max_others_share, " OR least > ", GateMargins().max_others_share, ")\n");
}

constexpr char kPoint[] = "method, variant, budget, compress_at, model_id, context_tokens";

std::string MediansSql() {
  const auto ranked = [](const char* name, const char* column) {
    return StrCat("row_number() OVER (PARTITION BY ", kPoint, " ORDER BY ", column, ") AS ", name);
  };
  const auto median = [](const char* place, const char* column) {
    return StrCat("avg(iif(", place, " IN ((n + 1) / 2, (n + 2) / 2), ", column, ", NULL)) AS ",
                  column);
  };
  return StrCat("WITH ", CalmTimes(), "SELECT method, variant, budget, compress_at,",
                " context_tokens, n AS repetitions,\n       ", median("a", "ttft_s"),
                ", min(ttft_s), max(ttft_s),\n       ", median("b", "tpot_p50_s"),
                ", min(tpot_p50_s), max(tpot_p50_s),\n"
                "       avg(resident_bytes) AS resident_bytes, max(others_share) AS others_share\n"
                "FROM (SELECT *, ",
                ranked("a", "ttft_s"), ",\n        ", ranked("b", "tpot_p50_s"),
                ",\n        count(*) OVER (PARTITION BY ", kPoint, ") AS n FROM calm)\nGROUP BY ",
                kPoint, " ORDER BY context_tokens, method, variant, budget");
}

std::string PhasesSql() {
  return StrCat(
      "WITH ", CalmTimes(),
      "SELECT method, variant, budget, compress_at, context_tokens, count(*) AS repetitions,\n"
      "       avg(vision_s) AS vision_s, avg(prefill_s) AS prefill_s, avg(score_s) AS score_s,\n"
      "       avg(select_s) AS select_s,\n"
      "       avg(compact_s) AS compact_s, avg(quantise_s) AS quantise_s,\n"
      "       avg(attend_s) AS attend_s, avg(other_s) AS other_s\n"
      "FROM calm GROUP BY ",
      kPoint, " ORDER BY context_tokens, method, variant, budget");
}

// What is by cell, with the cell's names before it. The column cell_id stays: it joins the results.
std::string Named(const std::string& by_cell) {
  return StrCat(
      "SELECT t.name AS task, m.name AS method, m.variant, c.budget, c.compress_at, q.*\n"
      "FROM (",
      by_cell,
      ") q\nJOIN cell c ON c.id = q.cell_id JOIN method m ON m.id = c.method_id\n"
      "JOIN task t ON t.id = c.task_id\n"
      "ORDER BY t.name, m.name, m.variant, c.budget_value");
}

std::string WithNumber(std::string sql, int64_t number) {
  const size_t at = sql.find("?1");
  return sql.replace(at, 2, StrCat(number));
}

std::string DepthsSql(int64_t samples) {
  return WithNumber(
      "WITH few AS (SELECT id, cell_id FROM (SELECT id, cell_id, row_number() OVER (\n"
      "    PARTITION BY cell_id ORDER BY position, sample_key) AS n FROM sample\n"
      "    WHERE status = 'ok') WHERE n <= ?1)\n"
      "SELECT few.cell_id, l.layer, slice.key AS slice, avg(slice.value) AS kept\n"
      "FROM few JOIN layer_stat l ON l.sample_id = few.id AND l.head = -1,\n"
      "     json_each(l.kept_by_depth) slice\n"
      "WHERE l.kept_by_depth IS NOT NULL GROUP BY few.cell_id, l.layer, slice.key",
      samples);
}

// As a text of SQL.
std::string Literal(const std::string& text) {
  std::string literal = "'";
  for (const char c : text) literal.append(c == '\'' ? 2 : 1, c);
  return literal.append("'");
}

}  // namespace

std::vector<ShownQuery> ShownQueries(int64_t layer_samples,
                                     const std::vector<std::string>& split_keys) {
  std::vector<ShownQuery> shown = {
      {"Leaderboard, fronts: scores of groups",
       "A group's score is the mean over its tasks. Intervals, differences, p values and verdicts "
       "come from the program: a bootstrap over contexts, paired with the full cache by sample. "
       "Scores that a task's authors round, perplexities and other scores of whole sets are made "
       "by the program, too.",
       StrCat("SELECT b.model, g.task_group, b.compress_at, b.method, b.variant, b.budget,\n"
              "       avg(b.mean_score) AS score, count(*) AS tasks, sum(b.samples) AS samples,\n"
              "       sum(b.failed + b.skipped) AS failed, sum(b.not_engaged) AS not_engaged\n"
              "FROM leaderboard b JOIN ",
              kGroups,
              " g ON g.name = b.task\n"
              "GROUP BY b.model, g.task_group, b.compress_at, b.method, b.variant, b.budget\n"
              "ORDER BY b.model, g.task_group, b.compress_at, score DESC")},
      {"Leaderboard: bytes, KL, top-1 agreement",
       "Means over the tasks of a row. Bytes a token are these shares of the full cache's.",
       kMeansSql},
      {"Curves: scores of tasks", "Intervals and verdicts as above.",
       "SELECT model, task, compress_at, method, variant, budget, mean_score, byte_ratio,\n"
       "       samples, failed, not_engaged, rank\n"
       "FROM leaderboard ORDER BY model, task, compress_at, rank IS NULL, rank"},
      {"Needle maps", "", Named(kGridSql)},
      {"Text and pictures", "The page adds tasks, layers and seeds of a row up.",
       Named(kModalitiesSql)},
      {"Sweeps", "Half intervals come from the program.",
       "SELECT model, task, compress_at, method, budget, variant, mean_score, samples\n"
       "FROM leaderboard WHERE variant <> ''\n"
       "ORDER BY model, task, method, budget, mean_score DESC"},
      {"Entries by layer and head, error of the attention output",
       "Head -1 is the layer as a whole. The page takes the mean over tasks.",
       Named(WithNumber(kHeadsSql, layer_samples))},
      {"Places kept, by depth", "Slice 0 is the beginning. The page takes the mean over tasks.",
       Named(DepthsSql(layer_samples))},
      {"Bytes by kind", "Of a sample's cache; the page shows them a token, as means over tasks.",
       Named(kBytesSql)},
      {"Scaling, TTFT, TPOT",
       "Medians over repetitions. Ratios are medians over pairs of neighbours (of one run, length "
       "and repetition), which the program makes.",
       MediansSql()},
      {"Time by phase", "", PhasesSql()},
      {"Samples beside the full cache", "", kPairsSql},
      {"Answers to one question", "Here the first; any other by its sample.",
       "SELECT task, method, variant, budget, turn, question, prediction, answers, turn_score\n"
       "FROM result WHERE sample = (SELECT sample_key FROM sample ORDER BY id LIMIT 1)\n"
       "ORDER BY task, method, budget, turn"},
  };
  for (const std::string& key : split_keys) {
    const std::string fact =
        StrCat("json_extract(s.facts, ", Literal(StrCat(R"($.")", key, R"(")")), ")");
    shown.push_back(
        {StrCat("Parts of the data, by ", key), "A group's score is the mean over its tasks.",
         StrCat(
             "SELECT t.name AS task, m.name AS method, m.variant, c.budget, c.compress_at,\n"
             "       ",
             fact,
             " AS part, avg(s.score) AS score, count(s.score) AS samples\n"
             "FROM sample s JOIN cell c ON c.id = s.cell_id JOIN method m ON m.id = c.method_id\n"
             "JOIN task t ON t.id = c.task_id\n"
             "WHERE s.score IS NOT NULL AND part IS NOT NULL\n"
             "GROUP BY t.name, m.name, m.variant, c.budget, c.compress_at, part\n"
             "ORDER BY t.name, part, score DESC")});
  }
  return shown;
}

}  // namespace kvgauge::report
