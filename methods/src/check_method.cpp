// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <tuple>

#include "core/strings.h"
#include "methods/method.h"

namespace kvgauge {
namespace {

constexpr int64_t kPositionBytes = 4;
constexpr int64_t kScoreBytes = 4;
constexpr int64_t kOutlierBytes = 4;

std::string Owner(StageKind kind, const StageChoice& choice) {
  return StrCat(NameOf(kind), ".", choice.spec->id);
}

Status CheckStage(StageKind kind, const std::optional<StageChoice>& choice, const Stage* stage,
                  const ModelShape& shape) {
  if (stage == nullptr) return {};
  if (const std::string path = CalibrationPath(*choice);
      !path.empty() && choice->calibration == nullptr) {
    return BadInput(StrCat(Owner(kind, *choice), ".calibration: ", Quoted(path),
                           " was not read, so the stage would do without"));
  }
  if (stage->needs().token_classes && !shape.token_classes) {
    return BadInput(StrCat(Owner(kind, *choice),
                           ": tells tokens apart by their text, and this model has no tokenizer; "
                           "use a checkpoint with one, or another stage"));
  }
  const Status status = stage->Check(shape);
  if (!status.ok()) return status.error().Wrap(Owner(kind, *choice));
  return {};
}

// Bytes of `entries` entries of one KV head's keys or values. Outliers are counted as their share.
double StreamBytes(const KvCodec& codec, const SealRule& seal, int64_t sinks, int64_t entries) {
  const int64_t body = std::max<int64_t>(0, entries - sinks - seal.keep_recent);
  const int64_t sealed = codec.coded() ? body / seal.unit * seal.unit : 0;
  double bytes = static_cast<double>((entries - sealed) * codec.dim * SizeOf(codec.dtype));
  if (sealed == 0) return bytes;
  bytes += static_cast<double>(CodedBytes(codec, sealed).logical());
  return bytes + codec.outlier_share * static_cast<double>(sealed * codec.dim * kOutlierBytes);
}

// Bytes when every head holds `entries`.
double BytesOf(const Pipeline& p, const ModelShape& shape, int64_t entries) {
  double bytes = 0;
  for (int64_t l = 0; l < shape.layers; ++l) {
    const Result<StorePlan> plan = p.store->Plan(shape, l);
    KVG_CHECK(plan.ok(), "a store that was not checked");
    double head = StreamBytes(plan->keys, plan->seal_keys, plan->sinks, entries) +
                  StreamBytes(plan->values, plan->seal_values, plan->sinks, entries);
    if (plan->narrow_dim > 0) {
      const int64_t narrow = std::max<int64_t>(0, entries - plan->wide_recent);
      head -= static_cast<double>(narrow * (shape.key_dim - plan->narrow_dim) *
                                  SizeOf(shape.cache_dtype));
      head += static_cast<double>(plan->narrow_dim * kPositionBytes);
    }
    const bool clipped = plan->position == PositionPolicy::kClipped;
    head += static_cast<double>(entries * kPositionBytes * (clipped ? 2 : 1));
    if (p.score->ages() && p.trigger->in_decode())
      head += static_cast<double>(entries * kScoreBytes);
    bytes += static_cast<double>(shape.kv_heads) * head;
  }
  return bytes;
}

// What the budget of a prompt gives of `length` entries, before anything is protected.
int64_t BudgetEntries(const Pipeline& p, const ModelShape& shape, const Budget& budget,
                      int64_t prompt_tokens, int64_t length) {
  switch (budget.kind) {
    case Budget::Kind::kNone:
      return length;
    case Budget::Kind::kEntries:
      return budget.value >= static_cast<double>(length) ? length
                                                         : static_cast<int64_t>(budget.value);
    case Budget::Kind::kFraction:
      if (budget.value >= 1) return length;
      // 0.1 * 30 is a little more than 3.
      return std::min(length, static_cast<int64_t>(std::floor(
                                  budget.value * static_cast<double>(prompt_tokens) + 1e-9)));
    case Budget::Kind::kBytesPerToken:
      break;
  }
  // Bytes fall a little where a unit gets coded, so this may miss a few entries; what it finds
  // fits.
  const double limit = budget.value * static_cast<double>(prompt_tokens);
  int64_t fits = 0, beyond = length + 1;
  while (beyond - fits > 1) {
    const int64_t middle = fits + (beyond - fits) / 2;
    (BytesOf(p, shape, middle) <= limit ? fits : beyond) = middle;
  }
  return fits;
}

// The least budget of that kind, in round numbers, that gives every head `entries` of `length`.
Budget LeastBudget(const Pipeline& p, const ModelShape& shape, Budget::Kind kind, int64_t entries,
                   int64_t length) {
  const auto wanted = static_cast<double>(entries), all = static_cast<double>(length);
  Budget budget = {kind, wanted};
  if (kind == Budget::Kind::kFraction) budget.value = std::ceil(1000 * wanted / all) / 1000;
  if (kind != Budget::Kind::kBytesPerToken) return budget;
  budget.value = std::ceil(BytesOf(p, shape, entries) / all);
  // A search that misses a few entries may need some bytes more.
  while (BudgetEntries(p, shape, budget, length, length) < entries) ++budget.value;
  return budget;
}

// A codec whose fields fit each other and the rule that seals its pages.
Status CheckSide(const char* side, KvCodec codec, const SealRule& seal) {
  if (!codec.coded()) return {};
  // Ranges that Calibrate will fill in.
  const std::vector<float> zeros(static_cast<size_t>(codec.dim));
  if (codec.kind == KvCodecKind::kCodebook && codec.axis == CodeAxis::kChannel &&
      codec.channel_low.empty()) {
    codec.channel_low = codec.channel_high = View(zeros, {codec.dim});
  }
  const Status status = CheckCodec(codec);
  if (!status.ok()) return status.error().Wrap(side);
  const int64_t unit = SealUnit(codec);
  if (seal.unit >= 1 && seal.unit % unit == 0) return {};
  return BadInput(StrCat(side, ": coded ", seal.unit,
                         " entries at a time, which must be a "
                         "multiple of ",
                         unit));
}

Status CheckStore(const Method& method, const Pipeline& p, const ModelShape& shape) {
  const std::string owner = Owner(StageKind::kStore, *method.store);
  for (int64_t l = 0; l < shape.layers; ++l) {
    const Result<StorePlan> plan = p.store->Plan(shape, l);
    if (!plan.ok()) return plan.error().Wrap(owner);
    for (const auto& [side, codec, seal] :
         {std::tuple("keys", &plan->keys, &plan->seal_keys),
          std::tuple("values", &plan->values, &plan->seal_values)}) {
      const Status status = CheckSide(side, *codec, *seal);
      if (!status.ok()) return status.error().Wrap(owner);
    }
    if ((plan->raw_keys || plan->position != PositionPolicy::kOriginal) && shape.rotary_dim == 0) {
      return BadInput(StrCat(owner,
                             ": keeps keys before rotation, but this model has no rotary "
                             "embedding; use a store with raw_keys off and position "
                             "original"));
    }
    if ((plan->raw_keys || plan->latent) && shape.latent_dim > 0) {
      return BadInput(StrCat(owner,
                             ": keeps keys before rotation, but latent attention rotates a "
                             "part of its own; use a store that keeps them rotated"));
    }
    if (plan->latent && (p.prepare == nullptr || !p.prepare->writes_bases())) {
      return BadInput(StrCat(owner,
                             ": keeps latents, but no prepare stage writes the bases they "
                             "are coordinates in; add one, such as palu"));
    }
    if (plan->mla_latent && shape.latent_dim == 0) {
      return BadInput(StrCat(owner,
                             ": keeps a model's own latents, and this model has none; use "
                             "it with multi-head latent attention"));
    }
    if (plan->share_from_layer > 0 &&
        (shape.layers < 2 || plan->share_from_layer >= shape.layers)) {
      return BadInput(StrCat(owner, ": shares between neighbouring layers from layer ",
                             plan->share_from_layer, " on, and this model has ", shape.layers));
    }
    if (plan->narrow_dim > 0 && p.reduce != nullptr && p.reduce->merges_keys() &&
        p.trigger->in_decode()) {
      return BadInput(StrCat(owner, ": keys give up numbers, each head its own, and ",
                             Owner(StageKind::kReduce, *method.reduce),
                             " would merge them with whole keys while decoding; use "
                             "trigger.prefill, which merges before that, or store.plain"));
    }
    if (plan->mla_latent && p.read != nullptr && p.read->corrects()) {
      return BadInput(StrCat(Owner(StageKind::kRead, *method.read),
                             ": corrects what heads read of values, and ", owner,
                             " holds latents that all heads share; leave out one of the two"));
    }
    const bool whole = plan->latent || plan->mla_latent || plan->share_from_layer > 0;
    if (whole && p.reduce != nullptr) {
      return BadInput(StrCat(owner, ": its entries belong to several heads or layers, so ",
                             Owner(StageKind::kReduce, *method.reduce),
                             " cannot evict for one of them; leave out one of the two"));
    }
  }
  return {};
}

// `given` entries a head, but never less than what is protected.
Allowance Allow(const Method& method, int64_t given, int64_t length) {
  Allowance allowance;
  if (given < length) given -= method.coming;
  allowance.entries = std::min(length, std::max({int64_t{1}, given, method.sinks + method.recent}));
  const double share = method.recent_share * static_cast<double>(allowance.entries);
  const int64_t recent = std::max(method.recent, static_cast<int64_t>(std::floor(share)));
  allowance.sinks = std::min(method.sinks, allowance.entries);
  allowance.recent = std::min(recent, allowance.entries - allowance.sinks);
  return allowance;
}

Status CheckBudget(const Method& method, const Pipeline& p, const ModelShape& shape,
                   const Budget& budget, int64_t prompt_tokens) {
  const bool given = budget.kind != Budget::Kind::kNone;
  if (!method.takes_budget) {
    if (!given) return {};
    return BadInput(StrCat("it takes no budget, because nothing is evicted; its size follows from ",
                           Owner(StageKind::kStore, *method.store), ", so give 'none' instead of '",
                           budget.ToString(), "'"));
  }
  if (!given) return BadInput("it needs a budget, such as 0.2, 512 or 64B");
  const int64_t entries = BudgetEntries(p, shape, budget, prompt_tokens, prompt_tokens);
  const int64_t kept = method.sinks + method.recent;
  const int64_t least = std::max<int64_t>(1, std::min(kept, prompt_tokens));
  if (entries < least) {
    const std::string enough = LeastBudget(p, shape, budget.kind, least, prompt_tokens).ToString();
    std::string gives = StrCat("budget ", budget.ToString(), " gives each head ", entries, " ",
                               entries == 1 ? "entry" : "entries");
    // A number of entries is that of every prompt.
    if (budget.kind != Budget::Kind::kEntries) {
      gives += StrCat(" of a prompt of ", prompt_tokens);
    }
    if (kept == 0) return BadInput(StrCat(gives, "; ", enough, " would do"));
    return BadInput(
        StrCat(gives, ", but ", method.sinks, " first and ", method.recent,
               " last ones are protected; ", enough,
               " would do, or lower protect.sinks and protect.recent, which is the score's window "
               "where it is left out"));
  }
  const Allowance allowance = Allow(method, entries, prompt_tokens);
  const Status status =
      p.allocate->CheckBudget({.shape = &shape,
                               .length = prompt_tokens,
                               .per_head = allowance.entries,
                               .protected_entries = allowance.sinks + allowance.recent,
                               .window = p.score->needs().window});
  if (!status.ok()) return status.error().Wrap(Owner(StageKind::kAllocate, *method.allocate));
  return {};
}

ModelShape Prepared(const Pipeline& p, const ModelShape& shape) {
  return p.prepare == nullptr ? shape : p.prepare->ShapeAfter(shape);
}

Status CheckAll(const Method& method, const ModelShape& shape, const Budget& budget,
                int64_t prompt_tokens) {
  const Pipeline p = MakePipeline(method);
  KVG_TRY(CheckStage(StageKind::kPrepare, method.prepare, p.prepare.get(), shape));
  const ModelShape after = Prepared(p, shape);
  KVG_TRY(CheckStage(StageKind::kScore, method.score, p.score.get(), after));
  KVG_TRY(CheckStage(StageKind::kAllocate, method.allocate, p.allocate.get(), after));
  KVG_TRY(CheckStage(StageKind::kReduce, method.reduce, p.reduce.get(), after));
  KVG_TRY(CheckStage(StageKind::kStore, method.store, p.store.get(), after));
  KVG_TRY(CheckStage(StageKind::kRead, method.read, p.read.get(), after));
  KVG_TRY(CheckStage(StageKind::kTrigger, method.trigger, p.trigger.get(), after));
  KVG_TRY(CheckStore(method, p, after));
  return CheckBudget(method, p, after, budget, prompt_tokens);
}

}  // namespace

Status CheckMethod(const Method& method, const ModelShape& shape, const Budget& budget,
                   int64_t prompt_tokens) {
  const Status status = CheckAll(method, shape, budget, prompt_tokens);
  if (!status.ok()) return status.error().Wrap(StrCat("method ", method.id));
  return {};
}

Allowance AllowanceFor(const Method& method, const ModelShape& shape, const Budget& budget,
                       int64_t length) {
  if (!method.takes_budget) return {.entries = length};
  const Pipeline p = MakePipeline(method);
  return Allow(method, BudgetEntries(p, Prepared(p, shape), budget, length, length), length);
}

int64_t GrowthOf(const Method& method, const ModelShape& shape, const Budget& budget,
                 int64_t prompt_tokens, int64_t tokens) {
  if (!method.takes_budget) return tokens - prompt_tokens;
  const Pipeline p = MakePipeline(method);
  const ModelShape after = Prepared(p, shape);
  const auto allowed = [&](int64_t share_of, int64_t length) {
    return Allow(method, BudgetEntries(p, after, budget, share_of, length), length).entries;
  };
  const int64_t share_of = p.trigger->allotment_grows() ? tokens : prompt_tokens;
  return allowed(share_of, tokens) - allowed(prompt_tokens, prompt_tokens);
}

}  // namespace kvgauge
