// SPDX-License-Identifier: Apache-2.0
#include "src/compress/method_account.h"

#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "src/compress/prompt_reach.h"

namespace kvgauge {
namespace {

// Entries that `list` folds into others.
int64_t CountMerged(Ops& ops, const MergeList& list) {
  if (list.empty()) return 0;
  std::vector<int32_t> to(static_cast<size_t>(list.to.shape[0]));
  ops.memory->Copy(list.to, View(to, {static_cast<int64_t>(to.size())}));
  return static_cast<int64_t>(
      std::count_if(to.begin(), to.end(), [](int32_t entry) { return entry >= 0; }));
}

bool KeepsAll(const LayerView& view, std::span<const HeadPlan> plan) {
  for (size_t head = 0; head < plan.size(); ++head) {
    if (plan[head].keep.Numel() != view.lengths()[head] || !plan[head].keys.empty() ||
        !plan[head].values.empty() || !plan[head].log_weight.empty()) {
      return false;
    }
  }
  return true;
}

}  // namespace

Error GatesGaveNoNumbers(const StageChoice& choice, int64_t layer) {
  return Unsupported(StrCat(choice.slot, ".", choice.spec->id, " gave layer ", layer,
                            " scores that are no finite numbers; its weights are not those of "
                            "this model, or too large"));
}

Recorder::Recorder(const Model& model, const Method& method, const Budget& budget,
                   const ModelShape& shape)
    : model_(model), method_(method), budget_(budget), shape_(shape), ops_(model.ops()) {
  record_.merged.resize(static_cast<size_t>(shape.layers));
}

std::vector<std::vector<int64_t>> Recorder::Entries(const KvCache& cache) const {
  std::vector<std::vector<int64_t>> entries(static_cast<size_t>(shape_.layers));
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    for (int64_t head = 0; head < cache.kv_heads(layer); ++head) {
      entries[static_cast<size_t>(layer)].push_back(cache.length(layer, head));
    }
  }
  return entries;
}

void Recorder::Begin(const KvCache& cache, const Prompt* prompt, const PrefillCapture* capture) {
  const bool has_fewer = method_.thin.has_value() || shape_.running_entries;
  if (prompt != nullptr) modalities_.Begin(cache, *prompt, capture, ops_, has_fewer);
  record_.prompt_tokens = cache.tokens();
  record_.entries_before = Entries(cache);
  record_.prefill_density.clear();
  if (method_.attend && capture != nullptr) {
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      const PromptReach* reach = capture->reach(layer);
      record_.prefill_density.push_back(reach == nullptr ? 1.0 : reach->density());
      sparse_ |= reach != nullptr && !reach->whole();
    }
  }
  if (!has_fewer) return;
  // Rows have left already, or joined others.
  for (std::vector<int64_t>& layer : record_.entries_before) {
    for (int64_t& entries : layer) {
      dropped_ |= method_.thin.has_value() && entries < cache.tokens();
      entries = cache.tokens();
    }
  }
}

void Recorder::BeginChunk(const KvCache& cache) {
  record_.prompt_tokens = cache.tokens();
  record_.entries_before = Entries(cache);
  for (std::vector<int64_t>& layer : record_.entries_before) {
    std::fill(layer.begin(), layer.end(), cache.tokens());
  }
}

void Recorder::RecordCompressed(const KvCache& cache, const Prompt* prompt, int64_t index_bytes) {
  if (prompt != nullptr) modalities_.Finish(cache, *prompt, record_.modalities);
  record_.entries_after = Entries(cache);
  for (size_t layer = 0; shape_.running_entries && layer < record_.merged.size(); ++layer) {
    record_.merged[layer] = 0;
    for (const int64_t held : record_.entries_after[layer]) {
      record_.merged[layer] += cache.tokens() - held;
    }
  }
  record_.full_bytes = FullCacheBytes(model_.checkpoint_shape(), cache.held_tokens());
  record_.nominal_bytes = NominalBytes(method_, shape_, budget_, cache.held_tokens());
  record_.bytes = cache.Bytes();
  record_.bytes.projections += weight_bytes_;
  record_.bits.clear();
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    int64_t entries = 0;
    for (const int64_t held : record_.entries_after[static_cast<size_t>(layer)]) entries += held;
    // Heads that share an entry have a key and a value of it each.
    const ModelShape own = shape_.OfLayer(layer);
    const int64_t sharing = own.kv_heads / cache.kv_heads(layer);
    const auto numbers = static_cast<double>(entries * sharing * (own.key_dim + own.value_dim));
    const auto payload = static_cast<double>(cache.Bytes(layer).payload);
    record_.bits.push_back(entries > 0 ? 8.0 * payload / numbers : 0.0);
  }
  record_.reader_bytes = index_bytes;
  record_.host_bytes = HostBytes(method_.place, cache) + IndexOnHost();
}

// What of the index lies there.
int64_t Recorder::IndexOnHost() const {
  return method_.place.any() && method_.place.index ? record_.reader_bytes : 0;
}

bool Recorder::AddPlan(const LayerView& view, std::span<const HeadPlan> plan) {
  if (KeepsAll(view, plan)) return false;
  for (size_t head = 0; head < plan.size(); ++head) {
    dropped_ |= plan[head].keep.Numel() < view.lengths()[head];
    weighted_ |= !plan[head].log_weight.empty();
  }
  return true;
}

void Recorder::AddMerged(int64_t layer, std::span<const HeadPlan> plan) {
  for (const HeadPlan& head : plan) {
    record_.merged[static_cast<size_t>(layer)] +=
        std::max(CountMerged(ops_, head.keys), CountMerged(ops_, head.values));
  }
}

Tensor Recorder::OutcomeOf(int64_t layer, const KvCache& cache) {
  const int64_t heads = cache.kv_heads();
  if (outcomes_.empty()) {
    outcomes_.Allocate(model_.devices(), shape_.layers, DType::kI32, heads * kKvKeptNumbers);
  }
  return outcomes_.Of(layer).Reshape({heads, kKvKeptNumbers});
}

void Recorder::AddStepGates(LayerView& view, const Tensor& scores) {
  if (gates_.empty()) gates_.Allocate(model_.devices(), shape_.layers, DType::kF32, 1);
  RowOps& rows = *view.ops().rows;
  const int64_t heads = scores.shape[0];
  const Tensor of_heads = view.Scratch(DType::kF32, {heads});
  const Tensor sum = view.Scratch(DType::kF32, {1, 1});
  rows.ReduceRows(scores, Reduction::kSumAbs, of_heads);
  rows.ReduceRows(of_heads.Reshape({1, heads}), Reduction::kSumAbs, sum[0]);
  rows.Affine(sum, 0.0f, 0.0f, sum);  // 0, or no number
  const Tensor seen = gates_.Of(view.layer()).Reshape({1, 1});
  rows.Combine(seen, sum, Binary::kAdd, seen);
}

Status Recorder::CheckStepGates() const {
  const std::vector<float> seen = gates_.ToHost<float>();
  for (size_t layer = 0; layer < seen.size(); ++layer) {
    if (std::isfinite(seen[layer])) continue;
    return GatesGaveNoNumbers(method_.decode_score ? *method_.decode_score : *method_.score,
                              static_cast<int64_t>(layer));
  }
  return {};
}

void Recorder::AddStore(const StorePlan& plan) {
  stores_otherwise_ = true;
  codes_ |= plan.layout->traits().seals;
}

void Recorder::ContinueFrom(const Recorder& other) {
  stores_otherwise_ = other.stores_otherwise_;
  codes_ = other.codes_;
  weight_bytes_ = other.weight_bytes_;
  dropped_ = other.dropped_;
  weighted_ = other.weighted_;
  sparse_ = other.sparse_;
  record_ = other.record_;
  if (!other.gates_.empty()) {
    gates_.Allocate(model_.devices(), shape_.layers, DType::kF32, 1);
    gates_.CopyFrom(other.gates_);
  }
  other.AddMergedOnDevice(record_.merged);
}

void Recorder::AddMergedOnDevice(std::vector<int64_t>& merged) const {
  const std::vector<int32_t> kept = outcomes_.ToHost<int32_t>();
  for (size_t layer = 0; layer < merged.size() && !kept.empty(); ++layer) {
    const size_t row = kept.size() / merged.size();
    for (size_t i = 0; i < row; i += kKvKeptNumbers) {
      merged[layer] += kept[layer * row + i + static_cast<size_t>(KvKept::kMerged)];
    }
  }
}

// Devices are not asked in a step, so what is wrong with its plan is known when there is time.
Status Recorder::CheckSteps(const KvCache& cache) const {
  KVG_TRY(CheckStepGates());
  const std::vector<int32_t> kept = outcomes_.ToHost<int32_t>();
  for (size_t i = 0; i < kept.size(); i += kKvKeptNumbers) {
    const auto number = [&](KvKept what) { return kept[i + static_cast<size_t>(what)]; };
    if (number(KvKept::kRefused) == 0) continue;
    const int64_t heads = cache.kv_heads(), at = static_cast<int64_t>(i) / kKvKeptNumbers;
    return BadInput(StrCat(method_.id, ": layer ", at / heads, ": plan for KV head ", at % heads,
                           " of a decode step: entry ", number(KvKept::kEntry), " after entry ",
                           number(KvKept::kBefore), " of ", number(KvKept::kLength),
                           "; kept entries ascend and are held (a device says so at the end)"));
  }
  return {};
}

CompressionRecord Recorder::Record(const KvCache& cache, const StepReads& reads,
                                   int64_t allowed) const {
  CompressionRecord record = record_;
  AddMergedOnDevice(record.merged);
  const double read = reads.read(), held_entries = reads.held();
  const bool read_less = read < held_entries || reads.rows_chose();
  if (record.steps > 0 && shape_.layers > 0) {
    record.reads_per_step =
        read / static_cast<double>(record.steps * shape_.layers * shape_.query_heads);
    record.read_share = held_entries > 0 ? read / held_entries : 0;
    record.fetched_bytes_per_step =
        reads.tiers().FetchedBytes(cache) / static_cast<double>(record.steps);
  }
  const int64_t on_host = HostBytes(method_.place, cache);
  record.final_host_bytes = on_host + IndexOnHost();
  // Where entries lie is all that such a method does.
  const bool places = method_.place.any() && !reads.chooses() && !method_.reduce && !method_.thin &&
                      !method_.attend && !stores_otherwise_;
  int64_t merged = 0;
  for (const int64_t count : record.merged) merged += count;
  const KvBytes now = cache.Bytes();
  int64_t entries = 0, plain_bytes = 0;
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    for (int64_t head = 0; head < cache.kv_heads(layer); ++head) {
      entries += cache.length(layer, head);
      plain_bytes += cache.length(layer, head) * shape_.OfLayer(layer).EntryBytes();
    }
  }
  // The model's own latents are other entries than those of the full cache, whatever their bytes;
  // so are those that were rounded where they are.
  const bool coded = now.payload != plain_bytes || now.scales > 0 ||
                     (entries > 0 && (cache.mla_latent() || cache.rounds()));
  record.final_bytes = now;
  record.final_bytes.projections += weight_bytes_;
  const std::string unsealed = StrCat("store.", method_.store->spec->id, " changed no entry of ",
                                      record.prompt_tokens, " tokens");
  const bool wants_fewer = method_.takes_budget && allowed < record.prompt_tokens;
  std::string attended;
  if (method_.attend && !sparse_) {
    attended = StrCat(NameOf(*method_.attend->spec), " left out nothing of what ",
                      record.prompt_tokens, " tokens attend to");
  }
  if (dropped_ || weighted_ || merged > 0 || read_less || coded || sparse_ ||
      (places && on_host > 0)) {
    record.engagement = Engagement::kEngaged;
    record.reason = attended;
    if (codes_ && !coded) record.reason = unsealed;
  } else if (method_.attend && !method_.takes_budget) {
    record.reason = attended;
  } else if (method_.thin && !method_.takes_budget) {
    record.reason =
        StrCat(NameOf(*method_.thin->spec), " let no row go of ", record.prompt_tokens, " tokens");
  } else if (shape_.running_entries) {
    record.reason = StrCat("none of ", record.prompt_tokens,
                           " tokens joined an entry; expected a checkpoint that was trained to, "
                           "and the offset it was trained with");
  } else if (stores_otherwise_) {
    record.reason = unsealed;
  } else if (places) {
    record.reason = StrCat("place put no entry of ", record.prompt_tokens,
                           " tokens on the host; lower place.sinks or place.recent");
  } else if (reads.chooses()) {
    record.reason = StrCat("read.", method_.read->spec->id,
                           record.steps == 0 ? " saw no decode step" : " read every entry");
  } else if (method_.reduce && !method_.takes_budget) {
    record.reason = StrCat("reduce.", method_.reduce->spec->id, " kept every entry of ",
                           record.prompt_tokens, " tokens; raise reduce.least");
  } else if (wants_fewer) {
    record.reason = StrCat("nothing was given up of ", record.prompt_tokens, " tokens for ",
                           allowed, " entries a head");
  } else {
    record.engagement = Engagement::kIdentity;
  }
  return record;
}

}  // namespace kvgauge
