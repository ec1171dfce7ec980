// SPDX-License-Identifier: Apache-2.0
#include "cuda/device/graph_recorder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "cuda/device/switches.h"

namespace kvgauge::cuda {
namespace {

// Where so much is sent, the device is busy for long, and does well to begin while the host is
// still at its part.
constexpr int64_t kMostStagedBytes = int64_t{2} << 20;
// Recording costs more than submitting: work that changes all the time is left alone for a while.
constexpr int64_t kMostInARow = 4, kPause = 64;
constexpr int64_t kMostRefusals = 6;  // each doubles the pause after it

// Thrown in a comparison.
struct Changed {};

}  // namespace

Recorder* Recorder::open_ = nullptr;
Recorder* Recorder::counting_ = nullptr;

Recorder::~Recorder() {
  if (launched_ == nullptr) return;
  Wait(stream_);
  for (const Recording& recording : recordings_) {
    if (recording.graph != nullptr) DestroyGraph(recording.graph);
  }
  DestroyEvent(launched_);
  FreeHost(staging_);
  Free(staged_);
}

void Recorder::Run(const std::function<void()>& body) {
  KVG_CHECK(open_ == nullptr && counting_ == nullptr, "repeated work within repeated work");
  if (plain_left_ > 0 || SwitchedOff(kGraphsSwitch)) {
    plain_left_ = std::max<int64_t>(plain_left_ - 1, 0);
    return RunPlainly(body);
  }
  if (Reserve()) {
    Outcome outcome = Compare(body);
    const bool replays = outcome == Outcome::kDone;
    if (outcome == Outcome::kChanged) outcome = Try(Mode::kRecord, body);
    if (outcome == Outcome::kDone && Submit()) {
      refusals_ = 0;
      replays ? CountReplay() : CountRecording();
      return;
    }
  }
  FreeKept();
  plain_left_ = (int64_t{1} << refusals_) - 1;
  refusals_ = std::min(refusals_ + 1, kMostRefusals);
  RunPlainly(body);
}

void Recorder::CountReplay() {
  ++counts_.replayed;
  recorded_in_a_row_ = 0;
}

void Recorder::CountRecording() {
  ++counts_.recorded;
  if (++recorded_in_a_row_ < kMostInARow) return;
  recorded_in_a_row_ = 0;
  plain_left_ = kPause;
}

void Recorder::RunPlainly(const std::function<void()>& body) {
  struct Counting {
    explicit Counting(Recorder* recorder) { counting_ = recorder; }
    ~Counting() { counting_ = nullptr; }
  };
  sent_bytes_ = 0;
  const Counting counting(this);
  body();
  ++counts_.plain;
}

// With each graph. Where it is another one's turn, that is seen early.
Recorder::Outcome Recorder::Compare(const std::function<void()>& body) {
  for (size_t i = 0; i < recordings_.size(); ++i) {
    if (i > 0) std::swap(recordings_[0], recordings_[i]);
    if (recordings_[0].graph == nullptr) break;
    const Outcome outcome = Try(Mode::kCompare, body);
    if (outcome != Outcome::kChanged) return outcome;
  }
  return Outcome::kChanged;
}

// Nothing of what it calls is done yet when it returns.
Recorder::Outcome Recorder::Try(Mode mode, const std::function<void()>& body) {
  if (mode == Mode::kRecord) {
    recordings_[0].log.clear();
    if (!BeginCapture(stream_)) {
      DropGraph();  // which the log no longer tells of
      return Outcome::kNotRecordable;
    }
  }
  mode_ = mode;
  compared_ = 0;
  used_bytes_ = 0;
  Outcome outcome = Outcome::kDone;
  open_ = this;
  try {
    body();
  } catch (const NotRecordable&) {
    outcome = Outcome::kNotRecordable;
  } catch (const Changed&) {
    outcome = Outcome::kChanged;
  } catch (...) {
    open_ = nullptr;
    if (mode == Mode::kRecord) DropCapture();
    FreeKept();
    throw;
  }
  open_ = nullptr;
  if (mode == Mode::kCompare) {
    const bool ended_early = outcome == Outcome::kDone && compared_ < recordings_[0].log.size();
    return ended_early ? Outcome::kChanged : outcome;
  }
  if (outcome != Outcome::kDone) {
    DropCapture();
    return outcome;
  }
  return EndCapture(stream_, &recordings_[0].graph) ? Outcome::kDone : Outcome::kNotRecordable;
}

// The log no longer tells what the graph does.
void Recorder::DropCapture() {
  EndCapture(stream_, nullptr);
  DropGraph();
}

void Recorder::DropGraph() {
  Graph& graph = recordings_[0].graph;
  if (graph != nullptr) DestroyGraph(graph);
  graph = nullptr;
}

void Recorder::NoteBytes(const void* data, size_t size_bytes) {
  const auto* bytes = static_cast<const std::byte*>(data);
  std::vector<std::byte>& log = recordings_[0].log;
  if (mode_ == Mode::kRecord) {
    log.insert(log.end(), bytes, bytes + size_bytes);
    return;
  }
  const bool same = size_bytes <= log.size() - compared_ &&
                    std::memcmp(log.data() + compared_, bytes, size_bytes) == 0;
  if (!same) throw Changed();
  compared_ += size_bytes;
}

Recorder::Place Recorder::Stage(int64_t size_bytes) {
  const int64_t size = RoundedUp(size_bytes);
  if (used_bytes_ + size > staging_bytes_) throw NotRecordable();
  used_bytes_ += size;
  return {staging_ + used_bytes_ - size, staged_ + used_bytes_ - size};
}

// Room for what was sent last time, and some more. False where it is too much.
bool Recorder::Reserve() {
  if (launched_ == nullptr) launched_ = CreateEvent(stream_);
  if (sent_bytes_ > kMostStagedBytes) return false;
  const int64_t wanted = sent_bytes_ + sent_bytes_ / 2 + 4096;
  WaitFor(launched_);  // what was staged for the launch before was read
  if (staging_bytes_ >= wanted) return true;
  FreeHost(staging_);
  Free(staged_);
  staging_bytes_ = 0;
  staging_ = static_cast<std::byte*>(MallocHost(wanted));
  staged_ = static_cast<std::byte*>(Malloc(wanted, stream_));
  if (staging_ == nullptr || staged_ == nullptr) return false;
  staging_bytes_ = wanted;
  return true;
}

bool Recorder::Submit() {
  if (used_bytes_ > 0) CopyToDevice(staged_, staging_, used_bytes_, stream_);
  const bool launched = LaunchGraph(recordings_[0].graph, stream_);
  Record(launched_, stream_);  // the area is read even if the graph is not launched
  // One that finds no room is not kept to be tried again: it holds room itself.
  launched ? FreeKept() : DropGraph();
  return launched;
}

void Recorder::FreeKept() {
  for (void* data : freed_) Free(data);
  freed_.clear();
}

}  // namespace kvgauge::cuda
