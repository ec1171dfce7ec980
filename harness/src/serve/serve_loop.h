// SPDX-License-Identifier: Apache-2.0
// Continuous batching of a trace of requests within a memory cap.
//
// Before every pass over the weights the loop chooses who takes part: sequences that decode, and
// rows of at most one prompt. It admits by planned bytes and never plans more than the cap. What a
// pass does is a ServeWorker's: one runs a model (serve_model.h), another only counts
// (serve_estimate.h), so that a trace of 100,000 requests is planned in seconds.
//
// Time is the worker's; where nobody is there to be served, the clock jumps to the next arrival.
// Answers have the length that the trace gives them: stop tokens do not end them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "core/result.h"
#include "src/serve/prefix_tree.h"
#include "src/serve/serve_policy.h"
#include "src/serve/trace.h"

namespace kvgauge {

// What one sequence is planned to hold, all in bytes.
struct ServeBytes {
  std::function<int64_t(int64_t prompt)> prefill;              // while its prompt is read
  std::function<int64_t(int64_t prompt, int64_t total)> held;  // afterwards
  std::function<int64_t(int64_t tokens)> full;                 // entries as they are made
  // What of `held` stays where a cache moves to the host: what a reader knows of it. None: nothing.
  std::function<int64_t(int64_t prompt, int64_t total)> left = {};
  // Entries stay as they are made, in the memory where they were: nothing is copied after a prompt,
  // and what a prefix shares is not held again.
  bool unchanged = false;

  // While `rows` are read, its prompt's or a replay's, by what holds so much afterwards.
  int64_t Reading(int64_t rows, int64_t held_bytes) const;
};

// Tokens that a sequence has room for when so many are there: all where none is preempted.
int64_t CoveredTokens(const ServePolicy& policy, int64_t tokens, int64_t total);

struct ServeLimits {
  int64_t cache_bytes = 0;  // for all sequences, prefixes included; 0: no limit
  int64_t max_batch = 64;   // sequences of a pass
  int64_t max_tokens = 0;   // of a prompt and its answer; 0: no limit
  // The same, for which passes have working memory beside the caches, and the bytes of it that a
  // sequence of some length needs. 0: no limit.
  int64_t pass_tokens = 0;
  std::function<int64_t(int64_t tokens)> working = {};
  int64_t host_bytes = 0;  // of kept and of moved caches; 0: no limit
  // The most of a prompt that may come from a shared prefix: all but what must be read for scores.
  // Negative: nothing may.
  int64_t unshared_tokens = 1;
};

// One sequence's part of a pass.
struct ServeStep {
  int64_t request = 0;
  int64_t rows = 1;      // of its prompt; a decode step is one row
  bool prefill = false;  // rows of the prompt
  bool last = false;     // of them: the first token is chosen
  bool chooses = true;   // a decode step that is no replay
};

class ServeWorker {
 public:
  using Payload = PrefixTree::Payload;

  virtual ~ServeWorker() = default;
  virtual double now_s() = 0;
  // A new sequence, which begins with the first `tokens` of a payload, or of what Keep kept
  // (`kept`), or with nothing. Its prompt is `runs`; a replay has tokens of the answer behind it.
  virtual Status Start(int64_t request, std::span<const TokenRun> runs, const Payload& payload,
                       int64_t tokens, bool kept) = 0;
  // Errors of single sequences are theirs alone: [steps].
  virtual std::vector<Status> Pass(std::span<const ServeStep> steps) = 0;
  // The cache of a prompt as it was read, before it was compressed; null: there is none. Once.
  virtual Payload TakePrompt(int64_t request) = 0;
  // The same of a whole sequence that ends, all tokens but the last.
  virtual Payload TakeWhole(int64_t request) = 0;
  virtual Result<Payload> Cut(const Payload& payload, int64_t tokens) = 0;
  // The cache is gone; the answer stays and will be replayed.
  virtual void Drop(int64_t request) = 0;
  // To the host and back; Save gives the bytes there.
  virtual Result<int64_t> Save(int64_t request) = 0;
  virtual Status Restore(int64_t request) = 0;
  // It ended, well or not. `keep`: its cache waits for the next turn of its conversation; gives the
  // bytes on the host.
  virtual Result<int64_t> Finish(int64_t request, bool keep) = 0;
  // What was kept goes to disk, or is given up.
  virtual Status MoveKeptToDisk(int64_t request) = 0;
  virtual void DropKept(int64_t request) = 0;
};

struct ServedRequest {
  std::string failure = {};                       // "": nothing kept it from being served
  bool served = false;                            // to the last token
  double arrived_s = 0, first_s = 0, last_s = 0;  // a turn arrives after the turn before has ended
  int64_t prompt_tokens = 0;                      // history included
  int64_t answer_tokens = 0;
  int64_t shared_tokens = 0;  // of its prompt, that were not read again
  int64_t preemptions = 0;
};

struct ServeOutcome {
  std::vector<ServedRequest> requests;  // [requests of the trace]
  double seconds = 0;                   // from the first arrival to the last token
  double served_s = 0;                  // of them with somebody to serve
  double busy_s = 0;                    // of these in passes
  int64_t passes = 0;
  int64_t most_held = 0;           // sequences with a cache at once
  int64_t most_decoding = 0;       // sequences of a pass
  int64_t planned_peak_bytes = 0;  // the most that was planned at once
  int64_t host_peak_bytes = 0;     // moved or kept caches
  int64_t prompt_rows = 0;         // that were read, those read again included
  int64_t replayed_tokens = 0;     // of answers, after a cache was dropped
};

// The most that a request needs at once where nothing is shared: what the loop admits one by.
int64_t NeedAlone(const ServeBytes& bytes, const ServePolicy& policy, int64_t prompt,
                  int64_t total);

// What is one request's own, of its prompt and of its answer.
TokenRun OwnRun(int64_t r, int64_t tokens);
TokenRun AnswerRun(int64_t r, int64_t tokens);
// Whether a run is the answer of a request, and of which.
bool IsAnswerContent(uint64_t content, int64_t* request);

class ServeLoop {
 public:
  // All outlive it.
  ServeLoop(const Trace& trace, const ServePolicy& policy, const ServeLimits& limits,
            const ServeBytes& bytes, ServeWorker& worker);

  // Serves all requests. What cannot be served is that request's result; an error is one of the
  // worker's that no request is to blame for. `cancelled`: asked before every pass.
  Result<ServeOutcome> Run(const std::function<bool()>& cancelled = {});

 private:
  enum class State { kToCome, kWaiting, kLive, kSaved, kEnded };
  using Key = std::tuple<int64_t, int64_t, int64_t>;  // the least is served first

  struct Sequence {
    State state = State::kToCome;
    std::vector<TokenRun> runs;
    int64_t prompt = 0;     // tokens
    int64_t target = 0;     // rows to read before decoding: the prompt, and a replay
    int64_t read = 0;       // of them
    int64_t generated = 0;  // tokens of the answer
    int64_t fed = 0;        // of them, whose entries are held
    int64_t reserved = 0;   // bytes
    int64_t covers = 0;     // tokens that they last for
    int64_t host = 0;       // bytes there
    int64_t stays = 0;      // tokens of the answer before which queues do not drop it
    PrefixTree::Node* pinned = nullptr;
    int64_t credited = 0;  // tokens in whole pages that the tree holds for it
    bool chosen = false;   // for this pass
    bool reading() const { return read < target; }
    int64_t queue = 0, served = 0, since = 0, last_pass = 0;
    Key key = {};
  };
  struct Kept {
    int64_t request = 0;  // whose cache it was
    int64_t bytes = 0;    // on the host; 0: on disk
    int64_t used = 0;
  };

  const TraceRequest& RequestOf(int64_t r) const { return trace_.requests[static_cast<size_t>(r)]; }
  Sequence& Of(int64_t r) { return sequences_[static_cast<size_t>(r)]; }
  ServedRequest& ResultOf(int64_t r) { return outcome_.requests[static_cast<size_t>(r)]; }

  void Arrive();
  void Enter(int64_t r, double at_s);
  void Fail(int64_t r, const std::string& why);
  void End(int64_t r);
  void NextTurn(int64_t conversation);
  void TakeTurns();
  void DropKept(int64_t conversation);
  void ForgetKept(std::map<int64_t, Kept>::iterator kept);
  Key KeyOf(int64_t r, bool live);
  void Place(int64_t r, State state);
  void LeaveSets(int64_t r);

  // The bytes that a sequence needs for its next rows, and the tokens that these last for.
  int64_t NeedOf(const Sequence& s, int64_t r, int64_t covers) const;
  int64_t CoverOf(const Sequence& s, int64_t r) const;
  bool Reserve(int64_t r, int64_t bytes, int64_t covers);
  bool MakeRoom(int64_t extra);
  bool MayGo(int64_t r) const;
  bool HostHasRoom(const Sequence& s) const;
  bool ReserveOver(int64_t r, int64_t bytes, int64_t covers);
  void Release(int64_t r, int64_t bytes);
  bool DropSaved(int64_t r);
  Status Preempt(int64_t r);
  Status Admit(int64_t r, bool* admitted);
  Result<std::vector<ServeStep>> Choose();
  Status After(std::span<const ServeStep> steps, std::vector<Status> results);
  Status AfterPrompt(int64_t r);
  Status SharePrompt(int64_t r, int64_t tokens, const PrefixTree::Payload& payload);
  Status Finish(int64_t r);
  Status FitKept();
  void Unpin(int64_t r);
  void CountServed(int64_t r, const ServeStep& step);
  void LiftStarved();
  void CountHost(int64_t bytes) {
    host_used_ += bytes;
    outcome_.host_peak_bytes = std::max(outcome_.host_peak_bytes, host_used_);
  }
  void CountPlanned();

  const Trace& trace_;
  const ServePolicy policy_;
  const ServeLimits limits_;
  const ServeBytes& bytes_;
  ServeWorker& worker_;
  PrefixTree tree_;
  ServeOutcome outcome_;
  std::vector<Sequence> sequences_;
  std::set<std::pair<Key, int64_t>> waiting_, live_, saved_;
  size_t next_ = 0;  // of the trace
  int64_t ended_ = 0;
  int64_t reserved_ = 0;  // of all live sequences, and what saved ones left behind
  int64_t host_used_ = 0;
  double idle_s_ = 0;
  int64_t stamp_ = 0;
  int64_t changes_ = 0;  // sequences that had to go
  Status broken_;
  std::map<int64_t, std::deque<int64_t>> turns_;  // of each conversation, those that wait
  std::map<int64_t, int64_t> turns_left_;         // of it, in the whole trace
  std::map<int64_t, int64_t> turn_now_;           // the turn that is being served
  std::map<int64_t, int64_t> turn_before_;        // the one before it, which ended
  std::vector<int64_t> turn_ended_;               // conversations whose next turn may begin
  bool takes_turns_ = false;
  std::map<int64_t, Kept> kept_;             // by conversation
  std::map<int64_t, int64_t> kept_on_host_;  // conversations, by last use
};

}  // namespace kvgauge
