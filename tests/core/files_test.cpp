// SPDX-License-Identifier: Apache-2.0
#include "core/files.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <string>

namespace kvgauge {
namespace {

TEST(Files, MissingAndDirectoriesAreErrors) {
  EXPECT_THAT(ReadFile("/no/such/file").error().message, ::testing::HasSubstr("/no/such/file"));
  EXPECT_THAT(ReadFile("/").error().message, ::testing::HasSubstr("directory"));
  EXPECT_FALSE(MappedFile::Open("/").ok());
  EXPECT_FALSE(MappedFile::Open("/no/such/file").ok());
}

TEST(Files, WriteReplacesWhole) {
  const std::string path = ::testing::TempDir() + "kvg_write_test";
  ASSERT_TRUE(WriteFile(path, "one").ok());
  ASSERT_TRUE(WriteFile(path, "second").ok());
  EXPECT_EQ(*ReadFile(path), "second");
  EXPECT_FALSE(ReadFile(path, 3).ok());
  const auto mapped = MappedFile::Open(path);
  ASSERT_TRUE(mapped.ok());
  EXPECT_EQ((*mapped)->bytes().size(), 6u);
  std::filesystem::remove(path);
  EXPECT_FALSE(WriteFile("/no/such/dir/x", "y").ok());
}

}  // namespace
}  // namespace kvgauge
