// SPDX-License-Identifier: Apache-2.0
// Keeps account of what a method does to one sequence, for its CompressionRecord.
#pragma once

#include <span>
#include <vector>

#include "runner/compressor.h"
#include "src/compress/modalities.h"
#include "src/compress/reads.h"
#include "src/compress/view.h"

namespace kvgauge {

// What is said of trained gates that give what is no number.
Error GatesGaveNoNumbers(const StageChoice& choice, int64_t layer);

class Recorder {
 public:
  // All outlive the recorder.
  Recorder(const Model& model, const Method& method, const Budget& budget, const ModelShape& shape);

  PhaseSeconds& seconds() { return record_.seconds; }
  int64_t steps() const { return record_.steps; }
  int64_t prompt_tokens() const { return record_.prompt_tokens; }
  bool stores_otherwise() const { return stores_otherwise_; }

  // `cache` as it is before it is compressed, and afterwards.
  void Begin(const KvCache& cache, const Prompt* prompt, const PrefillCapture* capture);
  // The same behind the newest chunk of a prompt, of whose tokens entries have left already.
  void BeginChunk(const KvCache& cache);
  void RecordCompressed(const KvCache& cache, const Prompt* prompt, int64_t index_bytes);
  // Bytes of trained weights that the method holds beside the model's; counted with projections.
  void AddWeights(int64_t bytes) { weight_bytes_ = bytes; }
  void CountStep() { ++record_.steps; }
  void CountCompression() { ++record_.compressions; }
  // A plan that is about to be executed; false where it keeps everything as it is.
  bool AddPlan(const LayerView& view, std::span<const HeadPlan> plan);
  // Where the plan merges, by how much; a device that executes plans by itself counts by itself.
  void AddMerged(int64_t layer, std::span<const HeadPlan> plan);
  // For KvCache::ReduceOnDevice: numbers of this layer's heads.
  Tensor OutcomeOf(int64_t layer, const KvCache& cache);
  // What gates gave the newest entry of a layer, [kv_heads, 1]: a device looks whether they are
  // numbers, and tells CheckSteps.
  void AddStepGates(LayerView& view, const Tensor& scores);
  void AddStore(const StorePlan& plan);
  // Goes on with a saved cache, behind so many tokens of a prompt and so many decode steps.
  void GoOn(int64_t prompt_tokens, int64_t steps) {
    record_.prompt_tokens = prompt_tokens;
    record_.steps = steps;
  }
  // Goes on from what another sequence's recorder has seen.
  void ContinueFrom(const Recorder& other);

  // What a device found wrong with the plans that it executed, and with gates.
  Status CheckSteps(const KvCache& cache) const;
  // As things stand now. `allowed`: entries a head may hold.
  CompressionRecord Record(const KvCache& cache, const StepReads& reads, int64_t allowed) const;

 private:
  int64_t IndexOnHost() const;
  std::vector<std::vector<int64_t>> Entries(const KvCache& cache) const;
  Status CheckStepGates() const;
  void AddMergedOnDevice(std::vector<int64_t>& merged) const;

  const Model& model_;
  const Method& method_;
  const Budget& budget_;
  const ModelShape& shape_;
  Ops& ops_;
  bool codes_ = false;
  int64_t weight_bytes_ = 0;
  bool stores_otherwise_ = false;  // a plan that is more than the plain store
  bool dropped_ = false, weighted_ = false;
  bool sparse_ = false;    // rows of the prompt saw less than everything
  LayerNumbers outcomes_;  // [kv_heads] rows of KvKept of each layer, once there was one
  LayerNumbers gates_;     // f32 of each layer, once there was one: 0, or no number
  ModalityCounts modalities_;
  CompressionRecord record_;
};

}  // namespace kvgauge
