// SPDX-License-Identifier: Apache-2.0
// Prefills: their beginning, their end, and what is measured against them.
#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "runner/reuse_texts.h"
#include "src/compress/probe_pass.h"
#include "src/engine/engine_run.h"

namespace kvgauge {

Status EngineRun::StartPrefill() {
  if (prefilling_ != nullptr || ready_ != nullptr || jobs_.empty()) return {};
  const Job job = jobs_.front();
  const bool begins = job.turn == 0 && job.group == groups_.data() && !job.again;
  if (begins && options_.begin && !options_.begin(job.sample)) {
    jobs_.clear();
    cells_.erase(cells_.lower_bound({job.sample, 0, 0}), cells_.end());
    return {};
  }
  jobs_.pop_front();
  const EngineSample& sample = samples_[static_cast<size_t>(job.sample)];
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->sample = job.sample;
  snapshot->turn = job.turn;
  snapshot->model = job.group->model;
  snapshot->seed = SampleSeed(options_.seed, sample.id);
  snapshot->prompt = PromptOf(snapshot->model->config(), sample, job.turn);
  KVG_TRY(AwaitPrefill(job, *snapshot));
  if (snapshot->waiting.empty()) return {};
  prefilling_ = std::move(snapshot);
  const Status begun = Guarded([&] { return BeginPrefill(job); });
  return begun.ok() ? begun : FailPrefill(std::move(prefilling_), begun);
}

// Contenders whose probes do not fit behind the prompt have that as their result, unread.
Status EngineRun::AwaitPrefill(const Job& job, Snapshot& snapshot) {
  for (const int64_t contender : job.group->contenders) {
    const Method& method = *contenders_[static_cast<size_t>(contender)].method;
    const Status fits = Guarded([&]() -> Status {
      return method.score ? CheckProbes(*snapshot.model, *method.score, snapshot.prompt) : Status();
    });
    if (fits.ok()) {
      snapshot.contenders.push_back(contender);
      continue;
    }
    for (const int64_t draw : job.draws) {
      CellOf(job.sample, {contender, draw}).result.status =
          fits.error().Wrap(NameOf(*method.score->spec)).Wrap(method.id);
      KVG_TRY(EndCell(job.sample, {contender, draw}));
    }
  }
  // The first draws of all contenders come first: every row has an answer soon.
  for (const int64_t draw : job.draws) {
    for (const int64_t contender : snapshot.contenders) {
      snapshot.waiting.push_back({contender, draw});
    }
  }
  return {};
}

Prompt EngineRun::PromptOf(const ModelConfig& config, const EngineSample& sample,
                           int64_t turn) const {
  Prompt prompt;
  AppendTokens(config, sample, sample.context, sample.context_spans, prompt);
  if (options_.compress_at == CompressAt::kContext) return prompt;
  const EngineTurn& asked = sample.turns[static_cast<size_t>(turn)];
  AppendTokens(config, sample, asked.ids, asked.spans, prompt);
  return prompt;
}

Prompt EngineRun::AskedOf(const ModelConfig& config, const EngineSample& sample,
                          Prompt prompt) const {
  if (options_.compress_at != CompressAt::kContext) return prompt;
  AppendTokens(config, sample, sample.turns[0].ids, sample.turns[0].spans, prompt);
  return prompt;
}

Status EngineRun::BeginPrefill(const Job& job) {
  Snapshot& s = *prefilling_;
  const Group& group = *job.group;
  const EngineSample& sample = samples_[static_cast<size_t>(job.sample)];
  int64_t planned = PlannedLength(sample, job.turn);
  if (group.reuse != nullptr) {
    planned +=
        LinkTokens(*group.reuse, s.prompt.size(), std::ssize(sample.context), sample.passages);
  }
  s.cache = std::make_unique<KvCache>(s.model->NewCache(planned, pools_, group.latents));
  s.cache->PlaceRope(RopePlaces::Of(s.prompt));
  s.cache->EndBlockBehind(std::ssize(sample.context) +
                          std::ssize(sample.turns[static_cast<size_t>(job.turn)].ids));
  s.partial =
      group.attend != nullptr || group.reuse != nullptr || group.thin != nullptr || group.chunks;
  if (group.chunks) {
    const Contender& contender = contenders_[static_cast<size_t>(group.contenders[0])];
    s.chunk_tokens = options_.chunk_tokens;
    s.unread = std::make_unique<KvCache>(s.cache->Fork());
    s.compressor = std::make_unique<Compressor>(*s.model, *contender.method, contender.budget);
    s.chunks = std::make_unique<ChunkPrefill>(*s.model, *contender.method, s.prompt, s.seed,
                                              s.chunk_tokens, *s.compressor, *s.cache);
    return {};
  }
  if (group.reuse != nullptr) {
    s.moved = true;
    s.reuse =
        std::make_unique<ReusePrefill>(*s.model, *group.reuse, s.prompt, std::ssize(sample.context),
                                       sample.passages, *s.cache, *group.store);
  }
  s.capture = std::make_unique<PrefillCapture>(
      s.model->cache_config(), *s.cache,
      NeedsOf(group.needs, s.prompt, s.model->cache_config().layer_count()), s.prompt.size(),
      &s.prompt);
  if (group.attend != nullptr) {
    s.sparse = std::make_unique<SparsePrefill>(*s.model, *group.attend, s.prompt, *s.cache,
                                               *s.capture, s.seed);
  }
  if (group.thin != nullptr) {
    // The last row of a prompt with its question gives the answer's first token.
    const int64_t asked = options_.compress_at == CompressAt::kContext ? 0 : 1;
    s.thin = std::make_unique<ThinPrefill>(
        *s.model, *group.thin, s.prompt, *s.cache, *s.capture, s.seed,
        std::min(std::ssize(sample.context), s.prompt.size() - asked), sample.passages);
    s.moved = s.thin->closes_up();
  }
  return {};
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): the prefill ends here
Status EngineRun::FailPrefill(std::shared_ptr<Snapshot> failed, const Status& status) {
  for (const Snapshot::Start& start : failed->waiting) {
    CellOf(failed->sample, start).result.status = status;
    KVG_TRY(EndCell(failed->sample, start));
  }
  return {};
}

// Before stops are held back in the row itself.
void EngineRun::KeepLogits(Snapshot& snapshot, const Tensor& logits, int64_t row) const {
  const EngineSample& sample = samples_[static_cast<size_t>(snapshot.sample)];
  const bool measured = options_.fidelity_steps > 0 && snapshot.turn == 0;
  if (measured || ReadsLogits(sample.turns[static_cast<size_t>(snapshot.turn)])) {
    snapshot.logits = HostRow(snapshot.model->ops(), logits, row);
  }
  HoldStops(snapshot.sample, snapshot.turn, 0, logits[row]);
  for (const int64_t contender : snapshot.contenders) {
    if (!DraftsAnswers(*contenders_[static_cast<size_t>(contender)].method)) continue;
    snapshot.valid_vocab = options_.valid_vocab;
    snapshot.draft_from =
        snapshot.model->BestTokens(logits.Slice(row, row + 1), options_.valid_vocab)[0];
    break;
  }
}

Status EngineRun::StepAlone(Model& model) {
  Snapshot& snapshot = *prefilling_;
  // Not of the prefill: compression, and texts that were read for the store.
  const auto beside_s = [&] {
    if (snapshot.reuse != nullptr) return snapshot.reuse->facts().made_s;
    return snapshot.compressor == nullptr ? 0 : snapshot.compressor->seconds().compressing();
  };
  const double start_s = NowSeconds(), before_s = beside_s();
  int32_t best = -1;
  bool done = false;
  const Status ran = Guarded([&]() -> Status {
    KVG_ASSIGN(const Tensor logits, snapshot.NextAlone(done));
    if (done) {
      KeepLogits(snapshot, logits, 0);
      if (options_.sampling.greedy()) best = model.BestTokens(logits, options_.valid_vocab)[0];
    }
    model.ops().memory->Synchronize();
    return {};
  });
  if (!ran.ok()) return FailPrefill(std::move(prefilling_), ran);
  snapshot.prefill_s += NowSeconds() - start_s - (beside_s() - before_s);
  if (!done) return {};
  if (snapshot.reuse != nullptr) snapshot.reused = snapshot.reuse->facts();
  snapshot.reuse.reset();
  snapshot.thin.reset();
  snapshot.sparse.reset();
  snapshot.chunks.reset();
  return FinishPrefill(best);
}

Status EngineRun::FinishPrefill(int32_t best) {
  ready_ = std::move(prefilling_);
  Snapshot& snapshot = *ready_;
  snapshot.best = best;
  std::vector<const Method*> methods;
  for (const int64_t contender : snapshot.contenders) {
    methods.push_back(contenders_[static_cast<size_t>(contender)].method);
  }
  // Where it was read in chunks, they are scored already.
  Status scored = snapshot.capture != nullptr ? snapshot.capture->status() : Status();
  if (scored.ok() && snapshot.capture != nullptr) {
    scored = Guarded([&]() -> Status {
      snapshot.scores = PromptScores::Compute(*snapshot.model, snapshot.state(), methods);
      return {};
    });
  }
  if (!scored.ok()) return FailPrefill(std::move(ready_), scored);
  if (options_.fidelity_steps > 0 && snapshot.turn == 0) MeasureSnapshot();
  HoldStops(snapshot.sample, snapshot.turn, 0,
            View(snapshot.logits, {std::ssize(snapshot.logits)}));
  const Status shared = Guarded([&]() -> Status {
    ShareChunks();
    return {};
  });
  return shared.ok() ? shared : FailPrefill(std::move(ready_), shared);
}

// Several draws behind a prompt that their contender read in chunks go on from forks. Where stages
// hold what cannot be copied, the first draw takes it, and the others have the prompt read anew.
void EngineRun::ShareChunks() {
  Snapshot& snapshot = *ready_;
  if (snapshot.compressor == nullptr || snapshot.waiting.size() == 1) return;
  const Contender& contender = contenders_[static_cast<size_t>(snapshot.contenders[0])];
  KvCache fork = snapshot.cache->Fork();
  snapshot.forked = Compressor(*contender.model, *contender.method, contender.budget)
                        .ContinueFrom(*snapshot.compressor, fork);
  if (snapshot.forked) return;
  const auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) {
    return g.chunks && g.contenders == snapshot.contenders;
  });
  Job rest = {snapshot.sample, snapshot.turn, &*group, {}, true};
  for (size_t i = 1; i < snapshot.waiting.size(); ++i) {
    rest.draws.push_back(snapshot.waiting[i].draw);
  }
  snapshot.waiting.resize(1);
  jobs_.push_front(std::move(rest));
}

// The snapshot's prompt, with what stages took out of its pictures, under the full cache of another
// model, or of this one where entries have left, outside the lockstep: only fidelity asks for it.
Status EngineRun::PrefillOriginal(Model& model, Original& original) {
  const Snapshot& snapshot = *ready_;
  const EngineSample& sample = samples_[static_cast<size_t>(snapshot.sample)];
  const EngineSample& whole = sample.whole != nullptr ? *sample.whole : sample;
  return Guarded([&]() -> Status {
    original.prompt = PromptOf(model.config(), whole, snapshot.turn);
    original.cache =
        std::make_unique<KvCache>(model.NewCache(PlannedLength(whole, snapshot.turn), pools_));
    return Prefill(model, original.prompt, *original.cache, Model::kChunkRows, false,
                   [&](const Tensor& rows) -> Status {
                     original.logits = HostRow(model.ops(), rows, rows.shape[0] - 1);
                     return {};
                   });
  });
}

void EngineRun::MeasureSnapshot() {
  std::vector<Model*> leads;
  for (const int64_t contender : ready_->contenders) {
    Model* lead = OriginalOf(contenders_[static_cast<size_t>(contender)]);
    if (std::find(leads.begin(), leads.end(), lead) == leads.end()) leads.push_back(lead);
  }
  const EngineSample& sample = samples_[static_cast<size_t>(ready_->sample)];
  for (Model* lead : leads) {
    if (lead == ready_->model && !ready_->partial && sample.whole == nullptr) {
      MeasureAgainst({lead, ready_->cache.get(), ready_->logits});
      continue;
    }
    Original original;
    // Without it the contenders have no fidelity, and the run goes on.
    if (!PrefillOriginal(*lead, original).ok()) continue;
    FidelityLead other = {lead, original.cache.get(), original.logits};
    if (sample.whole == nullptr && !ready_->moved) {
      MeasureAgainst(other);
      continue;
    }
    const EngineSample& whole = sample.whole != nullptr ? *sample.whole : sample;
    const Prompt asked = AskedOf(lead->config(), whole, original.prompt);
    other.prompt = &original.prompt;
    other.asked = &asked;
    MeasureAgainst(other);
  }
}

void EngineRun::MeasureAgainst(const FidelityLead& lead) {
  const Snapshot& snapshot = *ready_;
  const EngineSample& sample = samples_[static_cast<size_t>(snapshot.sample)];
  const EngineTurn& turn = sample.turns[0];
  const Prompt asked = AskedOf(lead.model->config(), sample, snapshot.prompt);
  std::vector<int64_t> followers;
  for (const int64_t contender : snapshot.contenders) {
    if (OriginalOf(contenders_[static_cast<size_t>(contender)]) == lead.model)
      followers.push_back(contender);
  }
  // The full cache rides with every batch.
  const auto batch = static_cast<size_t>(std::max<int64_t>(pool_lanes_ - 1, 1));
  for (size_t begin = 0; begin < followers.size(); begin += batch) {
    const size_t end = std::min(begin + batch, followers.size());
    std::vector<FidelityJob> jobs;
    for (size_t i = begin; i < end; ++i) {
      jobs.push_back({.contender = &contenders_[static_cast<size_t>(followers[i])]});
    }
    MeasureFidelity(lead, snapshot, asked, sample.stop_ids,
                    std::min(options_.fidelity_steps, turn.max_new_tokens), options_.valid_vocab,
                    jobs);
    for (size_t i = begin; i < end; ++i) {
      if (!jobs[i - begin].status.ok()) continue;
      for (const Snapshot::Start& start : snapshot.waiting) {
        if (start.contender != followers[i]) continue;
        CellOf(snapshot.sample, start).result.fidelity = jobs[i - begin].result;
      }
    }
  }
}

}  // namespace kvgauge
