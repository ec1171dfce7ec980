// SPDX-License-Identifier: Apache-2.0
// Damaged files of saved caches: each refusal has the file, the key or page, what is there, and
// what would be right.
#include <gmock/gmock.h>

#include <cstring>
#include <functional>

#include "core/entropy.h"
#include "core/json.h"
#include "core/strings.h"
#include "runner/saved_cache.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr size_t kSavedMagicBytes = 8;
constexpr const char* kDamagedOrigin = "a.kvc";

std::string SavedFile() {
  SavedCache saved;
  saved.model = "a model";
  saved.planned_length = 40;
  saved.ids.assign(9, 3);
  saved.bytes = std::string(1000, 'c');
  saved.state = "a state";
  return PackSaved(saved);
}

void PutSavedSum(std::string& file, std::string_view of) {
  const uint32_t sum = Crc32(of);
  file.append(reinterpret_cast<const char*>(&sum), sizeof(sum));
}

// The file with another header, whose checksum is right.
std::string SavedWithHeader(const std::function<void(Json&)>& change) {
  const std::string file = SavedFile();
  uint32_t size = 0;
  std::memcpy(&size, file.data() + kSavedMagicBytes, sizeof(size));
  const size_t begin = kSavedMagicBytes + sizeof(size);
  Json header = *ParseJson(std::string_view(file).substr(begin, size), kDamagedOrigin);
  change(header);
  const std::string text = CanonicalJson(header);
  std::string other = file.substr(0, kSavedMagicBytes);
  const auto length = static_cast<uint32_t>(text.size());
  other.append(reinterpret_cast<const char*>(&length), sizeof(length));
  other += text;
  PutSavedSum(other, other);
  return other + file.substr(begin + size + sizeof(uint32_t));
}

void RefusesSaved(const std::string& file, const std::string& message) {
  SCOPED_TRACE(message);
  const Result<SavedCache> read = UnpackSaved(file, kDamagedOrigin);
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().message, StartsWith("a.kvc: "));
  EXPECT_THAT(read.error().message, HasSubstr(message));
}

TEST(SavedDamages, OfKeysOfTheHeader) {
  const auto set = [](const char* key, const Json& value) {
    return SavedWithHeader([&](Json& header) { header[key] = value; });
  };
  const auto drop = [](const char* key) {
    return SavedWithHeader([&](Json& header) { header.erase(key); });
  };
  RefusesSaved(set("model", 3), "key 'model' of its header is 3; expected a text");
  RefusesSaved(drop("method"), "key 'method' of its header is missing; expected a text");
  RefusesSaved(set("budget", nullptr), "key 'budget' of its header is null; expected a text");
  RefusesSaved(drop("loaded_for"), "key 'loaded_for' of its header is missing; expected a text");
  RefusesSaved(set("planned_length", -1),
               "key 'planned_length' of its header is -1; expected a number that is not negative");
  RefusesSaved(set("planned_length", int64_t{1} << 31),
               "key 'planned_length' of its header is 2147483648; expected at most 2147483647");
  RefusesSaved(set("bytes", "many"), "key 'bytes' of its header is \"many\"; expected a number");
  RefusesSaved(
      set("state", 5000),
      "key 'state' of its header is 5000; expected at most the 1051 that keys \"bytes\" and "
      "\"pictures\" leave");
  RefusesSaved(
      set("state", 1040),
      "key \"state\" of its header is 1040; expected at most the 1007 bytes behind the ids");
  RefusesSaved(set("pictures", 5000),
               "key 'pictures' of its header is 5000; expected at most the 1051");
  RefusesSaved(set("pictures", 8), "pictures of the prompt: their number of pieces is ");
  RefusesSaved(SavedWithHeader([](Json& header) { header = Json::array(); }),
               "its header is []; expected a JSON object");
  RefusesSaved(
      set("squares", 4),
      "key 'squares' of its header is not known to this version; load it with the one that "
      "wrote it");
}

TEST(SavedDamages, OfLongKeysAreCut) {
  const Json numbers = std::vector<int>(100000, 7);
  const std::string start = "[7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7...";
  for (const char* key : {"model", "planned_length", "bytes", "state"}) {
    const auto file = SavedWithHeader([&](Json& header) { header[key] = numbers; });
    RefusesSaved(file, StrCat("key '", key, "' of its header is ", start, "; expected a "));
  }
  RefusesSaved(SavedWithHeader([&](Json& header) { header = numbers; }),
               StrCat("its header is ", start, "; expected a JSON object"));
  const Result<SavedCache> read = UnpackSaved(
      SavedWithHeader([](Json& header) { header[std::string(5000, 'k')] = 1; }), kDamagedOrigin);
  ASSERT_FALSE(read.ok());
  EXPECT_LT(read.error().message.size(), 300u);
}

TEST(SavedDamages, OfBytes) {
  const std::string file = SavedFile();
  const auto flipped = [&](size_t at) {
    std::string other = file;
    other[at] = static_cast<char>(other[at] ^ 1);
    return other;
  };
  RefusesSaved("kvgsave1" + file.substr(8),
               "begins with 'kvgsave1'; expected 'kvgsave2' or 'kvgsave3'");
  RefusesSaved(flipped(7), "the header has checksum ");
  RefusesSaved(flipped(11), "a header of ");
  RefusesSaved(flipped(20), "the header has checksum ");
  RefusesSaved(flipped(20), ": the file is damaged; save the cache again");
  RefusesSaved(flipped(file.size() - 9), "page 0 has checksum ");
  RefusesSaved(file.substr(0, file.size() - 1),
               "the file ends within page 0: 4 bytes were due, 3 are");
  RefusesSaved(file.substr(0, 5),
               "the file ends within its first bytes: 8 bytes were due, 5 are left");
  RefusesSaved(file + "xy", "2 bytes follow the last page; expected none");
}

// Below the checksums.
TEST(SavedDamages, OfPackedBlocks) {
  const auto refuses = [](std::string_view packed, const char* message) {
    std::string out;
    const Status status = UnpackBlock(packed, 100, out);
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, HasSubstr(message));
  };
  const auto plane = [](char form, uint32_t length, const std::string& bytes) {
    std::string packed("\1", 1);
    packed.append(reinterpret_cast<const char*>(&length), sizeof(length));
    return packed + form + bytes;
  };
  refuses("", "a packed block is empty; expected 100 bytes packed");
  refuses(std::string("\0abc", 4), "a packed block has 3 bytes; expected 100");
  refuses("\3abc", "a packed block of numbers of 3 bytes; expected 1, 2 or 4");
  refuses("\1a", "a packed block ends early: 1 bytes of 5 are left");
  refuses(plane('\0', 7, "abc"), "a packed block ends early: 3 bytes of 7 are left");
  refuses(plane('\0', 3, "abc"), "a packed block has 3 bytes; expected 100");
  refuses(plane('\2', 3, "abc"),
          "a packed block of 3 bytes has form 2; expected 0, or 1 with 32 bytes or more");
  refuses(plane('\0', 100, std::string(100, 'a')) + "x",
          "a packed block is 1 bytes longer than its numbers; expected none");
}

}  // namespace
}  // namespace kvgauge
