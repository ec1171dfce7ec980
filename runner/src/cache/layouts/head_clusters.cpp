// SPDX-License-Identifier: Apache-2.0
// Clusters of heads: a stream of keys for each, which all its heads read, with the queries of the
// first of them.
#include "methods/layouts/head_clusters.h"

#include <algorithm>

#include "core/strings.h"
#include "src/cache/bytes.h"
#include "src/cache/layer_layout.h"

namespace kvgauge {
namespace {

class HeadClustersLayer final : public LayerLayout {
 public:
  std::string_view id() const override { return HeadClusters::kId; }
  std::unique_ptr<LayerLayout> Fork() const override {
    return std::make_unique<HeadClustersLayer>(*this);
  }

  Status Use(const StoreLayout& plan, const LayerEntries& entries) override {
    first_ = static_cast<const HeadClusters&>(plan).first;
    return CheckClusters(entries);
  }
  Status Put(std::string& out) const override {
    PutArray(out, first_);
    return {};
  }
  Status Take(std::string_view& in, const LayerEntries& entries) override {
    KVG_TRY(TakeArray(in, &first_));
    return CheckClusters(entries);
  }

  int64_t owners(const LayerEntries& entries, KvSide side) const override {
    return side == KvSide::kKeys ? std::ssize(Firsts()) : entries.setup->kv_heads;
  }
  // Streams of keys are fewer: each is written by itself.
  bool transforms(KvSide side) const override { return side == KvSide::kKeys; }
  std::vector<int64_t> KeyOwners(const LayerEntries&) const override {
    const std::vector<int64_t> firsts = Firsts();
    std::vector<int64_t> owners;
    for (const int64_t head : first_) {
      owners.push_back(std::lower_bound(firsts.begin(), firsts.end(), head) - firsts.begin());
    }
    return owners;
  }
  std::span<const int64_t> asked() const override { return first_; }

 private:
  Status CheckClusters(const LayerEntries& entries) const {
    bool fits = std::ssize(first_) == entries.setup->kv_heads;
    for (int64_t head = 0; head < std::ssize(first_) && fits; ++head) {
      const int64_t first = first_[static_cast<size_t>(head)];
      fits = first >= 0 && first <= head && first_[static_cast<size_t>(first)] == first;
    }
    if (fits) return {};
    return BadInput(StrCat("head_clusters: expected the first head of its cluster for each of ",
                           entries.setup->kv_heads, " KV heads"));
  }
  // Ascending.
  std::vector<int64_t> Firsts() const {
    std::vector<int64_t> firsts = first_;
    std::sort(firsts.begin(), firsts.end());
    firsts.erase(std::unique(firsts.begin(), firsts.end()), firsts.end());
    return firsts;
  }

  std::vector<int64_t> first_;  // [kv_heads]
};

}  // namespace
KVG_REGISTER_LAYOUT(head_clusters, HeadClusters, HeadClustersLayer)
}  // namespace kvgauge
