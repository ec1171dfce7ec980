// SPDX-License-Identifier: Apache-2.0
// The engine at work. Its passes over the weights are in engine.cpp, what happens between them to
// prefills and to lanes in engine_prefill.cpp and engine_lanes.cpp.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "core/guarded.h"
#include "runner/engine.h"
#include "runner/generate.h"
#include "src/engine/engine_parts.h"

namespace kvgauge {

// One call of Run.
class EngineRun {
 public:
  EngineRun(std::span<const Contender> contenders, const EngineOptions& options,
            std::span<const EngineSample> samples, const MemoryPlan& plan,
            const Engine::OnResult& on_result);

  Status Run();

 private:
  struct Cell {
    CellResult result;
    int64_t turns_left = 0;
    int64_t recorded_turn = -1;  // whose record the result holds
  };
  // One sequence of the pool: a contender on one prompt (kPrompt) or on all turns of a sample, in
  // one draw.
  struct Lane {
    int64_t contender = 0, draw = 0;
    std::shared_ptr<Snapshot> snapshot;
    int64_t turn = 0;
    Prompt prompt;  // what the cache has seen, and what it is to see next
    std::unique_ptr<KvCache> cache;
    std::unique_ptr<Compressor> compressor;
    // kContext with several questions: the compressed context.
    std::unique_ptr<KvCache> base_cache;
    std::unique_ptr<Compressor> base;
    std::unique_ptr<PrefillCapture> capture;  // kTurn: of the turn's prompt
    bool asking = false;                      // rows of a question are still to be fed
    std::optional<Sampler> sampler;
    TurnResult answer;
    Status status;                 // of the work between passes
    std::optional<int32_t> token;  // chosen there
    bool done = false;
  };
  // Contenders that share prefills: those of one model with the same kind of cache, in whose
  // prefill rows see the same and the same rows leave. One that reads prompts in chunks has them
  // for itself.
  struct Group {
    Model* model = nullptr;
    bool latents = false;
    const StageChoice* attend = nullptr;          // of the first of them
    const StageChoice* reuse = nullptr;           // likewise
    const StageChoice* thin = nullptr;            // likewise
    std::shared_ptr<ReuseStore> store = nullptr;  // of `reuse`
    bool chunks = false;
    std::vector<int64_t> contenders = {};
    Needs needs = {};
  };
  struct Job {  // a prefill to come
    int64_t sample, turn;
    const Group* group;
    std::vector<int64_t> draws = {};
    bool again = false;  // of a prompt that was read for other draws
  };

  // What a pass leaves: rows of the steps that asked for logits, in their order.
  struct Passed {
    Tensor logits;              // [rows, vocab], stops that are held back at -inf
    std::vector<int32_t> best;  // [rows] when greedy

    int32_t BestOf(int64_t row) const { return best.empty() ? -1 : best[static_cast<size_t>(row)]; }
  };

  CachePools& BoundedPools(Ops& ops, const MemoryPlan& plan);
  void PlanJobs();
  // Contenders that cannot run on their model as it was prepared have that as their results.
  Status RefuseContenders();
  int64_t PlannedLength(const EngineSample& sample, int64_t turn) const;
  Status StartPrefill();
  Status AwaitPrefill(const Job& job, Snapshot& snapshot);
  // No stop is chosen before min_new_tokens: of a row [vocab] that so many tokens came before.
  void HoldStops(int64_t sample, int64_t turn, int64_t answered, const Tensor& row) const;
  // Whether the tokens of a turn come from logits that the host reads.
  bool ReadsLogits(const EngineTurn& turn) const {
    return !turn.forced.empty() || !options_.sampling.greedy();
  }
  void KeepLogits(Snapshot& snapshot, const Tensor& logits, int64_t row) const;
  Status BeginPrefill(const Job& job);
  // What comes next of a prefill that goes through the weights alone.
  Status StepAlone(Model& model);
  Status FinishPrefill(int32_t best);
  void ShareChunks();
  // Every contender that waits for the prompt has this as its result.
  Status FailPrefill(std::shared_ptr<Snapshot> failed, const Status& status);
  struct Original {
    Prompt prompt;
    std::unique_ptr<KvCache> cache;
    std::vector<float> logits;
  };
  // What is prefilled of a sample, and for kContext the question that follows.
  Prompt PromptOf(const ModelConfig& config, const EngineSample& sample, int64_t turn) const;
  Prompt AskedOf(const ModelConfig& config, const EngineSample& sample, Prompt prompt) const;
  Status PrefillOriginal(Model& model, Original& original);
  void MeasureSnapshot();
  void MeasureAgainst(const FidelityLead& lead);
  Status Admit();
  Lane& AddLane(const Snapshot::Start& start);
  Status StartLane(Lane& lane);
  Status ForkAndCompress(Lane& lane) const;
  Status Pass(Model& model);
  Status Step(Model& model, std::span<const SequenceStep> steps, std::span<Lane* const> stepped);
  // A sequence's own work between two passes, which touches nothing else.
  void FinishStep(Lane& lane, const Passed& passed, int64_t row) const;
  Status FinishRows(Lane& lane, const Passed& passed, int64_t row);
  // Chooses from a row of logits [vocab], of which `best` is the greedy choice.
  int32_t ChooseToken(Lane& lane, const Tensor& row, int32_t best) const;
  Status TakeToken(Lane& lane, int32_t id);
  // body(i) for all i < count, side by side where that cannot decide who is refused memory.
  void ForLanes(int64_t count, double cost_ns, const std::function<void(int64_t)>& body) const;
  Status EndTurn(Lane& lane, bool stopped);
  Status AskNext(Lane& lane);
  void AppendTurn(Lane& lane) const;
  Status EndCell(int64_t sample, const Snapshot::Start& start);
  Status FailLane(Lane& lane, const Status& status);

  const EngineSample& SampleOf(const Lane& lane) const {
    return samples_[static_cast<size_t>(lane.snapshot->sample)];
  }
  const EngineTurn& TurnOf(const Lane& lane) const {
    return SampleOf(lane).turns[static_cast<size_t>(lane.turn)];
  }
  Cell& CellOf(int64_t sample, const Snapshot::Start& start) {
    return cells_[{sample, start.contender, start.draw}];
  }

  std::span<const Contender> contenders_;
  const EngineOptions& options_;
  std::span<const EngineSample> samples_;
  int64_t pool_lanes_;
  bool bounded_;  // the pool of caches may refuse
  const Engine::OnResult& on_result_;
  std::optional<CachePools> bounded_pools_;
  // The model's where nothing bounds them: memory of one run serves the next, which costs less than
  // what the system hands out.
  CachePools& pools_;

  std::vector<std::pair<int64_t, Status>> refused_;  // contenders that are in no group
  std::vector<Group> groups_;                        // in the order of the contenders
  std::vector<Model*> models_;                       // likewise
  std::deque<Job> jobs_;
  std::shared_ptr<Snapshot> prefilling_;
  std::shared_ptr<Snapshot> ready_;
  std::list<Lane> lanes_;
  // Unfinished, by (sample, contender, draw).
  std::map<std::tuple<int64_t, int64_t, int64_t>, Cell> cells_;
};

}  // namespace kvgauge
