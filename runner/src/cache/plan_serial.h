// SPDX-License-Identifier: Apache-2.0
// A store plan as bytes.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "methods/stages.h"

namespace kvgauge {

// Its tables lie on the host. Sharing between layers is left out.
void PutPlan(std::string& out, const StorePlan& plan);

// A plan that was read, with the memory of its tables. What it says is for CacheLayer::Store to
// check; that its numbers are what they are named is checked here.
class StoredPlan {
 public:
  // Ranges and channels are of keys [kv_heads, key_dim].
  Status Take(std::string_view& in, int64_t kv_heads, int64_t key_dim);
  const StorePlan& plan() const { return plan_; }

 private:
  Status TakeTable(std::string_view& in, Tensor* table);
  Status TakeChannels(std::string_view& in, int64_t kv_heads, int64_t key_dim);
  Status TakeCodec(std::string_view& in, KvSide side, KvCodec* codec);

  StorePlan plan_;
  std::deque<std::vector<float>> tables_;
  std::vector<int32_t> channels_;
};

}  // namespace kvgauge
