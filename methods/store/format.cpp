// SPDX-License-Identifier: Apache-2.0
// The cache formats of inference engines: llama.cpp's blocks, and float8. Needs nothing.
//
// Every entry is coded when it is written, as llama.cpp does.
#include <utility>

#include "core/strings.h"
#include "methods/layouts/coded.h"
#include "methods/registry.h"

namespace kvgauge {
namespace {

class Format final : public Store {
 public:
  explicit Format(const Params& params)
      : keys_(params.Text("keys")), values_(params.Text("values")), sinks_(params.Int("sinks")) {}

  Status Check(const ModelShape& shape) const override {
    KVG_TRY(CheckSide("keys", keys_, shape.key_dim));
    return CheckSide("values", values_, shape.value_dim);
  }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t) const override {
    Coded layout(shape);
    Fill(keys_, layout.keys);
    Fill(values_, layout.values);
    layout.sinks = sinks_;
    return PlanOf(std::move(layout));
  }

 private:
  static Status CheckSide(const char* side, const std::string& format, int64_t dim) {
    if (!format.starts_with('q') || dim % 32 == 0) return {};
    return BadInput(StrCat(side, " '", format, "' has blocks of 32 dims, and an entry has ", dim,
                           "; use fp8 or the affine store"));
  }

  static void Fill(const std::string& format, KvCodec& codec) {
    if (format == "q8_0") codec.kind = KvCodecKind::kQ8_0;
    if (format == "q4_0") codec.kind = KvCodecKind::kQ4_0;
    if (format == "fp8") codec.kind = KvCodecKind::kFp8E4M3;
  }

  std::string keys_, values_;
  int64_t sinks_;
};

ParamSpec FormatParam(std::string name, std::string help) {
  return ChoiceParam(std::move(name), "q8_0", {"q8_0", "q4_0", "fp8", "none"}, std::move(help));
}

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "format",
    .summary = "formats of inference engines: q8_0, q4_0, float8 e4m3",
    .departures = {"attention of the prompt reads uncoded entries", "float8 has scale 1"},
    .bytes = "of 32 numbers: q8_0 34, q4_0 18, fp8 32",
    .params = {FormatParam("keys", "format of keys"), FormatParam("values", "format of values"),
               IntParam("sinks", 0, 0, 4096, "first entries that stay uncoded")},
    .make = Make<Format>(),
});

}  // namespace
}  // namespace kvgauge
