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

int64_t KeptFeatureBytes(int64_t max_memory_bytes, const Ops& ops) {
  if (max_memory_bytes <= 0 && ops.device == Device::kHost) return kKeptFeatureBytes;
  const int64_t bound = max_memory_bytes > 0 ? max_memory_bytes : ops.memory->FreeBytes();
  return std::min(kKeptFeatureBytes, bound / kKeptFeatureShare);
}

int64_t WindowVisualBytes(int64_t max_memory_bytes, const Ops& ops) {
  constexpr int64_t kMost = int64_t{1} << 29;
  if (ops.device == Device::kHost) return kMost;
  const int64_t bound = max_memory_bytes > 0 ? max_memory_bytes : ops.memory->FreeBytes();
  return std::clamp<int64_t>(bound / kKeptFeatureShare, 1, kMost);
}

int64_t PictureFeature::bytes() const {
  return features.rows.bytes() + (thumbnail == nullptr ? 0 : std::ssize(thumbnail->thumbnail));
}

int64_t PictureFeatures::BytesBeside(const HeldRows& shown) const {
  int64_t bytes = 0;
  for (const Kept& kept : kept_) {
    const VisualRows& rows = kept.feature->features.rows;
    // Small copies of pictures are the host's.
    const int64_t all = rows.on_host() ? kept.feature->bytes() : rows.bytes();
    bytes += all - (shown.Has(rows) ? rows.bytes() : 0);
  }
  return bytes;
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

void PictureFeatures::GiveUp(int64_t bytes) {
  for (; bytes > 0 && !kept_.empty(); kept_.pop_back()) {
    const int64_t of_last = kept_.back().feature->bytes();
    bytes -= of_last;
    bytes_ -= of_last;
    by_key_.erase(kept_.back().key);
  }
}

void PictureFeatures::Keep(const std::string& key, std::shared_ptr<const PictureFeature> feature) {
  const int64_t bytes = feature->bytes();
  if (bytes > most_bytes_) return;
  GiveUp(bytes_ + bytes - most_bytes_);
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
    const auto run = [&] {
      return tower.Encode(batch.pixels, Modality::kImage, nullptr, OfPictures(see.stage),
                          batch.seeds);
    };
    Result<std::vector<VisualFeatures>> encoded = run();
    if (!encoded.ok() && encoded.error().code == ErrorCode::kResource && !kept_.empty()) {
      GiveUp(bytes_);
      encoded = run();
    }
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

Result<std::vector<std::shared_ptr<const VisualFeatures>>> FeaturesLeft(
    const See* see, std::span<const Picture> pictures,
    std::span<const std::shared_ptr<const PictureFeature>> features, const VisionTower& tower) {
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
  return JoinFrames(*see, all, video_of, tower.memory());
}

}  // namespace kvgauge
