// SPDX-License-Identifier: Apache-2.0
// What every WeightSource shares.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/files.h"
#include "core/result.h"
#include "core/sha256.h"
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

// Has the system read mapped files from storage before their bytes are touched: a fault waits for a
// few pages alone. Thread-safe.
class ReadAhead {
 public:
  // `part` of the file is read now, and what lies behind it soon. Bytes are asked for once.
  void Reach(const MappedFile& file, std::span<const uint8_t> part);

 private:
  std::mutex mutex_;
  std::map<const MappedFile*, std::vector<bool>> asked_;  // of each piece of a file
};

// Pages of a mapped file that lie in `part` leave this process's memory until they are read again.
void ReleasePages(std::span<const uint8_t> part);

}  // namespace kvgauge
