// SPDX-License-Identifier: Apache-2.0
#include "runner/speculate.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "core/check.h"
#include "core/clock.h"
#include "core/guarded.h"
#include "core/strings.h"

namespace kvgauge {
int64_t SpeculationResult::drafted() const {
  return std::accumulate(drafted_at.begin(), drafted_at.end(), int64_t{0});
}
int64_t SpeculationResult::accepted() const {
  return std::accumulate(accepted_at.begin(), accepted_at.end(), int64_t{0});
}
double SpeculationResult::acceptance() const {
  const int64_t all = drafted();
  return all == 0 ? 0 : static_cast<double>(accepted()) / static_cast<double>(all);
}
double SpeculationResult::tokens_per_check() const {
  if (checks == 0) return 0;
  return static_cast<double>(std::ssize(tokens) - 1) / static_cast<double>(checks);
}

Status CheckDraft(const Method& draft, const ModelShape& shape, const Budget& budget,
                  int64_t prompt_tokens) {
  KVG_TRY(CheckMethod(draft, shape, budget, prompt_tokens));
  const auto refuse = [&](const char* why) {
    return Unsupported(StrCat(draft.id, ": cannot draft for the full cache: ", why));
  };
  if (shape.state_bytes > 0) {
    return refuse(
        "layers of this model keep a state of constant size, which cannot forget tokens "
        "that the full cache rejects");
  }
  if (shape.prompt_passes > 1) {
    return refuse(
        "a prompt goes through layers of this model several times, and several tokens that are "
        "checked at once would, too");
  }
  if (draft.prepare) return refuse("it changes the model, and the two have one");
  if (draft.see) return refuse("it shows the model less of pictures than the full cache reads");
  if (draft.attend || draft.thin || draft.reuse) {
    return refuse("it reads prompts in another way, and the two have one prefill");
  }
  if (KeepsModelLatents(draft, shape)) {
    return refuse("its entries are the model's latents, and the full cache's are keys and values");
  }
  return {};
}

// One answer.
class Speculation::Run {
 public:
  Run(Speculation& of, int64_t gamma)
      : of_(of),
        gamma_(gamma),
        judge_(of.judge_->Fork()),
        text_(of.prompt_),
        draft_text_(of.draft_prompt_) {
    result_.drafted_at.assign(static_cast<size_t>(gamma), 0);
    result_.accepted_at.assign(static_cast<size_t>(gamma), 0);
  }

  Status Begin() {
    result_.tokens = {of_.first_};
    Add(of_.first_);
    if (gamma_ == 0) return {};
    for (int64_t i = 0; i < gamma_; ++i) {
      DraftState& state = states_.emplace_back();
      state.compressor = std::make_unique<Compressor>(of_.draft_model_, of_.method_, of_.budget_);
    }
    states_[0].cache = std::make_unique<KvCache>(of_.draft_->Fork());
    if (states_[0].compressor->ContinueInTurns(*of_.compressor_, *states_[0].cache)) {
      states_[0].compressor->ReadFrom(draft_text_.prompt());
      return {};
    }
    return Unsupported(StrCat(of_.method_.id,
                              ": cannot draft: what its stages know of the prompt cannot be "
                              "copied, so nothing can be taken back"));
  }

  Status To(int64_t tokens) {
    while (std::ssize(result_.tokens) < tokens) {
      const int64_t left = tokens - std::ssize(result_.tokens);
      KVG_TRY(Round(std::min(gamma_, left - 1)));
    }
    return {};
  }

  SpeculationResult Take() {
    result_.judge_bytes = judge_.Bytes().resident();
    if (!states_.empty()) {
      result_.draft_bytes = states_[0].cache->Bytes().resident();
      result_.record = states_[0].compressor->Record();
    }
    return std::move(result_);
  }

 private:
  // The tokens of prompt and answer, drafted ones behind them.
  class Text {
   public:
    explicit Text(const Prompt& prompt) : prompt_(prompt) {}

    const Prompt& prompt() const { return prompt_; }
    int64_t size() const { return prompt_.size(); }
    int32_t At(int64_t place) const {
      return prompt_.positions[static_cast<size_t>(place)].token_id;
    }
    void Add(int32_t token) { prompt_.AppendText(token); }
    // Takes back the newest.
    void CutTo(int64_t size) {
      prompt_.next_rope_position -= static_cast<int32_t>(prompt_.size() - size);
      prompt_.positions.resize(static_cast<size_t>(size));
    }

   private:
    Prompt prompt_;
  };

  struct DraftState {
    std::unique_ptr<KvCache> cache;
    std::unique_ptr<Compressor> compressor;
  };

  void Add(int32_t token) {
    text_.Add(token);
    draft_text_.Add(token);
  }
  // Both texts end alike: what is cut of one is cut of the other.
  void CutTo(int64_t size) {
    draft_text_.CutTo(draft_text_.size() - (text_.size() - size));
    text_.CutTo(size);
  }

  // Feeds the next token of its text that a draft has not seen; gives the one that it would say.
  Result<int32_t> Step(DraftState& state) {
    const int64_t begin = state.cache->tokens();
    KVG_TRY(state.cache->Append(1));
    const SequenceStep step = {.cache = state.cache.get(),
                               .prompt = &draft_text_.prompt(),
                               .begin = begin,
                               .end = begin + 1,
                               .logits = LogitRows::kLast,
                               .hook = state.compressor->hook()};
    Model& model = of_.draft_model_;
    const int32_t best = model.BestTokens(model.Forward({&step, 1}), of_.valid_vocab_)[0];
    KVG_TRY(state.compressor->AfterStep());
    ++result_.draft_steps;
    return best;
  }

  // Drafts `count` tokens and puts them behind the text. State i has then seen i of them.
  Status Draft(int64_t count) {
    const double begin_s = NowSeconds();
    double forks_s = 0;
    for (int64_t i = 0; i < count; ++i) {
      DraftState& state = states_[static_cast<size_t>(i)];
      if (i > 0) {
        const double fork_s = NowSeconds();
        const DraftState& before = states_[static_cast<size_t>(i - 1)];
        state.cache = std::make_unique<KvCache>(before.cache->Fork());
        const bool continued = state.compressor->ContinueInTurns(*before.compressor, *state.cache);
        KVG_CHECK(continued, "the first of them went on from the prompt");
        state.compressor->ReadFrom(draft_text_.prompt());
        forks_s += NowSeconds() - fork_s;
      }
      int32_t best = -1;
      while (state.cache->tokens() < draft_text_.size()) {
        KVG_ASSIGN(best, Step(state));
      }
      Add(best);
    }
    result_.draft_s += NowSeconds() - begin_s - forks_s;
    result_.other_s += forks_s;
    return {};
  }

  Status Round(int64_t count) {
    const int64_t known = text_.size();  // the judge has not seen the last of them
    KVG_TRY(Draft(count));
    const double check_s = NowSeconds();
    KVG_TRY(judge_.Append(count + 1));
    const SequenceStep check = {.cache = &judge_,
                                .prompt = &text_.prompt(),
                                .begin = known - 1,
                                .end = known + count,
                                .logits = LogitRows::kAll};
    const std::vector<int32_t> said =
        of_.model_.BestTokens(of_.model_.Forward({&check, 1}), of_.valid_vocab_);
    const double end_s = NowSeconds();
    result_.check_s += end_s - check_s;
    ++result_.checks;
    int64_t accepted = 0;
    while (accepted < count && said[static_cast<size_t>(accepted)] == text_.At(known + accepted)) {
      ++accepted;
    }
    for (int64_t i = 0; i < count; ++i) {
      ++result_.drafted_at[static_cast<size_t>(i)];
      if (i < accepted) ++result_.accepted_at[static_cast<size_t>(i)];
    }
    CutTo(known + accepted);
    Add(said[static_cast<size_t>(accepted)]);
    result_.tokens.insert(result_.tokens.end(), said.begin(), said.begin() + accepted + 1);
    if (accepted < count) KVG_TRY(judge_.Truncate(known + accepted));
    if (count > 0) {
      // The draft that has seen what was accepted, less the last one where all were.
      std::swap(states_[0], states_[static_cast<size_t>(std::min(accepted, count - 1))]);
      for (size_t i = 1; i < states_.size(); ++i) states_[i].cache.reset();
    }
    result_.other_s += NowSeconds() - end_s;
    return {};
  }

  Speculation& of_;
  const int64_t gamma_;
  KvCache judge_;
  Text text_, draft_text_;          // the judge's and the draft's: prompts, and the same answer
  std::vector<DraftState> states_;  // [gamma]; the first is the draft, the others forks of a round
  SpeculationResult result_;
};

Speculation::Speculation(Model& model, const Method& draft, const Budget& budget, Prompt prompt,
                         int64_t most_tokens, uint64_t seed, int64_t valid_vocab, OtherDraft other)
    : model_(model),
      other_(std::move(other)),
      draft_model_(other_.model == nullptr ? model : *other_.model),
      method_(draft),
      budget_(budget),
      prompt_(std::move(prompt)),
      draft_prompt_(other_.prompt.size() > 0 ? other_.prompt : prompt_),
      most_tokens_(most_tokens),
      seed_(seed),
      valid_vocab_(valid_vocab),
      pools_(model.ops()) {}

Speculation::~Speculation() = default;

Result<int32_t> Speculation::ReadInto(Model& model, const Prompt& prompt, KvCache& cache,
                                      PrefillCapture& capture) const {
  int32_t first = -1;
  cache.EndBlockBehind(prompt.size());
  while (cache.tokens() < prompt.size()) {
    const int64_t begin = cache.tokens();
    const int64_t end = PassEnd(model.config(), prompt, begin, Model::kChunkRows);
    KVG_TRY(cache.Append(end - begin));
    const bool last = end == prompt.size();
    const SequenceStep step = {.cache = &cache,
                               .prompt = &prompt,
                               .begin = begin,
                               .end = end,
                               .logits = last ? LogitRows::kLast : LogitRows::kNone,
                               .hook = &capture};
    const Tensor logits = model.Forward({&step, 1});
    if (last) first = model.BestTokens(logits, valid_vocab_)[0];
  }
  model.ops().memory->Synchronize();
  if (!capture.status().ok()) return capture.status().error();
  return first;
}

Status Speculation::Read() {
  return Guarded([&]() -> Status {
    const double begin_s = NowSeconds();
    const bool apart = other_.apart();
    judge_ = std::make_unique<KvCache>(model_.NewCache(prompt_.size() + most_tokens_ + 1, pools_));
    const Needs needs = NeedsOf(method_.needs(), draft_prompt_);
    PrefillCapture capture(model_.cache_config(), *judge_, apart ? Needs() : needs, prompt_.size(),
                           &prompt_);
    KVG_ASSIGN(first_, ReadInto(model_, prompt_, *judge_, capture));
    prefill_s_ = NowSeconds() - begin_s;
    // Where the two are apart, the draft's own; otherwise that of the judge.
    std::optional<KvCache> own;
    std::optional<PrefillCapture> own_capture;
    int32_t next = first_;
    if (apart) {
      own.emplace(draft_model_.NewCache(draft_prompt_.size() + most_tokens_ + 1, pools_));
      own_capture.emplace(draft_model_.cache_config(), *own, needs, draft_prompt_.size(),
                          &draft_prompt_);
      KVG_ASSIGN(next, ReadInto(draft_model_, draft_prompt_, *own, *own_capture));
      draft_prefill_s_ = NowSeconds() - begin_s - prefill_s_;
    }
    PromptState state = {apart ? &*own : judge_.get(), apart ? &*own_capture : &capture, seed_,
                         &draft_prompt_, false};
    state.next = next;
    state.valid_vocab = valid_vocab_;
    std::optional<PromptScores> scores;
    const Method* method = &method_;
    if (ProbesPrompt(method_)) scores = PromptScores::Compute(draft_model_, state, {&method, 1});
    draft_ = std::make_unique<KvCache>(state.cache->Fork());
    compressor_ = std::make_unique<Compressor>(draft_model_, method_, budget_);
    KVG_TRY(compressor_->Compress(state, scores ? &*scores : nullptr, *draft_));
    model_.ops().memory->Synchronize();
    compress_s_ = NowSeconds() - begin_s - prefill_s_ - draft_prefill_s_;
    own.reset();
    for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
      held_bytes_ += pools_.of(tier).resident_bytes();
    }
    return {};
  });
}

Result<SpeculationResult> Speculation::Answer(int64_t gamma, int64_t tokens) {
  KVG_CHECK(judge_ != nullptr && first_ >= 0, "the prompt was read");
  KVG_CHECK(gamma >= 0 && tokens >= 1 && tokens <= most_tokens_, "as planned");
  std::optional<SpeculationResult> result;
  const Status done = Guarded([&]() -> Status {
    Run run(*this, gamma);
    KVG_TRY(run.Begin());
    KVG_TRY(run.To(tokens));
    result = run.Take();
    return {};
  });
  if (!done.ok()) return done.error();
  return *std::move(result);
}

}  // namespace kvgauge
