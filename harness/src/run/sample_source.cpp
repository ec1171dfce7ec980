// SPDX-License-Identifier: Apache-2.0
#include "src/run/sample_source.h"

#include <utility>

#include "core/strings.h"
#include "src/model/tokenizer_codec.h"
#include "src/run/passages.h"
#include "src/run/sample_prompt.h"
#include "src/run/sample_visuals.h"
#include "src/run/text_windows.h"

namespace kvgauge {

Error OfTask(const RunPlan& plan, const Task& task, const Error& error) {
  const std::string name = StrCat("task ", Quoted(task.name));
  if (error.message.find(name) != std::string::npos) return error;
  return error.Wrap(StrCat(plan.config->path, ": ", name));
}

namespace {

class Prompts final : public SampleSource {
 public:
  Prompts(const RunPlan& plan, const PlanGroup& group)
      : plan_(plan),
        task_(plan.config->tasks[group.task].task),
        codec_(*plan.models[group.model].tokenizer),
        builder_(*plan.models[group.model].tokenizer, plan.models[group.model].chat,
                 &plan.models[group.model].config),
        eyes_(plan.models[group.model].spec->path, plan.models[group.model].config) {}

  Status Begin(const RunPlan& plan, const PlanGroup& group, const SampleChoice& choice) {
    KVG_ASSIGN(rules_.stop_ids, builder_.StopIds(task_, plan.models[group.model].config.eos_ids));
    const RunTask& entry = plan.config->tasks[group.task];
    rules_.max_new_tokens = entry.max_new_tokens;
    rules_.needs_context = group.compress_at == CompressAt::kContext;
    // Contenders of one prefill reuse alike.
    const PlanPrefill& prefill = plan.models[group.model].prefills[group.prefill];
    reuses_ = plan.config->contenders[prefill.contenders[0]].method.reuse.has_value();
    Result<std::unique_ptr<SampleStream>> opened = OpenSamples(plan, group, choice, codec_);
    if (!opened.ok()) return OfTask(plan_, task_, opened.error());
    stream_ = std::move(opened).value();
    return {};
  }

  Result<std::optional<Sample>> Next() override {
    Result<std::optional<Sample>> next = stream_->Next();
    if (!next.ok()) return OfTask(plan_, task_, next.error());
    return next;
  }
  int64_t skipped() const override { return stream_->skipped(); }
  Status Open(const Sample& sample) override { return eyes_.Open(sample); }
  Result<EngineSample> Build(const Sample& sample) override {
    shown_.clear();
    KVG_ASSIGN(shown_, eyes_.Look(sample));
    Result<EngineSample> built = builder_.Build(sample, task_, rules_, shown_);
    if (!built.ok() || !reuses_) return built;
    AnswerPlace passages;
    for (const int64_t at : FindPassages(sample.context)) passages.bytes.emplace_back(at, at + 1);
    KVG_ASSIGN(const auto ranges, builder_.TokensOf(sample, passages, *built, shown_));
    for (const auto& [begin, end] : ranges) built->passages.push_back(begin);
    return built;
  }
  std::span<const ShownVisual> shown() const override { return shown_; }
  const SampleEyes* eyes() const override { return &eyes_; }
  Result<SamplePlace> Place(const Sample& sample, const EngineSample& tokens) override {
    const AnswerPlace place = FindAnswer(sample);
    SamplePlace found;
    found.excerpt = ExcerptAround(sample, place);
    KVG_ASSIGN(found.tokens, builder_.TokensOf(sample, place, tokens, shown_));
    return found;
  }

 private:
  const RunPlan& plan_;
  const Task& task_;
  TokenizerCodec codec_;
  PromptBuilder builder_;
  PromptRules rules_;
  bool reuses_ = false;  // what was read of passages
  SampleEyes eyes_;
  std::vector<ShownVisual> shown_;  // of the sample that was built last
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

  Status Begin(const RunPlan& plan, const PlanGroup& group) {
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
    KVG_TRY(windows->Begin(plan, group));
    return std::unique_ptr<SampleSource>(std::move(windows));
  }
  auto prompts = std::make_unique<Prompts>(plan, group);
  KVG_TRY(prompts->Begin(plan, group, choice));
  return std::unique_ptr<SampleSource>(std::move(prompts));
}

}  // namespace kvgauge
