// SPDX-License-Identifier: Apache-2.0
// The real cuBLASLt takes what it is asked, as far as that goes without a device.
#include "cuda/device/cublaslt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/strings.h"
#include "cuda/device/vendor_library.h"

namespace kvgauge::cuda {
namespace {

TEST(CublasLt, HasEveryFunctionAndTakesEveryAttribute) {
  const CublasLt library = LoadCublasLt(CublasLtFile());
  if (library.fault.find("is not where") != std::string::npos) GTEST_SKIP() << library.fault;
  ASSERT_EQ(library.fault, "");
  EXPECT_EQ(library.cublasLtGetVersion() / 10000, size_t{CUBLAS_VER_MAJOR});
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    SCOPED_TRACE(NameOf(dtype));
    const LtProduct product(library, {dtype, 128, 256, 1024, 1056});
    EXPECT_EQ(product.status(), CUBLAS_STATUS_SUCCESS);
    // It does look at what it is given.
    const uint8_t narrow = 0;
    EXPECT_NE(library.cublasLtMatmulPreferenceSetAttribute(
                  product.preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &narrow, 1),
              CUBLAS_STATUS_SUCCESS);
  }
}

TEST(CublasLt, WhatCannotBeUsedIsSaid) {
  const std::string path = ::testing::TempDir() + "/libcublasLt.so.13";
  EXPECT_EQ(LoadCublasLt(path).fault,
            path + " is not where libraries are looked for (LD_LIBRARY_PATH)");
  std::ofstream(path).close();
  EXPECT_EQ(LoadCublasLt(path).fault, path + " cannot be loaded: " + path + ": file too short");
  std::filesystem::remove(path);
  EXPECT_THAT(LoadCublasLt("libm.so.6").fault, testing::StartsWith("libm.so.6 lacks cublasLt"));
  EXPECT_EQ(WhyOtherVersion("it", CUBLAS_VER_MAJOR * 10000 + 2), "");
  EXPECT_EQ(WhyOtherVersion("it", 120803),
            StrCat("it is cuBLASLt 12.8.3, expected ", CUBLAS_VER_MAJOR));
}

// The first that can be loaded; if none can, what is wrong with the first that is there.
TEST(VendorLibrary, IsOneOfSeveralFiles) {
  const std::string absent = ::testing::TempDir() + "/libabsent.so",
                    broken = ::testing::TempDir() + "/libbroken.so";
  std::ofstream(broken) << "no library";
  const auto fault_of = [](const std::vector<std::string>& files) {
    return VendorLibrary(files).fault();
  };
  EXPECT_EQ(fault_of({absent, broken, "libm.so.6"}), "");
  EXPECT_EQ(fault_of({broken + "2", absent}),
            absent + " is not where libraries are looked for (LD_LIBRARY_PATH)");
  EXPECT_THAT(fault_of({absent, broken, absent}),
              testing::StartsWith(broken + " cannot be loaded: " + broken + ": "));
  std::filesystem::remove(broken);
  VendorLibrary library(std::vector<std::string>{absent, "libm.so.6"});
  double (*cosine)(double) = nullptr;
  library.Find("cos", &cosine);
  ASSERT_NE(cosine, nullptr);
  EXPECT_EQ(library.fault(), "");
  library.Find("cosine_of_nothing", &cosine);
  EXPECT_EQ(library.fault(), "libm.so.6 lacks cosine_of_nothing");
}

}  // namespace
}  // namespace kvgauge::cuda
