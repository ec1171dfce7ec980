// SPDX-License-Identifier: Apache-2.0
// What a composition of stages is.
#pragma once

#include "methods/method.h"

namespace kvgauge {

Status CheckComposition(const Method& method);
// Refuses a stage that cannot read less of what `read` chooses, before pipelines are made.
Status CheckNarrow(const Method& method);
// Refuses to give up entries of rows from which a score looks back in decode. Precondition:
// protect.recent is settled.
Status CheckProtection(const Method& method);
// Refuses stages beside a reader that it cannot go with, on a model of that shape, which is the
// prepared one.
Status CheckReader(const Method& method, const Pipeline& p, const ModelShape& shape);
// Refuses groups along an entry that a user chose (Method::chosen_by_user) and that do not divide
// it. `shape`: of the plan's layer.
Status CheckOwnGroups(const Method& method, const StorePlan& plan, const ModelShape& shape);
// Whether a budget says how many entries stay.
bool TakesBudget(const Method& method);
// Newest entries that always stay, by what the stages say.
int64_t ProtectedByStages(const Method& method);

}  // namespace kvgauge
