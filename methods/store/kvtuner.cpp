// SPDX-License-Identifier: Apache-2.0
// Codes whose bits a list gives layer by layer, apart for keys and values.
//
// Paper: KVTuner, arXiv:2502.04420, whose search gives such lists for a model. Needs nothing. Lists
// are numbers, one for each layer; other counts stand for equal stretches of layers. With `codes`
// kivi keys are coded by channel and values by entry, as KIVI does, in groups of 32; with token
// both by entry, whose numbers share a scale.
#include <algorithm>

#include "core/strings.h"
#include "methods/kivi_layout.h"
#include "methods/registry.h"

namespace kvgauge {
namespace {

Result<std::vector<int>> ParseBits(const char* name, const std::string& text) {
  std::vector<int> bits;
  for (const std::string& part : Split(text, ',')) {
    const std::string_view number = Trim(part);
    const bool right =
        number.size() == 1 && std::string_view("12348").find(number[0]) != std::string_view::npos;
    if (!right) {
      return BadInput(StrCat(name, " ", Quoted(text), ": ", Quoted(number),
                             " must be 1, 2, 3, 4 or 8; write one for each layer, such as "
                             "\"8,4,4,2\""));
    }
    bits.push_back(number[0] - '0');
  }
  return bits;
}

class KvTuner final : public Store {
 public:
  explicit KvTuner(const Params& params)
      : key_bits_(params.Text("key_bits")),
        value_bits_(params.Text("value_bits")),
        by_token_(params.Text("codes") == "token"),
        group_(params.Int("group") > 0 ? params.Int("group")
               : by_token_             ? kWholeEntry
                                       : kKiviGroup),
        residual_(params.Int("residual")) {}

  Status Check(const ModelShape& shape) const override {
    for (const auto& [name, text] :
         {std::pair{"key_bits", &key_bits_}, std::pair{"value_bits", &value_bits_}}) {
      const Result<std::vector<int>> bits = ParseBits(name, *text);
      if (!bits.ok()) return bits.error();
    }
    return by_token_ ? Status() : CheckKiviLayout(shape, group_, residual_);
  }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t layer) const override {
    KVG_ASSIGN(const std::vector<int> keys, ParseBits("key_bits", key_bits_));
    KVG_ASSIGN(const std::vector<int> values, ParseBits("value_bits", value_bits_));
    const auto of_layer = [&](const std::vector<int>& bits) {
      return bits[static_cast<size_t>(layer * std::ssize(bits) / shape.layers)];
    };
    const int64_t group = by_token_ ? kKiviGroup : group_;
    Coded layout =
        KiviLayout(shape, of_layer(keys), of_layer(values), group, std::max(group, residual_));
    if (!by_token_) return PlanOf(std::move(layout));
    for (KvCodec* codec : {&layout.keys, &layout.values}) {
      codec->axis = CodeAxis::kToken;
      codec->group = std::min(group_, codec->dim);
    }
    layout.seal_keys = SealWhole(layout.keys, residual_);
    layout.seal_values = SealWhole(layout.values, residual_);
    return PlanOf(std::move(layout));
  }

 private:
  static constexpr int64_t kKiviGroup = 32, kWholeEntry = INT64_MAX;

  std::string key_bits_, value_bits_;
  bool by_token_;
  int64_t group_, residual_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "kvtuner",
    .paper = "arXiv:2502.04420",
    .summary = "codes whose bits a list gives layer by layer, for keys and for values",
    .departures = {"lists are written in the method; the search for them is not part of it",
                   "zeros are stored as numbers, where the reference rounds them to whole codes",
                   "entries are coded once; the reference codes its whole cache anew at each flush",
                   "attention of the prompt reads uncoded entries"},
    .bytes = "for each side: dim * (bits of the layer / 8 + 4 / group), and up to `residual` "
             "entries uncoded",
    .params = {ChoiceParam("key_bits", "8,4,4,2", {}, "bits of keys, layer by layer"),
               ChoiceParam("value_bits", "4,4,2,2", {}, "bits of values, layer by layer"),
               ChoiceParam("codes", "token", {"token", "kivi"},
                           "keys and values by entry, or as KIVI does"),
               IntParam("group", 0, 0, 4096,
                        "numbers that share a scale; kivi: 16, 32 or 64; 0: those of an entry, "
                        "kivi: 32"),
               IntParam("residual", 0, 0, 4096,
                        "newest entries that stay uncoded; kivi: keys are coded so many at a "
                        "time")},
    .make = Make<KvTuner>(),
});

}  // namespace
}  // namespace kvgauge
