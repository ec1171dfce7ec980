// SPDX-License-Identifier: Apache-2.0
// Work that is submitted over and over, as a graph of the device.
//
// The host's part of the work is done each time, and what it sends lies in one staging area; but
// kernels, fills and copies on the device are held against those of the two graphs that there are,
// the one that was launched last first. Where all are the same, the area goes to the device in one
// copy and that graph is launched. Where they are not, the host's part is done again while the
// stream captures it, for a new graph in place of the older one. What takes memory or
// waits for the device cannot be captured: it throws NotRecordable, and the work is done as if
// there were no graphs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <vector>

#include "cuda/device/driver.h"

// Without it, structures that are equal but for what lies between their members are taken for
// others, and graphs are made anew.
#if defined(__has_builtin)
#if __has_builtin(__builtin_clear_padding)
#define KVG_CLEARS_PADDING 1
#endif
#endif
#if !defined(KVG_CLEARS_PADDING)
#define KVG_CLEARS_PADDING 0
#endif

namespace kvgauge::cuda {

inline constexpr bool kComparesMembers = KVG_CLEARS_PADDING;

// Never leaves Recorder::Run.
struct NotRecordable {};

class Recorder {
 public:
  // How often work was submitted as it came, as a graph made for it, as a graph made before.
  struct Counts {
    int64_t plain = 0, recorded = 0, replayed = 0;
  };

  explicit Recorder(Stream stream) : stream_(stream) {}
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  ~Recorder();

  // Calls `body` until it is submitted: once or, where a graph has to be made or given up, more
  // often, and then nothing came of the calls before the last. Its sends and launches go to this
  // recorder's stream, its buffers are older than it, and it does not call Run. What a call frees
  // is freed once: behind the graph or, where none is launched, before the last call, which
  // does not have it: its owner gave it up.
  void Run(const std::function<void()>& body);

  const Counts& counts() const { return counts_; }

  // The one whose body is being called to be recorded or compared; null: what is submitted is done.
  static Recorder* Open() { return open_; }

  // A piece of work, of which `parts` tell everything. Whether the stream is to have it. Work of
  // another stream has no place in the graph: it throws NotRecordable.
  template <class... T>
  bool Note(Stream stream, T... parts) {
    if (stream != stream_) throw NotRecordable();
    (NoteValue(parts), ...);
    return mode_ == Mode::kRecord;
  }

  // Filled in on the host before Run ends; on the device before the work begins. 64-byte aligned.
  struct Place {
    std::byte *host, *device;
  };
  Place Stage(int64_t size_bytes);
  // When the work is submitted.
  void FreeLater(void* data) { freed_.push_back(data); }

  // What is sent outside of an open recorder: it tells how much staging would take.
  static void CountSent(int64_t size_bytes) {
    if (counting_ != nullptr) counting_->sent_bytes_ += RoundedUp(size_bytes);
  }

 private:
  enum class Mode { kRecord, kCompare };
  enum class Outcome { kDone, kChanged, kNotRecordable };

  static int64_t RoundedUp(int64_t size_bytes) { return (size_bytes + 63) / 64 * 64; }
  template <class T>
  void NoteValue(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
#if KVG_CLEARS_PADDING
    __builtin_clear_padding(&value);
#endif
    NoteBytes(&value, sizeof value);
  }
  void NoteBytes(const void* data, size_t size_bytes);
  void RunPlainly(const std::function<void()>& body);
  void CountReplay();
  void CountRecording();
  Outcome Compare(const std::function<void()>& body);
  Outcome Try(Mode mode, const std::function<void()>& body);
  void DropCapture();
  void DropGraph();
  bool Reserve();
  bool Submit();
  void FreeKept();

  static Recorder *open_, *counting_;

  const Stream stream_;
  Mode mode_ = Mode::kRecord;
  struct Recording {
    Graph graph = nullptr;
    std::vector<std::byte> log = {};  // what the graph does
  };
  // Steps may be of two kinds that take turns. The first is the one at hand.
  std::array<Recording, 2> recordings_;
  size_t compared_ = 0;                               // of the log
  std::byte *staging_ = nullptr, *staged_ = nullptr;  // on the host, on the device
  int64_t staging_bytes_ = 0, used_bytes_ = 0;
  int64_t sent_bytes_ = 0;  // by the last plain run
  Event launched_ = nullptr;
  std::vector<void*> freed_;
  int64_t plain_left_ = 1;  // runs to come that are not even tried: the first takes memory
  int64_t refusals_ = 0;    // in a row
  int64_t recorded_in_a_row_ = 0;
  Counts counts_;
};

// Whether a piece of work is to be submitted to its stream now.
template <class... T>
bool Submits(Stream stream, T... parts) {
  Recorder* const open = Recorder::Open();
  return open == nullptr || open->Note(stream, parts...);
}

}  // namespace kvgauge::cuda
