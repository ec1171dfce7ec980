// SPDX-License-Identifier: Apache-2.0
#include "src/model/method_flags.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/log.h"
#include "core/strings.h"
#include "kernels/devices.h"
#include "runner/calibrate.h"
#include "runner/tokenizer.h"
#include "src/cli/print.h"
#include "src/model/draft_models.h"
#include "src/model/model_flags.h"
#include "src/model/taggers.h"

namespace kvgauge {
namespace {

// "103 of 512", or "80 .. 120 of 512" where heads differ.
std::string CountRange(const std::vector<int64_t>& after, const std::vector<int64_t>& before) {
  const auto [least, most] = std::minmax_element(after.begin(), after.end());
  const int64_t had = *std::max_element(before.begin(), before.end());
  if (*least == *most) return StrCat(*least, " of ", had);
  return StrCat(*least, " .. ", *most, " of ", had);
}

// "layers 0 .. 3   103 of 512": neighbours that are alike share a line.
std::string DescribeEntries(const CompressionRecord& record) {
  std::string text;
  const size_t layers = record.entries_after.size();
  for (size_t begin = 0; begin < layers;) {
    const std::string range = CountRange(record.entries_after[begin], record.entries_before[begin]);
    size_t end = begin + 1;
    while (end < layers &&
           CountRange(record.entries_after[end], record.entries_before[end]) == range) {
      ++end;
    }
    const std::string bits = Fixed(record.bits[begin], 2);
    const std::string name =
        end == begin + 1 ? StrCat("layer ", begin) : StrCat("layers ", begin, " .. ", end - 1);
    text += StrCat("entries  ", name, ": ", range, " a head, ", bits, " bits a number\n");
    begin = end;
  }
  return text;
}

std::string Milliseconds(double seconds) { return StrCat(Fixed(1e3 * seconds, 1), " ms"); }

}  // namespace

Result<std::string> MethodDirectory() {
  KVG_ASSIGN(const std::string path, FindConfigFile("methods/full.json"));
  return std::filesystem::path(path).parent_path().string();
}

Status AttachCalibrations(Method& method) {
  for (StageChoice* choice : method.stages()) {
    const std::string path = CalibrationPath(*choice);
    if (path.empty()) continue;
    KVG_ASSIGN(std::shared_ptr<const Calibration> read, ReadCalibration(FindShipped(path)));
    KVG_TRY(AttachCalibration(*choice, std::move(read)));
  }
  return {};
}

Result<Method> ReadMethod(const std::string& name, const std::string& directory,
                          const std::vector<std::string>& overrides) {
  KVG_ASSIGN(Method method, LoadMethod(name, directory, overrides));
  Status attached = AttachCalibrations(method);
  if (attached.ok()) attached = AttachDraftModels(method);
  if (attached.ok()) attached = AttachTaggers(method);
  if (!attached.ok()) return attached.error().Wrap(StrCat("method ", method.id));
  return method;
}

Result<ChosenMethod> ChooseMethod(const MethodFlags& flags) {
  KVG_ASSIGN(const std::string directory, MethodDirectory());
  ChosenMethod chosen;
  KVG_ASSIGN(chosen.method, ReadMethod(flags.method, directory, flags.overrides));
  KVG_ASSIGN(chosen.budget, Budget::Parse(flags.budget));
  return chosen;
}

Result<LoadedModel> LoadModelFor(const ChosenMethod& chosen, const ModelFlags& flags,
                                 int64_t prompt_tokens) {
  KVG_ASSIGN(ModelOptions options, ParseModelOptions(flags));
  KVG_ASSIGN(const ModelConfig config, ReadModelConfig(flags.model));
  const ModelShape shape = ShapeFor(flags, config, options);
  const auto stages = chosen.method.stages();
  if (std::any_of(stages.begin(), stages.end(),
                  [](const StageChoice* choice) { return choice->calibration != nullptr; })) {
    KVG_ASSIGN(const std::string fingerprint, FingerprintOf(flags));
    KVG_TRY(CheckCalibrations(chosen.method, fingerprint));
  }
  KVG_TRY(CheckMethod(chosen.method, shape, chosen.budget, prompt_tokens));
  for (const std::string& note : ShorterGroups(chosen.method, shape)) LogWarning(note);
  KVG_TRY(CheckDraftModels(chosen.method, flags.model, config, nullptr));
  const Pipeline pipeline = MakePipeline(chosen.method);
  options.prepare = pipeline.prepare.get();
  options.mla_latent = KeepsModelLatents(chosen.method, shape);
  if (const Needs needs = chosen.method.needs(); needs.token_classes || needs.encoder) {
    KVG_ASSIGN(std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(flags.model));
    options.token_classes = ClassifyTokens(*tokenizer);
    const std::shared_ptr<const Tokenizer> shared = std::move(tokenizer);
    options.encode = EncoderOf(shared);
    options.spell = SpellerOf(shared);
  }
  LoadedModel loaded;
  KVG_ASSIGN(loaded.ops, MakeOpsFor(flags));
  if (DevicesOf(*loaded.ops).size() > 1) {
    KVG_TRY(CheckLayered(chosen.method, config.layer_count(), shape));
  }
  const Method* method = &chosen.method;
  KVG_ASSIGN(options.drafters, LoadDrafters({&method, 1}, *loaded.ops));
  KVG_ASSIGN(options.taggers, LoadTaggers({&method, 1}, *loaded.ops));
  KVG_ASSIGN(loaded.model, Model::Load(flags.model, options, *loaded.ops));
  return loaded;
}

std::string LoadedBeside(const Method& method) {
  std::string beside;
  if (const Needs needs = method.needs(); needs.token_classes || needs.encoder) {
    beside += " tokens";
  }
  for (const StageChoice* choice : method.stages()) {
    if (choice->draft != nullptr) beside += StrCat(" ", choice->draft->directory);
    if (choice->tagger != nullptr) beside += StrCat(" ", choice->tagger->directory);
  }
  return beside;
}

std::string DescribeRecord(const ChosenMethod& chosen, const CompressionRecord& record) {
  std::string text = StrCat("method   ", chosen.method.id, " ", chosen.budget.ToString(), ": ",
                            NameOf(record.engagement));
  if (!record.reason.empty()) text += StrCat(" (", record.reason, ")");
  text +=
      StrCat("\ncache    ", HumanBytes(record.nominal_bytes), " nominal, ",
             HumanBytes(record.bytes.logical()), " logical, ", HumanBytes(record.bytes.resident()),
             " resident, of ", HumanBytes(record.full_bytes), "\n");
  text += DescribeEntries(record);
  int64_t merged = 0;
  for (const int64_t count : record.merged) merged += count;
  if (merged > 0) text += StrCat("merged   ", merged, " entries\n");
  if (record.steps > 0) {
    text += StrCat("reads    ", Fixed(record.reads_per_step, 1), " entries a head and step, ",
                   Fixed(100 * record.read_share, 1), "% of those held\n");
  }
  if (record.host_bytes > 0) {
    const double fetched = record.fetched_bytes_per_step;
    text += StrCat("host     ", HumanBytes(record.host_bytes), " of ",
                   HumanBytes(record.bytes.logical() + record.reader_bytes), " by place");
    if (record.steps > 0) {
      text += StrCat(", ", HumanBytes(std::llround(fetched)), " fetched a step");
    }
    text += " (counted; the cache lies in one memory)\n";
  }
  const PhaseSeconds& s = record.seconds;
  text += StrCat("time     prefill ", Milliseconds(s.prefill), ", score ", Milliseconds(s.score),
                 ", select ", Milliseconds(s.select), ", compact ", Milliseconds(s.compact),
                 ", quantise ", Milliseconds(s.quantise), ", attend ", Milliseconds(s.attend),
                 ", other ", Milliseconds(s.other), "\n");
  return text;
}

}  // namespace kvgauge
