// SPDX-License-Identifier: Apache-2.0
// A compressed cache against the whole one: prefills outside the engine, and masks that hide what
// was given up.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "conformance/scene.h"
#include "runner/sparse_prefill.h"
#include "runner/thin_prefill.h"
#include "support/compare.h"

namespace kvgauge {

// A prefill as the engine does it.
struct Prefilled {
  CachePools pools;
  Prompt prompt;
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<PrefillCapture> capture;

  Prefilled(const Subject& subject, Prompt rows)
      : pools(subject.model().ops()), prompt(std::move(rows)) {
    Model& model = subject.model();
    const bool latents = KeepsModelLatents(subject.method, subject.shape());
    cache = std::make_unique<KvCache>(model.NewCache(prompt.size() + 16, pools, latents));
    cache->PlaceRope(RopePlaces::Of(prompt));
    capture = std::make_unique<PrefillCapture>(model.cache_config(), *cache,
                                               NeedsOf(subject.method.needs(), prompt),
                                               prompt.size(), &prompt);
    if (subject.method.attend) {
      Finish(SparsePrefill(model, *subject.method.attend, prompt, *cache, *capture, state().seed));
    } else if (subject.method.thin) {
      Finish(ThinPrefill(model, *subject.method.thin, prompt, *cache, *capture, state().seed));
    } else {
      Feed(model, *cache, prompt, capture.get());
    }
  }
  template <class Prefill>
  static void Finish(Prefill prefill) {
    while (!prefill.done()) {
      const Result<Tensor> logits = prefill.Next();
      if (!logits.ok()) {
        ADD_FAILURE() << logits.error().message;
        std::abort();
      }
    }
  }
  PromptState state() const {
    PromptState state = {cache.get(), capture.get(), 11, &prompt};
    state.next = 3;  // any token, where a method drafts
    return state;
  }
  // `of_prompt` is the cache or a fork of it.
  Status CompressWith(Compressor& compressor, const Subject& subject, KvCache& of_prompt) const {
    std::optional<PromptScores> scores;
    const Method* method = &subject.method;
    if (ProbesPrompt(*method)) {
      scores = PromptScores::Compute(subject.model(), state(), {&method, 1});
    }
    return compressor.Compress(state(), scores ? &*scores : nullptr, of_prompt);
  }
  // That of the host counts too, where a method placed some there.
  int64_t used_bytes() {
    int64_t bytes = 0;
    for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
      const BlockPool& pool = pools.of(tier);
      bytes += pool.used_bytes() + pool.placed_used_bytes();
    }
    return bytes;
  }

  static std::vector<float> Feed(Model& model, KvCache& fed, const Prompt& rows, LayerHook* hook) {
    const SequenceStep step = {.cache = &fed,
                               .prompt = &rows,
                               .begin = fed.tokens(),
                               .end = rows.size(),
                               .logits = LogitRows::kLast,
                               .hook = hook};
    const Status room = fed.Append(step.end - step.begin);
    EXPECT_TRUE(room.ok());
    return HostFloats(model.ops(), model.Forward({&step, 1}));
  }
};

// Lets every head read its kept entries and what came after them.
class Mask final : public LayerHook {
 public:
  Mask(KvCache& cache, const KvCache& evicted, const ModelShape& shape)
      : cache_(cache), shape_(shape), seen_(cache.tokens()) {
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
      kept_.emplace_back();
      for (int64_t head = 0; head < evicted.kv_heads(layer); ++head) {
        kept_.back().push_back(evicted.Positions(layer, head));
      }
    }
  }
  void BeforeAttend(int64_t layer, const Tensor&) override {
    const int64_t words = (cache_.tokens() + 63) / 64;
    std::vector<int64_t> bits(static_cast<size_t>(shape_.query_heads * words));
    for (int64_t h = 0; h < shape_.query_heads; ++h) {
      const auto set = [&](int64_t entry) {
        bits[static_cast<size_t>(h * words + entry / 64)] |=
            static_cast<int64_t>(uint64_t{1} << (entry % 64));
      };
      const auto& kept = kept_[static_cast<size_t>(layer)];
      const auto head = static_cast<size_t>(h / (shape_.query_heads / std::ssize(kept)));
      for (const int32_t entry : kept[head]) {
        set(entry);
      }
      for (int64_t entry = seen_; entry < cache_.tokens(); ++entry) set(entry);
    }
    Ops& ops = cache_.ops();
    const Tensor host(bits.data(), DType::kI64, {shape_.query_heads, words});
    const Buffer memory = ops.memory->Allocate(host.SizeBytes());
    const Tensor read = memory.As(DType::kI64, {shape_.query_heads, words});
    ops.memory->Copy(host, read);
    cache_.SetRead(layer, read);
  }
  void AfterAttend(int64_t, const Tensor&, const Tensor&, const Tensor&) override {}

 private:
  KvCache& cache_;
  const ModelShape shape_;
  int64_t seen_;
  std::vector<std::vector<std::vector<int32_t>>> kept_;  // [layers][kv_heads]
};

// Turns keys [n, dim] on by so many positions.
inline void TurnOn(const RopeFrequencies& frequencies, int64_t positions, int64_t dim,
                   std::vector<float>& keys) {
  const auto pairs = std::ssize(frequencies.inverse);
  for (size_t row = 0; row < keys.size(); row += static_cast<size_t>(dim)) {
    for (int64_t i = 0; i < pairs; ++i) {
      const double angle = static_cast<double>(positions) * frequencies.inverse[i];
      float &a = keys[row + i], &b = keys[row + i + pairs];
      const double turned = a * std::cos(angle) - b * std::sin(angle);
      b = static_cast<float>(a * std::sin(angle) + b * std::cos(angle));
      a = static_cast<float>(turned);
    }
  }
}

// The states of layers that keep one instead of entries, before a fork shares them.
using States = std::vector<std::vector<float>>;
inline States StatesOf(const Subject& subject, const KvCache& cache) {
  States states;
  if (subject.shape().running_entries) return states;  // those of entries
  for (int64_t i = 0; i < cache.state_count(); ++i) {
    states.push_back(HostFloats(subject.model().ops(), cache.State(i)));
  }
  return states;
}

// A cache of the whole prompt in which the entries that `reduced` holds are as `reduced` has them,
// and those that `full` lacks, as their rows left the prefill, are 0.
// `states`: of layers that keep one.
// Where these and their queries turn by their place in the cache, they stand that much further on.
inline KvCache Whole(const Subject& subject, const Prompt& prompt, const KvCache& full,
                     const KvCache& reduced, bool by_place, const States& states,
                     CachePools& pools) {
  const int64_t n = full.tokens();
  // With the rows of an encoder that the other has.
  KvCache whole = full.encoded() == nullptr ? subject.model().NewCache(n + 16, pools) : full.Fork();
  EXPECT_TRUE(whole.Truncate(0).ok());
  whole.PlaceRope(RopePlaces::Of(prompt));
  EXPECT_TRUE(whole.Append(n).ok());
  std::vector<float> rows, held;
  for (int64_t layer = 0; layer < full.layer_count(); ++layer) {
    const KvFormat& format = full.format(layer);
    const int64_t heads = full.kv_heads(layer);
    std::vector<Tensor> sides;
    std::vector<Buffer> memory;
    for (const bool keys : {true, false}) {
      const int64_t dim = keys ? format.key_dim : format.value_dim;
      const auto read = [&](const KvCache& from, int64_t head, std::vector<float>& to) {
        to.assign(static_cast<size_t>(from.length(layer, head) * dim), 0.0f);
        const Tensor out = View(to, {from.length(layer, head), dim});
        keys ? from.ReadKeys(layer, head, 0, out) : from.ReadValues(layer, head, 0, out);
      };
      std::vector<float> all(static_cast<size_t>(n * heads * dim));
      for (int64_t head = 0; head < heads; ++head) {
        read(full, head, rows);
        read(reduced, head, held);
        if (keys && by_place) {
          TurnOn(full.frequencies(layer), prompt.next_rope_position - reduced.length(layer, head),
                 dim, held);
        }
        const auto place = [&](const KvCache& from, const std::vector<float>& entries) {
          const std::vector<int32_t> positions = from.Positions(layer, head);
          for (size_t i = 0; i < positions.size(); ++i) {
            std::copy_n(&entries[i * static_cast<size_t>(dim)], dim,
                        &all[static_cast<size_t>((positions[i] * heads + head) * dim)]);
          }
        };
        place(full, rows);
        place(reduced, held);
      }
      MemoryOps& device = *subject.model().ops().memory;
      memory.push_back(device.Allocate(std::ssize(all) * 4));
      sides.push_back(memory.back().As(DType::kF32, {n, heads, dim}));
      device.Copy(View(all, {n, heads, dim}), sides.back());
    }
    whole.Write(layer, sides[0], sides[1]);
  }
  for (size_t i = 0; i < states.size(); ++i) {
    const auto numbers = std::ssize(states[i]);
    subject.model().ops().memory->Copy(View(states[i], {numbers}),
                                       whole.State(static_cast<int64_t>(i)));
  }
  return whole;
}

// Entries given up and entries masked give the same logits; where what goes is merged into what
// stays, or what stays is coded or gives up numbers, the masked cache has these entries, decoded,
// in their places.
inline void ExpectEvictingIsMasking(const Subject& subject, const Prompt& prompt_tokens) {
  const Method& method = subject.method;
  Model& model = subject.model();
  const ModelShape shape = subject.shape();
  // Where distances are clipped, keys that are far turn with every step.
  const Result<StorePlan> plan = MakePipeline(method).store->Plan(shape.OfLayer(0), 0);
  ASSERT_TRUE(plan.ok());
  if ((!method.score && !method.thin) || plan->turn.position == PositionPolicy::kClipped) return;
  Prefilled prefilled(subject, prompt_tokens);
  const States states = StatesOf(subject, *prefilled.cache);
  KvCache evicted = prefilled.cache->Fork();
  Compressor compressor(model, method, subject.budget);
  const Status status = prefilled.CompressWith(compressor, subject, evicted);
  ASSERT_TRUE(status.ok()) << status.error().message;
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    for (int64_t head = 0; head < evicted.kv_heads(layer); ++head) {
      // An entry that stands for several has no mask that says so.
      for (const float weight : evicted.LogWeights(layer, head)) {
        if (weight != 0) return;
      }
    }
  }
  const bool by_place = plan->turn.position == PositionPolicy::kSlot;
  KvCache masked = Whole(subject, prefilled.prompt, *prefilled.cache, evicted, by_place, states,
                         prefilled.pools);
  Mask mask(masked, evicted, shape);
  Prompt prompt = prefilled.prompt;
  for (int32_t step = 0; step < 4; ++step) {
    prompt.AppendText(17 + 5 * step);
    const std::vector<float> want = Prefilled::Feed(model, masked, prompt, &mask);
    const std::vector<float> got = Prefilled::Feed(model, evicted, prompt, nullptr);
    EXPECT_TRUE(AllWithin(got, want, 1e-4)) << "step " << step;
  }
}

}  // namespace kvgauge
