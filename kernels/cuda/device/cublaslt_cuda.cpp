// SPDX-License-Identifier: Apache-2.0
// ProductLibrary on cuBLASLt.
#include <bit>
#include <map>
#include <memory>
#include <utility>

#include "core/check.h"
#include "core/strings.h"
#include "cuda/device/cublaslt.h"
#include "cuda/device/switches.h"
#include "cuda/device/vendor_library.h"

namespace kvgauge::cuda {
namespace {

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(ProductLibrary::Way));

constexpr uint32_t kAlignedBytes = 16;  // of operands and result

cudaDataType_t TypeOf(DType dtype) {
  if (dtype == DType::kF16) return CUDA_R_16F;
  return dtype == DType::kBF16 ? CUDA_R_16BF : CUDA_R_32F;
}

std::string VersionText(size_t version) {
  return StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

class CublasLtProducts final : public ProductLibrary {
 public:
  CublasLtProducts(const CublasLt& library, cublasLtHandle_t handle)
      : library_(library), handle_(handle) {}

  std::string name() const override {
    return StrCat("cuBLASLt ", VersionText(library_.cublasLtGetVersion()));
  }

  std::span<const int64_t> blocks() const override {
    static constexpr int64_t kBlocks[] = {2048, 512, 128};
    return kBlocks;
  }

  std::vector<Way> Ways(const BlockProduct& product) override {
    constexpr int kMostWays = 32;
    const LtProduct& p = Find(product);
    if (p.status() != CUBLAS_STATUS_SUCCESS) return {};
    cublasLtMatmulHeuristicResult_t found[kMostWays];
    int count = 0;
    if (library_.cublasLtMatmulAlgoGetHeuristic(handle_, p.sum, p.w, p.x, p.out, p.out,
                                                p.preference, kMostWays, found,
                                                &count) != CUBLAS_STATUS_SUCCESS) {
      return {};
    }
    std::vector<Way> ways;
    for (int i = 0; i < count; ++i) {
      // The preference asked for these; an answer that departs from it is left out.
      const Way way = std::bit_cast<Way>(found[i].algo);
      if (found[i].state != CUBLAS_STATUS_SUCCESS || found[i].workspaceSize != 0) continue;
      if (Config(way, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) > 1) continue;
      if (Config(way, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) != CUBLASLT_REDUCTION_SCHEME_NONE) {
        continue;
      }
      ways.push_back(way);
    }
    return ways;
  }

  std::string Describe(const Way& way) const override {
    return StrCat("algorithm ", Config(way, CUBLASLT_ALGO_CONFIG_ID), ", tile ",
                  Config(way, CUBLASLT_ALGO_CONFIG_TILE_ID), ", stages ",
                  Config(way, CUBLASLT_ALGO_CONFIG_STAGES_ID));
  }

  bool Multiply(const BlockProduct& product, const Way& way, const void* x, const void* w, bool add,
                float* out, Stream stream) override {
    const LtProduct& p = Find(product);
    if (p.status() != CUBLAS_STATUS_SUCCESS) return false;
    const auto algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(way);
    const float one = 1, before = add ? 1.0f : 0.0f;
    return library_.cublasLtMatmul(handle_, p.sum, &one, w, p.w, x, p.x, &before, out, p.out, out,
                                   p.out, &algorithm, nullptr, 0, stream) == CUBLAS_STATUS_SUCCESS;
  }

 private:
  const LtProduct& Find(const BlockProduct& product) {
    std::unique_ptr<LtProduct>& found = products_[product];
    if (found == nullptr) found = std::make_unique<LtProduct>(library_, product);
    return *found;
  }

  // What is not told counts as departing from everything.
  uint32_t Config(const Way& way, cublasLtMatmulAlgoConfigAttributes_t attribute) const {
    const auto algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(way);
    uint32_t value = 0;
    size_t written = 0;
    const cublasStatus_t status = library_.cublasLtMatmulAlgoConfigGetAttribute(
        &algorithm, attribute, &value, sizeof value, &written);
    return status == CUBLAS_STATUS_SUCCESS ? value : UINT32_MAX;
  }

  const CublasLt& library_;
  cublasLtHandle_t handle_;
  std::map<BlockProduct, std::unique_ptr<LtProduct>> products_;
};

}  // namespace

LtProduct::LtProduct(const CublasLt& library, const BlockProduct& product) : library_(library) {
  const auto check = [this](cublasStatus_t status) {
    if (status_ == CUBLAS_STATUS_SUCCESS) status_ = status;
    return status_ == CUBLAS_STATUS_SUCCESS;
  };
  const cudaDataType_t type = TypeOf(product.dtype);
  const auto rows = static_cast<uint64_t>(product.rows), n = static_cast<uint64_t>(product.n),
             k = static_cast<uint64_t>(product.k);
  const bool made =
      check(library.cublasLtMatmulDescCreate(&sum, CUBLAS_COMPUTE_32F, CUDA_R_32F)) &&
      check(library.cublasLtMatrixLayoutCreate(&w, type, k, n, product.stride)) &&
      check(library.cublasLtMatrixLayoutCreate(&x, type, k, rows, product.stride)) &&
      check(library.cublasLtMatrixLayoutCreate(&out, CUDA_R_32F, n, rows, product.n)) &&
      check(library.cublasLtMatmulPreferenceCreate(&preference));
  if (!made) return;
  const cublasOperation_t transposed = CUBLAS_OP_T;
  check(library.cublasLtMatmulDescSetAttribute(sum, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                               sizeof transposed));
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check(
        library.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{0});
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE});
  for (const auto operand :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    prefer(operand, kAlignedBytes);
  }
  if (product.dtype == DType::kF32) {
    prefer(CUBLASLT_MATMUL_PREF_IMPL_MASK, ~uint64_t{CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32});
  }
}

LtProduct::~LtProduct() {
  if (preference != nullptr) library_.cublasLtMatmulPreferenceDestroy(preference);
  for (cublasLtMatrixLayout_t layout : {w, x, out}) {
    if (layout != nullptr) library_.cublasLtMatrixLayoutDestroy(layout);
  }
  if (sum != nullptr) library_.cublasLtMatmulDescDestroy(sum);
}

std::string CublasLtFile() { return StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR); }

std::string WhyOtherVersion(const std::string& file, size_t version) {
  if (version / 10000 == CUBLAS_VER_MAJOR) return "";
  return StrCat(file, " is cuBLASLt ", VersionText(version), ", expected ", CUBLAS_VER_MAJOR);
}

CublasLt LoadCublasLt(const std::string& file) {
  CublasLt library;
  VendorLibrary found({&file, 1});
#define KVG_FIND(function) found.Find(#function, &library.function)
  KVG_FIND(cublasLtCreate);
  KVG_FIND(cublasLtGetVersion);
  KVG_FIND(cublasLtMatmul);
  KVG_FIND(cublasLtMatmulAlgoConfigGetAttribute);
  KVG_FIND(cublasLtMatmulAlgoGetHeuristic);
  KVG_FIND(cublasLtMatmulDescCreate);
  KVG_FIND(cublasLtMatmulDescDestroy);
  KVG_FIND(cublasLtMatmulDescSetAttribute);
  KVG_FIND(cublasLtMatmulPreferenceCreate);
  KVG_FIND(cublasLtMatmulPreferenceDestroy);
  KVG_FIND(cublasLtMatmulPreferenceSetAttribute);
  KVG_FIND(cublasLtMatrixLayoutCreate);
  KVG_FIND(cublasLtMatrixLayoutDestroy);
#undef KVG_FIND
  library.fault = found.fault();
  if (library.fault.empty()) library.fault = WhyOtherVersion(file, library.cublasLtGetVersion());
  return library;
}

ProductLibrary* FindProductLibrary(int device, std::string* why) {
  if (SwitchedOff(kLibrarySwitch)) {
    *why = StrCat(kLibrarySwitch, "=off is set");
    return nullptr;
  }
  struct Started {
    std::unique_ptr<CublasLtProducts> products;
    std::string fault;
  };
  // They live as long as the process: the library may be gone before objects of static lifetime. A
  // handle is one of the device that is current when it is made.
  static const CublasLt& library = *new CublasLt(LoadCublasLt(CublasLtFile()));
  static auto& of_devices = *new std::map<int, Started>;
  *why = library.fault;
  if (!library.fault.empty()) return nullptr;
  const auto [found, is_new] = of_devices.try_emplace(device);
  Started& started = found->second;
  if (is_new) {
    cublasLtHandle_t handle = nullptr;
    if (const cublasStatus_t status = library.cublasLtCreate(&handle);
        status == CUBLAS_STATUS_SUCCESS) {
      started.products = std::make_unique<CublasLtProducts>(library, handle);
    } else {
      started.fault = StrCat("cuBLASLt cannot be started: status ", static_cast<int>(status));
    }
  }
  *why = started.fault;
  return started.products.get();
}

}  // namespace kvgauge::cuda
