// SPDX-License-Identifier: Apache-2.0
#include "src/cache/plan_serial.h"

#include <bit>

#include "core/strings.h"
#include "src/cache/bytes.h"

namespace kvgauge {
namespace {

void PutReal(std::string& out, double number) { PutNumber(out, std::bit_cast<int64_t>(number)); }
Status TakeReal(std::string_view& in, double* number) {
  int64_t bits = 0;
  KVG_TRY(TakeNumber(in, &bits));
  *number = std::bit_cast<double>(bits);
  return {};
}

// Host tables.
void PutTable(std::string& out, const Tensor& table) {
  PutNumber(out, table.empty() ? 0 : table.Numel());
  if (!table.empty()) PutBytes(out, std::span<const float>(table.f32(), table.Numel()));
}

template <class Enum>
Status TakeEnum(std::string_view& in, const char* what, Enum most, Enum* value) {
  int64_t number = 0;
  KVG_TRY(TakeNumber(in, what, 0, static_cast<int64_t>(most), &number));
  *value = static_cast<Enum>(number);
  return {};
}

Status TakeFlag(std::string_view& in, const char* what, bool* flag) {
  int64_t number = 0;
  KVG_TRY(TakeNumber(in, what, 0, 1, &number));
  *flag = number != 0;
  return {};
}

void PutCodec(std::string& out, const KvCodec& codec) {
  for (const int64_t number :
       {static_cast<int64_t>(codec.kind), codec.dim, static_cast<int64_t>(codec.dtype),
        static_cast<int64_t>(codec.bits), static_cast<int64_t>(codec.axis), codec.group,
        static_cast<int64_t>(codec.symmetric), static_cast<int64_t>(codec.range), codec.rank}) {
    PutNumber(out, number);
  }
  PutReal(out, codec.outlier_share);
  for (const Tensor* table : {&codec.levels, &codec.channel_low, &codec.channel_high}) {
    PutTable(out, *table);
  }
}

}  // namespace

Status StoredPlan::TakeTable(std::string_view& in, Tensor* table) {
  std::vector<float>& memory = tables_.emplace_back();
  KVG_TRY(TakeArray(in, &memory));
  if (!memory.empty()) *table = View(memory, {std::ssize(memory)});
  return {};
}

Status StoredPlan::TakeCodec(std::string_view& in, KvSide side, KvCodec* codec) {
  constexpr int64_t kMost = int64_t{1} << 20;
  codec->side = side;
  int64_t bits = 0;
  KVG_TRY(TakeEnum(in, "kind of codec", KvCodecKind::kCodebook, &codec->kind));
  KVG_TRY(TakeNumber(in, "dims of a codec", 0, kMost, &codec->dim));
  KVG_TRY(TakeEnum(in, "type of a codec", DType::kBF16, &codec->dtype));
  KVG_TRY(TakeNumber(in, "bits of a codec", 0, 8, &bits));
  codec->bits = static_cast<int>(bits);
  KVG_TRY(TakeEnum(in, "axis of a codec", CodeAxis::kChannel, &codec->axis));
  KVG_TRY(TakeNumber(in, "group of a codec", 0, kMost, &codec->group));
  KVG_TRY(TakeFlag(in, "symmetry of a codec", &codec->symmetric));
  KVG_TRY(TakeEnum(in, "range of a codec", CodeRange::kRms, &codec->range));
  KVG_TRY(TakeNumber(in, "rank of a codec", 0, kMost, &codec->rank));
  KVG_TRY(TakeReal(in, &codec->outlier_share));
  for (Tensor* table : {&codec->levels, &codec->channel_low, &codec->channel_high}) {
    KVG_TRY(TakeTable(in, table));
  }
  return {};
}

Status StoredPlan::TakeChannels(std::string_view& in, int64_t kv_heads, int64_t key_dim) {
  KVG_TRY(TakeNumber(in, "numbers of a narrow key", 0, key_dim, &plan_.narrow_dim));
  KVG_TRY(TakeNumber(in, "entries that stay wide", 0, INT32_MAX, &plan_.wide_recent));
  KVG_TRY(TakeArray(in, &channels_));
  if (std::ssize(channels_) != kv_heads * plan_.narrow_dim) {
    return BadInput(StrCat("cache bytes: ", channels_.size(), " key channels; expected ",
                           kv_heads * plan_.narrow_dim));
  }
  if (!channels_.empty()) {
    plan_.key_channels = View(channels_, {kv_heads, plan_.narrow_dim});
  }
  return {};
}

void PutPlan(std::string& out, const StorePlan& plan) {
  PutCodec(out, plan.keys);
  PutCodec(out, plan.values);
  for (const int64_t number :
       {plan.seal_keys.unit, plan.seal_keys.keep_recent, plan.seal_values.unit,
        plan.seal_values.keep_recent, plan.sinks, static_cast<int64_t>(plan.raw_keys),
        static_cast<int64_t>(plan.position), plan.position_limit, static_cast<int64_t>(plan.latent),
        static_cast<int64_t>(plan.mla_latent), static_cast<int64_t>(plan.tier),
        static_cast<int64_t>(plan.constant_ranges)}) {
    PutNumber(out, number);
  }
  PutTable(out, plan.key_low);
  PutTable(out, plan.key_high);
  PutNumber(out, plan.narrow_dim);
  PutNumber(out, plan.wide_recent);
  const Tensor& channels = plan.key_channels;
  PutNumber(out, channels.empty() ? 0 : channels.Numel());
  if (!channels.empty()) PutBytes(out, std::span<const int32_t>(channels.i32(), channels.Numel()));
}

Status StoredPlan::Take(std::string_view& in, int64_t kv_heads, int64_t key_dim) {
  KVG_TRY(TakeCodec(in, KvSide::kKeys, &plan_.keys));
  KVG_TRY(TakeCodec(in, KvSide::kValues, &plan_.values));
  for (SealRule* rule : {&plan_.seal_keys, &plan_.seal_values}) {
    KVG_TRY(TakeNumber(in, "unit of a seal rule", 1, INT32_MAX, &rule->unit));
    KVG_TRY(TakeNumber(in, "entries that stay", 0, INT32_MAX, &rule->keep_recent));
  }
  KVG_TRY(TakeNumber(in, "sinks", 0, INT32_MAX, &plan_.sinks));
  KVG_TRY(TakeFlag(in, "raw keys", &plan_.raw_keys));
  KVG_TRY(TakeEnum(in, "position policy", PositionPolicy::kClipped, &plan_.position));
  KVG_TRY(TakeNumber(in, "position limit", 0, INT32_MAX, &plan_.position_limit));
  KVG_TRY(TakeFlag(in, "latents", &plan_.latent));
  KVG_TRY(TakeFlag(in, "latents of the model", &plan_.mla_latent));
  KVG_TRY(TakeEnum(in, "tier", Tier::kDisk, &plan_.tier));
  KVG_TRY(TakeFlag(in, "constant ranges", &plan_.constant_ranges));
  KVG_TRY(TakeTable(in, &plan_.key_low));
  KVG_TRY(TakeTable(in, &plan_.key_high));
  KVG_TRY(TakeChannels(in, kv_heads, key_dim));
  if (plan_.key_low.empty() && plan_.key_high.empty()) return {};
  const int64_t numbers = plan_.key_low.empty() ? 0 : plan_.key_low.Numel();
  if (plan_.key_high.empty() || plan_.key_high.Numel() != numbers ||
      numbers != kv_heads * key_dim) {
    return BadInput(
        StrCat("cache bytes: ranges of ", numbers, " numbers; expected ", kv_heads * key_dim));
  }
  for (Tensor* table : {&plan_.key_low, &plan_.key_high}) {
    *table = table->Reshape({kv_heads, key_dim});
  }
  return {};
}

}  // namespace kvgauge
