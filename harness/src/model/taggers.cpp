// SPDX-License-Identifier: Apache-2.0
#include "src/model/taggers.h"

#include <memory>
#include <string>
#include <utility>

#include "core/strings.h"
#include "runner/encoder.h"
#include "src/model/shipped_files.h"

namespace kvgauge {

Status AttachTaggers(Method& method) {
  for (StageChoice* choice : method.stages()) {
    const std::string path = TaggerPath(*choice);
    if (path.empty()) continue;
    Result<std::shared_ptr<const TaggerModel>> tagger = LookAtTagger(FindShipped(path));
    if (!tagger.ok()) {
      return tagger.error().Wrap(StrCat(NameOf(*choice->spec), ".", kTaggerParam));
    }
    choice->tagger = *std::move(tagger);
  }
  return {};
}

Result<Taggers> LoadTaggers(std::span<const Method* const> methods, Ops& ops) {
  Taggers taggers;
  for (const Method* method : methods) {
    for (const StageChoice* choice : method->stages()) {
      if (choice->tagger == nullptr || taggers.contains(choice->tagger->directory)) continue;
      KVG_ASSIGN(taggers[choice->tagger->directory],
                 TokenClassifier::Load(choice->tagger->directory, ops));
    }
  }
  return taggers;
}

}  // namespace kvgauge
