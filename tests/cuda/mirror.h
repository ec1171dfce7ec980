// SPDX-License-Identifier: Apache-2.0
// Host tensors as an operation of a device sees them: their memory is copied there, gaps between
// rows included, and back. Tensors that overlap on the host overlap on the device.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "kernels/ops.h"

namespace kvgauge {

class Mirror {
 public:
  Mirror(MemoryOps& memory, std::initializer_list<Tensor> tensors) : memory_(memory) {
    for (const Tensor& t : tensors) {
      if (t.data == nullptr || t.Numel() == 0) continue;
      int64_t last = 0;
      for (int i = 0; i < t.rank; ++i) last += (t.shape[i] - 1) * t.stride[i];
      auto* begin = static_cast<char*>(t.data);
      ranges_.push_back({begin, begin + (last + 1) * SizeOf(t.dtype), {}});
    }
    std::sort(ranges_.begin(), ranges_.end(),
              [](const Range& a, const Range& b) { return a.begin < b.begin; });
    std::vector<Range> joined;
    for (Range& range : ranges_) {
      if (!joined.empty() && range.begin < joined.back().end) {
        joined.back().end = std::max(joined.back().end, range.end);
      } else {
        joined.push_back(std::move(range));
      }
    }
    ranges_ = std::move(joined);
    for (Range& range : ranges_) {
      range.device = memory_.Allocate(range.size());
      memory_.Copy(range.host(), range.bytes());
    }
  }
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;
  ~Mirror() {
    for (const Range& range : ranges_) memory_.Copy(range.bytes(), range.host());
  }

  // A tensor of the list, on the device.
  Tensor operator()(Tensor t) const {
    if (t.rank > 0) t.device = Device::kCuda;
    if (t.data == nullptr) return t;
    auto* at = static_cast<char*>(t.data);
    for (const Range& range : ranges_) {
      if (at >= range.begin && at < range.end) {
        t.data = static_cast<char*>(range.device.data()) + (at - range.begin);
      }
    }
    return t;
  }

 private:
  struct Range {
    char *begin, *end;
    Buffer device;

    int64_t size() const { return end - begin; }
    Tensor host() const { return {begin, DType::kU8, {size()}}; }
    Tensor bytes() const { return device.As(DType::kU8, {size()}); }
  };

  MemoryOps& memory_;
  std::vector<Range> ranges_;
};

}  // namespace kvgauge
