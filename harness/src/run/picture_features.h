// SPDX-License-Identifier: Apache-2.0
// What a model's tower makes of pictures, computed once for each distinct picture of a run.
//
// Features are kept where the tower made them. The least recently used are given up first, as far
// as a number of bytes allows, and all where the tower finds no room. Pictures are decoded one at a
// time, and their pixels are held until a batch for the tower is full. Not thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/result.h"
#include "datasets/sample.h"
#include "images/preprocess.h"
#include "reports/store_rows.h"
#include "runner/engine.h"
#include "runner/vision.h"
#include "src/model/visual_input.h"

namespace kvgauge {

// Features that are kept for samples to come, at most; and of a bound on memory, the share.
inline constexpr int64_t kKeptFeatureBytes = int64_t{1} << 28;
inline constexpr int64_t kKeptFeatureShare = 8;

// How many bytes of features a run keeps that may hold `max_memory_bytes` in all (0: what its
// device has free, or no bound on a host).
int64_t KeptFeatureBytes(int64_t max_memory_bytes, const Ops& ops);
// A run reads samples ahead until the rows of their pictures are so many bytes, 1 or more; on a
// device no more than the same share.
int64_t WindowVisualBytes(int64_t max_memory_bytes, const Ops& ops);

struct PictureFeature {
  VisualFeatures features;
  std::shared_ptr<const PictureRow> thumbnail;
  double seconds = 0;  // of the tower and its projector: the picture's share of its batch

  int64_t bytes() const;
};

// A picture of a prompt.
struct PictureRequest {
  const Picture* picture = nullptr;
  int64_t pictures_in_prompt = 1;  // some preprocessors see several pictures differently
};
// A stage that reduces pictures, and what tells it from others; null: none.
struct SeeKey {
  const See* stage = nullptr;
  std::string key = {};
};
using FeatureResult = Result<std::shared_ptr<const PictureFeature>>;

class PictureFeatures {
 public:
  // `most_bytes` of features are kept between calls; a batch waits for `pixel_bytes` at most, or
  // for one picture.
  PictureFeatures(const Preprocessor& preprocessor, int64_t most_bytes,
                  int64_t pixel_bytes = kPixelBytesInFlight)
      : preprocessor_(preprocessor), most_bytes_(most_bytes), pixel_bytes_(pixel_bytes) {}

  // One for each request, in its order. A picture that cannot be read is the error of its requests
  // alone, and names it. What is missing runs through `tower`, which is of the same checkpoint in
  // every call.
  std::vector<FeatureResult> Get(std::span<const PictureRequest> requests, VisionTower& tower,
                                 const SeeKey& see = {});

  int64_t bytes() const { return bytes_; }  // kept now
  // Bytes of these that the device (or the host) holds for none of the samples.
  int64_t BytesBeside(const HeldRows& shown) const;
  int64_t encoded() const { return encoded_; }  // pictures that ran through the tower
  int64_t shared() const { return shared_; }    // requests that found theirs
  int64_t most_pixel_bytes() const { return most_pixel_bytes_; }  // that were held at once

 private:
  struct Kept {
    std::string key;
    std::shared_ptr<const PictureFeature> feature;
  };
  std::string KeyOf(const PictureRequest& request, const SeeKey& see) const;
  struct Looked {
    PixelValues pixels;
    std::shared_ptr<const PictureRow> thumbnail;
  };
  Result<Looked> Look(const PictureRequest& request) const;
  void GiveUp(int64_t bytes);  // at least, as far as so many are kept
  void Keep(const std::string& key, std::shared_ptr<const PictureFeature> feature);

  const Preprocessor preprocessor_;
  const int64_t most_bytes_, pixel_bytes_;
  std::list<Kept> kept_;  // the most recently used first
  std::unordered_map<std::string, std::list<Kept>::iterator> by_key_;
  int64_t bytes_ = 0, encoded_ = 0, shared_ = 0, most_pixel_bytes_ = 0;
};

// What is shown of a sample's pictures, whose features Get gave with the same stage and tower.
Result<std::vector<std::shared_ptr<const VisualFeatures>>> FeaturesLeft(
    const See* see, std::span<const Picture> pictures,
    std::span<const std::shared_ptr<const PictureFeature>> features, const VisionTower& tower);

}  // namespace kvgauge
