// SPDX-License-Identifier: Apache-2.0
// Groups along an entry that do not divide its numbers: refused where a user chose the group,
// told where a shipped method has it.
#include <algorithm>
#include <set>

#include "core/strings.h"
#include "methods/divisors.h"
#include "methods/layouts/classes.h"
#include "methods/layouts/coded.h"
#include "methods/layouts/latent.h"
#include "methods/layouts/shared_directions.h"
#include "src/composition.h"

namespace kvgauge {
namespace {

struct Groups {
  KvSide side = KvSide::kKeys;
  int64_t group = 0, dim = 0;

  bool fits() const { return dim % group == 0; }
  auto operator<=>(const Groups&) const = default;
};

std::string_view NameOf(KvSide side) { return side == KvSide::kKeys ? "keys" : "values"; }

// Those along an entry that a plan has. The rank of a latent is calibrated, so groups of its
// numbers end where it ends.
std::set<Groups> GroupsOf(const StorePlan& plan, const ModelShape& shape) {
  std::set<Groups> all;
  const auto add = [&](const KvCodec& codec) {
    if (codec.kind != KvCodecKind::kAffine && codec.kind != KvCodecKind::kCodebook) return;
    if (codec.axis != CodeAxis::kToken || codec.group < 1) return;
    all.insert({codec.side, codec.group, codec.dim});
  };
  if (plan.Get<Latent>() != nullptr) return all;
  if (const auto* coded = plan.Get<Coded>()) {
    add(coded->keys);
    add(coded->values);
  } else if (const auto* classes = plan.Get<Classes>()) {
    for (const Classes::Class& one : classes->classes) {
      add(one.keys);
      add(one.values);
    }
  } else if (const auto* shared = plan.Get<SharedDirections>(); shared && shared->group > 0) {
    all.insert({KvSide::kKeys, shared->group, shape.key_dim});
    all.insert({KvSide::kValues, shared->group, shape.value_dim});
  }
  return all;
}

}  // namespace

Status CheckOwnGroups(const Method& method, const StorePlan& plan, const ModelShape& shape) {
  const StageChoice& store = *method.store;
  for (const Groups& groups : GroupsOf(plan, shape)) {
    if (groups.fits()) continue;
    const std::string of_side = groups.side == KvSide::kKeys ? "key_group" : "value_group";
    for (const std::string& name : {of_side, std::string("group")}) {
      const auto own = method.chosen_by_user.find(StrCat("store.", name));
      // Another override may have put another stage there since.
      const bool has = std::ranges::any_of(
          store.spec->params, [&](const ParamSpec& param) { return param.name == name; });
      if (own == method.chosen_by_user.end() || !has || store.params.Int(name) != groups.group)
        continue;
      return BadInput(StrCat(own->second, ": store.", name, " ", groups.group,
                             " does not divide the ", groups.dim, " dims of ", NameOf(groups.side),
                             "; expected ", DivisorsOf(groups.dim)));
    }
  }
  return {};
}

std::vector<std::string> ShorterGroups(const Method& method, const ModelShape& shape) {
  const Pipeline p = MakePipeline(method);
  const ModelShape after = p.prepare == nullptr ? shape : p.prepare->ShapeAfter(shape);
  std::set<Groups> all;
  for (int64_t l = 0; l < after.layers; ++l) {
    const ModelShape of_layer = after.OfLayer(l);
    const Result<StorePlan> plan = p.store->Plan(of_layer, l);
    if (plan.ok()) all.merge(GroupsOf(*plan, of_layer));
  }
  std::vector<std::string> notes;
  for (const Groups& groups : all) {
    if (groups.fits()) continue;
    notes.push_back(StrCat("method ", method.id, ": groups of ", groups.group,
                           " do not divide the ", groups.dim, " dims of ", NameOf(groups.side),
                           "; the last one of an entry has ", groups.dim % groups.group,
                           " and a scale of its own"));
  }
  return notes;
}

}  // namespace kvgauge
