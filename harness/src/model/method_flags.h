// SPDX-License-Identifier: Apache-2.0
// From flags to a method that may run on a model.
#pragma once

#include <string>

#include "core/result.h"
#include "methods/method.h"
#include "runner/compressor.h"
#include "src/cli/commands.h"
#include "src/model/model_flags.h"

namespace kvgauge {

struct ChosenMethod {
  Method method;
  Budget budget;
};

// Where the shipped methods are.
Result<std::string> MethodDirectory();

// Reads the side-files that stages name: paths as they are, or beside configs/.
Status AttachCalibrations(Method& method);
// LoadMethod, with its side-files.
Result<Method> ReadMethod(const std::string& name, const std::string& directory,
                          const std::vector<std::string>& overrides);

Result<ChosenMethod> ChooseMethod(const MethodFlags& flags);

// A model as the method needs it: its weights prepared, latents at hand. Refuses what cannot work
// on that model with a prompt of `prompt_tokens`, before any weight is read.
Result<LoadedModel> LoadModelFor(const ChosenMethod& chosen, const ModelFlags& flags,
                                 int64_t prompt_tokens);

// What LoadModelFor loads beside the weights: the same for methods that one loaded model serves.
std::string LoadedBeside(const Method& method);

// Lines for people: engagement, bytes of three kinds, entries by layer, time by phase.
std::string DescribeRecord(const ChosenMethod& chosen, const CompressionRecord& record);

}  // namespace kvgauge
