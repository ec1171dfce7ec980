// SPDX-License-Identifier: Apache-2.0
#include "src/run/picture_features.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/clock.h"
#include "core/strings.h"
#include "images/decode.h"
#include "src/model/visual_input.h"
#include "src/run/picture_record.h"

namespace kvgauge {
namespace {

// Pictures on their way to the tower.
struct Batch {
  std::vector<std::string> keys;
  std::vector<PixelValues> pixels;
  std::vector<std::shared_ptr<const PictureRow>> thumbnails;
  std::vector<uint64_t> seeds;
  int64_t rows = 0, bytes = 0;
};

}  // namespace

int64_t KeptFeatureBytes(int64_t max_memory_bytes) {
  if (max_memory_bytes <= 0) return kKeptFeatureBytes;
  return std::min(kKeptFeatureBytes, max_memory_bytes / kKeptFeatureShare);
}

int64_t PictureFeature::bytes() const {
  int64_t numbers = std::ssize(features.rows);
  for (const std::vector<float>& layer : features.deepstack) numbers += std::ssize(layer);
  return numbers * 4 + (thumbnail == nullptr ? 0 : std::ssize(thumbnail->thumbnail));
}

// The file's content, and what of its prompt the preprocessor looks at.
std::string PictureFeatures::KeyOf(const PictureRequest& request, const SeeKey& see) const {
  const bool squared = preprocessor_.many_as_squares && request.pictures_in_prompt > 1;
  return StrCat(request.picture->hash, squared ? " squared" : "",
                OfPictures(see.stage) != nullptr ? " " + see.key : "");
}

Result<PictureFeatures::Looked> PictureFeatures::Look(const PictureRequest& request) const {
  KVG_ASSIGN(const std::string bytes, request.picture->load());
  KVG_ASSIGN(const Image image, DecodeImage(bytes, request.picture->name));
  Result<PixelValues> pixels = Preprocess(preprocessor_, image, request.pictures_in_prompt);
  if (!pixels.ok()) return pixels.error().Wrap(request.picture->name);
  const SeenPart part =
      PartSeen(preprocessor_, image.height, image.width, request.pictures_in_prompt);
  Result<std::shared_ptr<const PictureRow>> thumbnail =
      MakeThumbnail(image, part, request.picture->hash);
  if (!thumbnail.ok()) return thumbnail.error().Wrap(request.picture->name);
  return Looked{*std::move(pixels), *std::move(thumbnail)};
}

void PictureFeatures::Keep(const std::string& key, std::shared_ptr<const PictureFeature> feature) {
  const int64_t bytes = feature->bytes();
  if (bytes > most_bytes_) return;
  while (bytes_ + bytes > most_bytes_) {
    bytes_ -= kept_.back().feature->bytes();
    by_key_.erase(kept_.back().key);
    kept_.pop_back();
  }
  kept_.push_front({key, std::move(feature)});
  by_key_[key] = kept_.begin();
  bytes_ += bytes;
}

std::vector<FeatureResult> PictureFeatures::Get(std::span<const PictureRequest> requests,
                                                VisionTower& tower, const SeeKey& see) {
  std::map<std::string, FeatureResult> found;  // of this call
  Batch batch;
  const auto encode = [&]() {
    if (batch.keys.empty()) return;
    const double start_s = NowSeconds();
    Result<std::vector<VisualFeatures>> encoded =
        tower.Encode(batch.pixels, Modality::kImage, nullptr, OfPictures(see.stage), batch.seeds);
    const double seconds = NowSeconds() - start_s;
    for (size_t i = 0; i < batch.keys.size(); ++i) {
      if (!encoded.ok()) {
        found.insert_or_assign(batch.keys[i], encoded.error());
        continue;
      }
      auto feature = std::make_shared<PictureFeature>();
      feature->features = std::move((*encoded)[i]);
      feature->thumbnail = batch.thumbnails[i];
      feature->seconds = seconds * static_cast<double>(TowerRows(tower.spec(), batch.pixels[i])) /
                         static_cast<double>(batch.rows);
      Keep(batch.keys[i], feature);
      found.insert_or_assign(batch.keys[i],
                             std::shared_ptr<const PictureFeature>(std::move(feature)));
      ++encoded_;
    }
    batch = {};
  };
  for (const PictureRequest& request : requests) {
    const std::string key = KeyOf(request, see);
    if (found.count(key) > 0) {
      ++shared_;
      continue;
    }
    if (const auto kept = by_key_.find(key); kept != by_key_.end()) {
      kept_.splice(kept_.begin(), kept_, kept->second);
      found.insert_or_assign(key, kept->second->feature);
      ++shared_;
      continue;
    }
    Result<Looked> looked = Look(request);
    if (looked.ok()) {
      // What the tower cannot take must not fail its neighbours in a batch.
      const Result<VisualLayout> layout =
          LayOutVisual(tower.spec(), looked->pixels, Modality::kImage);
      if (!layout.ok()) looked = layout.error().Wrap(request.picture->name);
    }
    if (!looked.ok()) {
      found.insert_or_assign(key, looked.error());
      continue;
    }
    PixelValues& pixels = looked->pixels;
    if (batch.bytes + PixelBytes(pixels) > pixel_bytes_) encode();
    batch.keys.push_back(key);
    batch.seeds.push_back(SeedOfPicture(request.picture->hash));
    batch.rows += TowerRows(tower.spec(), pixels);
    batch.bytes += PixelBytes(pixels);
    batch.pixels.push_back(std::move(pixels));
    batch.thumbnails.push_back(std::move(looked->thumbnail));
    most_pixel_bytes_ = std::max(most_pixel_bytes_, batch.bytes);
    // Known from now on, so that the same picture does not wait twice.
    found.insert_or_assign(key, FeatureResult(std::shared_ptr<const PictureFeature>()));
    if (batch.rows >= VisionTower::kBatchRows) encode();
  }
  encode();
  std::vector<FeatureResult> results;
  results.reserve(requests.size());
  for (const PictureRequest& request : requests) results.push_back(found.at(KeyOf(request, see)));
  return results;
}

std::shared_ptr<const SampleVisuals> JoinFeatures(
    std::span<const std::shared_ptr<const VisualFeatures>> features, int64_t hidden_size) {
  std::vector<const VisualFeatures*> rows;
  rows.reserve(features.size());
  for (const auto& feature : features) rows.push_back(feature.get());
  return JoinRows(rows, hidden_size);
}

std::vector<std::shared_ptr<const VisualFeatures>> FeaturesLeft(
    const See* see, std::span<const Picture> pictures,
    std::span<const std::shared_ptr<const PictureFeature>> features) {
  std::vector<std::shared_ptr<const VisualFeatures>> all;
  all.reserve(features.size());
  for (const auto& feature : features) all.emplace_back(feature, &feature->features);
  if (see == nullptr || !see->sees().frames) return all;
  std::vector<int32_t> video_of;
  video_of.reserve(pictures.size());
  for (const Picture& picture : pictures) {
    // The context's frames are one video, those of each question another.
    video_of.push_back(picture.frame < 0 ? -1 : static_cast<int32_t>(picture.question + 1));
  }
  return JoinFrames(*see, all, video_of);
}

}  // namespace kvgauge
