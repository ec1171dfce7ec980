// SPDX-License-Identifier: Apache-2.0
#include "src/results/show_sample.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "core/counted.h"
#include "core/json.h"
#include "core/strings.h"
#include "reports/comparison.h"
#include "reports/drawn_by.h"
#include "src/cli/print.h"
#include "src/cli/table.h"
#include "src/results/show_pictures.h"

namespace kvgauge {
namespace {

std::string ShareText(double share) { return Fixed(100 * share, 1) + "%"; }

std::string ScoreOrNone(const std::optional<double>& score) {
  return score ? Fixed(*score, 3) : "not scored";
}

// What came of the context, from its beginning to its end: a block for each part.
std::string Profile(const std::vector<double>& kept) {
  static constexpr std::array<const char*, 9> kBlocks = {" ", "▁", "▂", "▃", "▄",
                                                         "▅", "▆", "▇", "█"};
  std::string text;
  for (const double share : kept) {
    const double level = std::ceil(8 * std::clamp(share, 0.0, 1.0));
    text += kBlocks[static_cast<size_t>(level)];
  }
  return text;
}

void AddBytes(const SampleRow& row, std::vector<std::pair<std::string, std::string>>& facts) {
  for (const MemoryRow& m : row.memory) {
    if (m.full_bytes <= 0) continue;
    const auto show = [&](int64_t bytes) {
      return StrCat(HumanBytes(bytes), " (",
                    ShareText(static_cast<double>(bytes) / static_cast<double>(m.full_bytes)), ")");
    };
    facts.emplace_back(
        m.moment == MemoryMoment::kCompressed ? "bytes, compressed" : "bytes, final",
        StrCat("logical ", show(m.logical_bytes()), ", nominal ", show(m.nominal_bytes),
               ", resident ", show(m.resident_bytes), " of ", HumanBytes(m.full_bytes)));
    if (m.host_bytes == 0) continue;
    facts.back().second.append(StrCat("; on the host ", show(m.host_bytes), ", on the device ",
                                      show(m.resident_bytes - m.host_bytes)));
  }
}

void AddVisuals(const SampleRow& row, std::vector<std::pair<std::string, std::string>>& facts) {
  if (row.images + row.frames == 0) return;
  std::vector<std::string> parts;
  if (row.images > 0) parts.push_back(Counted(row.images, "picture"));
  if (row.frames > 0) parts.push_back(Counted(row.frames, "frame"));
  facts.emplace_back(
      "shows", StrCat(Join(parts, ", "), "; ", WithCommas(row.visual_tokens), " of the tokens, ",
                      WithCommas(row.tokens_in - row.visual_tokens), " are text"));
  if (row.latency && row.latency->vision_s > 0) {
    facts.emplace_back("vision",
                       StrCat(Fixed(1000 * row.latency->vision_s, 1), " ms for the tower, prefill ",
                              Fixed(1000 * row.latency->prefill_s, 1), " ms"));
  }
}

// What a fact of the sample says; "" where it says nothing.
std::string FactOf(const SampleRow& row, const char* key) {
  const Result<Json> json = ParseJson(row.facts, "facts");
  if (!json.ok() || !json->is_object()) return "";
  const auto at = json->find(key);
  return at != json->end() && at->is_string() ? at->get<std::string>() : "";
}

Json DrawJson(const StoredCell& cell, const SampleRow& row) {
  if (!DrawnByOf(cell.cell.signature)) return nullptr;
  const NamedDraw name = ParseDrawName(row.sample_id);
  return {{"prompt", name.prompt}, {"number", name.draw}, {"vote", FactOf(row, kVoteFact)}};
}

// Which of several answers it is.
void AddDraw(const StoredCell& cell, const SampleRow& row,
             std::vector<std::pair<std::string, std::string>>& facts) {
  const std::optional<DrawnBy> drawn = DrawnByOf(cell.cell.signature);
  if (!drawn) return;
  const NamedDraw name = ParseDrawName(row.sample_id);
  const std::string vote = FactOf(row, kVoteFact);
  facts.emplace_back("draw", StrCat(name.draw, " of prompt ", name.prompt, ", at ", drawn->Text(),
                                    vote.empty() ? "" : StrCat("; it votes for ", Quoted(vote))));
}

std::string Facts(const ShownSample& shown) {
  const CellRow& c = shown.cell->cell;
  const SampleRow& row = shown.row;
  std::vector<std::pair<std::string, std::string>> facts = {
      {"cell", StrCat(c.Key().substr(0, 12), ", ", RowLabel(c))},
      {"task", StrCat(c.task.name, ", compressed at ", c.compress_at, ", seed ", c.seed)},
      {"model", c.model.name},
      {"sample", StrCat(row.sample_id, ", context ", row.group)},
      {"tokens", StrCat(WithCommas(row.tokens_in), " in, ", row.tokens_out, " out")}};
  AddDraw(*shown.cell, row, facts);
  if (row.status != SampleStatus::kOk) {
    facts.emplace_back("status", StrCat(NameOf(row.status), ": ", row.reason));
  }
  facts.emplace_back("score",
                     ScoreOrNone(row.score).append(
                         shown.full ? StrCat(", full cache ", ScoreOrNone(shown.full->score))
                                    : ", the full cache was not run on it"));
  std::string engagement(NameOf(row.engagement));
  if (!row.engagement_reason.empty()) engagement.append(": ").append(row.engagement_reason);
  facts.emplace_back("engagement",
                     StrCat(engagement, ", acted ", Counted(row.compressions, "time")));
  AddBytes(row, facts);
  AddVisuals(row, facts);
  if (row.kl_divergence) facts.emplace_back("KL to full", Fixed(*row.kl_divergence, 5));
  if (row.top1_agreement) facts.emplace_back("top-1 agreement", ShareText(*row.top1_agreement));
  if (row.read_share) facts.emplace_back("read a step", ShareText(*row.read_share));
  if (row.fetched_per_step) {
    facts.emplace_back("fetched a step", HumanBytes(std::llround(*row.fetched_per_step)));
  }
  if (row.answer_depth) {
    facts.emplace_back("answer stands at", StrCat(ShareText(*row.answer_depth), " of the context"));
  }
  size_t width = 0;
  for (const auto& fact : facts) width = std::max(width, fact.first.size());
  std::string text;
  for (const auto& [name, value] : facts) {
    text.append(name).append(width + 2 - name.size(), ' ').append(value).append("\n");
  }
  return text;
}

std::string Turns(const ShownSample& shown, bool whole, bool colour) {
  const auto title = [&](const std::string& text) {
    return Coloured(StrCat("--- ", text), Tone::kStrong, colour) + "\n";
  };
  std::string text;
  if (shown.prompt.missing.empty()) {
    if (!shown.prompt.system.empty()) text += title("system") + shown.prompt.system + "\n";
    text += title("context");
    text += (whole ? shown.prompt.context
                   : WithoutMiddle(shown.prompt.context, ", --prompt shows them")) +
            "\n";
  } else {
    text += Coloured(StrCat("the prompt could not be made again: ", shown.prompt.missing),
                     Tone::kDoubtful, colour) +
            "\n";
  }
  for (size_t turn = 0; turn < shown.row.answers.size(); ++turn) {
    const AnswerRow& answer = shown.row.answers[turn];
    const std::string of =
        shown.row.answers.size() > 1 ? StrCat(" of turn ", turn + 1) : std::string();
    const bool made = turn < shown.prompt.questions.size();
    const std::string question = made ? shown.prompt.questions[turn] : answer.question;
    if (!question.empty()) text += StrCat(title("question" + of), question, "\n");
    if (!made && !answer.excerpt.empty()) {
      text += title("context, where the answer stands") + answer.excerpt + "\n";
    }
    std::vector<std::string> right;
    for (const std::string& reference : answer.references) right.push_back(Quoted(reference, 200));
    if (!right.empty()) text += title("right" + of) + Join(right, "\n") + "\n";
    if (shown.full && turn < shown.full->answers.size()) {
      const AnswerRow& full = shown.full->answers[turn];
      text += title(StrCat("full cache", of, ", score ", ScoreOrNone(full.score))) +
              full.prediction + "\n";
    }
    text += title(StrCat(RowLabel(shown.cell->cell), of, ", score ", ScoreOrNone(answer.score),
                         answer.stopped ? "" : ", cut at the limit")) +
            answer.prediction + "\n";
  }
  return text;
}

// Layers by what their heads hold.
TextTable Layers(const SampleRow& row) {
  struct Layer {
    int64_t heads = 0, before = 0, least = 0, most = 0, after = 0, merged = 0;
    const LayerStatRow* whole = nullptr;
  };
  std::map<int64_t, Layer> layers;
  for (const LayerStatRow& stat : row.layers) {
    Layer& layer = layers[stat.layer];
    if (stat.head == LayerStatRow::kWholeLayer) {
      layer.whole = &stat;
      continue;
    }
    if (!stat.entries_before || !stat.entries_after) continue;
    layer.least =
        layer.heads == 0 ? *stat.entries_after : std::min(layer.least, *stat.entries_after);
    layer.most = std::max(layer.most, *stat.entries_after);
    layer.before += *stat.entries_before;
    layer.after += *stat.entries_after;
    layer.merged += stat.merged.value_or(0);
    ++layer.heads;
  }
  TextTable table;
  table.columns = {{"layer", true},  {"entries", true},
                   {"kept", true},   {"by head", true},
                   {"merged", true}, {"bits", true},
                   {"reads", true},  {"error", true},
                   {"answer", true}, {"kept from the context's beginning to its end"}};
  for (const auto& [number, layer] : layers) {
    const LayerStatRow* w = layer.whole;
    const bool counted = layer.heads > 0 && layer.before > 0;
    const int64_t merged = layer.merged + (w ? w->merged.value_or(0) : 0);
    table.rows.push_back(
        {{StrCat(number)},
         {counted ? StrCat(layer.after / layer.heads) : ""},
         {counted ? ShareText(static_cast<double>(layer.after) / static_cast<double>(layer.before))
                  : ""},
         {counted && layer.least != layer.most ? StrCat(layer.least, " to ", layer.most) : ""},
         {merged > 0 ? StrCat(merged) : ""},
         {w && w->bits ? Fixed(*w->bits, 2) : ""},
         {w && w->reads ? Fixed(*w->reads, 1) : ""},
         {w && w->attention_error ? Fixed(*w->attention_error, 4) : ""},
         {w && w->answer_kept ? ShareText(*w->answer_kept) : ""},
         {w ? Profile(w->kept_by_depth) : ""}});
  }
  table.DropEmptyColumns();
  return table;
}

// What each layer holds of text, pictures and videos, and how much of the last prompt row's
// attention goes to what it kept of them.
TextTable Modalities(const SampleRow& row) {
  TextTable table;
  table.columns = {{"layer", true},    {"of", false},   {"entries", true},   {"kept", true},
                   {"share of", true}, {"bytes", true}, {"attention", true}, {"of it kept", true}};
  std::map<int64_t, int64_t> held;
  for (const ModalityStatRow& m : row.modalities) held[m.layer] += m.entries_after;
  const auto share = [](auto part, auto whole) {
    return whole > 0 ? ShareText(static_cast<double>(part) / static_cast<double>(whole)) : "";
  };
  for (const ModalityStatRow& m : row.modalities) {
    table.rows.push_back({{StrCat(m.layer)},
                          {m.modality},
                          {StrCat(m.entries_after)},
                          {share(m.entries_after, m.entries_before)},
                          {share(m.entries_after, held[m.layer])},
                          {HumanBytes(m.bytes)},
                          {ShareText(m.attention)},
                          {share(m.attention_kept, m.attention)}});
  }
  return table;
}

template <class T>
Json Maybe(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json AnswersToJson(const SampleRow& row) {
  Json answers = Json::array();
  for (const AnswerRow& a : row.answers) {
    answers.push_back({{"prediction", a.prediction},
                       {"references", a.references},
                       {"score", Maybe(a.score)},
                       {"tokens_out", a.tokens_out},
                       {"stopped", a.stopped},
                       {"question", a.question},
                       {"excerpt", a.excerpt}});
  }
  return answers;
}

}  // namespace

std::string SampleText(const ShownSample& shown, bool whole, bool colour) {
  std::string text = Facts(shown).append("\n").append(Turns(shown, whole, colour));
  const TextTable layers = Layers(shown.row);
  if (!layers.rows.empty()) {
    text.append(Coloured("--- kept, layer by layer", Tone::kStrong, colour)).append("\n");
    text.append(layers.ToText(colour));
  }
  if (!shown.row.modalities.empty()) {
    text.append(Coloured("--- kept of text and pictures, all heads of a layer together",
                         Tone::kStrong, colour))
        .append("\n");
    text.append(Modalities(shown.row).ToText(colour));
  }
  text.append(PictureMaps(shown.row, whole, colour));
  return text;
}

Json SampleToJson(const ShownSample& shown) {
  const CellRow& c = shown.cell->cell;
  const SampleRow& row = shown.row;
  Json layers = Json::array(), memory = Json::array(), modalities = Json::array();
  for (const ModalityStatRow& m : row.modalities) {
    modalities.push_back({{"layer", m.layer},
                          {"modality", m.modality},
                          {"entries_before", m.entries_before},
                          {"entries_after", m.entries_after},
                          {"bytes", m.bytes},
                          {"attention", m.attention},
                          {"attention_kept", m.attention_kept}});
  }
  for (const LayerStatRow& l : row.layers) {
    layers.push_back({{"layer", l.layer},
                      {"head", l.head},
                      {"entries_before", Maybe(l.entries_before)},
                      {"entries_after", Maybe(l.entries_after)},
                      {"bits", Maybe(l.bits)},
                      {"merged", Maybe(l.merged)},
                      {"reads", Maybe(l.reads)},
                      {"attention_error", Maybe(l.attention_error)},
                      {"kept_by_depth", l.kept_by_depth},
                      {"answer_kept", Maybe(l.answer_kept)}});
  }
  for (const MemoryRow& m : row.memory) {
    memory.push_back({{"moment", NameOf(m.moment)},
                      {"nominal_bytes", m.nominal_bytes},
                      {"logical_bytes", m.logical_bytes()},
                      {"resident_bytes", m.resident_bytes},
                      {"host_bytes", m.host_bytes},
                      {"full_bytes", m.full_bytes}});
  }
  Json json = {{"cell", c.Key()},
               {"method", c.method.name},
               {"variant", c.method.variant},
               {"budget", c.budget},
               {"task", c.task.name},
               {"model", c.model.name},
               {"compress_at", c.compress_at},
               {"seed", c.seed},
               {"sample", row.sample_id},
               {"draw", DrawJson(*shown.cell, row)},
               {"group", row.group},
               {"status", NameOf(row.status)},
               {"reason", row.reason},
               {"score", Maybe(row.score)},
               {"tokens_in", row.tokens_in},
               {"tokens_out", row.tokens_out},
               {"images", row.images},
               {"frames", row.frames},
               {"visual_tokens", row.visual_tokens},
               {"pictures", PicturesToJson(row)},
               {"vision_s", row.latency ? Json(row.latency->vision_s) : Json()},
               {"engagement", NameOf(row.engagement)},
               {"kl_divergence", Maybe(row.kl_divergence)},
               {"top1_agreement", Maybe(row.top1_agreement)},
               {"fetched_per_step", Maybe(row.fetched_per_step)},
               {"answer_depth", Maybe(row.answer_depth)},
               {"answers", AnswersToJson(row)},
               {"full_answers", shown.full ? AnswersToJson(*shown.full) : Json()},
               {"layers", layers},
               {"modalities", modalities},
               {"memory", memory}};
  if (shown.prompt.missing.empty()) {
    json["system"] = shown.prompt.system;
    json["context"] = shown.prompt.context;
    json["questions"] = shown.prompt.questions;
  } else {
    json["prompt_missing"] = shown.prompt.missing;
  }
  return json;
}

}  // namespace kvgauge
