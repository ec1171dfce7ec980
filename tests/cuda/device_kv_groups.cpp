// SPDX-License-Identifier: Apache-2.0
// The device's codecs and attention behind host memory: every call sends its arguments there, runs,
// and brings back what was written.

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "cuda/device_groups.h"
#include "cuda/suite_device.h"

namespace kvgauge {
namespace {

// Device memory of one call. Host memory that is sent twice is sent once, so that what is one array
// on the host is one on the device.
class CallMemory {
 public:
  CallMemory() = default;
  CallMemory(const CallMemory&) = delete;
  ~CallMemory() { memory_.Synchronize(); }

  void* Send(const void* host, int64_t size_bytes) {
    if (host == nullptr || size_bytes == 0) return nullptr;
    Buffer& block = blocks_[host];
    if (block.data() == nullptr) {
      block = memory_.Allocate(size_bytes);
      memory_.Copy(Bytes(host, size_bytes), block.As(DType::kU8, {size_bytes}));
    }
    KVG_CHECK(block.size_bytes() >= size_bytes, "a larger array at the same place");
    return block.data();
  }
  // Everything that a tensor spans, gaps included.
  Tensor Send(const Tensor& host) {
    if (host.empty()) return host;
    Tensor device = host;
    int64_t last = 0;
    for (int d = 0; d < host.rank; ++d) last += (host.shape[d] - 1) * host.stride[d];
    device.data =
        Send(host.data, host.Numel() == 0 ? SizeOf(host.dtype) : (last + 1) * SizeOf(host.dtype));
    device.device = Device::kCuda;
    return device;
  }
  // What was sent from there comes back.
  void Fetch(const void* host) {
    const Buffer& block = blocks_.at(host);
    memory_.Copy(block.As(DType::kU8, {block.size_bytes()}), Bytes(host, block.size_bytes()));
  }
  void Fetch(const Tensor& host) {
    if (!host.empty() && host.Numel() > 0) Fetch(host.data);
  }

  // A list of pages, of which [begin, end) are sent. The list itself stays on the host.
  void* const* SendPages(void* const* pages, int64_t begin, int64_t end, int64_t page_bytes) {
    if (pages == nullptr) return nullptr;
    auto list =
        std::make_unique<std::vector<void*>>(static_cast<size_t>(std::max<int64_t>(end, 1)));
    for (int64_t p = begin; p < end; ++p) {
      (*list)[static_cast<size_t>(p)] = Send(pages[p], page_bytes);
    }
    lists_.push_back(std::move(list));
    return lists_.back()->data();
  }
  void FetchPages(void* const* pages, int64_t begin, int64_t end) {
    for (int64_t p = begin; pages != nullptr && p < end; ++p) {
      if (pages[p] != nullptr) Fetch(pages[p]);
    }
  }

  // The pages [begin, end) of a coded stream.
  KvPages SendCoded(const CodecOps& ops, const KvCodec& codec, const KvPages& pages, int64_t begin,
                    int64_t end) {
    KvPages device;
    device.codes = SendPages(pages.codes, begin, end, ops.PageBytes(codec));
    if (codec.rank > 0) {
      device.latents = SendPages(pages.latents, begin, end, kKvPageEntries * codec.rank * 2);
      device.bases = SendPages(pages.bases, begin, end, codec.rank * codec.dim * 2);
    }
    if (pages.outliers == nullptr) return device;
    auto list = std::make_unique<std::vector<void*>>(static_cast<size_t>(end));
    for (int64_t p = begin; p < end; ++p) {
      uint32_t count = 0;
      if (pages.outliers[p] == nullptr) continue;
      std::memcpy(&count, pages.outliers[p], sizeof count);
      (*list)[static_cast<size_t>(p)] = Send(pages.outliers[p], ops.OutlierBytes(count));
    }
    lists_.push_back(std::move(list));
    device.outliers = lists_.back()->data();
    return device;
  }

 private:
  static Tensor Bytes(const void* host, int64_t size_bytes) {
    return {const_cast<void*>(host), DType::kU8, {size_bytes}};
  }

  MemoryOps& memory_ = *TestDevice().memory;
  std::map<const void*, Buffer> blocks_;
  std::vector<std::unique_ptr<std::vector<void*>>> lists_;
};

int64_t PagesOf(int64_t entries) { return (entries + kKvPageEntries - 1) / kKvPageEntries; }

class HostedCodec final : public CodecOps {
 public:
  int64_t PageBytes(const KvCodec& codec) const override { return ops_->PageBytes(codec); }
  int64_t OutlierCount(const void* block) const override {
    CallMemory memory;
    return ops_->OutlierCount(memory.Send(block, 4));
  }

 private:
  void DoEncode(const KvCodec& codec, const Tensor& rows, int64_t first_entry, const KvPages& pages,
                const AllocateBlock& allocate) override {
    CallMemory memory;
    const int64_t begin = first_entry / kKvPageEntries;
    const int64_t end = PagesOf(first_entry + rows.shape[0]);
    KvPages device;
    device.codes = memory.SendPages(pages.codes, begin, end, PageBytes(codec));
    std::vector<void*> blocks;
    AllocateBlock both;
    if (allocate) {
      both = [&](Block kind, int64_t page, int64_t size_bytes) {
        blocks.push_back(allocate(kind, page, size_bytes));
        return memory.Send(blocks.back(), size_bytes);
      };
    }
    ops_->Encode(codec, memory.Send(rows), first_entry, device, both);
    memory.FetchPages(pages.codes, begin, end);
    for (const void* block : blocks) memory.Fetch(block);
  }

  void DoDecode(const KvCodec& codec, const KvPages& pages, int64_t first_entry,
                Tensor rows) override {
    CallMemory memory;
    const int64_t end = PagesOf(first_entry + rows.shape[0]);
    const KvPages device = memory.SendCoded(*ops_, codec, pages, first_entry / kKvPageEntries, end);
    ops_->Decode(codec, device, first_entry, memory.Send(rows));
    memory.Fetch(rows);
  }

  CodecOps* const ops_ = TestDevice().codecs.get();
};

class HostedAttention final : public AttentionOps {
 public:
  explicit HostedAttention(AttentionOps& ops) : ops_(&ops) {}

  int64_t KeyPageBytes(const KvFormat& format) const override { return ops_->KeyPageBytes(format); }
  int64_t ValuePageBytes(const KvFormat& format) const override {
    return ops_->ValuePageBytes(format);
  }

 private:
  // Heads of a call on the device, and what they point to.
  struct Heads {
    std::vector<std::vector<KvSegment>> segments;
    std::vector<std::vector<std::vector<const uint64_t*>>> masks;
    std::vector<std::vector<std::vector<const float*>>> biases;
    std::vector<KvHead> heads;
  };

  KvSegment SendSegment(CallMemory& memory, const AttentionShape& shape, const KvSegment& host,
                        std::vector<const uint64_t*>* mask,
                        std::vector<const float*>* biases) const {
    KvSegment device = host;
    KvFormat stored = shape.format;
    if (!host.key_basis.empty()) stored.key_dim = host.key_basis.shape[1];
    if (!host.value_basis.empty()) stored.value_dim = host.value_basis.shape[1];
    const int64_t n = host.slots(), pages = PagesOf(n);
    device.key_pages = memory.SendPages(host.key_pages, 0, pages, KeyPageBytes(stored));
    device.value_pages = memory.SendPages(host.value_pages, 0, pages, ValuePageBytes(stored));
    for (const bool keys : {true, false}) {
      const KvCoded& coded = keys ? host.keys : host.values;
      if (coded.entries == 0) continue;
      (keys ? device.keys : device.values).pages =
          memory.SendCoded(*codecs_, *coded.codec, coded.pages, 0, PagesOf(coded.entries));
    }
    const auto floats = [&](const float* values) {
      return static_cast<const float*>(memory.Send(values, n * 4));
    };
    device.bias = floats(host.bias);
    device.key_scale = floats(host.key_scale);
    device.value_scale = floats(host.value_scale);
    device.rotation = static_cast<const int32_t*>(memory.Send(host.rotation, n * 4));
    device.positions = static_cast<const int32_t*>(memory.Send(host.positions, n * 4));
    device.key_basis = memory.Send(host.key_basis);
    device.value_basis = memory.Send(host.value_basis);
    if (host.read != nullptr) {
      for (int64_t g = 0; g < shape.query_heads / shape.kv_heads; ++g) {
        mask->push_back(static_cast<const uint64_t*>(memory.Send(host.read[g], pages * 8)));
      }
      device.read = mask->data();
    }
    if (host.read_bias != nullptr) {
      for (int64_t g = 0; g < shape.query_heads / shape.kv_heads; ++g) {
        biases->push_back(floats(host.read_bias[g]));
      }
      device.read_bias = biases->data();
    }
    return device;
  }

  void SendHeads(CallMemory& memory, const AttentionShape& shape, std::span<const KvHead> host,
                 Heads* device) const {
    for (const KvHead& head : host) {
      device->segments.emplace_back();
      device->masks.emplace_back(static_cast<size_t>(head.count));
      device->biases.emplace_back(static_cast<size_t>(head.count));
      for (int64_t s = 0; s < head.count; ++s) {
        const auto at = static_cast<size_t>(s);
        device->segments.back().push_back(SendSegment(memory, shape, head.segments[s],
                                                      &device->masks.back()[at],
                                                      &device->biases.back()[at]));
      }
    }
    for (const std::vector<KvSegment>& segments : device->segments) {
      device->heads.push_back({segments.data(), static_cast<int64_t>(segments.size())});
    }
  }

  // With rope tables on the device.
  static AttentionShape SendShape(CallMemory& memory, const AttentionShape& host,
                                  DeferredRope* rope) {
    AttentionShape shape = host;
    shape.sinks = {};  // the other calls have what they need of them in log_sum_exp
    if (host.rope == nullptr) return shape;
    *rope = {memory.Send(host.rope->cos), memory.Send(host.rope->sin), host.rope->layout};
    shape.rope = rope;
    return shape;
  }

  void DoWriteKv(const KvFormat& format, const Tensor& keys, const Tensor& values,
                 std::span<const KvTarget> heads) override {
    CallMemory memory;
    const int64_t n = (keys.empty() ? values : keys).shape[0];
    std::vector<KvTarget> targets;
    for (const KvTarget& head : heads) {
      const int64_t begin = head.first_entry / kKvPageEntries, end = PagesOf(head.first_entry + n);
      targets.push_back(
          {keys.empty() ? nullptr
                        : memory.SendPages(head.key_pages, begin, end, KeyPageBytes(format)),
           values.empty() ? nullptr
                          : memory.SendPages(head.value_pages, begin, end, ValuePageBytes(format)),
           head.first_entry});
    }
    ops_->WriteKv(format, memory.Send(keys), memory.Send(values), targets);
    for (const KvTarget& head : heads) {
      const int64_t begin = head.first_entry / kKvPageEntries, end = PagesOf(head.first_entry + n);
      if (!keys.empty()) memory.FetchPages(head.key_pages, begin, end);
      if (!values.empty()) memory.FetchPages(head.value_pages, begin, end);
    }
  }

  KvSegment SendFloatPages(CallMemory& memory, const KvFormat& format, const KvSegment& segment) {
    KvSegment device;
    device.length = segment.length;
    const int64_t pages = PagesOf(segment.length);
    device.key_pages = memory.SendPages(segment.key_pages, 0, pages, KeyPageBytes(format));
    device.value_pages = memory.SendPages(segment.value_pages, 0, pages, ValuePageBytes(format));
    return device;
  }
  void DoReadKv(const KvFormat& format, const KvSegment& segment, int64_t first_entry, Tensor keys,
                Tensor values) override {
    CallMemory memory;
    ops_->ReadKv(format, SendFloatPages(memory, format, segment), first_entry, memory.Send(keys),
                 memory.Send(values));
    memory.Fetch(keys);
    memory.Fetch(values);
  }
  void DoGatherKv(const KvFormat& format, const KvSegment& segment, const Tensor& index,
                  Tensor keys, Tensor values) override {
    CallMemory memory;
    ops_->GatherKv(format, SendFloatPages(memory, format, segment), memory.Send(index),
                   memory.Send(keys), memory.Send(values));
    memory.Fetch(keys);
    memory.Fetch(values);
  }
  void DoCopyKv(const KvFormat& format, const KvSegment& from, const Tensor& index,
                const KvTarget& to) override {
    CallMemory memory;
    const KvSegment source = SendFloatPages(memory, format, from);
    const int64_t end = PagesOf(to.first_entry + index.shape[0]);
    KvTarget target = {nullptr, nullptr, to.first_entry};
    // The same list stays the same list.
    if (to.key_pages != nullptr) {
      target.key_pages = to.key_pages == from.key_pages
                             ? source.key_pages
                             : memory.SendPages(to.key_pages, 0, end, KeyPageBytes(format));
    }
    if (to.value_pages != nullptr) {
      target.value_pages = to.value_pages == from.value_pages
                               ? source.value_pages
                               : memory.SendPages(to.value_pages, 0, end, ValuePageBytes(format));
    }
    ops_->CopyKv(format, source, memory.Send(index), target);
    memory.FetchPages(to.key_pages, 0, end);
    memory.FetchPages(to.value_pages, 0, end);
  }

  void DoKeepKv(const KvFormat& format, std::span<const KvKeep> heads, Tensor outcome) override {
    CallMemory memory;
    std::vector<KvKeep> device(heads.begin(), heads.end());
    const auto end = [](const KvKeep& head) { return PagesOf(head.first + head.length); };
    for (KvKeep& head : device) {
      head.index = memory.Send(head.index);
      head.key_pages = memory.SendPages(head.key_pages, 0, end(head), KeyPageBytes(format));
      head.value_pages = memory.SendPages(head.value_pages, 0, end(head), ValuePageBytes(format));
      for (KvMerge* merge : {&head.keys, &head.values}) {
        for (Tensor* list : {&merge->from, &merge->to, &merge->weight, &merge->self}) {
          *list = memory.Send(*list);
        }
      }
      for (Tensor& numbers : head.numbers) numbers = memory.Send(numbers);
    }
    ops_->KeepKv(format, device, memory.Send(outcome));
    memory.Fetch(outcome);
    for (const KvKeep& head : heads) {
      memory.FetchPages(head.key_pages, 0, end(head));
      memory.FetchPages(head.value_pages, 0, end(head));
      for (const Tensor& numbers : head.numbers) memory.Fetch(numbers);
    }
  }

  void DoAttend(const AttentionShape& host_shape, std::span<const AttentionItem> host_items,
                const Tensor& q, Tensor out, const AttentionCapture& capture) override {
    CallMemory memory;
    DeferredRope rope;
    const AttentionShape shape = SendShape(memory, host_shape, &rope);
    std::vector<AttentionItem> items(host_items.begin(), host_items.end());
    std::vector<Heads> heads(items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      SendHeads(memory, shape, items[i].heads, &heads[i]);
      items[i].heads = heads[i].heads;
    }
    ops_->Attend(shape, items, memory.Send(q), memory.Send(out),
                 {memory.Send(capture.log_sum_exp), memory.Send(capture.entropy)});
    memory.Fetch(out);
    memory.Fetch(capture.log_sum_exp);
    memory.Fetch(capture.entropy);
  }

  void DoAddSinks(const Tensor& sinks, Tensor out, Tensor log_sum_exp, Tensor entropy) override {
    CallMemory memory;
    ops_->AddSinks(memory.Send(sinks), memory.Send(out), memory.Send(log_sum_exp),
                   memory.Send(entropy));
    memory.Fetch(out);
    memory.Fetch(log_sum_exp);
    memory.Fetch(entropy);
  }

  void DoWindowProbabilities(const AttentionShape& host_shape, const AttentionItem& host_item,
                             const Tensor& q, const Tensor& log_sum_exp, Tensor out) override {
    CallMemory memory;
    DeferredRope rope;
    const AttentionShape shape = SendShape(memory, host_shape, &rope);
    AttentionItem item = host_item;
    Heads heads;
    SendHeads(memory, shape, item.heads, &heads);
    item.heads = heads.heads;
    ops_->WindowProbabilities(shape, item, memory.Send(q), memory.Send(log_sum_exp),
                              memory.Send(out));
    memory.Fetch(out);
  }

  void DoReduceColumns(const AttentionShape& host_shape, const AttentionItem& host_item,
                       const Tensor& q, const Tensor& log_sum_exp,
                       const ColumnRequest& host_request, Tensor out) override {
    CallMemory memory;
    DeferredRope rope;
    const AttentionShape shape = SendShape(memory, host_shape, &rope);
    AttentionItem item = host_item;
    Heads heads;
    SendHeads(memory, shape, item.heads, &heads);
    item.heads = heads.heads;
    ColumnRequest request = host_request;
    request.row_weights = memory.Send(request.row_weights);
    ops_->ReduceColumns(shape, item, memory.Send(q), memory.Send(log_sum_exp), request,
                        memory.Send(out));
    memory.Fetch(out);
  }

  AttentionOps* const ops_;
  CodecOps* const codecs_ = TestDevice().codecs.get();
};

}  // namespace

std::unique_ptr<CodecOps> MakeHostedCodec() { return std::make_unique<HostedCodec>(); }
std::unique_ptr<AttentionOps> MakeHostedAttention(AttentionOps* attention) {
  return std::make_unique<HostedAttention>(attention == nullptr ? *TestDevice().attention
                                                                : *attention);
}

}  // namespace kvgauge
