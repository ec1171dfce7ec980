// SPDX-License-Identifier: Apache-2.0
#include "methods/placement.h"

#include <algorithm>
#include <cmath>

#include "core/json.h"
#include "core/strings.h"

namespace kvgauge {

EntryRange Placement::OnHost(int64_t layer, int64_t length) const {
  const int64_t first = std::min(sinks, length), end = std::max(first, length - recent);
  if (!any() || layer < first_layer) return {first, first};
  const double most = share * static_cast<double>(end - first);
  return {first, first + std::min(end - first, static_cast<int64_t>(std::floor(most + 1e-9)))};
}

const std::vector<ParamSpec>& Placement::Specs() {
  static const std::vector<ParamSpec> specs = {
      RealParam("share", 1, 0, 1, "of the entries between the first and the last, the oldest"),
      IntParam("sinks", 0, 0, 1 << 20, "first entries of a head that stay on the device"),
      IntParam("recent", 0, 0, 1 << 20, "last entries of a head that stay on the device"),
      IntParam("first_layer", 0, 0, 1 << 20, "layers before this one stay on the device"),
      ChoiceParam("sides", "both", {"both", "keys", "values"}, "what of an entry lies on the host"),
      ChoiceParam("index", "device", {"device", "host"}, "where the index of a reader lies"),
      ChoiceParam("keeps", "nothing", {"nothing", "step"},
                  "step: what a reader fetched for a step is there in the next one"),
      ChoiceParam("attention", "device", {"device", "host"},
                  "host: attention to what lies there is computed there, and nothing is fetched")};
  return specs;
}

Placement Placement::From(const Params& params) {
  Placement place;
  place.share = params.Real("share");
  place.sinks = params.Int("sinks");
  place.recent = params.Int("recent");
  place.first_layer = params.Int("first_layer");
  place.keys = params.Text("sides") != "values";
  place.values = params.Text("sides") != "keys";
  place.index = params.Text("index") == "host";
  place.keeps = params.Text("keeps") == "step";
  place.attends = params.Text("attention") == "host";
  return place;
}

Json Placement::ToJson() const {
  return {{"share", share},
          {"sinks", sinks},
          {"recent", recent},
          {"first_layer", first_layer},
          {"sides", keys && values ? "both"
                    : keys         ? "keys"
                                   : "values"},
          {"index", index ? "host" : "device"},
          {"keeps", keeps ? "step" : "nothing"},
          {"attention", attends ? "host" : "device"}};
}

Status Placement::Check(const ModelShape& shape, bool reads) const {
  if (!any()) return {};
  if (first_layer >= shape.layers) {
    return BadInput(
        StrCat("place.first_layer is ", first_layer, ", but the model has ", shape.layers,
               " layers, so nothing would lie on the host; expected 0 .. ", shape.layers - 1));
  }
  if (index && !reads) {
    return BadInput(
        "place.index is host, but the method has no read stage with an index; "
        "leave it out");
  }
  if (keeps && !reads) {
    return BadInput(
        "place.keeps is step, but the method has no read stage, so that every step "
        "fetches everything; leave it out");
  }
  return {};
}

std::string Placement::Describe() const {
  std::vector<std::string> parts;
  const std::string what = keys && values ? "entries" : keys ? "keys" : "values";
  parts.push_back(share < 1 ? StrCat(100 * share, "% of the ", what, ", the oldest")
                            : StrCat("all ", what));
  if (sinks > 0) parts.push_back(StrCat("but ", sinks, " first"));
  if (recent > 0) parts.push_back(StrCat(sinks > 0 ? "and " : "but ", recent, " last"));
  if (first_layer > 0) parts.push_back(StrCat("from layer ", first_layer, " on"));
  std::string text = Join(parts, " ");
  if (index) text += "; the index as well";
  if (keeps) text += "; what a step fetched stays for the next one";
  if (attends) text += "; attention to them is computed there";
  return text;
}

}  // namespace kvgauge
