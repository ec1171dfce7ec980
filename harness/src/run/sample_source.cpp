// SPDX-License-Identifier: Apache-2.0
#include "src/run/sample_source.h"

#include "src/model/tokenizer_codec.h"
#include "src/run/sample_prompt.h"
#include "src/run/text_windows.h"

namespace kvgauge {
namespace {

class Prompts final : public SampleSource {
 public:
  Prompts(const RunPlan& plan, const PlanGroup& group)
      : task_(plan.config->tasks[group.task].task),
        codec_(*plan.models[group.model].tokenizer),
        builder_(*plan.models[group.model].tokenizer, plan.models[group.model].chat) {}

  Status Open(const RunPlan& plan, const PlanGroup& group, const SampleChoice& choice) {
    KVG_ASSIGN(rules_.stop_ids, builder_.StopIds(task_, plan.models[group.model].config.eos_ids));
    const RunTask& entry = plan.config->tasks[group.task];
    rules_.max_new_tokens = entry.max_new_tokens;
    KVG_ASSIGN(stream_, OpenSamples(plan, group, choice, codec_));
    return {};
  }

  Result<std::optional<Sample>> Next() override { return stream_->Next(); }
  int64_t skipped() const override { return stream_->skipped(); }
  Result<EngineSample> Build(const Sample& sample) override {
    return builder_.Build(sample, task_, rules_);
  }
  Result<SamplePlace> Place(const Sample& sample, const EngineSample& tokens) override {
    const AnswerPlace place = FindAnswer(sample);
    SamplePlace found;
    found.excerpt = ExcerptAround(sample, place);
    KVG_ASSIGN(found.tokens, builder_.TokensOf(sample, place, tokens.context));
    return found;
  }

 private:
  const Task& task_;
  TokenizerCodec codec_;
  PromptBuilder builder_;
  PromptRules rules_;
  std::unique_ptr<SampleStream> stream_;
};

class Windows final : public SampleSource {
 public:
  Windows(const RunPlan& plan, const PlanGroup& group, int64_t most)
      : tokenizer_(*plan.models[group.model].tokenizer),
        codec_(tokenizer_),
        protocol_(TextProtocol::From(plan.config->tasks[group.task].task.source_params)),
        compress_at_(group.compress_at),
        left_(most) {}

  Status Open(const RunPlan& plan, const PlanGroup& group) {
    KVG_ASSIGN(texts_, OpenSamples(plan, group, {}, codec_));
    windows_.emplace(*texts_, tokenizer_, protocol_);
    return {};
  }

  Result<std::optional<Sample>> Next() override {
    if (left_ == 0) return std::optional<Sample>();
    if (left_ > 0) --left_;
    return windows_->Next();
  }
  int64_t skipped() const override { return texts_->skipped(); }
  Result<EngineSample> Build(const Sample& sample) override {
    return FeedWindow(sample.id, windows_->tokens(), windows_->window().counted, compress_at_);
  }
  Result<SamplePlace> Place(const Sample& /*sample*/, const EngineSample& /*tokens*/) override {
    return SamplePlace();
  }

 private:
  const Tokenizer& tokenizer_;
  TokenizerCodec codec_;
  const TextProtocol protocol_;
  const CompressAt compress_at_;
  int64_t left_;  // -1: all
  std::unique_ptr<SampleStream> texts_;
  std::optional<WindowStream> windows_;
};

}  // namespace

Result<std::unique_ptr<SampleSource>> OpenSource(const RunPlan& plan, const PlanGroup& group,
                                                 const SampleChoice& choice) {
  const RunTask& entry = plan.config->tasks[group.task];
  if (entry.task.metric == kPerplexityMetric) {
    auto windows = std::make_unique<Windows>(plan, group, choice.Most(entry.samples));
    KVG_TRY(windows->Open(plan, group));
    return std::unique_ptr<SampleSource>(std::move(windows));
  }
  auto prompts = std::make_unique<Prompts>(plan, group);
  KVG_TRY(prompts->Open(plan, group, choice));
  return std::unique_ptr<SampleSource>(std::move(prompts));
}

}  // namespace kvgauge
