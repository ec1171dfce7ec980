// SPDX-License-Identifier: Apache-2.0
// Attention as its definition reads: every score, then the softmax, then the weighted sum, in
// double. Pages hold plain rows.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/rounding.h"
#include "reference/reference.h"

namespace kvgauge {
namespace {

void StoreAs(DType dtype, float value, void* base, int64_t index) {
  switch (dtype) {
    case DType::kF16:
      static_cast<uint16_t*>(base)[index] = F32ToF16(value);
      return;
    case DType::kBF16:
      static_cast<uint16_t*>(base)[index] = F32ToBf16(value);
      return;
    default:
      static_cast<float*>(base)[index] = value;
  }
}

float LoadAs(DType dtype, const void* base, int64_t index) {
  switch (dtype) {
    case DType::kF16:
      return F16ToF32(static_cast<const uint16_t*>(base)[index]);
    case DType::kBF16:
      return Bf16ToF32(static_cast<const uint16_t*>(base)[index]);
    default:
      return static_cast<const float*>(base)[index];
  }
}

float At(const Tensor& t, int64_t i, int64_t j) {
  return t.f32()[i * t.stride[0] + j * t.stride[1]];
}
float& At(Tensor& t, int64_t i, int64_t j) { return t.f32()[i * t.stride[0] + j * t.stride[1]]; }

// Every entry of one KV head as queries meet it, in the order of the segments.
struct Entries {
  std::vector<std::vector<double>> keys, values;
};

void Rotate(const DeferredRope& rope, int64_t position, std::vector<double>& key) {
  const int64_t pairs = rope.cos.shape[0];
  for (int64_t k = 0; k < pairs; ++k) {
    const bool half = rope.layout == RopeLayout::kHalf;
    double& x = key[half ? k : 2 * k];
    double& y = key[half ? k + pairs : 2 * k + 1];
    const double cos = At(rope.cos, k, position), sin = At(rope.sin, k, position);
    const double turned = x * cos - y * sin;
    y = y * cos + x * sin;
    x = turned;
  }
}

std::vector<double> Expand(const Tensor& basis, const std::vector<double>& latent) {
  std::vector<double> out(basis.shape[0]);
  for (int64_t i = 0; i < basis.shape[0]; ++i) {
    for (int64_t l = 0; l < basis.shape[1]; ++l) out[i] += double{At(basis, i, l)} * latent[l];
  }
  return out;
}

class ReferenceAttention final : public AttentionOps {
 public:
  int64_t KeyPageBytes(const KvFormat& format) const override {
    return kKvPageEntries * format.key_dim * SizeOf(format.dtype);
  }
  int64_t ValuePageBytes(const KvFormat& format) const override {
    return kKvPageEntries * format.value_dim * SizeOf(format.dtype);
  }

 private:
  static float Key(const KvFormat& f, const KvSegment& segment, int64_t slot, int64_t dim) {
    return LoadAs(f.dtype, segment.key_pages[slot / kKvPageEntries],
                  slot % kKvPageEntries * f.key_dim + dim);
  }
  static float Value(const KvFormat& f, const KvSegment& segment, int64_t slot, int64_t dim) {
    return LoadAs(f.dtype, segment.value_pages[slot / kKvPageEntries],
                  slot % kKvPageEntries * f.value_dim + dim);
  }

  static bool Reads(const KvSegment& segment, int64_t group_head, int64_t entry) {
    const int64_t slot = segment.skip + entry;
    return segment.read == nullptr ||
           ((segment.read[group_head][slot / kKvPageEntries] >> (slot % kKvPageEntries)) & 1) != 0;
  }

  static std::vector<float> Decoded(const KvCoded& stream) {
    if (stream.entries == 0) return {};
    std::vector<float> rows(stream.entries * stream.codec->dim);
    MakeReferenceCodec()->Decode(*stream.codec, stream.pages, 0,
                                 View(rows, {stream.entries, stream.codec->dim}));
    return rows;
  }

  static Entries EntriesOf(const AttentionShape& shape, const KvHead& head) {
    const int64_t group = shape.query_heads / shape.kv_heads;
    Entries all;
    for (int64_t s = 0; s < head.count; ++s) {
      const KvSegment& segment = head.segments[s];
      KvFormat stored = shape.format;
      if (!segment.key_basis.empty()) stored.key_dim = segment.key_basis.shape[1];
      if (!segment.value_basis.empty()) stored.value_dim = segment.value_basis.shape[1];
      const std::vector<float> keys = Decoded(segment.keys), values = Decoded(segment.values);
      for (int64_t e = 0; e < segment.length; ++e) {
        std::vector<double> key(shape.format.key_dim), value(shape.format.value_dim);
        bool read = false;  // pages that are not read may be absent
        for (int64_t g = 0; g < group; ++g) read = read || Reads(segment, g, e);
        if (read) {
          key.resize(stored.key_dim);
          value.resize(stored.value_dim);
          for (int64_t k = 0; k < stored.key_dim; ++k) {
            key[k] = e < segment.keys.entries ? keys[e * stored.key_dim + k]
                                              : Key(stored, segment, segment.skip + e, k);
          }
          for (int64_t k = 0; k < stored.value_dim; ++k) {
            value[k] = segment.values_in_keys       ? key[k]
                       : e < segment.values.entries ? values[e * stored.value_dim + k]
                                                    : Value(stored, segment, segment.skip + e, k);
          }
          if (!segment.key_basis.empty()) key = Expand(segment.key_basis, key);
          if (!segment.value_basis.empty()) value = Expand(segment.value_basis, value);
          if (segment.rotation != nullptr) {
            Rotate(*shape.rope, segment.rotation[segment.skip + e], key);
          }
          if (segment.value_scale != nullptr) {
            for (double& v : value) v *= segment.value_scale[e];
          }
        }
        all.keys.push_back(std::move(key));
        all.values.push_back(std::move(value));
      }
    }
    return all;
  }

  // Scores of one query row over all entries of its head; -inf where it does not see them.
  static std::vector<double> Scores(const AttentionShape& shape, const AttentionItem& item,
                                    const Entries& entries, const Tensor& q, int64_t head,
                                    int64_t row) {
    const int64_t group = shape.query_heads / shape.kv_heads;
    const KvHead& kv = item.heads[head / group];
    const int64_t length = kv.length();
    const int64_t index = item.first_position == kSeesAll      ? length - 1
                          : item.first_position == kEndAligned ? length - item.rows + row
                                                               : item.first_position + row;
    const int64_t last = index + (item.ahead.empty() ? 0 : item.ahead[row]);
    const float* query = q[item.first_row + row][head].f32();
    std::vector<double> scores(length, -std::numeric_limits<double>::infinity());
    int64_t first = 0;  // of the segment
    for (int64_t s = 0; s < kv.count; ++s) {
      const KvSegment& segment = kv.segments[s];
      for (int64_t e = 0; e < segment.length && first + e <= last; ++e) {
        const bool placed = segment.positions != nullptr;
        const int64_t position = placed ? segment.positions[e] : first + e;
        const int64_t row_position = placed ? item.token_position + row : index;
        const int64_t reach =
            shape.chunked ? row_position % shape.window + 1 : shape.window;  // back from the row
        if (shape.window > 0 && position <= row_position - reach) continue;
        if (!Reads(segment, head % group, e)) continue;
        double dot = 0;
        for (int64_t k = 0; k < shape.format.key_dim; ++k) {
          dot += double{Rounded(shape.format.dtype, query[k])} * entries.keys[first + e][k];
        }
        double score = dot * shape.scale;
        if (segment.key_scale != nullptr) score *= segment.key_scale[e];
        if (shape.softcap > 0) score = shape.softcap * std::tanh(score / shape.softcap);
        if (segment.bias != nullptr) score += segment.bias[e];
        if (segment.read_bias != nullptr) {
          score += segment.read_bias[head % group][segment.skip + e];
        }
        scores[first + e] = score;
      }
      first += segment.length;
    }
    return scores;
  }

  static double LogSumExp(const std::vector<double>& scores) {
    double max = -std::numeric_limits<double>::infinity();
    for (const double s : scores) max = std::max(max, s);
    if (std::isinf(max) && max < 0) return max;
    double sum = 0;
    for (const double s : scores) sum += std::exp(s - max);
    return max + std::log(sum);
  }

  void DoWriteKv(const KvFormat& format, const Tensor& keys, const Tensor& values,
                 std::span<const KvTarget> heads) override {
    for (int64_t i = 0; i < (keys.empty() ? values : keys).shape[0]; ++i) {
      for (size_t h = 0; h < heads.size(); ++h) {
        const int64_t page = (heads[h].first_entry + i) / kKvPageEntries;
        const int64_t slot = (heads[h].first_entry + i) % kKvPageEntries;
        for (int64_t k = 0; !keys.empty() && k < format.key_dim; ++k) {
          StoreAs(format.dtype, keys[i][h].f32()[k], heads[h].key_pages[page],
                  slot * format.key_dim + k);
        }
        for (int64_t k = 0; !values.empty() && k < format.value_dim; ++k) {
          StoreAs(format.dtype, values[i][h].f32()[k], heads[h].value_pages[page],
                  slot * format.value_dim + k);
        }
      }
    }
  }

  void DoReadKv(const KvFormat& format, const KvSegment& segment, int64_t first_entry, Tensor keys,
                Tensor values) override {
    Read(format, segment, keys, values, [first_entry](int64_t i) { return first_entry + i; });
  }

  void DoGatherKv(const KvFormat& format, const KvSegment& segment, const Tensor& index,
                  Tensor keys, Tensor values) override {
    Read(format, segment, keys, values, [&](int64_t i) { return int64_t{index.i32()[i]}; });
  }

  // Row i is entry entry_of(i).
  template <class EntryOf>
  static void Read(const KvFormat& format, const KvSegment& segment, Tensor keys, Tensor values,
                   const EntryOf& entry_of) {
    for (int64_t i = 0; !keys.empty() && i < keys.shape[0]; ++i) {
      for (int64_t k = 0; k < format.key_dim; ++k) {
        At(keys, i, k) = Key(format, segment, entry_of(i), k);
      }
    }
    for (int64_t i = 0; !values.empty() && i < values.shape[0]; ++i) {
      for (int64_t k = 0; k < format.value_dim; ++k) {
        At(values, i, k) = Value(format, segment, entry_of(i), k);
      }
    }
  }

  void DoCopyKv(const KvFormat& format, const KvSegment& from, const Tensor& index,
                const KvTarget& to) override {
    const auto copy = [&](void* const* source, void* const* target, int64_t dim) {
      if (target == nullptr) return;
      const int64_t bytes = dim * SizeOf(format.dtype);
      for (int64_t i = 0; i < index.shape[0]; ++i) {
        const int64_t in = index.i32()[i], out = to.first_entry + i;
        std::memmove(
            static_cast<char*>(target[out / kKvPageEntries]) + out % kKvPageEntries * bytes,
            static_cast<char*>(source[in / kKvPageEntries]) + in % kKvPageEntries * bytes,
            static_cast<size_t>(bytes));
      }
    };
    copy(from.key_pages, to.key_pages, format.key_dim);
    copy(from.value_pages, to.value_pages, format.value_dim);
  }

  void DoAttend(const AttentionShape& shape, std::span<const AttentionItem> items, const Tensor& q,
                Tensor out, const AttentionCapture& capture) override {
    const int64_t group = shape.query_heads / shape.kv_heads;
    for (const AttentionItem& item : items) {
      Entries entries;
      for (int64_t h = 0; h < shape.query_heads; ++h) {
        if (h % group == 0) entries = EntriesOf(shape, item.heads[h / group]);
        for (int64_t i = 0; i < item.rows; ++i) {
          const int64_t row = item.first_row + i;
          const std::vector<double> scores = Scores(shape, item, entries, q, h, i);
          const double lse = LogSumExp(scores);
          double entropy = 0;
          std::vector<double> sum(shape.format.value_dim);
          for (size_t j = 0; j < scores.size(); ++j) {
            if (std::isinf(scores[j])) continue;
            const double p = std::exp(scores[j] - lse);
            if (p > 0) entropy -= p * (scores[j] - lse);
            for (int64_t k = 0; k < shape.format.value_dim; ++k) {
              sum[k] += p * entries.values[j][k];
            }
          }
          std::copy(sum.begin(), sum.end(), out[row][h].f32());
          Tensor lse_out = capture.log_sum_exp, entropy_out = capture.entropy;
          if (!lse_out.empty()) At(lse_out, h, row) = static_cast<float>(lse);
          if (!entropy_out.empty()) At(entropy_out, h, row) = static_cast<float>(entropy);
        }
      }
    }
  }

  void DoAddSinks(const Tensor& sinks, Tensor out, Tensor log_sum_exp, Tensor entropy) override {
    for (int64_t i = 0; i < out.shape[0]; ++i) {
      for (int64_t h = 0; h < out.shape[1]; ++h) {
        const double sink = sinks.f32()[h], before = At(log_sum_exp, h, i);
        const double after = LogSumExp({before, sink});
        const double kept = std::exp(before - after), taken = std::exp(sink - after);
        float* row = out[i][h].f32();
        for (int64_t k = 0; k < out.shape[2]; ++k) row[k] = static_cast<float>(row[k] * kept);
        At(log_sum_exp, h, i) = static_cast<float>(after);
        if (entropy.empty()) continue;
        double both = taken > 0 ? -taken * std::log(taken) : 0;
        if (kept > 0) both += kept * (At(entropy, h, i) - std::log(kept));
        At(entropy, h, i) = static_cast<float>(both);
      }
    }
  }

  void DoWindowProbabilities(const AttentionShape& shape, const AttentionItem& item,
                             const Tensor& q, const Tensor& log_sum_exp, Tensor out) override {
    const int64_t group = shape.query_heads / shape.kv_heads;
    Entries entries;
    for (int64_t h = 0; h < shape.query_heads; ++h) {
      if (h % group == 0) entries = EntriesOf(shape, item.heads[h / group]);
      for (int64_t i = 0; i < item.rows; ++i) {
        const std::vector<double> scores = Scores(shape, item, entries, q, h, i);
        const double lse = At(log_sum_exp, h, item.first_row + i);
        float* probabilities = out[h][i].f32();
        for (int64_t j = 0; j < out.shape[2]; ++j) {
          const bool seen = j < std::ssize(scores) && !std::isinf(scores[j]);
          probabilities[j] = seen ? static_cast<float>(std::exp(scores[j] - lse)) : 0.0f;
        }
      }
    }
  }

  void DoReduceColumns(const AttentionShape& shape, const AttentionItem& item, const Tensor& q,
                       const Tensor& log_sum_exp, const ColumnRequest& request,
                       Tensor out) override {
    const int64_t group = shape.query_heads / shape.kv_heads;
    Entries entries;
    for (int64_t h = 0; h < shape.query_heads; ++h) {
      if (h % group == 0) entries = EntriesOf(shape, item.heads[h / group]);
      std::vector<double> columns(out.shape[1]);
      for (int64_t r = 0; r < request.rows; ++r) {
        const int64_t i = request.first_row + r;
        const double w = request.row_weights.empty() ? 1.0 : request.row_weights.f32()[r];
        const std::vector<double> scores = Scores(shape, item, entries, q, h, i);
        const double lse = At(log_sum_exp, h, item.first_row + i);
        for (size_t j = 0; j < scores.size(); ++j) {
          if (std::isinf(scores[j])) continue;
          const double p = std::exp(scores[j] - lse);
          switch (request.kind) {
            case ColumnReduction::kSum:
              columns[j] += w * p;
              break;
            case ColumnReduction::kSumSquares:
              columns[j] += w * p * p;
              break;
            case ColumnReduction::kMax:
              columns[j] = std::max(columns[j], w * p);
              break;
            case ColumnReduction::kCountAbove:
              columns[j] += p >= request.threshold ? w : 0.0;
              break;
          }
        }
      }
      std::copy(columns.begin(), columns.end(), out[h].f32());
    }
  }
};

}  // namespace

std::unique_ptr<AttentionOps> MakeReferenceAttention() {
  return std::make_unique<ReferenceAttention>();
}

}  // namespace kvgauge
