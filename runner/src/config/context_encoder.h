// SPDX-License-Identifier: Apache-2.0
// An encoder beside a decoder, in one checkpoint.
#pragma once

#include "src/config/common.h"

namespace kvgauge {

// The keys of CEPE's files (princeton-nlp/CEPE), which call themselves Llama: a second Llama
// without a head, whose rows see all of a text, and how many layers attend to them. Nothing where
// they are absent. Precondition: sizes are read.
void ReadContextEncoder(ConfigReader& reader, ModelConfig& config);

}  // namespace kvgauge
