// SPDX-License-Identifier: Apache-2.0
// Models of which nothing but the full cache is run, or whose entries nothing else may change.
#include <memory>

#include "core/strings.h"
#include "methods/method.h"

namespace kvgauge {
namespace {

// Refuses what would evict, code, read or move entries; `why` says why nothing may.
Status CheckLeavesEntries(const Method& method, const ModelShape& shape, std::string_view why) {
  for (const StageChoice* choice : method.stages()) {
    const StageKind kind = choice->spec->kind;
    if (kind == StageKind::kPrepare || kind == StageKind::kSee) continue;
    if (kind != StageKind::kStore) {
      return Unsupported(StrCat(NameOf(*choice->spec), ": acts on entries", why, "leave it out"));
    }
    const std::unique_ptr<Stage> store = MakeStage(*choice);
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
      const Result<StorePlan> plan =
          static_cast<const Store&>(*store).Plan(shape.OfLayer(layer), layer);
      if (plan.ok() && plan->IsPlain()) continue;
      return Unsupported(
          StrCat(NameOf(*choice->spec), ": stores entries otherwise", why, "use store.plain"));
    }
  }
  if (!method.place.any()) return {};
  return Unsupported(StrCat("place: moves entries", why, "leave it out"));
}

// Refuses what would change the model, too.
Status CheckFullAlone(const Method& method, const ModelShape& shape, std::string_view why) {
  if (method.prepare) {
    return Unsupported(
        StrCat(NameOf(*method.prepare->spec), ": changes the model", why, "leave it out"));
  }
  return CheckLeavesEntries(method, shape, why);
}

}  // namespace

Status CheckRunningEntries(const Method& method, const ModelShape& shape) {
  if (!shape.running_entries) return {};
  return CheckLeavesEntries(
      method, shape,
      ", and rows of this model go on joining the newest entry of each head (prepare.dmc), so that "
      "nothing else may change or choose entries; ");
}

Status CheckPromptPasses(const Method& method, const ModelShape& shape) {
  if (shape.prompt_passes == 1) return {};
  return CheckFullAlone(
      method, shape,
      StrCat(", and a prompt goes through layers of this model ", shape.prompt_passes,
             " times, each time writing all entries anew, as layers read what later ones make; "
             "only its full cache is run; "));
}

Status CheckMadeKeys(const Method& method, const ModelShape& shape) {
  if (!shape.made_keys) return {};
  return CheckFullAlone(
      method, shape,
      StrCat(", and layers of this model make keys and values anew of one row of ", shape.key_dim,
             " numbers for each token and of that before it; only its full cache is run; "));
}

Status CheckBlockEntries(const Method& method, const ModelShape& shape) {
  if (shape.entry_tokens == 1) return {};
  return CheckFullAlone(
      method, shape,
      StrCat(", and an entry of this model stands for a block of ", shape.entry_tokens,
             " tokens, of which methods know nothing; only its full cache is "
             "run; "));
}

}  // namespace kvgauge
