// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "core/json.h"
#include "runner/compressor.h"

namespace kvgauge {
namespace {

Json BytesJson(const KvBytes& bytes) {
  return {{"payload", bytes.payload},     {"scales", bytes.scales},
          {"indices", bytes.indices},     {"outliers", bytes.outliers},
          {"low_rank", bytes.low_rank},   {"biases", bytes.biases},
          {"codebooks", bytes.codebooks}, {"projections", bytes.projections},
          {"slack", bytes.slack},         {"logical", bytes.logical()},
          {"resident", bytes.resident()}};
}

Json ModalitiesJson(const std::array<ModalityRecord, kModalities>& layer) {
  Json json = Json::object();
  for (size_t i = 0; i < layer.size(); ++i) {
    const ModalityRecord& of = layer[i];
    if (of.entries_before == 0) continue;
    json[std::string(NameOf(static_cast<Modality>(i)))] = {{"entries_before", of.entries_before},
                                                           {"entries_after", of.entries_after},
                                                           {"bytes", of.bytes},
                                                           {"attention", of.attention},
                                                           {"attention_kept", of.attention_kept}};
  }
  return json;
}

}  // namespace

PhaseSeconds& PhaseSeconds::operator+=(const PhaseSeconds& more) {
  prefill += more.prefill;
  score += more.score;
  select += more.select;
  compact += more.compact;
  quantise += more.quantise;
  attend += more.attend;
  other += more.other;
  return *this;
}

std::string_view NameOf(Engagement engagement) {
  switch (engagement) {
    case Engagement::kEngaged:
      return "engaged";
    case Engagement::kNotEngaged:
      return "not engaged";
    case Engagement::kIdentity:
      return "identity";
  }
  return "";
}

Json CompressionRecord::ToJson() const {
  Json json = {{"engagement", NameOf(engagement)},
               {"reason", reason},
               {"prompt_tokens", prompt_tokens},
               {"entries_before", entries_before},
               {"entries_after", entries_after},
               {"merged", merged},
               {"bits", bits},
               {"compressions", compressions},
               {"steps", steps},
               {"reads_per_step", reads_per_step},
               {"read_share", read_share},
               {"full_bytes", full_bytes},
               {"nominal_bytes", nominal_bytes},
               {"logical_bytes", bytes.logical()},
               {"resident_bytes", bytes.resident()},
               {"reader_bytes", reader_bytes},
               {"host_bytes", host_bytes},
               {"final_host_bytes", final_host_bytes},
               {"fetched_bytes_per_step", fetched_bytes_per_step},
               {"bytes", BytesJson(bytes)},
               {"final_bytes", BytesJson(final_bytes)},
               {"seconds",
                {{"prefill", seconds.prefill},
                 {"score", seconds.score},
                 {"select", seconds.select},
                 {"compact", seconds.compact},
                 {"quantise", seconds.quantise},
                 {"attend", seconds.attend},
                 {"other", seconds.other}}}};
  if (!prefill_density.empty()) json["prefill_density"] = prefill_density;
  for (const auto& layer : modalities) json["modalities"].push_back(ModalitiesJson(layer));
  return json;
}

bool KeepsModelLatents(const Method& method, const ModelShape& shape) {
  const std::unique_ptr<Stage> stage = MakeStage(*method.store);
  const Result<StorePlan> plan = static_cast<const Store&>(*stage).Plan(shape, 0);
  return plan.ok() && plan->layout->traits().model_latents;
}

int64_t FullCacheBytes(const ModelShape& shape, int64_t tokens) {
  return shape.EntriesOf(tokens) * shape.TokenBytes();
}

int64_t NominalBytes(const Method& method, const ModelShape& shape, const Budget& budget,
                     int64_t tokens) {
  double share = 1.0;
  if (method.takes_budget) {
    switch (budget.kind) {
      case Budget::Kind::kNone:
        break;
      case Budget::Kind::kFraction:
        share = budget.value;
        break;
      case Budget::Kind::kEntries:
        share = budget.value / static_cast<double>(tokens);
        break;
      case Budget::Kind::kBytesPerToken:
        return std::llround(budget.value * static_cast<double>(tokens));
    }
  }
  double bytes = 0;
  std::unique_ptr<Stage> stage;
  if (method.store) stage = MakeStage(*method.store);
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const ModelShape own = shape.OfLayer(layer);
    StorePlan plan;
    if (stage != nullptr) {
      Result<StorePlan> planned = static_cast<const Store&>(*stage).Plan(own, layer);
      if (planned.ok()) plan = *std::move(planned);
    }
    bytes += static_cast<double>(own.kv_heads * own.EntriesOf(tokens)) *
             static_cast<double>(plan.layout->EntryBits(own)) / 8.0;
  }
  return std::llround(share * bytes);
}

}  // namespace kvgauge
