// SPDX-License-Identifier: Apache-2.0
// The closed English of the reference models: every word, and the sentences that say nothing in
// particular. Texts to train on and texts to evaluate on never share a thing ("red lamp"): the
// pairs of adjective and noun are dealt to one or the other once and for all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/rng.h"

namespace kvgauge::closed {

enum class Split { kTrain, kEval };

using Words = std::span<const std::string_view>;

Words Names();
Words FamilyNames();
Words Adjectives();
Words Nouns();  // kind by kind, kKindNouns of each of kKinds kinds, then things of no kind
Words Places();
Words Verbs();   // past tense, with an object
Words Labels();  // words of no language, for classes whose names are made up
inline constexpr size_t kKinds = 8;
inline constexpr size_t kKindNouns = 14;

std::string_view Pick(Rng& rng, Words words);

// True when the words stand next to each other in texts of this split.
bool InSplit(size_t adjective, size_t noun, Split split);

// Different things of one split, in drawn order.
class ThingDraw {
 public:
  explicit ThingDraw(Split split) : split_(split) {}

  // "red lamp". Every third one shares its adjective or its noun with an earlier one, so that both
  // must be read. Precondition: fewer than a thousand were drawn.
  std::string Next(Rng& rng);
  // A thing with this noun; may repeat.
  std::string WithNoun(Rng& rng, size_t noun) const;

 private:
  Split split_;
  std::set<std::pair<size_t, size_t>> drawn_;
  std::vector<std::pair<size_t, size_t>> order_;
};

// A thing that no question asks for.
std::string AnyThing(Rng& rng, Split split);
// "Anna Walter".
std::string FullName(Rng& rng);
// "old kitchen": places are no things.
std::string PlaceWithAdjective(Rng& rng);
// "an old hat" for "old hat".
std::string WithArticle(std::string_view words);
// A whole number of so many digits, no zero in front.
std::string Number(Rng& rng, int64_t least_digits, int64_t most_digits);
// A sentence with a full stop that no question is about. It holds no word "is".
std::string FillerSentence(Rng& rng, Split split);

}  // namespace kvgauge::closed
