// SPDX-License-Identifier: Apache-2.0
#include "src/serve/serve_loop.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/strings.h"
#include "kernels/attention.h"

namespace kvgauge {
namespace {

// How far ahead of its newest token a sequence reserves that is admitted by what it holds.
constexpr int64_t kAheadTokens = kKvPageEntries;
constexpr int64_t kPassesBetweenLifts = 256;
constexpr int64_t kWholeRows = 512;  // of a pass where prompts are read whole

int64_t WholePagesIn(int64_t tokens) { return tokens / kKvPageEntries * kKvPageEntries; }

// Contents that are one request's own.
constexpr uint64_t kOwnContents = uint64_t{1} << 63;

int64_t StepsOfPrompt(int64_t rows) { return 1 + rows / kStepRows; }
int64_t TurnSteps(int64_t queue) { return kFirstTurnSteps << queue; }

}  // namespace

int64_t ServeBytes::Reading(int64_t rows, int64_t held_bytes) const {
  const int64_t read = prefill(rows);
  return unchanged ? std::max(read, held_bytes) : read + held_bytes;
}

int64_t CoveredTokens(const ServePolicy& policy, int64_t tokens, int64_t total) {
  return policy.preempt == ServePolicy::Preempt::kNone ? total
                                                       : std::min(total, tokens + kAheadTokens);
}

int64_t NeedAlone(const ServeBytes& bytes, const ServePolicy& policy, int64_t prompt,
                  int64_t total) {
  // With a replay of all but the last token, if it comes to that.
  const bool replays = bytes.unchanged && policy.preempt != ServePolicy::Preempt::kNone;
  return bytes.Reading(replays ? total : prompt, bytes.held(prompt, total));
}

TokenRun OwnRun(int64_t r, int64_t tokens) {
  return {kOwnContents + 2 * static_cast<uint64_t>(r), tokens};
}
TokenRun AnswerRun(int64_t r, int64_t tokens) {
  return {kOwnContents + 2 * static_cast<uint64_t>(r) + 1, tokens};
}

bool IsAnswerContent(uint64_t content, int64_t* request) {
  if (content < kOwnContents || content % 2 == 0) return false;
  *request = static_cast<int64_t>((content - kOwnContents) / 2);
  return true;
}

ServeLoop::ServeLoop(const Trace& trace, const ServePolicy& policy, const ServeLimits& limits,
                     const ServeBytes& bytes, ServeWorker& worker)
    : trace_(trace),
      policy_(policy),
      limits_(limits),
      bytes_(bytes),
      worker_(worker),
      tree_(bytes.full, [&worker](const PrefixTree::Payload& payload,
                                  int64_t tokens) { return worker.Cut(payload, tokens); }),
      sequences_(trace.requests.size()) {
  outcome_.requests.resize(trace.requests.size());
}

ServeLoop::Key ServeLoop::KeyOf(int64_t r, bool live) {
  Sequence& s = Of(r);
  switch (policy_.order) {
    case ServePolicy::Order::kArrival:
      return {0, s.since, r};
    case ServePolicy::Order::kShortest:
      return {live ? 0 : 1, s.prompt + RequestOf(r).answer_tokens, s.since};
    case ServePolicy::Order::kQueues:
      return {s.queue, s.since, r};
  }
  return {};
}

void ServeLoop::LeaveSets(int64_t r) {
  const std::pair<Key, int64_t> place = {Of(r).key, r};
  waiting_.erase(place);
  live_.erase(place);
  saved_.erase(place);
}

void ServeLoop::Place(int64_t r, State state) {
  LeaveSets(r);
  Sequence& s = Of(r);
  s.state = state;
  s.key = KeyOf(r, state == State::kLive);
  if (state == State::kWaiting) waiting_.insert({s.key, r});
  if (state == State::kLive) live_.insert({s.key, r});
  if (state == State::kSaved) saved_.insert({s.key, r});
  outcome_.most_held = std::max(outcome_.most_held, std::ssize(live_));
}

void ServeLoop::Arrive() {
  const double now_s = worker_.now_s() + idle_s_;
  while (next_ < trace_.requests.size() && trace_.requests[next_].at_s <= now_s) {
    const auto r = static_cast<int64_t>(next_++);
    const int64_t conversation = RequestOf(r).conversation;
    if (conversation < 0) {
      Enter(r, RequestOf(r).at_s);
      continue;
    }
    turns_[conversation].push_back(r);
    if (!turn_now_.contains(conversation)) NextTurn(conversation);
  }
}

// The next turn of a conversation that has arrived, if there is one.
void ServeLoop::NextTurn(int64_t conversation) {
  std::deque<int64_t>& turns = turns_[conversation];
  if (turns.empty()) return;
  const int64_t r = turns.front();
  turns.pop_front();
  turn_now_[conversation] = r;
  double at_s = RequestOf(r).at_s;
  const auto before = turn_before_.find(conversation);
  if (before != turn_before_.end()) at_s = std::max(at_s, ResultOf(before->second).last_s);
  Enter(r, at_s);
}

void ServeLoop::Enter(int64_t r, double at_s) {
  const TraceRequest& request = RequestOf(r);
  Sequence& s = Of(r);
  ServedRequest& result = ResultOf(r);
  s.since = ++stamp_;
  s.last_pass = outcome_.passes;
  const auto before =
      request.conversation >= 0 ? turn_before_.find(request.conversation) : turn_before_.end();
  if (before != turn_before_.end()) {
    const int64_t last = before->second;
    if (!ResultOf(last).failure.empty()) {
      return Fail(r, "an earlier turn of its conversation was not served");
    }
    s.runs = std::exchange(Of(last).runs, {});
    s.runs.push_back(AnswerRun(last, RequestOf(last).answer_tokens));
  }
  int64_t own = request.prompt_tokens;
  for (const TokenRun& run : request.prefix) {
    s.runs.push_back(run);
    own -= run.tokens;
  }
  if (own > 0) s.runs.push_back(OwnRun(r, own));
  for (const TokenRun& run : s.runs) s.prompt += run.tokens;
  result.arrived_s = at_s;
  result.prompt_tokens = s.prompt;
  result.answer_tokens = request.answer_tokens;
  const int64_t total = s.prompt + request.answer_tokens;
  if (limits_.max_tokens > 0 && total > limits_.max_tokens) {
    return Fail(
        r, StrCat("needs ", total, " tokens; the model has positions for ", limits_.max_tokens));
  }
  const int64_t need = NeedAlone(bytes_, policy_, s.prompt, total);
  if (limits_.pass_tokens > 0 && total > limits_.pass_tokens) {
    const int64_t left = limits_.cache_bytes + limits_.working(limits_.pass_tokens);
    return Fail(r, StrCat("needs ", HumanBytes(need), " for its cache and ",
                          HumanBytes(limits_.working(total)),
                          " of working memory; the memory leaves ", HumanBytes(left), " for both"));
  }
  if (limits_.cache_bytes > 0 && need > limits_.cache_bytes) {
    return Fail(r, StrCat("needs ", HumanBytes(need), " for its cache; the memory leaves ",
                          HumanBytes(limits_.cache_bytes)));
  }
  if (policy_.order == ServePolicy::Order::kQueues) {
    const int64_t first = StepsOfPrompt(s.prompt);
    while (s.queue + 1 < kServeQueues && TurnSteps(s.queue) < first) ++s.queue;
  }
  Place(r, State::kWaiting);
}

void ServeLoop::Unpin(int64_t r) {
  Sequence& s = Of(r);
  PrefixTree::Node* node = std::exchange(s.pinned, nullptr);
  s.credited = 0;
  tree_.Unpin(node);
  if (policy_.share == ServePolicy::Share::kChunks) tree_.RemoveUnused(node);
}

void ServeLoop::Release(int64_t r, int64_t bytes) {
  Sequence& s = Of(r);
  reserved_ -= s.reserved - bytes;
  s.reserved = bytes;
}

void ServeLoop::End(int64_t r) {
  LeaveSets(r);
  Of(r).state = State::kEnded;
  Release(r, 0);
  Unpin(r);
  ++ended_;
  const int64_t conversation = RequestOf(r).conversation;
  if (conversation < 0) {
    Of(r).runs = {};
    return;
  }
  --turns_left_[conversation];
  turn_before_[conversation] = r;
  turn_now_.erase(conversation);
  turn_ended_.push_back(conversation);
  TakeTurns();
}

// A turn that fails as it begins ends at once: one after the other, as there may be very many.
void ServeLoop::TakeTurns() {
  if (std::exchange(takes_turns_, true)) return;
  while (!turn_ended_.empty()) {
    const int64_t conversation = turn_ended_.back();
    turn_ended_.pop_back();
    NextTurn(conversation);
  }
  takes_turns_ = false;
}

void ServeLoop::DropKept(int64_t conversation) {
  const auto kept = kept_.find(conversation);
  if (kept == kept_.end()) return;
  worker_.DropKept(kept->second.request);
  ForgetKept(kept);
}

void ServeLoop::ForgetKept(std::map<int64_t, Kept>::iterator kept) {
  CountHost(-kept->second.bytes);
  kept_on_host_.erase(kept->second.used);
  kept_.erase(kept);
}

void ServeLoop::Fail(int64_t r, const std::string& why) {
  ServedRequest& result = ResultOf(r);
  result.failure = why;
  result.last_s = worker_.now_s() + idle_s_;
  CountHost(-std::exchange(Of(r).host, 0));
  // No turn of its conversation is served any more.
  DropKept(RequestOf(r).conversation);
  End(r);
}

int64_t ServeLoop::CoverOf(const Sequence& s, int64_t r) const {
  return CoveredTokens(policy_, s.prompt + std::max(s.generated, s.fed),
                       s.prompt + RequestOf(r).answer_tokens);
}

int64_t ServeLoop::NeedOf(const Sequence& s, int64_t /*r*/, int64_t covers) const {
  const int64_t held = bytes_.held(s.prompt, covers);
  const int64_t credit = s.credited > 0 ? bytes_.full(s.credited) : 0;
  if (!s.reading()) return std::max<int64_t>(held - (bytes_.unchanged ? credit : 0), 0);
  return std::max<int64_t>(bytes_.Reading(s.target, held) - credit, 0);
}

void ServeLoop::CountPlanned() {
  const int64_t planned = reserved_ + tree_.bytes();
  KVG_CHECK(limits_.cache_bytes == 0 || planned <= limits_.cache_bytes,
            "more was planned than may be held");
  outcome_.planned_peak_bytes = std::max(outcome_.planned_peak_bytes, planned);
}

bool ServeLoop::MakeRoom(int64_t extra) {
  if (limits_.cache_bytes == 0 || extra <= 0) return true;
  if (reserved_ + tree_.pinned_bytes() + extra > limits_.cache_bytes) return false;
  while (reserved_ + tree_.bytes() + extra > limits_.cache_bytes) {
    if (!tree_.EvictOne()) return false;
  }
  return true;
}

bool ServeLoop::Reserve(int64_t r, int64_t bytes, int64_t covers) {
  Sequence& s = Of(r);
  if (!MakeRoom(bytes - s.reserved)) return false;
  Release(r, bytes);
  s.covers = covers;
  CountPlanned();
  return true;
}

Status ServeLoop::Admit(int64_t r, bool* admitted) {
  Sequence& s = Of(r);
  const bool over = policy_.order == ServePolicy::Order::kQueues;
  *admitted = false;
  const auto reserve = [&] {
    const int64_t covers = CoverOf(s, r), need = NeedOf(s, r, covers);
    return over || live_.empty() ? ReserveOver(r, need, covers) : Reserve(r, need, covers);
  };
  if (s.state == State::kSaved) {
    if (!reserve()) return broken_;
    const Status restored = worker_.Restore(r);
    CountHost(-std::exchange(s.host, 0));
    *admitted = true;
    if (!restored.ok()) {
      Fail(r, restored.error().message);
      return {};
    }
    Place(r, State::kLive);
    return {};
  }
  s.target = s.prompt + (bytes_.unchanged ? std::max<int64_t>(s.generated - 1, 0) : 0);
  s.read = 0;
  const int64_t conversation = RequestOf(r).conversation;
  const auto kept = conversation >= 0 ? kept_.find(conversation) : kept_.end();
  int64_t known = 0;
  PrefixTree::Match match;
  if (kept != kept_.end() && s.generated == 0) {
    const int64_t last = kept->second.request;
    known = Of(last).prompt + RequestOf(last).answer_tokens - 1;
  } else if (policy_.share != ServePolicy::Share::kNone && limits_.unshared_tokens >= 0) {
    match = tree_.Find(s.runs, s.prompt - limits_.unshared_tokens);
    if (policy_.share == ServePolicy::Share::kChunks) match.tokens = WholePagesIn(match.tokens);
    if (match.tokens <= 0) match = {};
  }
  if (match.node != nullptr) {
    tree_.Pin(match.node);
    s.pinned = match.node;
    s.credited = WholePagesIn(match.tokens);
    known = match.tokens;
  }
  if (!reserve()) {
    if (match.node == nullptr || !broken_.ok()) return broken_;
    // A long node of which little is read may be what is in the way.
    Unpin(r);
    match = {};
    known = 0;
    if (!reserve()) return broken_;
  }
  const bool from_kept = kept != kept_.end() && known > 0 && match.node == nullptr;
  const PrefixTree::Payload payload =
      match.node != nullptr ? PrefixTree::PayloadOf(match.node) : PrefixTree::Payload();
  const Status started = worker_.Start(r, s.runs, payload, known, from_kept);
  if (from_kept) ForgetKept(kept);
  *admitted = true;
  if (!started.ok()) {
    Fail(r, started.error().message);
    return {};
  }
  s.read = known;
  s.stays = s.generated + kAheadTokens;
  if (s.generated == 0) ResultOf(r).shared_tokens = known;
  Place(r, State::kLive);
  return {};
}

// Who takes part in the next pass.
Result<std::vector<ServeStep>> ServeLoop::Choose() {
  std::vector<ServeStep> steps;
  std::vector<int64_t> chosen;
  bool reading = false, blocked = false;
  const bool queues = policy_.order == ServePolicy::Order::kQueues;
  auto live = live_.begin();
  while (std::ssize(steps) < limits_.max_batch) {
    while (live != live_.end() && Of(live->second).chosen) ++live;
    // The first of those that wait and may start now.
    auto ready = saved_.begin();
    bool has_ready = !blocked && ready != saved_.end();
    if (!blocked && !reading) {
      const auto waiting = waiting_.begin();
      if (waiting != waiting_.end() && (!has_ready || waiting->first < ready->first)) {
        ready = waiting;
        has_ready = true;
      }
    }
    const bool has_live = live != live_.end();
    if (!has_live && !has_ready) break;
    int64_t r = 0;
    if (has_ready && (!has_live || ready->first < live->first)) {
      r = ready->second;
      const std::pair<Key, int64_t> at = has_live ? *live : std::pair<Key, int64_t>();
      bool admitted = false;
      KVG_TRY(Admit(r, &admitted));
      // Those that made room are gone from the list.
      live = has_live ? live_.lower_bound(at) : live_.end();
      if (!admitted) {
        blocked = true;
        continue;
      }
      if (Of(r).state != State::kLive) continue;  // it failed
    } else {
      r = live->second;
      Sequence& s = Of(r);
      if (s.reading() && reading) {
        ++live;
        continue;
      }
      const std::pair<Key, int64_t> at = *live;
      if (!s.reading() && s.prompt + s.fed + 1 > s.covers) {
        const int64_t covers = CoverOf(s, r);
        const bool grown = ReserveOver(r, NeedOf(s, r, covers), covers);
        KVG_TRY(broken_);
        if (!grown) KVG_TRY(Preempt(r));
        live = live_.upper_bound(at);
        if (!grown) {
          blocked = !queues;
          continue;
        }
      } else {
        ++live;
      }
    }
    Sequence& s = Of(r);
    s.chosen = true;
    chosen.push_back(r);
    ServeStep step = {.request = r};
    if (s.reading()) {
      reading = true;
      step.prefill = true;
      step.rows =
          std::min(s.target - s.read, policy_.chunk_rows > 0 ? policy_.chunk_rows : kWholeRows);
      step.last = s.read + step.rows == s.target;
    } else {
      step.chooses = s.fed + 1 == s.generated;
    }
    steps.push_back(step);
  }
  for (const int64_t r : chosen) Of(r).chosen = false;
  if (reading && policy_.chunk_rows == 0) {
    std::erase_if(steps, [](const ServeStep& step) { return !step.prefill; });
  }
  return steps;
}

void ServeLoop::CountServed(int64_t r, const ServeStep& step) {
  Sequence& s = Of(r);
  s.last_pass = outcome_.passes;
  if (policy_.order != ServePolicy::Order::kQueues || s.state != State::kLive) return;
  // To make a cache again that had to go takes nothing of a turn.
  if (step.prefill ? s.generated > 0 : !step.chooses) return;
  s.served += step.prefill ? StepsOfPrompt(step.rows) : 1;
  if (step.prefill && !step.last) return;
  if (s.served < TurnSteps(s.queue) || s.queue + 1 == kServeQueues) return;
  LeaveSets(r);
  ++s.queue;
  s.served = 0;
  s.since = ++stamp_;
  Place(r, State::kLive);
}

void ServeLoop::LiftStarved() {
  std::vector<int64_t> starved;
  constexpr std::pair<Key, int64_t> kBelowFirst = {{1, 0, 0}, 0};
  for (const auto* set : {&waiting_, &live_, &saved_}) {
    for (auto at = set->lower_bound(kBelowFirst); at != set->end(); ++at) {
      if (Of(at->second).last_pass + kStarvedPasses < outcome_.passes) {
        starved.push_back(at->second);
      }
    }
  }
  for (const int64_t r : starved) {
    Sequence& s = Of(r);
    LeaveSets(r);
    s.queue = s.served = 0;
    s.last_pass = outcome_.passes;
    Place(r, s.state);
  }
}

// Puts a prompt, as it was read, where others find it.
Status ServeLoop::SharePrompt(int64_t r, int64_t tokens, const PrefixTree::Payload& payload) {
  Sequence& s = Of(r);
  // What is known already stays while room is made.
  const PrefixTree::Match known = tree_.Find(s.runs, tokens);
  tree_.Pin(known.node);
  // Pages that others read before this one began are not those of this one.
  const bool own = known.tokens > ResultOf(r).shared_tokens;
  Sequence after = s;
  after.credited = !bytes_.unchanged ? 0 : own ? s.credited : WholePagesIn(tokens);
  const int64_t need = NeedOf(after, r, s.covers);
  const int64_t more = tree_.MissingBytes(s.runs, tokens) + need - s.reserved;
  if (!MakeRoom(more)) {
    tree_.Unpin(known.node);
    return {};
  }
  Release(r, need);
  KVG_ASSIGN(PrefixTree::Node * node, tree_.Insert(s.runs, tokens, payload));
  if (bytes_.unchanged && !own) {
    tree_.Pin(node);
    tree_.Unpin(std::exchange(s.pinned, node));
    s.credited = after.credited;
  }
  tree_.Unpin(known.node);
  CountPlanned();
  return {};
}

Status ServeLoop::AfterPrompt(int64_t r) {
  Sequence& s = Of(r);
  ServedRequest& result = ResultOf(r);
  if (s.generated == 0) {
    s.generated = 1;
    result.first_s = result.last_s = worker_.now_s() + idle_s_;
  }
  s.fed = s.target - s.prompt;
  if (policy_.share != ServePolicy::Share::kNone && limits_.unshared_tokens >= 0) {
    PrefixTree::Payload payload = worker_.TakePrompt(r);
    const bool pages = policy_.share == ServePolicy::Share::kChunks;
    const int64_t tokens = pages ? WholePagesIn(s.prompt) : s.prompt;
    if (payload != nullptr && tokens > 0) {
      if (tokens < s.prompt) {
        KVG_ASSIGN(payload, worker_.Cut(payload, tokens));
      }
      KVG_TRY(SharePrompt(r, tokens, payload));
    }
  }
  if (!bytes_.unchanged) Unpin(r);
  KVG_CHECK(Reserve(r, NeedOf(s, r, s.covers), s.covers), "a cache that grew by compression");
  if (s.generated == RequestOf(r).answer_tokens) return Finish(r);
  return {};
}

Status ServeLoop::FitKept() {
  while (limits_.host_bytes > 0 && host_used_ > limits_.host_bytes && !kept_on_host_.empty()) {
    const int64_t conversation = kept_on_host_.begin()->second;
    if (policy_.keep != ServePolicy::Keep::kDisk) {
      DropKept(conversation);
      continue;
    }
    kept_on_host_.erase(kept_on_host_.begin());
    Kept& oldest = kept_.at(conversation);
    CountHost(-std::exchange(oldest.bytes, 0));
    KVG_TRY(worker_.MoveKeptToDisk(oldest.request));
  }
  return {};
}

Status ServeLoop::Finish(int64_t r) {
  Sequence& s = Of(r);
  const int64_t conversation = RequestOf(r).conversation;
  // The trace says whether another turn comes.
  const bool more = conversation >= 0 && turns_left_[conversation] > 1;
  if (bytes_.unchanged && policy_.share == ServePolicy::Share::kRadix) {
    const int64_t tokens = s.prompt + s.fed;
    std::vector<TokenRun> runs = s.runs;
    runs.push_back(AnswerRun(r, RequestOf(r).answer_tokens));
    Release(r, 0);
    const PrefixTree::Match known = tree_.Find(runs, tokens);
    tree_.Pin(known.node);
    if (MakeRoom(tree_.MissingBytes(runs, tokens))) {
      const PrefixTree::Payload payload = worker_.TakeWhole(r);
      if (payload != nullptr) {
        const Result<PrefixTree::Node*> node = tree_.Insert(runs, tokens, payload);
        if (!node.ok()) return node.error();
      }
      CountPlanned();
    }
    tree_.Unpin(known.node);
  }
  const bool keep = more && bytes_.unchanged && policy_.keep != ServePolicy::Keep::kNone;
  const Result<int64_t> host = worker_.Finish(r, keep);
  if (!host.ok()) {
    Fail(r, host.error().message);
    return {};
  }
  if (keep) {
    kept_[conversation] = {.request = r, .bytes = *host, .used = ++stamp_};
    kept_on_host_[stamp_] = conversation;
    CountHost(*host);
    KVG_TRY(FitKept());
  }
  ResultOf(r).served = true;
  End(r);
  return {};
}

Status ServeLoop::After(std::span<const ServeStep> steps, std::vector<Status> results) {
  const double now_s = worker_.now_s() + idle_s_;
  for (size_t i = 0; i < steps.size(); ++i) {
    const ServeStep& step = steps[i];
    Sequence& s = Of(step.request);
    if (!results[i].ok()) {
      const Result<int64_t> dropped = worker_.Finish(step.request, false);
      Fail(step.request, dropped.ok() ? results[i].error().message : dropped.error().message);
      continue;
    }
    CountServed(step.request, step);
    if (step.prefill) {
      s.read += step.rows;
      outcome_.prompt_rows += step.rows;
      if (step.last) KVG_TRY(AfterPrompt(step.request));
      continue;
    }
    ++s.fed;
    if (!step.chooses) {
      ++outcome_.replayed_tokens;
      continue;
    }
    ++s.generated;
    ResultOf(step.request).last_s = now_s;
    if (s.generated == RequestOf(step.request).answer_tokens) KVG_TRY(Finish(step.request));
  }
  return {};
}

Result<ServeOutcome> ServeLoop::Run(const std::function<bool()>& cancelled) {
  for (const TraceRequest& request : trace_.requests) {
    if (request.conversation >= 0) ++turns_left_[request.conversation];
  }
  const double begin_s = worker_.now_s();
  idle_s_ = (trace_.requests.empty() ? 0 : trace_.requests[0].at_s) - begin_s;
  const auto count = std::ssize(trace_.requests);
  while (ended_ < count) {
    if (cancelled && cancelled()) break;
    Arrive();
    const int64_t ended = ended_, changes = changes_;
    KVG_ASSIGN(const std::vector<ServeStep> steps, Choose());
    if (steps.empty()) {
      if (ended_ > ended || changes_ > changes) continue;
      if (next_ == trace_.requests.size()) {
        if (ended_ == count) break;
        return Unsupported("no request can go on, though memory is left");
      }
      idle_s_ += trace_.requests[next_].at_s - (worker_.now_s() + idle_s_);
      continue;
    }
    outcome_.most_decoding = std::max(outcome_.most_decoding, std::ssize(steps));
    const double pass_s = worker_.now_s();
    std::vector<Status> results = worker_.Pass(steps);
    ++outcome_.passes;
    outcome_.busy_s += worker_.now_s() - pass_s;
    KVG_TRY(After(steps, std::move(results)));
    if (policy_.order == ServePolicy::Order::kQueues &&
        outcome_.passes % kPassesBetweenLifts == 0) {
      LiftStarved();
    }
  }
  outcome_.served_s = worker_.now_s() - begin_s;
  double last_s = 0;
  for (const ServedRequest& request : outcome_.requests) last_s = std::max(last_s, request.last_s);
  outcome_.seconds = trace_.requests.empty() ? 0 : last_s - trace_.requests[0].at_s;
  return std::move(outcome_);
}

}  // namespace kvgauge
