// SPDX-License-Identifier: Apache-2.0
// The pictures of the samples that a page shows: each of them is held once, whoever shows it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reports/store_rows.h"
#include "src/html/html.h"
#include "src/html/script_json.h"

namespace kvgauge::report {

class PictureSheet {
 public:
  // At most `most` different pictures, and kMostBytes of them.
  explicit PictureSheet(int64_t most) : most_(most) {}
  static constexpr size_t kMostBytes = 12 << 20;

  // Takes the pictures of a sight; false, and nothing is taken, where there is no room for all.
  bool Take(const SightRow& sight);
  // [number, name, frame, answer, [[rows,columns]]] for each picture. Precondition: was taken.
  void PutSight(ScriptJson& json, const SightRow& sight) const;
  // [[base64,width,height]]
  void PutPictures(ScriptJson& json) const;

  int64_t count() const { return std::ssize(pictures_); }

 private:
  const int64_t most_;
  size_t bytes_ = 0;
  std::map<std::string, size_t> numbers_;  // by key
  std::vector<std::shared_ptr<const PictureRow>> pictures_;
};

// Its pictures under a veil that is darker where fewer heads and layers hold a patch; those that
// hold the answer and the first ones, where there are many. Nothing where `patches` are not known.
Html Gallery(const SightRow& sight, const std::string& patches);
// "frame 12", "3".
std::string PictureTitle(const ShownPicture& shown, size_t number);

}  // namespace kvgauge::report
