// SPDX-License-Identifier: Apache-2.0
// What every WeightSource shares.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/files.h"
#include "core/result.h"
#include "core/sha256.h"
#include "kernels/row_rounding.h"
#include "runner/weights.h"

namespace kvgauge {

// Collects tensors in name order into WeightSource::Fingerprint(). Every field is put in with its
// length before it, so that no two lists of tensors read alike.
class FingerprintBuilder {
 public:
  explicit FingerprintBuilder(std::string_view scheme) { AddText(scheme); }

  void AddText(std::string_view text);
  void AddNumber(uint64_t number);
  void AddTensor(std::string_view name, std::string_view dtype, std::span<const int64_t> shape);
  // Whole below kWholeBytes; of larger content its size, head, tail and evenly spaced samples.
  void AddContent(std::span<const uint8_t> content);
  std::string Finish() { return hash_.Finish(); }

 private:
  Sha256 hash_;
};

// "no tensor 'x' (did you mean 'y'?)".
Error NoSuchTensor(std::string_view origin, const std::string& name,
                   const std::vector<std::string>& known);

// Contiguous view of any rank up to kMaxRank; rank 0 (one value) becomes [1].
// Precondition: the shape is not deeper than that.
Tensor ContiguousView(const void* data, DType dtype, std::span<const int64_t> shape);

// Bytes of a mapped file.
struct FilePart {
  const MappedFile* file;
  std::span<const uint8_t> bytes;
};

// Brings files into the system's cache, in the order in which they are used and not far before. One
// thread reads, so that storage and packing work at once; it starts where something is not in the
// cache yet. Thread-safe.
class ReadAhead {
 public:
  ReadAhead() = default;
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;
  ~ReadAhead();

  // These parts will be reached, in this order. A file without a plan is read on from the first
  // part that is reached.
  void Plan(std::span<const FilePart> parts);
  // `part` is used now: waits until it is in the cache, and maps it. Its file must stay mapped.
  void Reach(const FilePart& part);
  // Waits until a part that is planned was reached and is in the cache.
  void Follow(const FilePart& part);
  // Parts may stay unreached: Follow no longer waits for them.
  void EndPlan();

 private:
  struct Piece {
    bool planned = false, there = false, reached = false;
  };
  struct File {
    int64_t bytes = 0;
    // The mapping's own would not do: faults change how the system reads ahead of it.
    int descriptor = -1;
    std::vector<Piece> pieces;
    bool ordered = false;  // its pieces are in planned_
  };
  struct Place {
    File* file = nullptr;
    int64_t index = 0;
  };

  // These need the lock; Await and Run take it.
  File& FileOf(const MappedFile& file);
  std::vector<Place> PiecesOf(const FilePart& part);
  static Piece& At(const Place& place) {
    return place.file->pieces[static_cast<size_t>(place.index)];
  }
  void SetThere(const Place& place);
  void Await(const FilePart& part);
  void Run();  // the thread

  std::mutex mutex_;
  std::condition_variable work_, there_;
  std::map<const MappedFile*, std::unique_ptr<File>> files_;
  std::vector<Place> planned_;
  size_t next_ = 0;           // of planned_
  std::deque<Place> urgent_;  // somebody waits for them
  int64_t ahead_ = 0;         // pieces in the cache, but not reached
  bool plan_ended_ = false, stop_ = false;
  std::thread thread_;
};

// Sources whose file says how the rows that come to its matrices are rounded.
class RoundedInputs {
 public:
  virtual ~RoundedInputs() = default;
  // Null where the source is none.
  static const RoundedInputs* Of(const WeightSource& source) {
    return dynamic_cast<const RoundedInputs*>(&source);
  }

  // Nothing where the file has no scheme for the matrix. An error where it has one of other kinds.
  virtual Result<std::optional<RowRounding>> InputsOf(const std::string& name) const = 0;
};

// Sources that read files in an order that a caller knows.
class OrderedReads {
 public:
  virtual ~OrderedReads() = default;
  // Null where the source is none.
  static const OrderedReads* Of(const WeightSource& source) {
    return dynamic_cast<const OrderedReads*>(&source);
  }

  // These tensors will be got, in this order. Until EndReads, Fingerprint looks at each behind its
  // Get, so that both do not ask storage for different places; who gets them calls neither before.
  virtual void PlanReads(std::span<const std::string> names) const = 0;
  virtual void EndReads() const = 0;
};

// Pages of a mapped file that lie in `part`, and what faults brought around it, leave this
// process's memory until they are read again.
void ReleasePages(const FilePart& part);

}  // namespace kvgauge
