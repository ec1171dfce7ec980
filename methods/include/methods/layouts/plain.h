// SPDX-License-Identifier: Apache-2.0
// Keys and values as the model made them, in the cache's type.
#pragma once

#include "methods/store_plan.h"

namespace kvgauge {

struct Plain final : StoreLayout {
  static constexpr std::string_view kId = "plain";
  std::string_view id() const override { return kId; }
  StoreTraits traits() const override { return {.plain = true}; }
};

}  // namespace kvgauge
