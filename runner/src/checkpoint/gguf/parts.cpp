// SPDX-License-Identifier: Apache-2.0
#include "src/checkpoint/gguf/parts.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/check.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

constexpr std::string_view kGgufEnding = ".gguf";
constexpr std::string_view kPartNumber = "split.no", kPartCount = "split.count",
                           kTensorCount = "split.tensors.count";
// As many as five digits number.
constexpr int64_t kMostParts = 99999;
constexpr size_t kPartDigits = 5;

std::string FiveDigits(int64_t number) {
  const std::string digits = std::to_string(number);
  return std::string(kPartDigits - std::min(kPartDigits, digits.size()), '0') + digits;
}

// Takes "-00003" off the end; nothing where the text ends otherwise.
std::optional<int64_t> TakePartNumber(std::string_view& text) {
  if (text.size() <= kPartDigits) return std::nullopt;
  const std::string_view digits = text.substr(text.size() - kPartDigits);
  int64_t number = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + (c - '0');
  }
  text.remove_suffix(kPartDigits);
  if (!text.ends_with('-')) return std::nullopt;
  text.remove_suffix(1);
  return number;
}

// A number that a file of several must have.
Result<int64_t> PartKey(const GgufPart& part, std::string_view key, int64_t least) {
  const GgufValue* value = part.header.Find(key);
  const std::optional<int64_t> number = value == nullptr ? std::nullopt : value->Int();
  if (number && *number >= least) return *number;
  return BadInput(StrCat(part.path, ": key '", key, "' is ",
                         number ? std::to_string(*number) : "missing or not an integer",
                         ", expected an integer from ", least,
                         ", which every file of a model in several has"));
}

Status CheckPlace(const GgufPart& part, int64_t index, int64_t count) {
  KVG_ASSIGN(const int64_t number, PartKey(part, kPartNumber, 0));
  KVG_ASSIGN(const int64_t said, PartKey(part, kPartCount, 1));
  if (said != count) {
    return BadInput(StrCat(part.path, ": key '", kPartCount, "' is ", said, ", expected ", count,
                           ", the number of files that hold the model"));
  }
  if (number == index) return {};
  return BadInput(StrCat(part.path, ": key '", kPartNumber, "' is ", number, ", expected ", index,
                         " for part ", index + 1, " of ", count,
                         "; the file is another part than its name says"));
}

// A later file may repeat metadata, and may lie in another alignment.
Status CheckRepeats(const GgufPart& part, const GgufPart& first) {
  for (const auto& [key, value] : part.header.metadata) {
    if (key == kPartNumber || key == "general.alignment") continue;
    const GgufValue* same = first.header.Find(key);
    if (same != nullptr && same->type() == value.type() && same->is_array() == value.is_array() &&
        std::ranges::equal(same->bytes(), value.bytes())) {
      continue;
    }
    return BadInput(StrCat(part.path, ": key ", Quoted(key, 120),
                           same == nullptr ? " is not in " : " has another value than in ",
                           first.path, ", the first file; they are parts of different models"));
  }
  return {};
}

}  // namespace

std::string GgufPartName::PathOf(int64_t part) const {
  return StrCat(stem, "-", FiveDigits(part), "-of-", FiveDigits(count), kGgufEnding);
}

std::optional<GgufPartName> ParseGgufPartName(std::string_view path) {
  if (!path.ends_with(kGgufEnding)) return std::nullopt;
  path.remove_suffix(kGgufEnding.size());
  const std::optional<int64_t> count = TakePartNumber(path);
  if (!count || !path.ends_with("-of")) return std::nullopt;
  path.remove_suffix(3);
  const std::optional<int64_t> number = TakePartNumber(path);
  if (!number || path.empty() || path.ends_with('/')) return std::nullopt;
  if (*number < 1 || *number > *count) return std::nullopt;
  return GgufPartName{std::string(path), *number, *count};
}

Result<int64_t> CountGgufParts(const GgufHeader& header, std::string_view path) {
  const GgufValue* value = header.Find(kPartCount);
  if (value == nullptr) return 1;
  const std::optional<int64_t> count = value->Int();
  if (count && *count >= 0 && *count <= kMostParts) return std::max<int64_t>(*count, 1);
  return BadInput(StrCat(path, ": key '", kPartCount, "' is ",
                         count ? std::to_string(*count) : "not an integer", ", expected 0 to ",
                         kMostParts, ", the number of files that hold the model"));
}

Result<GgufHeader> JoinGgufParts(std::vector<GgufPart> parts) {
  KVG_CHECK(!parts.empty(), "a model of no files");
  const auto count = std::ssize(parts);
  KVG_ASSIGN(const int64_t claimed, PartKey(parts[0], kTensorCount, 0));
  int64_t tensors = 0;
  for (int64_t i = 0; i < count; ++i) {
    const GgufPart& part = parts[static_cast<size_t>(i)];
    KVG_TRY(CheckPlace(part, i, count));
    KVG_ASSIGN(const int64_t own, PartKey(part, kTensorCount, 0));
    if (own != claimed) {
      return BadInput(StrCat(part.path, ": key '", kTensorCount, "' is ", own, ", and ", claimed,
                             " in ", parts[0].path, "; they are parts of different models"));
    }
    if (i > 0) KVG_TRY(CheckRepeats(part, parts[0]));
    tensors += std::ssize(part.header.tensors);
  }
  GgufHeader all = std::move(parts[0].header);
  for (size_t i = 1; i < parts.size(); ++i) {
    for (GgufTensor& tensor : parts[i].header.tensors) tensor.part = i;
    std::ranges::move(parts[i].header.tensors, std::back_inserter(all.tensors));
  }
  std::ranges::sort(all.tensors, [](const GgufTensor& a, const GgufTensor& b) {
    return std::pair(std::string_view(a.name), a.part) <
           std::pair(std::string_view(b.name), b.part);
  });
  const auto twice = std::ranges::adjacent_find(all.tensors, {}, &GgufTensor::name);
  if (twice != all.tensors.end()) {
    return BadInput(StrCat(parts[(twice + 1)->part].path, ": tensor ", Quoted(twice->name, 120),
                           " is in ", parts[twice->part].path,
                           " already; each tensor is in one of a model's files"));
  }
  if (tensors == claimed) return all;
  return BadInput(StrCat(parts[0].path, ": key '", kTensorCount, "' is ", claimed,
                         ", and the model's ", count, " files hold ", tensors,
                         " tensors; a file is another model's, or was cut before it was written"));
}

}  // namespace kvgauge
