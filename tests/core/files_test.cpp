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
  // The file is named that was asked for, and not the one that is written beside it.
  EXPECT_THAT(WriteFile("/no/such/dir/x", "y").error().message,
              ::testing::StartsWith("/no/such/dir/x: cannot create"));
  EXPECT_THAT(WriteFile(::testing::TempDir(), "y").error().message,
              ::testing::HasSubstr("is a directory, expected a file"));
}

}  // namespace
}  // namespace kvgauge
