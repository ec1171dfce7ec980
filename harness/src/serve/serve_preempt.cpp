// SPDX-License-Identifier: Apache-2.0
// Who gives place where memory is short.
#include <utility>

#include "src/serve/serve_loop.h"

namespace kvgauge {

// A prompt that queues have begun to read is read to its end: what was read would be lost, again
// and again where many wait. For the same reason a cache that would be dropped stays until it has
// brought the tokens that room was made for as it began.
bool ServeLoop::MayGo(int64_t r) const {
  const Sequence& s = sequences_[static_cast<size_t>(r)];
  if (s.chosen || policy_.order != ServePolicy::Order::kQueues) return !s.chosen;
  return !s.reading() && (s.generated >= s.stays || HostHasRoom(s));
}

bool ServeLoop::HostHasRoom(const Sequence& s) const {
  return limits_.host_bytes == 0 || host_used_ + s.reserved <= limits_.host_bytes;
}

// As Reserve, at the cost of others that come after it.
bool ServeLoop::ReserveOver(int64_t r, int64_t bytes, int64_t covers) {
  while (!Reserve(r, bytes, covers)) {
    if (policy_.preempt == ServePolicy::Preempt::kNone) return false;
    auto victim = live_.rbegin();
    while (victim != live_.rend() && (victim->second == r || !MayGo(victim->second))) ++victim;
    if (victim == live_.rend() || victim->first <= Of(r).key) {
      if (!DropSaved(r)) return false;
      continue;
    }
    broken_ = Preempt(victim->second);
    if (!broken_.ok()) return false;
  }
  return true;
}

// Gives up a cache on the host: the last of those behind it that left something where they were. It
// is read again later, so that the first of all always has the room that it needs alone.
bool ServeLoop::DropSaved(int64_t r) {
  auto last = saved_.rbegin();
  while (last != saved_.rend() && Of(last->second).reserved == 0) ++last;
  if (last == saved_.rend() || last->first <= Of(r).key) return false;
  const int64_t dropped = last->second;
  Sequence& s = Of(dropped);
  worker_.Drop(dropped);
  s.read = s.fed = s.target = 0;
  CountHost(-std::exchange(s.host, 0));
  Release(dropped, 0);
  Place(dropped, State::kWaiting);
  ++changes_;
  return true;
}

Status ServeLoop::Preempt(int64_t r) {
  Sequence& s = Of(r);
  ++ResultOf(r).preemptions;
  bool saved = false;
  // What has no room on the host is read again.
  if (policy_.preempt == ServePolicy::Preempt::kSwap && !s.reading() && HostHasRoom(s)) {
    const Result<int64_t> host = worker_.Save(r);
    saved = host.ok();
    if (saved) {
      s.host = *host;
      CountHost(s.host);
    }
  }
  if (!saved) {
    worker_.Drop(r);
    s.read = s.fed = s.target = 0;
  }
  Release(r, saved && bytes_.left ? bytes_.left(s.prompt, s.covers) : 0);
  Unpin(r);
  Place(r, saved ? State::kSaved : State::kWaiting);
  ++changes_;
  return {};
}

}  // namespace kvgauge
