// SPDX-License-Identifier: Apache-2.0
#include "src/run/sample_visuals.h"

#include <filesystem>
#include <utility>

#include "core/files.h"
#include "core/json.h"
#include "core/sha256.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

std::string DirectoryOf(const std::string& model) {
  if (DirectoryExists(model)) return model;
  return std::filesystem::path(model).parent_path().string();
}

}  // namespace

Result<VisualInput> SampleEyes::Look(const Sample& sample) {
  VisualInput input;
  if (sample.pictures.empty()) return input;
  if (!preprocessor_) {
    KVG_ASSIGN(spec_, ReadVisionConfig(model_));
    if (!spec_ || config_.vision_family.empty()) {
      return BadInput(StrCat(config_.path, ": ", config_.family,
                             " is a text model, but the task shows pictures; expected a "
                             "vision-language model"));
    }
    KVG_ASSIGN(preprocessor_, ReadPicturePreprocessor(DirectoryOf(model_)));
  }
  input.spec = *spec_;
  for (const Picture& picture : sample.pictures) {
    Result<std::string> bytes = picture.load();
    if (!bytes.ok()) return bytes.error().Wrap(StrCat("sample ", sample.id));
    const Status added =
        AddPicture(*preprocessor_, *bytes, picture.name, std::ssize(sample.pictures), input);
    if (!added.ok()) return added.error().Wrap(StrCat("sample ", sample.id));
  }
  return input;
}

Result<Json> PicturesProtocol(const std::string& model) {
  const std::string path = DirectoryOf(model) + "/preprocessor_config.json";
  KVG_ASSIGN(const Json config, ReadJsonFile(path));
  return Json{{"preprocessor", Sha256Hex(CanonicalJson(config))}, {"source", "original"}};
}

}  // namespace kvgauge
