// SPDX-License-Identifier: Apache-2.0
// bench speculate: drafts of a compressed cache, judged by the full one; beside it the full cache
// alone on the same prompts.
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>

#include "core/clock.h"
#include "core/json.h"
#include "core/rng.h"
#include "core/strings.h"
#include "core/threads.h"
#include "kernels/devices.h"
#include "runner/speculate.h"
#include "runner/tokenizer.h"
#include "src/cli/print.h"
#include "src/cli/read_text.h"
#include "src/model/draft_models.h"
#include "src/model/method_flags.h"
#include "src/model/model_flags.h"
#include "src/run/interrupt.h"
#include "src/run/machine_facts.h"
#include "src/run/recorded_rows.h"
#include "src/run/run_config.h"
#include "src/serve/speculate_options.h"
#include "src/serve/speculation_form.h"
#include "src/serve/speculation_record.h"

namespace kvgauge {
namespace {

constexpr size_t kDraftDigits = 12;                     // of a fingerprint, to tell drafts apart
constexpr uint64_t kSpeculatePrompts = 0x737065637570;  // stream of random tokens

struct DraftLine {
  std::string name;  // of the form, or of the method
  std::string form;  // "": none
  ChosenMethod chosen;
  std::vector<int64_t> gammas;
  std::string variant;                               // what differs from the method's file
  std::optional<Retrieval> retrieve = std::nullopt;  // the draft reads that of a prompt
};

// Medians over prompts and repetitions; counts over prompts, each once.
struct DraftMeasure {
  const DraftLine* line = nullptr;
  int64_t gamma = 0;
  int64_t checks = 0, drafted = 0, accepted = 0, tokens = 0;
  std::vector<int64_t> drafted_at, accepted_at;
  // One a prompt and repetition: of a token, and of it the draft's steps, the checks and the rest.
  std::vector<double> token_s, full_token_s, speedups, draft_s, check_s, other_s;
  int64_t judge_bytes = 0, draft_bytes = 0, held_bytes = 0;  // of the first prompt
  int64_t not_engaged = 0;
  std::string not_engaged_because;
  // What a draft read that has a prompt of its own, over the prompts that were measured in this
  // call.
  int64_t read_tokens = 0, judge_read_tokens = 0;
  double read_s = 0, judge_read_s = 0;
  int64_t recorded = 0;  // answers that were measured before this call

  double acceptance() const {
    return drafted == 0 ? 0 : static_cast<double>(accepted) / static_cast<double>(drafted);
  }
  double tokens_per_check() const {
    return checks == 0 ? 0 : static_cast<double>(tokens) / static_cast<double>(checks);
  }
};

// By parameter; of one that is set twice the last.
std::string VariantOf(const std::vector<std::string>& overrides) {
  std::map<std::string, std::string> values;
  for (const std::string& set : overrides) values[set.substr(0, set.find('='))] = set;
  std::vector<std::string> parts;
  for (const auto& [parameter, set] : values) parts.push_back(set);
  return Join(parts, ", ");
}

double MedianSpeculated(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n == 0 ? 0 : (values[(n - 1) / 2] + values[n / 2]) / 2;
}

Result<std::vector<DraftLine>> ChooseDrafts(const BenchSpeculateOptions& options) {
  std::vector<DraftLine> lines;
  for (const std::string& id : options.forms) {
    const Result<SpeculationForm> form = FindSpeculationForm(id);
    if (!form.ok()) return form.error().Wrap("--forms");
    std::vector<std::string> overrides = form->overrides;
    overrides.insert(overrides.end(), options.overrides.begin(), options.overrides.end());
    DraftLine& line = lines.emplace_back();
    line.name = line.form = id;
    KVG_ASSIGN(
        line.chosen,
        ChooseMethod({.method = form->draft, .budget = form->budget, .overrides = overrides}));
    line.gammas = {form->gamma};
    line.variant = VariantOf(overrides);
    line.retrieve = form->retrieve;
    if (!line.retrieve) continue;
    if (options.retrieve_tokens > 0) line.retrieve->tokens = options.retrieve_tokens;
    if (options.retrieve_chunk > 0) line.retrieve->chunk = options.retrieve_chunk;
  }
  const bool retrieves =
      std::ranges::any_of(lines, [](const DraftLine& line) { return line.retrieve.has_value(); });
  const bool asks =
      !options.draft_model.empty() || options.retrieve_tokens > 0 || options.retrieve_chunk > 0;
  if (asks && !retrieves) {
    return BadInput(StrCat(
        options.draft_model.empty() ? "--retrieve-tokens and --retrieve-chunk" : "--draft-model",
        ": no draft reads a prompt of its own; expected a form that does, such "
        "as --forms rapid"));
  }
  std::vector<std::string> drafts = options.drafts;
  if (drafts.empty() && lines.empty()) drafts = {"snapkv", "streaming_llm", "quest", "kivi_4bit"};
  for (const std::string& method : drafts) {
    KVG_ASSIGN(const ChosenMethod chosen,
               ChooseMethod({.method = method, .overrides = options.overrides}));
    std::vector<std::string> budgets = {"none"};
    if (chosen.method.takes_budget) budgets = options.budgets;
    for (const std::string& budget : budgets) {
      lines.push_back({.name = method,
                       .form = "",
                       .chosen = chosen,
                       .gammas = options.gammas,
                       .variant = VariantOf(options.overrides)});
      KVG_ASSIGN(lines.back().chosen.budget, Budget::Parse(budget));
    }
  }
  return lines;
}

Result<std::vector<std::vector<int32_t>>> MakePrompts(const BenchSpeculateOptions& options,
                                                      const ModelConfig& config) {
  std::vector<std::vector<int32_t>> prompts;
  if (options.texts.empty()) {
    for (int64_t p = 0; p < options.prompts; ++p) {
      const Rng rng(options.seed, kSpeculatePrompts + static_cast<uint64_t>(p));
      std::vector<int32_t>& ids = prompts.emplace_back();
      for (int64_t i = 0; i < options.prompt_tokens; ++i) {
        ids.push_back(static_cast<int32_t>(rng.At(static_cast<uint64_t>(i))[0] %
                                           static_cast<uint32_t>(config.vocab_size)));
      }
    }
    return prompts;
  }
  KVG_ASSIGN(const std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(options.model.model));
  for (const std::string& path : options.texts) {
    KVG_ASSIGN(const std::string text, ReadTextFile(path));
    KVG_ASSIGN(std::vector<int32_t> ids, tokenizer->Encode(text, {.add_special = true}));
    if (ids.empty()) return BadInput(StrCat("--text: ", path, ": has no tokens"));
    for (const int32_t id : ids) {
      if (id < config.vocab_size) continue;
      return BadInput(StrCat("--text: ", path, ": the tokenizer gives id ", id,
                             ", but the model has only ", config.vocab_size, " embedding rows"));
    }
    const int64_t over = std::ssize(ids) - options.prompt_tokens;
    if (over > 0) ids.erase(ids.begin(), ids.begin() + over);
    prompts.push_back(std::move(ids));
  }
  return prompts;
}

class SpeculateBench {
 public:
  explicit SpeculateBench(const BenchSpeculateOptions& options) : options_(options) {}

  // All that can be refused before a weight is read.
  Status Start() {
    KVG_ASSIGN(lines_, ChooseDrafts(options_));
    KVG_ASSIGN(const ModelOptions model_options, ParseModelOptions(options_.model));
    KVG_ASSIGN(const ModelConfig config, ReadModelConfig(options_.model.model));
    KVG_ASSIGN(prompts_, MakePrompts(options_, config));
    int64_t shortest = std::ssize(prompts_[0]), longest = 0;
    for (const auto& ids : prompts_) {
      shortest = std::min(shortest, std::ssize(ids));
      longest = std::max(longest, std::ssize(ids));
    }
    const int64_t reached = longest + options_.answer_tokens;
    if (config.max_position > 0 && reached > config.max_position) {
      return BadInput(StrCat("prompt and answer reach ", reached,
                             " tokens; expected at most the model's ", config.max_position,
                             " positions: lower --prompt-tokens or --answer-tokens"));
    }
    const ModelShape shape = ShapeFor(options_.model, config, model_options);
    ModelShape draft_shape = shape;
    if (!options_.draft_model.empty()) {
      KVG_ASSIGN(draft_, LookAtDraftModel(options_.draft_model));
      draft_shape = draft_->shape;
      const Status same = CheckDraftModel(*draft_, options_.model.model, config, nullptr);
      if (!same.ok()) return same.error().Wrap("--draft-model");
      KVG_TRY(CheckDraftReads(config));
    }
    for (const DraftLine& line : lines_) {
      const ModelShape& own = line.retrieve ? draft_shape : shape;
      for (const int64_t prompt : {shortest, longest}) {
        KVG_TRY(CheckDraft(line.chosen.method, own, line.chosen.budget, prompt));
      }
    }
    return StartRecording(config, shape, model_options);
  }

  Status Run(const InterruptGuard& guard) {
    for (const DraftLine& line : lines_) {
      std::vector<DraftMeasure> measures;
      for (const int64_t gamma : line.gammas) {
        DraftMeasure& m = measures.emplace_back();
        m.line = &line;
        m.gamma = gamma;
        m.drafted_at.assign(static_cast<size_t>(gamma), 0);
        m.accepted_at.assign(static_cast<size_t>(gamma), 0);
      }
      for (size_t p = 0; p < prompts_.size(); ++p) {
        if (guard.signal() != 0) return {};
        KVG_TRY(MeasurePrompt(line, p, guard, measures));
      }
      for (DraftMeasure& m : measures) {
        const bool before = m.recorded == std::ssize(m.token_s);
        std::fprintf(stderr, "%s %s, %lld drafted: %.1f%% accepted%s\n", line.name.c_str(),
                     line.chosen.budget.ToString().c_str(), static_cast<long long>(m.gamma),
                     100 * m.acceptance(), before ? " (recorded before)" : "");
        all_.push_back(std::move(m));
      }
    }
    return {};
  }

  Status Finish(const InterruptGuard& guard) {
    return recorder_ == nullptr ? Status() : recorder_->Finish(guard.signal());
  }

  void Print() const;
  Json ToJson() const;

 private:
  // One after the other; drafts differ in what they need of a tokenizer, or of models beside.
  Result<Model*> ModelFor(const ChosenMethod& chosen) {
    const Needs needs = chosen.method.needs();
    const bool tokens = needs.token_classes || needs.encoder;
    const std::optional<StageChoice>& score = chosen.method.score;
    const bool drafts = loaded_ && score && score->draft != nullptr &&
                        !loaded_->model->drafters().contains(score->draft->directory);
    if (!loaded_ || drafts || (tokens && !with_tokens_)) {
      draft_model_.reset();  // it runs on the other's Ops
      loaded_.reset();
      int64_t longest = 0;
      for (const auto& ids : prompts_) longest = std::max(longest, std::ssize(ids));
      KVG_ASSIGN(loaded_, LoadModelFor(chosen, options_.model, longest));
      with_tokens_ = tokens;
      const std::string products = ManyRowsText(DevicesOf(*loaded_->ops));
      if (recorder_ != nullptr && !products.empty()) {
        KVG_TRY(recorder_->Tell("products", products));
      }
    }
    return loaded_->model.get();
  }

  // Another draft knows the tokens of the prompts and has positions for what it reads.
  Status CheckDraftReads(const ModelConfig& config) {
    KVG_ASSIGN(const ModelConfig own, ReadModelConfig(options_.draft_model));
    valid_vocab_ = std::min(own.vocab_size, config.vocab_size);
    for (const std::vector<int32_t>& ids : prompts_) {
      if (*std::ranges::max_element(ids) < own.vocab_size) continue;
      return BadInput(StrCat("--draft-model: ", options_.draft_model, " has ", own.vocab_size,
                             " embedding rows, fewer than a prompt's tokens need; expected --text, "
                             "or a model of as many"));
    }
    for (const DraftLine& line : lines_) {
      if (!line.retrieve) continue;
      for (const std::vector<int32_t>& ids : prompts_) {
        const int64_t reached =
            std::ssize(RetrievedPrompt(ids, *line.retrieve)) + options_.answer_tokens;
        if (own.max_position <= 0 || reached <= own.max_position) continue;
        return BadInput(StrCat("--draft-model: ", options_.draft_model, " was made for ",
                               own.max_position, " positions, and what it reads and the answer ",
                               "reach ", reached,
                               "; expected fewer --retrieve-tokens or "
                               "--answer-tokens"));
      }
    }
    return {};
  }

  // What drafts in a line, beside the judge that is loaded.
  Result<OtherDraft> DraftOf(const DraftLine& line, size_t p) {
    OtherDraft other;
    if (!line.retrieve) return other;
    other.prompt = Prompt::FromTokens(RetrievedPrompt(prompts_[p], *line.retrieve));
    if (draft_ == nullptr) return other;
    if (draft_model_ == nullptr) {
      KVG_ASSIGN(draft_model_, Model::Load(draft_->directory, {}, *loaded_->ops));
    }
    other.model = draft_model_.get();
    return other;
  }

  Status StartRecording(const ModelConfig& config, const ModelShape& shape,
                        const ModelOptions& model_options) {
    subject_.workload =
        SpeculationWorkload(prompts_, options_.texts, options_.answer_tokens, options_.seed);
    subject_.answer_tokens = options_.answer_tokens;
    if (options_.database.empty()) return {};
    const DType dtype = model_options.dtype.value_or(config.stored_dtype);
    KVG_ASSIGN(const std::string fingerprint, FingerprintOf(options_.model));
    subject_.model =
        ModelRowOf(NameOfPath(options_.model.model), fingerprint, shape, config, dtype);
    subject_.dtype = NumbersOf(options_.model, dtype);
    const int threads = MakeThreadSettings(options_.model.threads).threads;
    KVG_ASSIGN(const std::unique_ptr<Ops> ops,
               MakeOps(options_.model.backend, MakeThreadSettings(options_.model.threads)));
    subject_.backend = ops->backend;
    subject_.isa = ops->variant;
    RunRow row;
    row.key = RandomKey();
    row.machine.facts = CanonicalJson(MachineFacts(*ops, threads));
    row.command = RepairUtf8(options_.command);
    row.config = CanonicalJson({{"bench", "speculate"},
                                {"model", options_.model.model},
                                {"weights", options_.model.weights},
                                {"forms", options_.forms},
                                {"drafts", options_.drafts},
                                {"budgets", options_.budgets},
                                {"set", options_.overrides},
                                {"gammas", options_.gammas},
                                {"repetitions", options_.repetitions},
                                {"workload", subject_.workload}});
    row.version = options_.build.version;
    row.revision = options_.build.revision;
    row.started_at = UtcNow();
    KVG_ASSIGN(recorder_, SpeculationRecorder::Open(options_.database, row));
    return {};
  }

  // Answers that the store holds of this machine are taken from there; the model reads the prompt
  // where one is missing.
  Status MeasurePrompt(const DraftLine& line, size_t p, const InterruptGuard& guard,
                       std::vector<DraftMeasure>& measures) {
    std::optional<Speculation> speculation;
    for (int repetition = 0; repetition < options_.repetitions; ++repetition) {
      for (DraftMeasure& m : measures) {
        if (guard.signal() != 0) return {};
        SpeculationRow row =
            SpeculationRowOf(subject_, line.chosen, line.variant, FormText(line), m.gamma);
        row.prompt = static_cast<int64_t>(p);
        row.prompt_tokens = std::ssize(prompts_[p]);
        row.repetition = repetition;
        const SpeculationRow* known =
            recorder_ == nullptr || options_.again ? nullptr : recorder_->Find(row);
        if (known != nullptr) {
          ++m.recorded;
          Count(*known, m);
          continue;
        }
        if (!speculation) {
          KVG_ASSIGN(Model * model, ModelFor(line.chosen));
          KVG_ASSIGN(OtherDraft other, DraftOf(line, p));
          const int64_t read = other.prompt.size();
          speculation.emplace(*model, line.chosen.method, line.chosen.budget,
                              Prompt::FromTokens(prompts_[p]), options_.answer_tokens,
                              Rng(options_.seed, p).NextU64(), valid_vocab_, std::move(other));
          KVG_TRY(speculation->Read());
          for (DraftMeasure& each : measures) {
            each.read_tokens += read;
            each.judge_read_tokens += std::ssize(prompts_[p]);
            each.read_s += speculation->draft_prefill_s();
            each.judge_read_s += speculation->prefill_s();
          }
        }
        KVG_TRY(MeasurePair(*speculation, line, row));
        if (recorder_ != nullptr) KVG_TRY(recorder_->Write(row));
        Count(row, m);
      }
    }
    return {};
  }

  // With what --set changes of it.
  std::string FormText(const DraftLine& line) const {
    std::vector<std::string> parts;
    if (!options_.overrides.empty()) parts.push_back(VariantOf(options_.overrides));
    if (line.retrieve) parts.push_back(line.retrieve->ToString());
    if (line.retrieve && draft_ != nullptr) {
      parts.push_back("by " + draft_->fingerprint.substr(0, kDraftDigits));
    }
    if (line.form.empty() || parts.empty()) return line.form;
    return StrCat(line.form, "[", Join(parts, ", "), "]");
  }

  // The full cache alone and the draft side by side, so that both have the same company.
  Status MeasurePair(Speculation& speculation, const DraftLine& line, SpeculationRow& row) {
    const CpuUse before = ReadCpuUse();
    const double start_s = NowSeconds();
    KVG_ASSIGN(const SpeculationResult full, speculation.Answer(0, options_.answer_tokens));
    KVG_ASSIGN(const SpeculationResult own, speculation.Answer(row.gamma, options_.answer_tokens));
    row.others_share =
        OthersShare(before, ReadCpuUse(), NowSeconds() - start_s, AvailableProcessors());
    if (own.tokens != full.tokens) {
      return Unsupported(StrCat(line.name, ", ", row.gamma, " drafted: prompt ", row.prompt,
                                " got other tokens than the full cache gives"));
    }
    FillSpeculationRow(own, full, row);
    row.judge_bytes = speculation.judge_bytes();
    row.draft_bytes = speculation.draft_bytes();
    row.held_bytes = speculation.held_bytes();
    return {};
  }

  static void Count(const SpeculationRow& row, DraftMeasure& m) {
    const auto steps = static_cast<double>(std::max<int64_t>(1, row.answer_tokens - 1));
    m.token_s.push_back(row.seconds() / steps);
    m.full_token_s.push_back(row.full_s / steps);
    m.speedups.push_back(row.full_s / row.seconds());
    m.draft_s.push_back(row.draft_s / steps);
    m.check_s.push_back(row.check_s / steps);
    m.other_s.push_back(row.other_s / steps);
    if (row.repetition > 0) return;
    m.checks += row.checks;
    m.drafted += row.drafted;
    m.accepted += row.accepted;
    m.tokens += row.answer_tokens - 1;
    for (size_t i = 0; i < std::min(m.drafted_at.size(), row.drafted_at.size()); ++i) {
      m.drafted_at[i] += row.drafted_at[i];
      m.accepted_at[i] += row.accepted_at[i];
    }
    if (row.not_engaged) {
      ++m.not_engaged;
      m.not_engaged_because = row.not_engaged_because;
    }
    if (row.prompt > 0) return;
    m.judge_bytes = row.judge_bytes;
    m.draft_bytes = row.draft_bytes;
    m.held_bytes = row.held_bytes;
  }

  const BenchSpeculateOptions& options_;
  std::vector<DraftLine> lines_;
  std::vector<std::vector<int32_t>> prompts_;
  std::optional<LoadedModel> loaded_;
  bool with_tokens_ = false;
  std::shared_ptr<const DraftModel> draft_;  // of lines that retrieve; null: the judge's model
  std::unique_ptr<Model> draft_model_;       // once loaded, on the judge's Ops
  int64_t valid_vocab_ = 0;                  // of both; 0: the judge's
  SpeculationSubject subject_;
  std::unique_ptr<SpeculationRecorder> recorder_;  // null: nothing is recorded
  std::vector<DraftMeasure> all_;
};

void SpeculateBench::Print() const {
  std::vector<std::vector<std::string>> table;
  for (const DraftMeasure& m : all_) {
    const ChosenMethod& chosen = m.line->chosen;
    table.push_back(
        {m.line->form.empty() ? chosen.method.id : StrCat(m.line->form, ": ", chosen.method.id),
         chosen.budget.ToString(), StrCat(m.gamma), Fixed(100 * m.acceptance(), 1),
         Fixed(m.tokens_per_check(), 2), Fixed(1e3 * MedianSpeculated(m.token_s), 2),
         Fixed(1e3 * MedianSpeculated(m.full_token_s), 2), Fixed(MedianSpeculated(m.speedups), 2),
         StrCat(Fixed(1e3 * MedianSpeculated(m.draft_s), 2), " / ",
                Fixed(1e3 * MedianSpeculated(m.check_s), 2), " / ",
                Fixed(1e3 * MedianSpeculated(m.other_s), 2)),
         HumanBytes(m.draft_bytes), HumanBytes(m.held_bytes)});
  }
  PrintTable({"draft", "budget", "drafted", "accepted %", "tokens a check", "token ms",
              "full alone ms", "times", "draft / check / other ms", "draft's cache", "both hold"},
             table);
  for (const DraftMeasure& m : all_) {
    if (m.not_engaged == 0) continue;
    kvgauge::Print(StrCat("\n", m.line->name, ", ", m.gamma, " drafted: not engaged in ",
                          Counted(m.not_engaged, "prompt"), ": ", m.not_engaged_because, "\n"));
  }
  for (const DraftMeasure& m : all_) {
    if (m.read_tokens == 0) continue;
    kvgauge::Print(StrCat("\n", m.line->name, ": the draft read ", m.read_tokens,
                          " tokens of prompts in ", TimesText({m.read_s}),
                          ", which no time of a token above includes; the judge read ",
                          m.judge_read_tokens, " in ", TimesText({m.judge_read_s}), "\n"));
  }
  if (options_.texts.empty()) {
    kvgauge::Print(
        "\nPrompts are random tokens, on which acceptance says little: --text reads them from "
        "files.\n");
  }
}

Json SpeculateBench::ToJson() const {
  Json rows = Json::array();
  for (const DraftMeasure& m : all_) {
    const ChosenMethod& chosen = m.line->chosen;
    rows.push_back({{"form", m.line->form},
                    {"draft", chosen.method.id},
                    {"budget", chosen.budget.ToString()},
                    {"gamma", m.gamma},
                    {"acceptance", m.acceptance()},
                    {"tokens_per_check", m.tokens_per_check()},
                    {"checks", m.checks},
                    {"drafted", m.drafted},
                    {"accepted", m.accepted},
                    {"drafted_at", m.drafted_at},
                    {"accepted_at", m.accepted_at},
                    {"token_s", MedianSpeculated(m.token_s)},
                    {"full_token_s", MedianSpeculated(m.full_token_s)},
                    {"draft_token_s", MedianSpeculated(m.draft_s)},
                    {"check_token_s", MedianSpeculated(m.check_s)},
                    {"other_token_s", MedianSpeculated(m.other_s)},
                    {"speedup", MedianSpeculated(m.speedups)},
                    {"speedups", m.speedups},
                    {"judge_bytes", m.judge_bytes},
                    {"draft_bytes", m.draft_bytes},
                    {"held_bytes", m.held_bytes},
                    {"draft_read_tokens", m.read_tokens},
                    {"draft_read_s", m.read_s},
                    {"judge_read_tokens", m.judge_read_tokens},
                    {"judge_read_s", m.judge_read_s},
                    {"recorded", m.recorded},
                    {"not_engaged", m.not_engaged}});
  }
  return {{"model", options_.model.model},
          {"prompts", prompts_.size()},
          {"random_prompts", options_.texts.empty()},
          {"answer_tokens", options_.answer_tokens},
          {"rows", rows}};
}

}  // namespace

Result<int> RunBenchSpeculate(const BenchSpeculateOptions& options) {
  if (options.again && options.database.empty()) {
    return BadInput("--again: measures once more what --db holds; expected --db, too");
  }
  SpeculateBench bench(options);
  KVG_TRY(bench.Start());
  const InterruptGuard guard(InterruptOf::kBench);
  KVG_TRY(bench.Run(guard));
  KVG_TRY(bench.Finish(guard));
  if (options.json) {
    PrintJson(bench.ToJson());
  } else {
    bench.Print();
  }
  if (guard.signal() == 0) return 0;
  std::fprintf(stderr, "interrupted: drafts that are missing were not measured to the end\n");
  return 128 + guard.signal();
}

}  // namespace kvgauge
