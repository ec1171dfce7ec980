// SPDX-License-Identifier: Apache-2.0
// ConfigReader: one JSON object of which every key must be accounted for.
//
// Readers take keys one after another and look at the outcome once, in Finish(): the first fault is
// kept and every later read answers its fallback (or the least legal value). A key that nobody took
// is a fault, since it may change the forward pass. Not thread-safe.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_fwd.h"
#include "core/result.h"

namespace kvgauge {

class ConfigReader {
 public:
  // `object` must be an object and outlive the reader. `origin` begins every message; `scope` is
  // put before key names ("rope_scaling.").
  ConfigReader(const Json& object, std::string origin, std::string scope = "");

  // Absent and null are different things for some keys (Mistral's sliding_window).
  enum class Presence { kAbsent, kNull, kValue };
  Presence PresenceOf(std::string_view key) const;
  bool Has(std::string_view key) const { return PresenceOf(key) == Presence::kValue; }

  // Values in [least, most]. Absent or null gives `fallback`; without a fallback that is a fault.
  int64_t Int(std::string_view key, std::optional<int64_t> fallback, int64_t least, int64_t most);
  double Real(std::string_view key, std::optional<double> fallback, double least, double most);
  bool Bool(std::string_view key, bool fallback);
  std::string Text(std::string_view key, std::string_view fallback);
  // Empty when absent or null.
  std::vector<double> Reals(std::string_view key, double least, double most);
  std::vector<std::string> Texts(std::string_view key);
  std::vector<int64_t> IntOrInts(std::string_view key, int64_t least, int64_t most);
  // The value for readers that look deeper; null when absent or null.
  const Json* Take(std::string_view key);

  // Keys that change the forward pass in a way that is not implemented: absent, null or exactly
  // the neutral value.
  void Neutral(std::string_view key, bool neutral);
  void Neutral(std::string_view key, int64_t neutral);
  void Neutral(std::string_view key, std::string_view neutral);
  // Any value but null is a fault.
  void Refuse(std::string_view key, std::string_view why);
  // Keys that cannot change the forward pass.
  void Ignore(std::initializer_list<std::string_view> keys);

  // Faults are "origin: key 'scope.key': value, expected ...".
  void Fail(std::string_view key, std::string_view expected);
  void Fail(Error error);
  bool ok() const { return !fault_.has_value(); }
  // Precondition: !ok().
  const Error& fault() const { return *fault_; }
  // The first fault, or a fault that names a key nobody took.
  Status Finish();

  const std::string& origin() const { return origin_; }
  bool at_top() const { return scope_.empty(); }
  std::string NameOfKey(std::string_view key) const;

 private:
  const Json* Find(std::string_view key);
  bool CheckPresent(std::string_view key, const Json* value, bool has_fallback);

  const Json& object_;
  std::string origin_;
  std::string scope_;
  std::set<std::string, std::less<>> taken_;
  std::optional<Error> fault_;
};

}  // namespace kvgauge
