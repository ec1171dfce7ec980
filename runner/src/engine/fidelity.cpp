// SPDX-License-Identifier: Apache-2.0
// How far a compressed cache is from the full one, both on the full cache's own words.
#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "core/guarded.h"
#include "src/engine/engine_parts.h"

namespace kvgauge {
namespace {

// Keeps the attention outputs of the newest row of every layer that has a cache. Passes on to the
// contender's own hook.
class AttentionProbe final : public LayerHook {
 public:
  // `config` outlives this.
  AttentionProbe(Ops& ops, const ModelConfig& config, LayerHook* inner)
      : ops_(ops), config_(config), inner_(inner) {
    outputs_.resize(static_cast<size_t>(config.cache_count()));
    errors_.resize(outputs_.size());
  }

  bool wants_log_sum_exp() const override {
    return inner_ != nullptr && inner_->wants_log_sum_exp();
  }
  bool wants_residuals() const override { return inner_ != nullptr && inner_->wants_residuals(); }
  void LayerResidual(int64_t layer, const Tensor& x) override { inner_->LayerResidual(layer, x); }
  bool wants_inputs() const override { return inner_ != nullptr && inner_->wants_inputs(); }
  void LayerInput(int64_t layer, const Tensor& x) override { inner_->LayerInput(layer, x); }
  bool wants_guesses() const override { return inner_ != nullptr && inner_->wants_guesses(); }
  void LayerGuess(int64_t layer, const Tensor& q) override { inner_->LayerGuess(layer, q); }
  void BeforeAttend(int64_t layer, const Tensor& q) override {
    if (inner_ != nullptr) inner_->BeforeAttend(layer, q);
  }
  void AfterAttend(int64_t layer, const Tensor& q, const Tensor& log_sum_exp,
                   const Tensor& out) override {
    if (inner_ != nullptr) inner_->AfterAttend(layer, q, log_sum_exp, out);
    const int64_t size = out.shape[1] * out.shape[2];
    std::vector<float>& output = outputs_[static_cast<size_t>(layer)];
    output.resize(static_cast<size_t>(size));
    ops_.memory->Copy(out.Slice(out.shape[0] - 1, out.shape[0]),
                      View(output, {1, out.shape[1], out.shape[2]}));
  }

  // Once a pass, when every sequence has attended in every layer.
  void HoldAgainst(const AttentionProbe& full) {
    for (size_t layer = 0; layer < outputs_.size(); ++layer) {
      // The full cache's model may have one in more layers.
      const int64_t of_model = config_.LayerOf(static_cast<int64_t>(layer));
      const std::vector<float>& want =
          full.outputs_[static_cast<size_t>(full.config_.CacheOf(of_model))];
      double difference = 0, norm = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        difference += std::pow(double{outputs_[layer][i]} - want[i], 2);
        norm += std::pow(double{want[i]}, 2);
      }
      errors_[layer] += norm > 0 ? std::sqrt(difference / norm) : 0;
    }
  }

  // Whether layers showed what they attend to: those of two decoders do not.
  bool saw() const { return !outputs_.empty() && !outputs_[0].empty(); }
  std::vector<double> MeanErrors(int64_t steps) const {
    std::vector<double> mean = errors_;
    for (double& error : mean) error /= static_cast<double>(steps);
    return mean;
  }

 private:
  Ops& ops_;
  const ModelConfig& config_;
  LayerHook* inner_;
  std::vector<std::vector<float>> outputs_;  // [layers]
  std::vector<double> errors_;               // [layers] summed over steps
};

// Natural logs of the probabilities.
std::vector<double> LogSoftmax(std::span<const float> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - most);
  const double log_sum = most + std::log(sum);
  std::vector<double> logs(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) logs[i] = logits[i] - log_sum;
  return logs;
}

double KlDivergence(std::span<const double> log_p, std::span<const double> log_q) {
  double sum = 0;
  for (size_t i = 0; i < log_p.size(); ++i) sum += std::exp(log_p[i]) * (log_p[i] - log_q[i]);
  return std::max(sum, 0.0);
}

struct Follower {
  FidelityJob* job = nullptr;  // null: the full cache
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<Compressor> compressor;
  std::unique_ptr<AttentionProbe> probe;
  bool same_heads = true;     // its query heads are those of the full cache's model
  std::vector<float> logits;  // of the newest row
};

bool MovesHeads(const Method& method) {
  return method.prepare && MakePipeline(method).prepare->moves_heads();
}

class FidelityPass {
 public:
  FidelityPass(const FidelityLead& lead, const Snapshot& snapshot, int64_t valid_vocab)
      : lead_(lead),
        snapshot_(snapshot),
        valid_vocab_(valid_vocab > 0 ? valid_vocab : snapshot.model->config().vocab_size),
        prompt_(snapshot.prompt) {
    if (lead.prompt != nullptr) whole_ = *lead.prompt;
  }

  // Fails when the full cache finds no room.
  Status Run(const Prompt& asked, std::span<const int32_t> stop_ids, int64_t steps,
             std::span<FidelityJob> jobs);

 private:
  void Start(FidelityJob* job);
  Status StartChunked(Follower& follower);
  Model& ModelOf(const Follower& follower) const {
    return follower.job == nullptr ? *lead_.model : *snapshot_.model;
  }
  // Feeds what is new of their prompts to everybody; those without room drop out, the full cache
  // never. Leaves everybody's logits.
  Status Feed(bool probed);
  // The same for the followers from `first` on, at most `count`, which read one prompt.
  Status FeedThose(size_t first, size_t count, const Prompt& prompt, bool probed);
  // The prompts go on to `asked`, and the caches of the followers that read it.
  void GoOnTo(const Prompt& asked, Prompt& prompt, size_t first, size_t count) const;
  void Compare();
  int32_t Best(std::span<const float> logits) const {
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.begin() + valid_vocab_) -
                                logits.begin());
  }

  const FidelityLead lead_;
  const Snapshot& snapshot_;
  int64_t valid_vocab_;
  Prompt prompt_;
  std::optional<Prompt> whole_;      // the full cache's, where it is another
  std::vector<Follower> followers_;  // the full cache first
  int64_t compared_ = 0;
  int32_t next_ = 0;
};

void FidelityPass::Start(FidelityJob* job) {
  Follower follower;
  follower.job = job;
  follower.cache =
      std::make_unique<KvCache>(job == nullptr ? lead_.cache->Fork() : snapshot_.cache->Fork());
  Model& model = ModelOf(follower);
  if (job != nullptr) {
    follower.compressor =
        std::make_unique<Compressor>(model, *job->contender->method, job->contender->budget);
    PromptState state = snapshot_.state();
    state.prompt = &prompt_;
    job->status =
        snapshot_.compressor != nullptr
            ? StartChunked(follower)
            : follower.compressor->Compress(state, snapshot_.scores ? &*snapshot_.scores : nullptr,
                                            *follower.cache);
    if (!job->status.ok()) return;
  }
  LayerHook* inner = follower.compressor ? follower.compressor->hook() : nullptr;
  follower.probe = std::make_unique<AttentionProbe>(model.ops(), model.config(), inner);
  if (job != nullptr) follower.same_heads = !MovesHeads(*job->contender->method);
  followers_.push_back(std::move(follower));
}

// What was compressed chunk by chunk: its own fork, or where its stages hold state that cannot be
// copied, the same prompt read again.
Status FidelityPass::StartChunked(Follower& follower) {
  if (!follower.compressor->ContinueFrom(*snapshot_.compressor, *follower.cache)) {
    const Contender& contender = *follower.job->contender;
    *follower.cache = snapshot_.unread->Fork();
    ChunkPrefill again(*snapshot_.model, *contender.method, snapshot_.prompt, snapshot_.seed,
                       snapshot_.chunk_tokens, *follower.compressor, *follower.cache);
    while (!again.done()) {
      const Result<Tensor> read = again.Next();
      if (!read.ok()) return read.error();
    }
  }
  follower.compressor->ReadFrom(prompt_);
  return {};
}

Status FidelityPass::Feed(bool probed) {
  if (!whole_) return FeedThose(0, followers_.size(), prompt_, probed);
  KVG_TRY(FeedThose(0, 1, *whole_, probed));
  return FeedThose(1, followers_.size() - 1, prompt_, probed);
}

Status FidelityPass::FeedThose(size_t first, size_t count, const Prompt& prompt, bool probed) {
  while (count > 0 && followers_[first].cache->tokens() < prompt.size()) {
    const int64_t begin = followers_[first].cache->tokens();
    int64_t most = Model::kChunkRows;
    for (const Follower& follower : std::span(followers_).subspan(first, count)) {
      if (follower.compressor == nullptr) continue;
      most = std::min(most, follower.compressor->most_question_rows());
    }
    const int64_t end = PassEnd(ModelOf(followers_[first]).config(), prompt, begin, most);
    for (size_t i = first; i < first + count;) {
      Follower& follower = followers_[i];
      Status room = follower.cache->Append(end - begin);
      if (room.ok()) {
        ++i;
        continue;
      }
      if (follower.job == nullptr) return room;
      follower.job->status = room;
      followers_.erase(followers_.begin() + static_cast<std::ptrdiff_t>(i));
      --count;
    }
    // Models of one pass are one or two.
    for (size_t at = first; at < first + count;) {
      Model& model = ModelOf(followers_[at]);
      std::vector<SequenceStep> steps;
      size_t last = at;
      for (; last < first + count && &ModelOf(followers_[last]) == &model; ++last) {
        const Follower& follower = followers_[last];
        steps.push_back({.cache = follower.cache.get(),
                         .prompt = &prompt,
                         .begin = begin,
                         .end = end,
                         .logits = end == prompt.size() ? LogitRows::kLast : LogitRows::kNone,
                         .hook = probed ? static_cast<LayerHook*>(follower.probe.get())
                                 : follower.compressor != nullptr
                                     ? follower.compressor->question_hook()
                                     : nullptr});
      }
      const Tensor logits = model.Forward(steps);
      for (size_t i = at; i < last && end == prompt.size(); ++i) {
        followers_[i].logits = HostRow(model.ops(), logits, static_cast<int64_t>(i - at));
        followers_[i].logits.resize(static_cast<size_t>(valid_vocab_));
      }
      at = last;
    }
    for (Follower& follower : std::span(followers_).subspan(first, count)) {
      if (follower.compressor == nullptr) continue;
      if (probed && follower.same_heads) follower.probe->HoldAgainst(*followers_[0].probe);
      const Status after =
          probed ? follower.compressor->AfterStep() : follower.compressor->AfterRows();
      if (!after.ok()) follower.job->status = after;
    }
  }
  return {};
}

void FidelityPass::GoOnTo(const Prompt& asked, Prompt& prompt, size_t first, size_t count) const {
  if (asked.spans.size() > prompt.spans.size()) {
    const std::shared_ptr<const RopePlaces> places = RopePlaces::Of(asked);
    for (const Follower& follower : std::span(followers_).subspan(first, count)) {
      follower.cache->PlaceRope(places);
    }
  }
  prompt = asked;
}

void FidelityPass::Compare() {
  ++compared_;
  const std::vector<double> full = LogSoftmax(followers_[0].logits);
  next_ = Best(followers_[0].logits);
  for (Follower& follower : followers_) {
    if (follower.job == nullptr) continue;
    Fidelity& result = follower.job->result;
    result.kl_divergence += KlDivergence(full, LogSoftmax(follower.logits));
    result.top1_agreement += Best(follower.logits) == next_;
  }
  std::erase_if(followers_, [](const Follower& f) { return f.job && !f.job->status.ok(); });
}

Status FidelityPass::Run(const Prompt& asked, std::span<const int32_t> stop_ids, int64_t steps,
                         std::span<FidelityJob> jobs) {
  Start(nullptr);
  for (FidelityJob& job : jobs) Start(&job);
  int64_t probed_steps = 0;
  if (asked.size() == prompt_.size()) {
    next_ = Best(lead_.logits);
  } else {
    if (whole_) GoOnTo(*lead_.asked, *whole_, 0, 1);
    const size_t first = whole_ ? 1 : 0;
    GoOnTo(asked, prompt_, first, followers_.size() - first);
    KVG_TRY(Feed(false));
    Compare();
  }
  while (compared_ < steps &&
         std::find(stop_ids.begin(), stop_ids.end(), next_) == stop_ids.end()) {
    prompt_.AppendText(next_);
    if (whole_) whole_->AppendText(next_);
    KVG_TRY(Feed(true));
    ++probed_steps;
    Compare();
  }
  for (const Follower& follower : followers_) {
    if (follower.job == nullptr) continue;
    if (follower.compressor != nullptr) {
      follower.job->status = follower.compressor->CheckSteps();
      if (!follower.job->status.ok()) continue;
    }
    Fidelity& result = follower.job->result;
    result.steps = compared_;
    const double count = static_cast<double>(std::max<int64_t>(compared_, 1));
    result.kl_divergence /= count;
    result.top1_agreement = compared_ > 0 ? result.top1_agreement / count : 1.0;
    if (probed_steps > 0 && follower.same_heads && follower.probe->saw()) {
      result.attention_error = follower.probe->MeanErrors(probed_steps);
    }
  }
  return {};
}

}  // namespace

void MeasureFidelity(const FidelityLead& lead, const Snapshot& snapshot, const Prompt& asked,
                     std::span<const int32_t> stop_ids, int64_t steps, int64_t valid_vocab,
                     std::span<FidelityJob> jobs) {
  const Status done = Guarded(
      [&] { return FidelityPass(lead, snapshot, valid_vocab).Run(asked, stop_ids, steps, jobs); });
  for (FidelityJob& job : jobs) {
    if (job.status.ok() && !done.ok()) job.status = done;
  }
}

}  // namespace kvgauge
