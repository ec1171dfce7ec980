// SPDX-License-Identifier: Apache-2.0
// cuBLAS, where the machine has it. Its interface for C has been the same since version 11, so the
// few names that are wanted are declared here and looked up at run time.
#include <algorithm>
#include <string>

#include "core/check.h"
#include "core/strings.h"
#include "cuda/backend_parts.h"
#include "cuda/device/vendor_library.h"

namespace kvgauge::cuda {
namespace {

using Handle = struct CublasContext*;
// Numbers of the enumerations in cublas_api.h and, of the type, library_types.h.
constexpr int kPlain = 0, kTransposed = 1, kBF16 = 14, kSumsF32 = 68, kAnyAlgorithm = -1;

struct Library {
  int (*create)(Handle*) = nullptr;
  int (*destroy)(Handle) = nullptr;
  int (*set_stream)(Handle, Stream) = nullptr;
  int (*version)(Handle, int*) = nullptr;
  int (*multiply)(Handle, int, int, int, int, int, const void*, const void*, int, int, const void*,
                  int, int, const void*, void*, int, int, int, int) = nullptr;
  std::string fault;  // why it cannot be used; empty when it can
};

Library Load() {
  static const std::string kFiles[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};
  VendorLibrary found(kFiles);
  Library library;
  found.Find("cublasCreate_v2", &library.create);
  found.Find("cublasDestroy_v2", &library.destroy);
  found.Find("cublasSetStream_v2", &library.set_stream);
  found.Find("cublasGetVersion_v2", &library.version);
  found.Find("cublasGemmEx", &library.multiply);
  library.fault = found.fault();
  return library;
}

class Cublas final : public LibraryProduct {
 public:
  Cublas(const Library& library, Handle handle) : library_(library), handle_(handle) {}
  ~Cublas() override { library_.destroy(handle_); }

  std::string name() const override {
    int version = 0;
    library_.version(handle_, &version);
    return StrCat("cuBLAS ", version / 10000, ".", version / 100 % 100, ".", version % 100);
  }

  // To cuBLAS a matrix by rows is its transpose by columns: out^T = w * x^T.
  void Multiply(const Tensor& x, const Tensor& w, Tensor out) override {
    const auto m = static_cast<int>(x.shape[0]), k = static_cast<int>(x.shape[1]),
               n = static_cast<int>(w.shape[0]);
    for (const Tensor* t : {&x, &w, static_cast<const Tensor*>(&out)}) {
      KVG_CHECK(t->dtype == DType::kBF16 && t->device == Device::kCuda && t->IsContiguous(),
                "the library's product takes bf16 on the device");
    }
    KVG_CHECK(w.shape[1] == k && out.shape[0] == m && out.shape[1] == n, "product of wrong shapes");
    const float one = 1, zero = 0;
    const int status =
        library_.multiply(handle_, kTransposed, kPlain, n, m, k, &one, w.data, kBF16, k, x.data,
                          kBF16, k, &zero, out.data, kBF16, n, kSumsF32, kAnyAlgorithm);
    KVG_CHECK(status == 0, StrCat("cuBLAS: a product failed with status ", status));
  }

 private:
  const Library& library_;
  Handle handle_;
};

}  // namespace

std::unique_ptr<LibraryProduct> MakeCudaLibraryProduct(std::string* why) {
  static const Library library = Load();
  DeviceInfo info;
  if (!UseDevice(std::max(CurrentDevice(), 0), &info, why)) return nullptr;
  *why = library.fault;
  if (!library.fault.empty()) return nullptr;
  Handle handle = nullptr;
  int status = library.create(&handle);
  if (status == 0) status = library.set_stream(handle, StreamOf(CurrentDevice()));
  if (status != 0) {
    *why = StrCat("cuBLAS cannot be started on ", info.name, ": status ", status);
    return nullptr;
  }
  return std::make_unique<Cublas>(library, handle);
}

}  // namespace kvgauge::cuda
