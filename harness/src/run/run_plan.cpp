// SPDX-License-Identifier: Apache-2.0
#include "src/run/run_plan.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "core/json.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "datasets/metric.h"
#include "kernels/devices.h"
#include "reports/drawn_by.h"
#include "runner/chunk_prefill.h"
#include "runner/vision.h"
#include "src/model/draft_models.h"
#include "src/model/taggers.h"
#include "src/run/recorded_rows.h"
#include "src/run/sample_source.h"
#include "src/run/sample_visuals.h"
#include "src/run/text_windows.h"

namespace kvgauge {
namespace {

// Raised whenever the engine's numbers would move though no method, prompt or metric changed.
constexpr int kEngineVersion = 1;
// A chat template around the prompt takes some tokens of the model's length.
constexpr int64_t kTemplateTokens = 64;
// Contenders are checked for prompts so long that no budget is too small; each sample is checked
// again.
constexpr int64_t kLongPrompt = int64_t{1} << 24;

Result<PlanModel> OpenModel(const RunModel& spec, Ops& ops) {
  PlanModel model;
  model.spec = &spec;
  KVG_ASSIGN(const ModelOptions options, ParseModelOptions(spec.flags()));
  KVG_ASSIGN(model.config, ReadModelConfig(spec.path));
  model.dtype = options.dtype.value_or(model.config.stored_dtype);
  model.product_rows = options.product_rows;
  model.shape = ShapeOf(model.config, model.dtype);
  model.shape.token_classes = true;  // there is a tokenizer, or there is no plan
  int64_t tower_bytes = 0;
  if (!model.config.vision_family.empty()) {
    KVG_ASSIGN(const std::optional<VisionSpec> eyes, ReadVisionConfig(spec.path));
    if (eyes) model.eyes = ShapeOfEyes(*eyes);
    if (eyes) tower_bytes = VisionWeightBytes(*eyes, model.dtype);
  }
  std::unique_ptr<WeightSource> source;
  if (options.random_seed) {
    model.config.weight_format.clear();
    source = MakeRandomWeights(ExpectedTensors(model.config), *options.random_seed, model.dtype);
    model.weight_bytes = PlannedWeightBytes(model.config, model.dtype, model.dtype);
  } else {
    KVG_ASSIGN(source, OpenWeights(spec.path, model.dtype));
    model.weight_bytes = PlannedWeightBytes(model.config, model.dtype, *source, &ops);
  }
  KVG_TRY(CheckProductRows(model.config, options, model.dtype, source.get(), ops));
  if (const std::vector<Ops*> devices = DevicesOf(ops); devices.size() > 1) {
    LayerCosts costs = CostsOfLayers(model.config, model.dtype,
                                     options.random_seed ? nullptr : source.get(), &ops);
    costs.tower_bytes = tower_bytes;
    KVG_ASSIGN(model.shares, ShareLayers(model.config, costs, devices));
  }
  KVG_ASSIGN(model.fingerprint, ModelFingerprint(model.config, *source));
  if (!HasTokenizer(spec.directory())) {
    return BadInput(StrCat(spec.directory(),
                           ": has no tokenizer (tokenizer.json, tokenizer.model "
                           "or vocab.json), which tasks need"));
  }
  KVG_ASSIGN(model.tokenizer, LoadTokenizer(spec.directory()));
  KVG_ASSIGN(model.chat,
             ChatTemplate::Load(spec.directory(), spec.chat_template, spec.chat_switches));
  return model;
}

// Contenders by the prefill they share, in the order of the contenders.
void FindPrefills(const RunConfig& config, PlanModel& model, std::vector<PlanRefusal>& refused) {
  std::vector<std::string> keys;
  for (size_t i = 0; i < config.contenders.size(); ++i) {
    const RunContender& contender = config.contenders[i];
    Status fits = CheckCalibrations(contender.method, model.fingerprint);
    if (fits.ok()) fits = CheckSee(contender.method, model.eyes);
    if (fits.ok()) fits = CheckMethod(contender.method, model.shape, contender.budget, kLongPrompt);
    if (fits.ok()) {
      fits = CheckDraftModels(contender.method, model.spec->directory(), model.config,
                              model.tokenizer.get());
    }
    if (fits.ok() && !model.shares.empty()) {
      fits = CheckLayered(contender.method, model.config.layer_count(), model.shape);
    }
    if (!fits.ok()) {
      refused.push_back({model.spec->name, contender.Name(), fits.error().message});
      continue;
    }
    const Json json = contender.method.ToJson();
    const bool latents = KeepsModelLatents(contender.method, model.shape);
    const std::string prepare = contender.method.prepare ? json["stages"]["prepare"].dump() : "";
    const std::string weights = StrCat(prepare, latents ? "latents" : "");
    const std::optional<StageChoice>& see = contender.method.see;
    const auto key_of = [](const char* kind, const std::optional<StageChoice>& stage) {
      return stage ? kind + StageKey(*stage) : "";
    };
    const std::string key =
        StrCat(weights, key_of("see", see), key_of("attend", contender.method.attend),
               key_of("reuse", contender.method.reuse), key_of("thin", contender.method.thin));
    const auto known = std::find(keys.begin(), keys.end(), key);
    const auto at = static_cast<size_t>(known - keys.begin());
    if (known == keys.end()) {
      keys.push_back(key);
      model.prefills.push_back(
          {.name = key.empty() ? "shared" : contender.method.id, .weights = weights, .see = see});
    }
    model.prefills[at].contenders.push_back(i);
  }
  // Settings of one method that change prefills each have their own.
  std::map<std::string, int> named;
  for (const PlanPrefill& prefill : model.prefills) ++named[prefill.name];
  for (PlanPrefill& prefill : model.prefills) {
    const std::string& variant = config.contenders[prefill.contenders[0]].variant;
    if (named[prefill.name] > 1 && !variant.empty()) {
      prefill.name.append(" (").append(variant).append(")");
    }
  }
}

// Metrics that need files say so before anything is run.
Status TryMetric(const MetricSpec& metric) {
  const Result<double> score =
      metric.score({.prediction = "a", .answers = {"a"}, .all_classes = {"a", "b"}});
  if (score.ok() || score.error().code == ErrorCode::kBadInput) return {};
  return score.error();
}

// A task that cannot be run at all.
Status CheckTask(const RunConfig& config, const RunTask& entry) {
  const Task& task = entry.task;
  const std::string what = StrCat(config.path, ": task ", Quoted(task.name));
  if (task.metric == kPerplexityMetric) {
    if (!config.sampling.sampled()) return {};
    return BadInput(StrCat(what, ": a perplexity has no answers that could be drawn; leave out ",
                           "\"sampling\" (--temperature), or the task"));
  }
  if (task.metric == kJudgeMetric || task.metric == kExecutionMetric) {
    if (config.unscored) return {};
    return BadInput(StrCat(what,
                           task.metric == kJudgeMetric ? " needs a judge to be scored"
                                                       : " runs the answers as programs",
                           "; with \"unscored\": true (--unscored) answers are kept without a "
                           "score, for `kvgauge score`"));
  }
  const MetricSpec* metric = FindMetric(task.metric);
  if (metric == nullptr) {
    return Unsupported(StrCat(what, ": its metric ", task.metric, " is not in this build"));
  }
  if (metric->of_set) {
    if (config.unscored) return {};
    return BadInput(StrCat(what, ": its metric ", metric->name,
                           " weighs words by all answers of the set; with \"unscored\": true "
                           "(--unscored) answers are kept without a score, for `kvgauge score`"));
  }
  const Status usable = TryMetric(*metric);
  if (!usable.ok()) return usable.error().Wrap(what);
  return {};
}

// The same for a running text.
std::string WhyNoWindows(const PlanModel& model, const Task& task, CompressAt at) {
  const TextProtocol protocol = TextProtocol::From(task.source_params);
  if (at == CompressAt::kTurn) return "a running text has no turns, expected prompt or context";
  if (at == CompressAt::kChunk && !protocol.has_prompt()) {
    return "its protocol feeds the text token by token, so that there is no prompt to read in "
           "chunks; expected compress_at prompt, or the protocol sliding";
  }
  if (at == CompressAt::kContext && !protocol.has_prompt()) {
    return StrCat(
        "its protocol feeds the text token by token, so that nothing stands before a "
        "question; expected compress_at prompt, or the protocol sliding");
  }
  if (protocol.kind != TextProtocol::Kind::kStreaming &&
      protocol.window > model.config.max_position) {
    return StrCat("windows of ", protocol.window, " tokens are longer than the ",
                  model.config.max_position, " that the model was made for; set the task's window");
  }
  return "";
}

// Why a method says nothing about a text that is fed token by token; "" where it does.
std::string WhyNotTokenByToken(const RunContender& contender) {
  if (contender.full_cache()) return "";
  const bool share = contender.budget.kind == Budget::Kind::kFraction ||
                     contender.budget.kind == Budget::Kind::kBytesPerToken;
  if (share) {
    return StrCat("the prompt is one token and budget ", contender.budget.ToString(),
                  " a share of it, expected a budget in entries, or the protocol sliding");
  }
  const Method& method = contender.method;
  const Pipeline pipeline = MakePipeline(method);
  const bool decodes = (pipeline.trigger != nullptr && pipeline.trigger->in_decode()) ||
                       method.read.has_value() || method.prepare.has_value() ||
                       method.store->spec->id != "plain";
  return decodes ? ""
                 : "the method acts on prompts alone and the prompt is one token, expected the "
                   "protocol sliding";
}

// What the first sample tells and the task's file cannot: why the group makes no sense; "" where it
// does. `pictures`: whether it shows any.
Result<std::string> WhyNot(const RunPlan& plan, const PlanGroup& group, bool& pictures) {
  const RunTask& entry = plan.config->tasks[group.task];
  KVG_ASSIGN(const std::unique_ptr<SampleSource> source, OpenSource(plan, group, {.limit = 1}));
  KVG_ASSIGN(const std::optional<Sample> sample, source->Next());
  const bool windows = entry.task.metric == kPerplexityMetric;
  if (!sample) {
    return BadInput(StrCat(plan.config->path, ": task ", Quoted(entry.task.name), ": has no ",
                           windows ? "window: the text is shorter than one" : "samples"));
  }
  if (windows) return WhyNoWindows(plan.models[group.model], entry.task, group.compress_at);
  pictures = !sample->pictures.empty();
  if (pictures && plan.models[group.model].config.vision_family.empty()) {
    return std::string(
        "it is a text model and the task shows pictures, expected a "
        "vision-language model");
  }
  if (group.compress_at == CompressAt::kContext) {
    const PlanModel& model = plan.models[group.model];
    KVG_ASSIGN(std::string why, PromptBuilder(*model.tokenizer, model.chat).WhyNoContext(*sample));
    if (!why.empty()) return why;
  }
  // A metric without its dictionary, or with answers of another kind, would fail on every sample.
  const MetricSpec* metric = FindMetric(entry.task.metric);
  if (metric != nullptr && !metric->of_set && !sample->questions.empty()) {
    const Question& question = sample->questions[0];
    const Result<double> score = metric->score({.prediction = "",
                                                .answers = question.answers,
                                                .all_classes = question.all_classes,
                                                .language = sample->language,
                                                .kind = question.kind});
    if (!score.ok()) {
      return BadInput(StrCat(plan.config->path, ": task ", Quoted(entry.task.name), ": metric ",
                             metric->name, ": ", score.error().message));
    }
  }
  if (sample->mode == QuestionMode::kMultiTurn && AsksApart(group.compress_at)) {
    return std::string("a conversation has no one prompt, expected compress_at context or turn");
  }
  if (sample->mode == QuestionMode::kMultiRequest && group.compress_at == CompressAt::kTurn) {
    return std::string(
        "each question is asked of the same context anew, expected compress_at prompt or context");
  }
  return std::string();
}

int64_t NewTokens(const RunTask& task) {
  return task.max_new_tokens > 0 ? task.max_new_tokens : task.task.max_new_tokens;
}

// How many draws there are moves none of them, as the number of samples moves no sample.
Json SamplingProtocol(const RunSampling& sampling) {
  if (!sampling.sampled()) return "greedy";
  return {{"temperature", sampling.temperature}, {"top_p", sampling.top_p}};
}

Result<Json> Protocol(const RunPlan& plan, const PlanGroup& group,
                      const std::vector<int32_t>& stop_ids, bool pictures) {
  const PlanModel& model = plan.models[group.model];
  const RunTask& entry = plan.config->tasks[group.task];
  const Task& task = entry.task;
  const MetricSpec* metric = FindMetric(task.metric);
  const SourceSpec* source = FindSource(task.source);
  Json bos = nullptr;
  if (model.tokenizer->bos_id()) bos = *model.tokenizer->bos_id();
  Json protocol = {{"model", model.fingerprint},
                   {"dtype", NameOf(model.dtype)},
                   {"tokenizer", model.tokenizer->fingerprint()},
                   {"template", model.chat.Signature()},
                   {"bos", bos},
                   {"stop_ids", stop_ids},
                   {"prompt_version", kPromptVersion},
                   {"max_prompt_tokens", model.MaxPromptTokens(NewTokens(entry), task.system)},
                   {"max_new_tokens", entry.max_new_tokens},
                   {"task", task.name},
                   {"task_version", task.version},
                   {"task_digest", Sha256Hex(CanonicalJson(*task.json))},
                   {"source_version", source != nullptr ? source->version : 0},
                   {"metric", task.metric},
                   {"metric_version", metric != nullptr ? metric->version : 0},
                   {"compress_at", NameOf(group.compress_at)},
                   {"prefill", "full"},
                   {"sampling", SamplingProtocol(plan.config->sampling)},
                   {"budget", "of the entries seen, a head on average, protected ones included"}};
  if (group.compress_at == CompressAt::kChunk) {
    protocol["chunk_tokens"] = plan.config->chunk_tokens;
  }
  if (metric != nullptr && metric->basis) {
    KVG_ASSIGN(const std::string basis, metric->basis());
    if (!basis.empty()) protocol["metric_basis"] = basis;
  }
  if (!model.config.weight_format.empty()) protocol["weight_format"] = model.config.weight_format;
  // Rows of the dtype keep what there was before there were others.
  if (model.spec->product_rows != RunModel().product_rows) {
    protocol["product_rows"] = model.spec->product_rows;
  }
  // A text task keeps what it was before there were pictures.
  if (pictures) {
    KVG_ASSIGN(protocol["pictures"], PicturesProtocol(model.spec->path));
  }
  return protocol;
}

// Takes out the contenders that say nothing about the task, each with its reason, once.
void DropIdleContenders(RunPlan& plan, PlanGroup& group) {
  const Task& task = plan.config->tasks[group.task].task;
  if (task.metric != kPerplexityMetric || TextProtocol::From(task.source_params).has_prompt()) {
    return;
  }
  std::erase_if(group.contenders, [&](size_t i) {
    const RunContender& contender = plan.config->contenders[i];
    const std::string reason = WhyNotTokenByToken(contender);
    if (reason.empty()) return false;
    const PlanRefusal refusal = {plan.models[group.model].spec->name,
                                 StrCat(contender.Name(), ", ", task.name), reason};
    const bool said =
        std::any_of(plan.refused.begin(), plan.refused.end(), [&](const PlanRefusal& other) {
          return other.model == refusal.model && other.contender == refusal.contender;
        });
    if (!said) plan.refused.push_back(refusal);
    return true;
  });
}

CellRow MakeCell(const RunPlan& plan, const PlanGroup& group, const RunContender& contender,
                 const Json& protocol, const Json& numerics) {
  const RunConfig& config = *plan.config;
  const PlanModel& model = plan.models[group.model];
  const Task& task = config.tasks[group.task].task;
  CellRow cell;
  cell.signature = CanonicalJson(protocol);
  cell.model =
      ModelRowOf(model.spec->name, model.fingerprint, model.shape, model.config, model.dtype);
  cell.method = MethodRowOf(contender.method, contender.variant);
  cell.task = {.name = task.name,
               .version = task.version,
               .spec = CanonicalJson(*task.json),
               .lower_is_better = LowerIsBetter(task.metric)};
  cell.budget = contender.budget.ToString();
  cell.budget_kind = NameOf(contender.budget.kind);
  cell.budget_value = contender.budget.value;
  cell.compress_at = config.PlaceName(group.compress_at);
  cell.seed = group.seed;
  cell.identity = CanonicalJson({{"engine", kEngineVersion},
                                 {"protocol", protocol},
                                 {"numerics", numerics},
                                 {"method", contender.method.ToJson()},
                                 {"budget", cell.budget},
                                 {"seed", group.seed},
                                 {"fidelity_steps", config.fidelity_steps}});
  return cell;
}

bool ParseNumber(std::string_view text, int64_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && out >= 0;
}

}  // namespace

std::string PlanModel::BeyondPositions(int64_t prompt_tokens) const {
  if (prompt_tokens <= config.max_position) return "";
  return StrCat("prompts of ", WithCommas(prompt_tokens), " tokens are beyond the ",
                WithCommas(config.max_position), " positions that ", spec->name,
                " was made for; its scores there say little");
}

int64_t PlanModel::MaxPromptTokens(int64_t max_new_tokens, const std::string& system) const {
  if (spec->max_prompt_tokens >= 0) return spec->max_prompt_tokens;
  int64_t frame = chat.none() ? 0 : kTemplateTokens;
  if (!system.empty()) {
    const auto ids = tokenizer->Encode(system, {.add_special = false, .parse_special = false});
    frame += ids.ok() ? std::ssize(*ids) : std::ssize(system);
  }
  return std::max<int64_t>(1, config.max_position - max_new_tokens - frame);
}

int64_t SampleChoice::Most(int64_t samples) const {
  int64_t most = samples;
  if (limit >= 0) most = most < 0 ? limit : std::min(most, limit);
  if (!positions.empty()) {
    const int64_t last = *std::max_element(positions.begin(), positions.end()) + 1;
    most = most < 0 ? last : std::min(most, last);
  }
  return most;
}

int64_t SampleChoice::Count(int64_t samples) const {
  const int64_t most = Most(samples);
  if (most < 0) return -1;
  if (positions.empty()) return std::max<int64_t>(0, (most - shard + shards - 1) / shards);
  int64_t count = 0;
  for (const int64_t position : std::set<int64_t>(positions.begin(), positions.end())) {
    count += position < most && Has(position);
  }
  return count;
}

std::vector<size_t> OwnPrefills(const RunPlan& plan, const PlanGroup& group) {
  std::vector<size_t> own;
  if (group.compress_at != CompressAt::kChunk) return own;
  for (size_t i = 0; i < group.contenders.size(); ++i) {
    const Method& method = plan.config->contenders[group.contenders[i]].method;
    if (!ReducesPrompts(method)) continue;
    if (CheckMoment(method, group.compress_at, plan.config->chunk_tokens).ok()) own.push_back(i);
  }
  return own;
}

int64_t CompressedTokens(const EngineSample& sample, CompressAt at) {
  const int64_t context = std::ssize(sample.context);
  if (at == CompressAt::kContext) return context;
  if (at == CompressAt::kTurn) return context + std::ssize(sample.turns[0].ids);
  int64_t longest = 0;
  for (const EngineTurn& turn : sample.turns) longest = std::max(longest, std::ssize(turn.ids));
  return context + longest;
}

bool SampleChoice::Has(int64_t position) const {
  if (position % shards != shard) return false;
  return positions.empty() ||
         std::find(positions.begin(), positions.end(), position) != positions.end();
}

Result<std::vector<int64_t>> ParsePositions(const std::string& text) {
  std::vector<int64_t> positions;
  for (const std::string& part : Split(text, ',')) {
    const std::vector<std::string> ends = Split(part, '-');
    int64_t first = 0, last = 0;
    const bool fine = !ends.empty() && ends.size() <= 2 && ParseNumber(ends.front(), first) &&
                      ParseNumber(ends.back(), last) && first <= last && last - first < 1 << 20;
    if (!fine) {
      return BadInput(
          StrCat("--samples: ", Quoted(text), ", expected positions from 0, such as 0-9,17"));
    }
    for (int64_t i = first; i <= last; ++i) positions.push_back(i);
  }
  return positions;
}

Status ParseShard(const std::string& text, SampleChoice& choice) {
  const std::vector<std::string> parts = Split(text, '/');
  int64_t which = 0, count = 0;
  const bool fine = parts.size() == 2 && ParseNumber(parts[0], which) &&
                    ParseNumber(parts[1], count) && which >= 1 && which <= count;
  if (!fine) {
    return BadInput(StrCat("--shard: ", Quoted(text), ", expected which of how many, such as 1/4"));
  }
  choice.shard = which - 1;
  choice.shards = count;
  return {};
}

Result<RunPlan> MakeRunPlan(const RunConfig& config) {
  RunPlan plan;
  plan.config = &config;
  for (const RunTask& task : config.tasks) KVG_TRY(CheckTask(config, task));
  KVG_ASSIGN(plan.ops, MakeLayeredOps(config.backend, MakeThreadSettings(1)));
  if (config.latency != nullptr && NamesSeveralDevices(config.backend)) {
    return BadInput(StrCat(config.path, ": latency: is measured on one device, and the backend is ",
                           Quoted(config.backend), "; leave it out, or use one device"));
  }
  // Two instruction sets may differ in the last bits.
  const Json numerics = {{"backend", plan.ops->backend}, {"isa", plan.ops->variant}};
  for (size_t m = 0; m < config.models.size(); ++m) {
    KVG_ASSIGN(PlanModel opened, OpenModel(config.models[m], *plan.ops));
    FindPrefills(config, opened, plan.refused);
    plan.models.push_back(std::move(opened));
    const PlanModel& model = plan.models.back();
    const PromptBuilder prompts(*model.tokenizer, model.chat);
    std::map<std::pair<size_t, CompressAt>, bool> senseless, pictures;
    for (size_t p = 0; p < model.prefills.size(); ++p) {
      for (size_t t = 0; t < config.tasks.size(); ++t) {
        const Task& task = config.tasks[t].task;
        KVG_ASSIGN(const std::vector<int32_t> stop_ids,
                   prompts.StopIds(task, model.config.eos_ids));
        for (const CompressAt at : config.compress_at) {
          for (const int64_t seed : config.seeds) {
            PlanGroup group = {.model = m,
                               .task = t,
                               .prefill = p,
                               .compress_at = at,
                               .seed = seed,
                               .contenders = model.prefills[p].contenders};
            group.name = StrCat(model.spec->name, ", ", task.name, ", ", config.PlaceName(at),
                                ", seed ", seed);
            if (config.sampling.sampled()) {
              group.name += StrCat(
                  ", at ", DrawnBy{config.sampling.temperature, config.sampling.top_p}.Text());
            }
            if (p > 0) group.name += StrCat(", ", model.prefills[p].name);
            if (p == 0 && seed == config.seeds[0]) {
              KVG_ASSIGN(const std::string reason, WhyNot(plan, group, pictures[{t, at}]));
              if (!reason.empty()) {
                plan.refused.push_back(
                    {model.spec->name, StrCat(task.name, ", ", config.PlaceName(at)), reason});
              }
              senseless[{t, at}] = !reason.empty();
            }
            if (senseless[{t, at}]) continue;
            DropIdleContenders(plan, group);
            if (group.contenders.empty()) continue;
            KVG_ASSIGN(const Json protocol, Protocol(plan, group, stop_ids, pictures[{t, at}]));
            for (const size_t contender : group.contenders) {
              group.cells.push_back(
                  MakeCell(plan, group, config.contenders[contender], protocol, numerics));
            }
            plan.groups.push_back(std::move(group));
          }
        }
      }
    }
  }
  if (plan.groups.empty()) {
    return BadInput(StrCat(config.path, ": nothing can run: ", plan.refused[0].contender, " on ",
                           plan.refused[0].model, ": ", plan.refused[0].reason));
  }
  return plan;
}

Result<std::unique_ptr<SampleStream>> OpenSamples(const RunPlan& plan, const PlanGroup& group,
                                                  const SampleChoice& choice,
                                                  const TextCodec& codec) {
  const RunTask& entry = plan.config->tasks[group.task];
  const TaskOptions options = {
      .data_directory = plan.config->data_directory,
      .seed = static_cast<uint64_t>(group.seed),
      .limit = entry.task.metric == kPerplexityMetric ? -1 : choice.Most(entry.samples),
      .codec = &codec,
      .max_prompt_tokens =
          plan.models[group.model].MaxPromptTokens(NewTokens(entry), entry.task.system),
      .skip_bad = plan.config->skip_bad};
  return OpenTask(entry.task, options);
}

Result<LoadedModel> LoadPlanned(const RunPlan& plan, size_t model, size_t prefill) {
  const PlanModel& planned = plan.models[model];
  const Method& method = plan.config->contenders[planned.prefills[prefill].contenders[0]].method;
  KVG_ASSIGN(ModelOptions options, ParseModelOptions(planned.spec->flags()));
  const Pipeline pipeline = MakePipeline(method);
  options.prepare = pipeline.prepare.get();
  options.mla_latent = KeepsModelLatents(method, planned.shape);
  options.shares = planned.shares;
  // Rows of all prefills that run on these weights.
  std::vector<size_t> contenders;
  for (const PlanPrefill& other : planned.prefills) {
    if (other.weights != planned.prefills[prefill].weights) continue;
    contenders.insert(contenders.end(), other.contenders.begin(), other.contenders.end());
  }
  if (std::any_of(contenders.begin(), contenders.end(), [&](size_t contender) {
        const Needs needs = plan.config->contenders[contender].method.needs();
        return needs.token_classes || needs.encoder;
      })) {
    options.token_classes = ClassifyTokens(*planned.tokenizer);
    options.encode = EncoderOf(planned.tokenizer);
    options.spell = SpellerOf(planned.tokenizer);
  }
  LoadedModel loaded;
  KVG_ASSIGN(loaded.ops,
             MakeLayeredOps(plan.config->backend, MakeThreadSettings(plan.config->threads)));
  std::vector<const Method*> methods;
  for (const size_t contender : contenders) {
    methods.push_back(&plan.config->contenders[contender].method);
  }
  KVG_ASSIGN(options.drafters, LoadDrafters(methods, *loaded.ops));
  KVG_ASSIGN(options.taggers, LoadTaggers(methods, *loaded.ops));
  KVG_ASSIGN(loaded.model, Model::Load(planned.spec->path, options, *loaded.ops));
  return loaded;
}

}  // namespace kvgauge
