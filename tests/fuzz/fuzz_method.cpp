// SPDX-License-Identifier: Apache-2.0
// A method that is accepted can be made, says what it needs, and is refused with a reason or fits
// its budget on any model, whatever the JSON.
#include <string_view>

#include "core/check.h"
#include "core/json.h"
#include "methods/layouts/layer_inputs.h"
#include "methods/layouts/transformed.h"
#include "methods/method.h"

namespace {

using kvgauge::Budget;
using kvgauge::KvSide;
using kvgauge::Method;
using kvgauge::ModelShape;
using kvgauge::StorePlan;
using kvgauge::Transformed;

ModelShape Shape(int64_t layers, int64_t query_heads, int64_t kv_heads, int64_t dim) {
  ModelShape shape;
  shape.layers = layers;
  shape.hidden_size = query_heads * dim;
  shape.query_heads = query_heads;
  shape.kv_heads = kv_heads;
  shape.key_dim = shape.value_dim = shape.rotary_dim = dim;
  shape.windows.assign(static_cast<size_t>(layers), 0);
  return shape;
}

// Grouped, one head of one layer, no rotation, odd dims, latents.
std::vector<ModelShape> Shapes() {
  std::vector<ModelShape> shapes = {Shape(2, 8, 2, 64), Shape(1, 1, 1, 16), Shape(2, 6, 6, 80)};
  shapes[2].rotary_dim = 0;
  shapes.push_back(Shape(3, 4, 4, 64));
  shapes.back().value_dim = 72;
  shapes.back().latent_dim = 32;
  shapes.back().key_norm = true;
  shapes.back().cache_dtype = kvgauge::DType::kBF16;
  return shapes;
}

// Numbers that are stored of an entry of `dim`: other coordinates may have more, and the input of a
// layer stands for both sides.
int64_t StoredDim(const StorePlan& plan, const ModelShape& shape, KvSide side) {
  const int64_t dim = side == KvSide::kKeys ? shape.key_dim : shape.value_dim;
  if (plan.Get<kvgauge::LayerInputs>() != nullptr) {
    return side == KvSide::kKeys ? shape.hidden_size : 0;
  }
  const auto* transformed = plan.Get<Transformed>();
  if (transformed == nullptr || transformed->change(side).empty()) return dim;
  KVG_CHECK(transformed->change(side).dim == dim, "matrices take this model's entries");
  return transformed->change(side).stored;
}

// A method's stages and the plans of its layers that can be made.
struct Planned {
  kvgauge::Pipeline pipeline;
  std::vector<StorePlan> plans;
};
Planned PlansOf(const Method& method, const ModelShape& shape) {
  Planned held = {kvgauge::MakePipeline(method), {}};
  if (!kvgauge::CheckMethod(method, shape, *Budget::Parse("none"), 1).ok()) return held;
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    kvgauge::Result<StorePlan> plan = held.pipeline.store->Plan(shape, layer);
    if (plan.ok()) held.plans.push_back(std::move(*plan));
  }
  return held;
}

void CheckOn(const Method& method, const ModelShape& shape, const Budget& budget, int64_t tokens) {
  const kvgauge::Status legal = kvgauge::CheckMethod(method, shape, budget, tokens);
  if (!legal.ok()) {
    KVG_CHECK(legal.error().message.starts_with("method "), "a refusal without its method");
    return;
  }
  const kvgauge::HeadBudget head_budget = kvgauge::HeadBudgetFor(method, shape, budget, tokens);
  KVG_CHECK(head_budget.entries >= 1 && head_budget.entries <= tokens,
            "an head_budget of the prompt");
  KVG_CHECK(head_budget.sinks >= 0 && head_budget.recent >= 0 &&
                head_budget.sinks + head_budget.recent <= head_budget.entries,
            "what is protected is part of it");
  const kvgauge::Pipeline pipeline = kvgauge::MakePipeline(method);
  ModelShape after = shape;
  if (pipeline.prepare != nullptr) after = pipeline.prepare->ShapeAfter(shape);
  KVG_CHECK(after.kv_heads > 0 && after.query_heads % after.kv_heads == 0, "heads fall in groups");
  for (int64_t layer = 0; layer < after.layers; ++layer) {
    const kvgauge::Result<kvgauge::StorePlan> plan = pipeline.store->Plan(after, layer);
    KVG_CHECK(plan.ok(), "a store that was checked has a plan");
    const double bytes = plan->layout->HeadBytes(after, tokens);
    KVG_CHECK(bytes >= 0 && plan->layout->EntryBits(after) > 0, "every store has its price");
    KVG_CHECK(plan->layout->PlannedLayerBytes(after, tokens, 1) > 0, "and needs memory");
    const auto* coded = plan->Get<kvgauge::Coded>();
    if (coded == nullptr) continue;
    KVG_CHECK(coded->keys.dim == StoredDim(*plan, after, KvSide::kKeys) &&
                  coded->values.dim == StoredDim(*plan, after, KvSide::kValues),
              "codecs are of what is stored of this model's entries");
    KVG_CHECK(coded->sinks >= 0 && coded->seal_keys.keep_recent >= 0 &&
                  coded->seal_values.keep_recent >= 0,
              "counts are counts");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto json = kvgauge::ParseJson({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!json.ok()) return 0;
  const kvgauge::Result<Method> method = kvgauge::ParseMethod(*json, "fuzz");
  if (!method.ok()) {
    KVG_CHECK(method.error().message.starts_with("fuzz"), "a message without its origin");
    return 0;
  }
  const kvgauge::Json canonical = method->ToJson();
  KVG_CHECK(canonical == method->ToJson() && canonical.contains("stages"), "one canonical form");
  KVG_CHECK(method->needs().window >= 0, "a window of rows");
  KVG_CHECK(!method->takes_budget || method->reduce.has_value(), "who takes a budget reduces");
  static const std::vector<ModelShape> shapes = Shapes();
  for (const ModelShape& shape : shapes) {
    // Held meanwhile, for what plans share is made anew when nobody holds it.
    const Planned held = PlansOf(*method, shape);
    for (const char* text : {"none", "0.25", "1.0", "7", "100B"}) {
      const kvgauge::Result<Budget> budget = Budget::Parse(text);
      for (const int64_t tokens : {int64_t{1}, int64_t{100}, int64_t{5000}}) {
        CheckOn(*method, shape, *budget, tokens);
      }
    }
  }
  return 0;
}
