// SPDX-License-Identifier: Apache-2.0
// What a saved cache has of its method, and how a compressor goes on with that.
//
// What the entries and the method's parameters tell is made anew. The record of a sequence is not
// saved: it is that of the process that compressed the prompt.
#include "core/guarded.h"
#include "core/strings.h"
#include "methods/state_fields.h"
#include "src/compress/compressor_impl.h"

namespace kvgauge {

bool ActsInDecode(const Method& method) {
  const Pipeline stages = MakePipeline(method);
  return stages.read != nullptr || stages.store->classifies() ||
         (stages.trigger != nullptr && stages.trigger->in_decode());
}

Status Compressor::Impl::FieldsOfLayer(StateFields& fields, int64_t layer) {
  const auto at = static_cast<size_t>(layer);
  const int64_t heads = cache_->kv_heads(layer), tokens = cache_->tokens();
  if (pipeline_.allocate != nullptr) {
    KVG_TRY(fields.Numbers("entries that heads may hold", heads, 0, tokens, &allocated_[at]));
  }
  for (const auto* states : {&reduce_states_, &step_states_}) {
    if (at >= states->size() || (*states)[at] == nullptr) continue;
    KVG_TRY((*states)[at]->Fields(fields, heads, tokens));
  }
  KVG_TRY(step_.LastFields(fields, layer));
  return reads_.Fields(Source(), layer, fields);
}

Status Compressor::Impl::Fields(StateFields& fields) {
  const int64_t tokens = cache_->tokens();
  int64_t prompt_tokens = recorder_.prompt_tokens(), steps = recorder_.steps();
  KVG_TRY(fields.Word("seed", &seed_));
  KVG_TRY(fields.Number("tokens of the prompt", 1, tokens, &prompt_tokens));
  KVG_TRY(fields.Number("decode steps", 0, tokens - prompt_tokens, &steps));
  if (fields.reads()) {
    KVG_TRY(CheckMethod(method_, model_.checkpoint_shape(), budget_, prompt_tokens));
  }
  const int64_t grown =
      GrowthOf(method_, model_.checkpoint_shape(), budget_, prompt_tokens, tokens);
  KVG_TRY(fields.Number("growth of the allocation", 0, grown, &allocated_growth_));
  if (fields.reads()) {
    recorder_.GoOn(prompt_tokens, steps);
    allocated_.resize(static_cast<size_t>(shape_.layers));
    BeginReads(nullptr);
  }
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    const Status status = FieldsOfLayer(fields, layer);
    if (!status.ok()) return status.error().Wrap(StrCat("layer ", layer));
  }
  return {};
}

Status Compressor::Impl::SaveState(std::string& out) {
  return Guarded([&]() -> Status {
    StateFields fields(&out);
    return Fields(fields);
  });
}

Status Compressor::Impl::CheckGoesOn() const {
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    const int64_t kept = cache_->kept_scores(layer);
    const int64_t right = ages() ? pipeline_.StepScore().numbers() : 0;
    if (kept != right) {
      return BadInput(StrCat("layer ", layer, " has ", kept, " scores of each entry; expected ",
                             right, " of score.", method_.score ? method_.score->spec->id : ""));
    }
    if (pipeline_.store->classifies() != cache_->reorders(layer)) {
      return BadInput(StrCat("layer ", layer, " has ",
                             cache_->reorders(layer) ? "entries in classes" : "no classes",
                             "; store.", method_.store->spec->id, " has it otherwise"));
    }
  }
  return {};
}

Status Compressor::Impl::GoOn(const Prompt& prompt, std::string_view state, KvCache& cache) {
  cache_ = &cache;
  prompt_ = &prompt;
  stored_ = true;
  const Status done = Guarded([&]() -> Status {
    StateFields fields(&state);
    KVG_TRY(Fields(fields));
    if (!state.empty()) {
      return BadInput(
          StrCat("state of the method: ", state.size(), " bytes behind its end; expected none"));
    }
    KVG_TRY(CheckGoesOn());
    head_budget_ =
        HeadBudgetFor(method_, model_.checkpoint_shape(), budget_, recorder_.prompt_tokens());
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      KVG_ASSIGN(const StorePlan plan, pipeline_.store->Plan(shape_.OfLayer(layer), layer));
      if (!plan.IsPlain()) recorder_.AddStore(plan);
    }
    KVG_TRY(KeepForReads());
    return Place(During::kPrompt);
  });
  if (!done.ok()) return done.error().Wrap(method_.id);
  return {};
}

Status Compressor::SaveState(std::string& out) { return impl_->SaveState(out); }
Status Compressor::GoOn(const Prompt& prompt, std::string_view state, KvCache& cache) {
  return impl_->GoOn(prompt, state, cache);
}

}  // namespace kvgauge
