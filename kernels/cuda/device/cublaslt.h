// SPDX-License-Identifier: Apache-2.0
// cuBLASLt, loaded at run time. Its types and numbers come from the toolkit's header, so the
// library must be of the same major version.
#pragma once

#include <cublasLt.h>

#include <string>

#include "cuda/many_rows.h"

namespace kvgauge::cuda {

struct CublasLt {
#define KVG_FUNCTION(name) decltype(&::name) name = nullptr
  KVG_FUNCTION(cublasLtCreate);
  KVG_FUNCTION(cublasLtGetVersion);
  KVG_FUNCTION(cublasLtMatmul);
  KVG_FUNCTION(cublasLtMatmulAlgoConfigGetAttribute);
  KVG_FUNCTION(cublasLtMatmulAlgoGetHeuristic);
  KVG_FUNCTION(cublasLtMatmulDescCreate);
  KVG_FUNCTION(cublasLtMatmulDescDestroy);
  KVG_FUNCTION(cublasLtMatmulDescSetAttribute);
  KVG_FUNCTION(cublasLtMatmulPreferenceCreate);
  KVG_FUNCTION(cublasLtMatmulPreferenceDestroy);
  KVG_FUNCTION(cublasLtMatmulPreferenceSetAttribute);
  KVG_FUNCTION(cublasLtMatrixLayoutCreate);
  KVG_FUNCTION(cublasLtMatrixLayoutDestroy);
#undef KVG_FUNCTION
  std::string fault;  // why it cannot be used; empty when it can
};

// "libcublasLt.so.13", of the header's major version.
std::string CublasLtFile();
// `file`: as VendorLibrary has it.
CublasLt LoadCublasLt(const std::string& file);
// Why a library of that version cannot be used, as cublasLtGetVersion tells it; "" if it can.
std::string WhyOtherVersion(const std::string& file, size_t version);

// One product in the library's words. To it a matrix by rows is its transpose by columns:
// out^T [n, rows] = w [n, k] * x^T [k, rows].
class LtProduct {
 public:
  LtProduct(const CublasLt& library, const BlockProduct& product);
  LtProduct(const LtProduct&) = delete;
  LtProduct& operator=(const LtProduct&) = delete;
  ~LtProduct();

  // The library's answer to the first call that it refused; CUBLAS_STATUS_SUCCESS: to none.
  cublasStatus_t status() const { return status_; }

  cublasLtMatmulDesc_t sum = nullptr;
  cublasLtMatrixLayout_t w = nullptr, x = nullptr, out = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;  // what ProductLibrary::Ways promises

 private:
  const CublasLt& library_;
  cublasStatus_t status_ = CUBLAS_STATUS_SUCCESS;
};

}  // namespace kvgauge::cuda
