// SPDX-License-Identifier: Apache-2.0
#include "src/run/run_record.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "core/clock.h"
#include "core/json.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "reports/drawn_by.h"
#include "src/run/picture_record.h"

namespace kvgauge {
namespace {

constexpr size_t kMostWaiting = 4096;
constexpr size_t kMostTogether = 256;
// How long a batch waits for more: a transaction costs as much as several cells, so short waits are
// for the beginning only, where people and interrupted runs want to see something.
constexpr double kFirstLingerSeconds = 0.2;
constexpr double kLongestLingerSeconds = 1.0;

double Rounded(double share) { return std::round(1000 * share) / 1000; }

EngagementMark MarkOf(Engagement engagement) {
  switch (engagement) {
    case Engagement::kEngaged:
      return EngagementMark::kEngaged;
    case Engagement::kNotEngaged:
      return EngagementMark::kNotEngaged;
    case Engagement::kIdentity:
      return EngagementMark::kIdentity;
  }
  return EngagementMark::kNone;
}

// In a run rows share pools, so what one holds at its worst is counted, not measured: the prefill's
// cache whole and the row's own beside it. Only the latency phase measures it.
int64_t PeakBytes(int64_t full_bytes, int64_t resident_bytes) {
  return full_bytes + resident_bytes;
}

MemoryRow MemoryOf(MemoryMoment moment, const KvBytes& bytes, const CompressionRecord& record,
                   int64_t full_bytes, int64_t host_bytes) {
  MemoryRow row;
  row.moment = moment;
  row.nominal_bytes = record.nominal_bytes;
  row.full_bytes = full_bytes;
  row.payload_bytes = bytes.payload;
  row.scales_bytes = bytes.scales;
  row.indices_bytes = bytes.indices;
  row.outliers_bytes = bytes.outliers;
  row.low_rank_bytes = bytes.low_rank;
  row.biases_bytes = bytes.biases;
  row.codebooks_bytes = bytes.codebooks;
  row.projections_bytes = bytes.projections;
  row.reader_bytes = record.reader_bytes;
  row.slack_bytes = bytes.slack;
  row.resident_bytes = bytes.resident() + record.reader_bytes;
  row.host_bytes = host_bytes;
  row.peak_bytes = PeakBytes(std::max(record.full_bytes, full_bytes), row.resident_bytes);
  return row;
}

LatencyRow SharedLatency(const CompressionRecord& record, int64_t context_tokens) {
  const PhaseSeconds& s = record.seconds;
  LatencyRow row;
  row.isolated = false;
  row.context_tokens = context_tokens;
  row.prefill_s = s.prefill;
  row.score_s = s.score;
  row.select_s = s.select;
  row.compact_s = s.compact;
  row.quantise_s = s.quantise;
  row.attend_s = s.attend;
  row.other_s = s.other;
  row.ttft_s = s.prefill + s.score + s.select + s.compact + s.quantise;
  row.steps = record.steps;
  if (record.steps > 0) {
    row.tpot_p50_s = (s.attend + s.other) / static_cast<double>(record.steps);
    row.tpot_p90_s = row.tpot_p99_s = row.tpot_p50_s;
  }
  row.resident_bytes = record.final_bytes.resident() + record.reader_bytes;
  row.peak_bytes = PeakBytes(record.full_bytes, record.bytes.resident() + record.reader_bytes);
  return row;
}

void AddLayers(const FinishedCell& cell, SampleRow& row) {
  const CompressionRecord& record = cell.result.record;
  const auto& fidelity = cell.result.fidelity;
  for (size_t l = 0; l < record.entries_after.size(); ++l) {
    LayerStatRow whole;
    whole.layer = static_cast<int64_t>(l);
    whole.head = LayerStatRow::kWholeLayer;
    if (l < record.bits.size()) whole.bits = record.bits[l];
    if (l < record.merged.size()) whole.merged = record.merged[l];
    if (fidelity && l < fidelity->attention_error.size()) {
      whole.attention_error = fidelity->attention_error[l];
    }
    if (l < cell.kept.layers.size()) {
      whole.kept_by_depth = cell.kept.layers[l].by_depth;
      if (!cell.sample->answer.empty()) whole.answer_kept = cell.kept.layers[l].answer;
    }
    row.layers.push_back(std::move(whole));
    for (size_t h = 0; h < record.entries_after[l].size(); ++h) {
      LayerStatRow head;
      head.layer = static_cast<int64_t>(l);
      head.head = static_cast<int64_t>(h);
      head.entries_before = record.entries_before[l][h];
      head.entries_after = record.entries_after[l][h];
      row.layers.push_back(std::move(head));
    }
  }
}

void AddModalities(const CompressionRecord& record, SampleRow& row) {
  for (size_t l = 0; l < record.modalities.size(); ++l) {
    for (size_t i = 0; i < record.modalities[l].size(); ++i) {
      const ModalityRecord& of = record.modalities[l][i];
      if (of.entries_before == 0) continue;
      row.modalities.push_back({.layer = static_cast<int64_t>(l),
                                .modality = std::string(NameOf(static_cast<Modality>(i))),
                                .entries_before = of.entries_before,
                                .entries_after = of.entries_after,
                                .bytes = of.bytes,
                                .attention = of.attention,
                                .attention_kept = of.attention_kept});
    }
  }
}

// Counts the sample's whole prompt, with the rows of pictures that were never read (`unseen`; less
// than 0: a stage put tokens of its own into it).
int64_t FullBytes(const CompressionRecord& record, int64_t unseen) {
  if (record.prompt_tokens == 0) return record.full_bytes;
  return record.full_bytes + record.full_bytes / record.prompt_tokens * unseen;
}

// A stage that takes rows out of pictures has acted before the engine began.
void JudgeSeeing(const RunSample& sample, SampleRow& row) {
  if (row.engagement != EngagementMark::kIdentity) return;
  const bool acted = sample.unseen > 0;
  row.engagement = acted ? EngagementMark::kEngaged : EngagementMark::kNotEngaged;
  row.engagement_reason = acted ? "" : "every row of every picture was shown";
}

// Rows that were never read were there before.
void AddUnseen(int64_t unseen, const CompressionRecord& record, SampleRow& row) {
  for (ModalityStatRow& stat : row.modalities) {
    if (stat.modality != NameOf(Modality::kImage)) continue;
    const auto heads = std::ssize(record.entries_before[static_cast<size_t>(stat.layer)]);
    stat.entries_before += unseen * heads;
  }
}

// A window: its perplexity, and what it adds to that of the text.
Status AddPerplexity(const TurnResult& turn, int64_t counted, AnswerRow& answer, SampleRow& row) {
  double nats = 0;
  const auto first = turn.log_probs.end() - std::min(counted, std::ssize(turn.log_probs));
  for (auto at = first; at != turn.log_probs.end(); ++at) nats -= *at;
  const auto tokens = static_cast<double>(turn.log_probs.end() - first);
  char text[64];
  std::snprintf(text, sizeof(text), "%.0f tokens, %.6f nats each", tokens, nats / tokens);
  answer.prediction = text;
  answer.score = std::exp(nats / tokens);
  if (!std::isfinite(*answer.score)) {
    return BadInput(StrCat(text, ": more than a number can hold, expected probabilities above 0"));
  }
  row.parts = {nats, tokens};
  return {};
}

Json FactsOf(const Sample& sample) {
  Json facts = Json::object();
  for (const auto& [name, value] : sample.facts) facts[name] = RepairUtf8(value);
  return facts;
}

// The facts of a draw.
std::string DrawFacts(const Sample& sample, int64_t draw, const std::string& vote) {
  Json facts = FactsOf(sample);
  facts[kDrawFact] = StrCat(draw);
  if (!vote.empty()) facts[kVoteFact] = vote;
  return CanonicalJson(facts);
}

// What is scored of an answer: what the task's rules leave of it.
std::string ScoredText(const GroupScoring& scoring, const std::string& answer) {
  return PostProcess(scoring.task->post, CutAtStop(scoring.task->stop, answer));
}

// What a draw's answer votes for: the very text that is scored, in the metric's spelling. A sample
// of several questions has several answers, which no vote decides together.
std::string VoteOf(const FinishedCell& cell) {
  constexpr size_t kLongest = 200;
  if (!cell.result.status.ok() || cell.result.turns.size() != 1) return "";
  const std::vector<int32_t>& ids =
      cell.conclusions.empty() ? cell.result.turns[0].ids : cell.conclusions[0].ids;
  const GroupScoring& scoring = *cell.scoring;
  std::string scored = ScoredText(scoring, scoring.tokenizer->Decode(ids));
  if (scoring.metric != nullptr && scoring.metric->canonical && !scored.empty()) {
    scored = scoring.metric->canonical(scored);
  }
  const std::string vote(Trim(RepairUtf8(scored)));
  return vote.size() > kLongest ? StrCat("sha256 ", Sha256Hex(vote)) : vote;
}

// Fills answers and scores; an error of the metric is the sample's.
Status AddAnswers(const FinishedCell& cell, SampleRow& row) {
  const GroupScoring& scoring = *cell.scoring;
  const Sample& sample = cell.sample->sample;
  double sum = 0;
  int64_t scored = 0;
  std::vector<double> scores;
  for (size_t t = 0; t < cell.result.turns.size(); ++t) {
    const Question& question = sample.questions[t];
    const TurnResult& turn = cell.result.turns[t];
    AnswerRow answer;
    answer.question = question.text + question.answer_prefix;
    if (t == 0) answer.excerpt = cell.sample->excerpt;
    answer.references = question.answers;
    answer.tokens_out = std::ssize(turn.ids);
    answer.stopped = turn.stopped;
    row.tokens_out += answer.tokens_out;
    if (!turn.log_probs.empty()) {
      KVG_TRY(AddPerplexity(turn, question.max_new_tokens, answer, row));
      row.score = answer.score;
      row.answers.push_back(std::move(answer));
      continue;
    }
    answer.prediction = scoring.tokenizer->Decode(turn.ids);
    if (t < cell.conclusions.size() && !question.conclusion.empty()) {
      answer.references.clear();
      row.answers.push_back(std::move(answer));
      const TurnResult& conclusion = cell.conclusions[t];
      answer = AnswerRow();
      answer.question = question.conclusion;
      answer.references = question.answers;
      answer.tokens_out = std::ssize(conclusion.ids);
      answer.stopped = conclusion.stopped;
      answer.prediction = scoring.tokenizer->Decode(conclusion.ids);
      row.tokens_out += answer.tokens_out;
    }
    if (scoring.metric != nullptr) {
      const MetricInput input = {.prediction = ScoredText(scoring, answer.prediction),
                                 .answers = question.answers,
                                 .all_classes = question.all_classes,
                                 .language = sample.language,
                                 .kind = question.kind};
      KVG_ASSIGN(const double score, scoring.metric->score(input));
      answer.score = score;
      sum += score;
      ++scored;
      scores.push_back(score);
      if (scoring.metric->parts) {
        KVG_ASSIGN(const std::vector<double> parts, scoring.metric->parts(input));
        row.parts.resize(std::max(row.parts.size(), parts.size()));
        for (size_t i = 0; i < parts.size(); ++i) row.parts[i] += parts[i];
      }
    }
    row.answers.push_back(std::move(answer));
  }
  if (scored > 0) row.score = sum / static_cast<double>(scored);
  if (!scores.empty() && scoring.metric->of_group) row.score = scoring.metric->of_group(scores);
  return {};
}

}  // namespace

int64_t LinkTokensOf(const CellResult& result) {
  return result.reuse ? result.reuse->link_tokens : 0;
}

std::string FactsJson(const Sample& sample) { return CanonicalJson(FactsOf(sample)); }

KeptEntries FindKeptEntries(const KvCache& cache, const ModelShape& shape, const RunSample& sample,
                            int64_t links) {
  constexpr int64_t kDepths = LayerStatRow::kDepths;
  KeptEntries kept;
  kept.final_full_bytes = FullCacheBytes(shape, cache.held_tokens() + sample.unseen - links);
  if (sample.sight != nullptr) kept.patches = KeptPatches(cache, sample.tokens, *sample.sight);
  const int64_t context = std::ssize(sample.tokens.context);
  if (context == 0) return kept;
  // For each position, its part of the context, and whether it belongs to the answer.
  constexpr uint8_t kAnswer = 0x80;
  std::vector<uint8_t> places(static_cast<size_t>(context));
  std::vector<int64_t> had(kDepths);
  for (int64_t i = 0; i < context; ++i) {
    const int64_t depth = i * kDepths / context;
    ++had[static_cast<size_t>(depth)];
    places[static_cast<size_t>(i)] = static_cast<uint8_t>(depth);
  }
  int64_t asked = 0;
  for (const auto& range : sample.answer) {
    asked += range.second - range.first;
    for (int64_t i = range.first; i < range.second; ++i) places[static_cast<size_t>(i)] |= kAnswer;
  }
  for (int64_t layer = 0; layer < cache.layer_count(); ++layer) {
    std::vector<int64_t> held(kDepths);
    int64_t answered = 0;
    for (int64_t head = 0; head < cache.kv_heads(layer); ++head) {
      for (const int32_t position : cache.Positions(layer, head)) {
        const auto [begin, end] = cache.TokensAt(position);
        for (int64_t token = begin; token < std::min(end, context); ++token) {
          const uint8_t place = places[static_cast<size_t>(token)];
          ++held[place & ~kAnswer];
          answered += (place & kAnswer) != 0;
        }
      }
    }
    KeptLayer stats;
    const auto heads = static_cast<double>(cache.kv_heads(layer));
    for (size_t d = 0; d < had.size(); ++d) {
      // A context shorter than that leaves parts empty.
      const double share =
          had[d] == 0 ? 0 : static_cast<double>(held[d]) / (heads * static_cast<double>(had[d]));
      stats.by_depth.push_back(Rounded(share));
    }
    if (asked > 0) {
      stats.answer = Rounded(static_cast<double>(answered) / (heads * static_cast<double>(asked)));
    }
    kept.layers.push_back(std::move(stats));
  }
  return kept;
}

SampleRow MakeSampleRow(const FinishedCell& cell) {
  const RunSample& run_sample = *cell.sample;
  const Sample& sample = run_sample.sample;
  const CellResult& result = cell.result;
  SampleRow row;
  row.cell = cell.cell;
  row.run = cell.run;
  row.sample_id = cell.scoring->sampled ? DrawName(sample.id, result.draw) : sample.id;
  row.hash = sample.hash;
  row.group = sample.group.empty() ? sample.id : sample.group;
  row.position = run_sample.position;
  row.facts = run_sample.facts;
  if (cell.scoring->sampled) row.facts = DrawFacts(sample, result.draw, VoteOf(cell));
  row.tokens_in = std::ssize(run_sample.tokens.context);
  for (const EngineTurn& turn : run_sample.tokens.turns) row.tokens_in += std::ssize(turn.ids);
  row.tokens_in += run_sample.unseen;
  row.images = run_sample.visuals.images;
  row.frames = run_sample.visuals.frames;
  row.visual_tokens = run_sample.visuals.tokens;
  row.sight = run_sample.sight;
  if (!run_sample.answer.empty() && !run_sample.tokens.context.empty()) {
    row.answer_depth = static_cast<double>(run_sample.answer[0].first) /
                       static_cast<double>(run_sample.tokens.context.size());
  }
  if (!result.status.ok()) {
    row.status = cell.skipped ? SampleStatus::kSkipped : SampleStatus::kFailed;
    row.reason = result.status.error().message;
    return row;
  }
  const Status scored = AddAnswers(cell, row);
  if (!scored.ok()) {
    row.status = SampleStatus::kFailed;
    row.reason = StrCat("metric ", cell.scoring->task->metric, ": ", scored.error().message);
    row.score = std::nullopt;
  }
  const CompressionRecord& record = result.record;
  row.engagement = MarkOf(record.engagement);
  row.engagement_reason = record.reason;
  if (run_sample.reduced) JudgeSeeing(run_sample, row);
  row.compressions = record.compressions;
  if (record.steps > 0) {
    row.reads_per_step = record.reads_per_step;
    row.read_share = record.read_share;
    if (record.host_bytes > 0) row.fetched_per_step = record.fetched_bytes_per_step;
  }
  if (result.fidelity && result.fidelity->steps > 0) {
    row.kl_divergence = result.fidelity->kl_divergence;
    row.top1_agreement = result.fidelity->top1_agreement;
  }
  AddLayers(cell, row);
  AddModalities(cell.result.record, row);
  row.patches = cell.kept.patches;
  if (run_sample.reduced) AddUnseen(run_sample.unseen_compressed, record, row);
  row.memory.push_back(MemoryOf(
      MemoryMoment::kCompressed, record.bytes, record,
      FullBytes(record, run_sample.unseen_compressed - LinkTokensOf(result)), record.host_bytes));
  row.memory.push_back(MemoryOf(MemoryMoment::kFinal, record.final_bytes, record,
                                cell.kept.final_full_bytes, record.final_host_bytes));
  row.latency = SharedLatency(record, record.prompt_tokens);
  row.latency->vision_s = run_sample.vision_s;
  return row;
}

CellRecorder::CellRecorder(ResultStore& store, OnRow on_row)
    : store_(store), on_row_(std::move(on_row)), thread_([this] { Work(); }) {}

CellRecorder::~CellRecorder() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Status CellRecorder::Put(FinishedCell cell) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.size() < kMostWaiting || !status_.ok(); });
  if (!status_.ok()) return status_;
  queue_.push_back(std::move(cell));
  // The writer sleeps until the first cell of a batch, then until the batch is full or due.
  const bool wake = queue_.size() == 1 || queue_.size() == kMostTogether;
  lock.unlock();
  if (wake) changed_.notify_all();
  return {};
}

Status CellRecorder::Flush() {
  std::unique_lock lock(mutex_);
  ++flushing_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return (queue_.empty() && !busy_) || !status_.ok(); });
  --flushing_;
  return status_;
}

double CellRecorder::seconds() {
  const std::lock_guard lock(mutex_);
  return seconds_;
}

Status CellRecorder::WriteBatch(const std::vector<FinishedCell>& cells) {
  std::vector<SampleRow> rows;
  rows.reserve(cells.size());
  for (const FinishedCell& cell : cells) rows.push_back(MakeSampleRow(cell));
  std::vector<WriteOutcome> outcomes;
  Status status;
  {
    const std::lock_guard store_lock(store_mutex_);
    Result<std::vector<WriteOutcome>> all = store_.WriteAll(rows);
    if (all.ok()) {
      outcomes = std::move(all).value();
    } else {
      // One by one, so that only what is at fault is not recorded.
      for (const SampleRow& row : rows) {
        const Result<WriteOutcome> one = store_.Write(row);
        if (!one.ok()) {
          status = one.error();
          break;
        }
        outcomes.push_back(*one);
      }
    }
  }
  for (size_t i = 0; i < outcomes.size() && on_row_; ++i) on_row_(cells[i], rows[i], outcomes[i]);
  return status;
}

void CellRecorder::Work() {
  std::unique_lock lock(mutex_);
  double linger_s = kFirstLingerSeconds;
  while (true) {
    changed_.wait(lock, [&] { return !queue_.empty() || closing_; });
    if (queue_.empty()) return;
    changed_.wait_for(lock, std::chrono::duration<double>(linger_s),
                      [&] { return queue_.size() >= kMostTogether || closing_ || flushing_ > 0; });
    std::vector<FinishedCell> cells;
    while (!queue_.empty() && cells.size() < kMostTogether) {
      cells.push_back(std::move(queue_.front()));
      queue_.pop_front();
    }
    linger_s = std::min(2 * linger_s, kLongestLingerSeconds);
    busy_ = true;
    const bool failed = !status_.ok();
    lock.unlock();
    const Status written = failed ? Status() : WriteBatch(cells);
    const double used_s = ThreadCpuSeconds();
    lock.lock();
    seconds_ = used_s;
    busy_ = false;
    if (!written.ok() && status_.ok()) status_ = written;
    changed_.notify_all();
  }
}

}  // namespace kvgauge
