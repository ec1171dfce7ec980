// SPDX-License-Identifier: Apache-2.0
// What only shows while a prompt is read in chunks and reduced after each.
#pragma once

#include "core/result.h"
#include "methods/method.h"

namespace kvgauge {

// An error if heads of the layer hold different numbers of entries and the score takes none such.
Status CheckEvenHeads(const LayerView& view, const Method& method, const Scorer& score);
// Whether entries are stored as numbers where they are, so that later chunks may find those before
// them stored; what is coded or moved waits for the end of the prompt.
Result<bool> StoresNumbers(const Method& method, const Store& store, const ModelShape& shape);

}  // namespace kvgauge
