// SPDX-License-Identifier: Apache-2.0
// The methods of the field: what works here, and what does not and why.
//
// Methods that are here speak for themselves. configs/field.json has the others, each with the
// reason, and names under which the field knows what is here by another id.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"
#include "methods/method.h"

namespace kvgauge {

// One of `here`, `model`, `policy`, `speculation`, `missing` and `outside` is set.
struct FieldRow {
  std::string name, family, paper;
  std::vector<std::string> here;  // ids of methods that do what it does
  std::string model;              // the family whose checkpoints are it
  std::string policy;             // of bench capacity that does what it does
  std::string speculation;        // form of bench speculate that does what it does
  std::string missing;            // what the program lacks for it
  std::string outside;            // why the program will not have it
};

// An error names the file, the row, and what would be right: an unknown key or family, a name that
// comes twice or is that of a method that is here, an id that no method, model
// family, policy or form has.
Result<std::vector<FieldRow>> ReadField(const std::string& path,
                                        const std::vector<Method>& methods);

// Markdown: a table of all methods of the field.
std::string FieldSection(const std::vector<FieldRow>& rows, const std::vector<Method>& methods);

// What is known under a name that no method file has, or under a paper's number: lines for the end
// of an error, such as that WKVQuant is outside and why, or which methods have KIVI in their title.
// Empty: nothing.
std::string KnownOtherwise(const std::string& name, const std::vector<FieldRow>& rows,
                           const std::vector<Method>& methods);

}  // namespace kvgauge
