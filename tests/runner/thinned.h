// SPDX-License-Identifier: Apache-2.0
// A prefill of a prompt through a method's thin stage, whole.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/strings.h"
#include "methods/method.h"
#include "runner/capture.h"
#include "runner/engine_fixture.h"
#include "runner/thin_prefill.h"

namespace kvgauge {

// A method of one thin stage that a test registered, which does as `way` says.
inline Method ThinBy(const std::string& stage, const std::string& way) {
  const Json json = *ParseJson(StrCat(R"({"id": "x", "title": "x", "family": "prefill",
    "stages": {"thin": {"id": ")",
                                      stage, R"(", "way": ")", way, R"("}}})"),
                               "test");
  Result<Method> method = ParseMethod(json, "test");
  EXPECT_TRUE(method.ok()) << method.error().message;
  return std::move(method).value();
}

struct Thinned {
  Prompt prompt;
  KvCache cache;
  PrefillCapture capture;
  Status status;
  std::vector<float> logits;

  Thinned(Model& model, const Method& method, Prompt of)
      : prompt(std::move(of)),
        cache(model.NewCache(prompt.size() + 8)),
        capture(model.config(), cache, NeedsOf(method.needs(), prompt), prompt.size(), &prompt) {
    cache.PlaceRope(RopePlaces::Of(prompt));
    ThinPrefill prefill(model, *method.thin, prompt, cache, capture, 7);
    while (!prefill.done()) {
      const Result<Tensor> last = prefill.Next();
      if (!last.ok()) {
        status = last.error();
        return;
      }
      EXPECT_EQ(last->empty(), !prefill.done());
      if (prefill.done()) logits = HostFloats(model.ops(), *last);
    }
  }
};

}  // namespace kvgauge
