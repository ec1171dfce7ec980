// SPDX-License-Identifier: Apache-2.0
// What the program refuses (install_test): an id that is taken, code that throws.
#include <stdexcept>

#include "methods/registry.h"

namespace kvgauge {
namespace {

class Whatever final : public Scorer {
 public:
  explicit Whatever(const Params&) {
#ifdef KVG_BAD_CONSTRUCTOR
    throw std::runtime_error("no such table");
#endif
  }
  void Score(LayerView& view, Tensor out) const override {
    view.ops().rows->Affine(out, 1.0f, 0.0f, out);
  }
};

#ifdef KVG_BAD_START
int Fails() { throw std::runtime_error("no such device"); }
const int kStart = Fails();
#endif

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
#ifdef KVG_BAD_ID
    .id = "knorm",
#else
    .id = "whatever",
#endif
    .summary = "what must not be loaded",
    .make = Make<Whatever>(),
});

}  // namespace
}  // namespace kvgauge
