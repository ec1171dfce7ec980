// SPDX-License-Identifier: Apache-2.0
// Entries as they are: everything that LayerLayout is without more.
#include "methods/layouts/plain.h"

#include "src/cache/layer_layout.h"

namespace kvgauge {
namespace {

class PlainLayer final : public LayerLayout {
 public:
  std::string_view id() const override { return Plain::kId; }
  std::unique_ptr<LayerLayout> Fork() const override { return std::make_unique<PlainLayer>(*this); }
};

}  // namespace
KVG_REGISTER_LAYOUT(plain, Plain, PlainLayer)
}  // namespace kvgauge
