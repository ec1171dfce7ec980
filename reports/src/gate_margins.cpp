// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <map>

#include "core/json.h"
#include "core/strings.h"
#include "reports/gate.h"

namespace kvgauge {
namespace {

using Setter = std::function<Status(const Json&, const std::string& where)>;

Setter Number(double* target, double low, double high) {
  return [=](const Json& value, const std::string& where) -> Status {
    if (value.is_number() && value.get<double>() >= low && value.get<double>() <= high) {
      *target = value.get<double>();
      return {};
    }
    return BadInput(
        StrCat(where, ": ", value.dump(), ", expected a number from ", low, " to ", high));
  };
}

Status ReadObject(const Json& json, const std::string& where,
                  const std::map<std::string, Setter>& setters) {
  if (!json.is_object()) return BadInput(StrCat(where, ": ", json.dump(), ", expected an object"));
  std::vector<std::string> known;
  known.reserve(setters.size());
  for (const auto& entry : setters) known.push_back(entry.first);
  for (const auto& [key, value] : json.items()) {
    const auto found = setters.find(key);
    if (found == setters.end()) {
      return BadInput(StrCat(where, ": unknown key ", Quoted(key), DidYouMean(key, known),
                             ", expected one of ", Join(known, ", ")));
    }
    KVG_TRY(found->second(value, StrCat(where, ": key '", key, "'")));
  }
  return {};
}

Setter LimitsSetter(GateMargins::Limits* limits, std::map<std::string, Setter> more = {}) {
  more["margin"] = Number(&limits->margin, 0, 1);
  more["tolerance"] = Number(&limits->tolerance, 0, 1);
  return [more](const Json& value, const std::string& where) {
    return ReadObject(value, where, more);
  };
}

}  // namespace

Result<GateMargins> ParseGateMargins(const Json& json, const std::string& origin) {
  GateMargins m;
  double seed = 0, resamples = static_cast<double>(m.resamples);
  const std::map<std::string, Setter> setters = {
      {"alpha", Number(&m.alpha, 1e-6, 0.49)},
      {"complete",
       [&m](const Json& value, const std::string& where) -> Status {
         if (!value.is_boolean()) {
           return BadInput(StrCat(where, ": ", value.dump(), ", expected true or false"));
         }
         m.complete = value.get<bool>();
         return {};
       }},
      {"seed", Number(&seed, 0, 1e9)},
      {"resamples", Number(&resamples, 100, 1e6)},
      {"accuracy", LimitsSetter(&m.accuracy)},
      {"bytes", LimitsSetter(&m.bytes)},
      {"resident", LimitsSetter(&m.resident)},
      {"latency",
       LimitsSetter(&m.latency, {{"drift", Number(&m.latency_drift, 0, 10)},
                                 {"max_others_share", Number(&m.max_others_share, 0, 1)}})},
  };
  KVG_TRY(ReadObject(json, origin, setters));
  m.seed = static_cast<uint64_t>(seed);
  m.resamples = static_cast<int64_t>(resamples);
  return m;
}

Result<GateMargins> ReadGateMargins(const std::string& path) {
  KVG_ASSIGN(const Json json, ReadJsonFile(path));
  return ParseGateMargins(json, path);
}

}  // namespace kvgauge
