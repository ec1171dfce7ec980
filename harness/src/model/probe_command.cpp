// SPDX-License-Identifier: Apache-2.0
// probe: what a method left in the cache of one prompt.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/json.h"
#include "core/strings.h"
#include "runner/engine.h"
#include "src/cli/print.h"
#include "src/model/method_flags.h"
#include "src/model/model_flags.h"
#include "src/model/safetensors_file.h"
#include "src/model/visual_input.h"

namespace kvgauge {
namespace {

using Reader = void (KvCache::*)(int64_t, int64_t, int64_t, Tensor) const;

std::vector<float> ReadRows(Ops& ops, const KvCache& cache, Reader read, int64_t layer,
                            int64_t head, int64_t dim) {
  const int64_t length = cache.length(layer, head);
  std::vector<float> values(static_cast<size_t>(length * dim));
  if (length == 0) return values;
  const Buffer memory = ops.memory->Allocate(length * dim * 4);
  const Tensor rows = memory.As(DType::kF32, {length, dim});
  (cache.*read)(layer, head, 0, rows);
  ops.memory->Copy(rows, View(values, {length, dim}));
  return values;
}

void Collect(Ops& ops, const KvCache& cache, SafetensorsFile& file) {
  for (int64_t layer = 0; layer < cache.layer_count(); ++layer) {
    const KvFormat& format = cache.format(layer);
    for (int64_t head = 0; head < cache.kv_heads(layer); ++head) {
      const std::string at = StrCat(layer, ".", head);
      const std::vector<int32_t> positions = cache.Positions(layer, head);
      const std::vector<int64_t> kept(positions.begin(), positions.end());
      const auto count = std::ssize(kept);
      file.Add(StrCat("kept.", at), kept, {count});
      file.Add(StrCat("k.", at),
               ReadRows(ops, cache, &KvCache::ReadKeys, layer, head, format.key_dim),
               {count, format.key_dim});
      file.Add(StrCat("v.", at),
               ReadRows(ops, cache, &KvCache::ReadValues, layer, head, format.value_dim),
               {count, format.value_dim});
      // How many entries each stands for.
      std::vector<float> weights = cache.LogWeights(layer, head);
      for (float& weight : weights) weight = std::exp(weight);
      const bool weighted =
          std::any_of(weights.begin(), weights.end(), [](float w) { return w != 1.0f; });
      if (weighted) file.Add(StrCat("weight.", at), weights, {count});
    }
  }
}

}  // namespace

Status RunProbe(const ProbeOptions& options) {
  KVG_ASSIGN(const ModelConfig config, ReadModelConfig(options.model.model));
  KVG_ASSIGN(std::vector<int32_t> ids, ReadIdsFile(options.ids_file, config.vocab_size));
  if (ids.empty()) return BadInput(StrCat(options.ids_file, ": the prompt has no tokens"));
  KVG_ASSIGN(const ChosenMethod chosen, ChooseMethod(options.method));
  KVG_ASSIGN(VisualInput input, ReadVisualInput(options.visual, options.model.model, config));
  KVG_TRY(CheckPlaceholders(input, config, ids));
  KVG_ASSIGN(const LoadedModel loaded, LoadModelFor(chosen, options.model, std::ssize(ids)));
  Model& model = *loaded.model;

  const auto prompt_tokens = std::ssize(ids);
  KVG_ASSIGN(const VisualPrompt visual,
             EncodeVisuals(input, options.visual, options.model, loaded, std::move(ids)));
  SafetensorsFile file;
  EngineOptions engine_options;
  engine_options.seed = options.seed;
  engine_options.inspect = [&](const CellResult&, const KvCache& cache, Compressor&) {
    Collect(*loaded.ops, cache, file);
  };
  // The first token comes from the prefill; each further one is a step.
  const EngineSample sample = {
      .id = "prompt",
      .turns = {{.ids = visual.ids, .spans = visual.spans, .max_new_tokens = options.steps + 1}},
      .visuals = visual.visuals};
  Engine engine({{.method = &chosen.method, .budget = chosen.budget, .model = &model}},
                engine_options);
  CellResult cell;
  KVG_TRY(engine.Run({&sample, 1}, [&](CellResult result) {
    cell = std::move(result);
    return cell.status;
  }));
  const CompressionRecord& record = cell.record;
  std::vector<int32_t> decoded(cell.turns[0].ids.begin(), cell.turns[0].ids.end() - 1);
  file.SetMetadata("method", chosen.method.ToJson().dump());
  file.SetMetadata("budget", chosen.budget.ToString());
  file.SetMetadata("prompt_tokens", StrCat(prompt_tokens));
  // Where the prompt shows pictures, in original positions.
  if (!visual.spans.empty()) file.SetMetadata("spans", SpansJson(visual.spans).dump());
  if (!visual.decoder.empty()) file.SetMetadata("video_decoder", visual.decoder);
  file.SetMetadata("decoded", Json(decoded).dump());
  file.SetMetadata("nominal_bytes", StrCat(record.nominal_bytes));
  file.SetMetadata("logical_bytes", StrCat(record.final_bytes.logical()));
  file.SetMetadata("resident_bytes", StrCat(record.final_bytes.resident()));
  file.SetMetadata("record", record.ToJson().dump());
  KVG_TRY(file.Write(options.out));
  if (options.json) {
    PrintJson({{"out", options.out},
               {"method", chosen.method.ToJson()},
               {"budget", chosen.budget.ToString()},
               {"record", record.ToJson()}});
  } else {
    Print(DescribeRecord(chosen, record));
  }
  return {};
}

}  // namespace kvgauge
