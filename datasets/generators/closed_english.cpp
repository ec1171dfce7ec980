// SPDX-License-Identifier: Apache-2.0
#include "generators/closed_english.h"

#include "core/check.h"
#include "generators/generator.h"

namespace kvgauge::closed {
namespace {

constexpr std::string_view kNames[] = {
    "Anna",   "Tom",   "Mia",    "Ben",    "Clara", "David", "Emma",   "Felix", "Greta",  "Hugo",
    "Ida",    "Jack",  "Kate",   "Leo",    "Lucy",  "Max",   "Nina",   "Oscar", "Paul",   "Rosa",
    "Sam",    "Tina",  "Victor", "Wendy",  "Adam",  "Bella", "Carl",   "Dora",  "Eric",   "Fiona",
    "George", "Helen", "Ivan",   "Julia",  "Karl",  "Laura", "Mark",   "Nora",  "Peter",  "Ruth",
    "Simon",  "Tara",  "Ursula", "Walter", "Alice", "Boris", "Celia",  "Denis", "Edith",  "Frank",
    "Gina",   "Henry", "Irene",  "James",  "Kurt",  "Linda", "Moritz", "Olga",  "Robert", "Sara"};

// Names that families have, too: the words of the language stay few.
constexpr std::string_view kFamilyNames[] = {
    "Adam",  "Carl", "David", "Denis",  "Eric",  "Felix",  "Frank", "George", "Henry",
    "Hugo",  "Ivan", "Jack",  "James",  "Karl",  "Kurt",   "Leo",   "Mark",   "Moritz",
    "Oscar", "Paul", "Peter", "Robert", "Simon", "Victor", "Walter"};

constexpr std::string_view kAdjectives[] = {
    "red",    "blue",   "green",  "black",   "white",  "brown", "yellow", "purple",
    "golden", "silver", "old",    "new",     "big",    "small", "heavy",  "light",
    "round",  "square", "long",   "short",   "cold",   "warm",  "clean",  "dirty",
    "broken", "shiny",  "wooden", "plastic", "paper",  "glass", "soft",   "hard",
    "smooth", "rough",  "pretty", "strange", "secret", "cheap", "plain",  "striped"};

constexpr std::string_view kNouns[] = {
    // animals
    "horse", "cow", "dog", "cat", "sheep", "goat", "duck", "hen", "fox", "wolf", "bear", "mouse",
    "rabbit", "pig",
    // fruit
    "apple", "pear", "plum", "cherry", "lemon", "orange", "banana", "grape", "melon", "peach",
    "fig", "berry", "mango", "lime",
    // tools
    "hammer", "saw", "drill", "spade", "axe", "knife", "rake", "file", "brush", "shovel", "wrench",
    "needle", "ladder", "pump",
    // clothes
    "coat", "hat", "shirt", "scarf", "glove", "sock", "boot", "dress", "belt", "jacket", "apron",
    "shoe", "cap", "vest",
    // furniture
    "chair", "table", "bed", "desk", "shelf", "bench", "sofa", "stool", "cupboard", "drawer",
    "couch", "cradle", "rack", "counter",
    // vehicles
    "car", "bus", "train", "boat", "ship", "bike", "truck", "plane", "tram", "van", "wagon", "sled",
    "canoe", "tractor",
    // instruments
    "drum", "flute", "violin", "piano", "guitar", "horn", "harp", "trumpet", "bell", "organ",
    "cello", "whistle", "banjo", "fiddle",
    // food
    "bread", "cheese", "soup", "cake", "butter", "honey", "rice", "salt", "sugar", "egg", "pie",
    "noodle", "pepper", "stew",
    // things
    "lamp", "box", "key", "book", "clock", "mirror", "bottle", "cup", "plate", "basket", "bag",
    "rope", "candle", "coin", "ring", "letter", "map", "picture", "pen", "pencil", "carpet",
    "curtain", "pillow", "blanket", "bucket", "barrel", "vase", "umbrella", "camera", "radio",
    "phone", "kettle", "pan", "spoon", "fork", "bowl", "jar", "ball", "doll", "kite", "stone",
    "shell", "feather", "flag"};

constexpr std::string_view kPlaces[] = {
    "kitchen", "garden",   "cellar", "attic",  "office",   "school",  "station", "market",
    "park",    "library",  "museum", "church", "harbour",  "garage",  "stable",  "barn",
    "tower",   "bridge",   "castle", "hotel",  "hospital", "factory", "bakery",  "theatre",
    "village", "forest",   "field",  "meadow", "valley",   "island",  "beach",   "river",
    "lake",    "mountain", "cave",   "tunnel", "street",   "yard",    "hall"};

constexpr std::string_view kVerbs[] = {"saw",     "bought",  "sold",    "found",    "lost",
                                       "painted", "cleaned", "carried", "moved",    "hid",
                                       "wanted",  "liked",   "fixed",   "borrowed", "washed",
                                       "dropped", "opened",  "broke",   "touched",  "drew"};

constexpr std::string_view kMotions[] = {"walked", "ran", "went", "drove", "came", "travelled"};
constexpr std::string_view kTimes[] = {"Today", "Yesterday", "Later", "Then",
                                       "Again", "Soon",      "Once",  "Now"};
constexpr std::string_view kWeather[] = {"sunny", "rainy", "windy", "cloudy", "foggy", "quiet"};
constexpr std::string_view kLabels[] = {"dax", "kiv", "zum", "lop", "wug", "fep",
                                        "mib", "tor", "nar", "pel", "gos", "hib"};

// A quarter of all pairs is kept for evaluation.
constexpr size_t kEvalShare = 4;

std::string Thing(size_t adjective, size_t noun) {
  std::string text(kAdjectives[adjective]);
  text += ' ';
  text += kNouns[noun];
  return text;
}

std::string_view Pick(Rng& rng, Words words, std::string_view other) {
  std::string_view word = closed::Pick(rng, words);
  while (word == other) word = closed::Pick(rng, words);
  return word;
}

}  // namespace

Words Names() { return kNames; }
Words FamilyNames() { return kFamilyNames; }
Words Adjectives() { return kAdjectives; }
Words Nouns() { return kNouns; }
Words Places() { return kPlaces; }
Words Verbs() { return kVerbs; }
Words Labels() { return kLabels; }

std::string_view Pick(Rng& rng, Words words) { return words[rng.NextBelow(words.size())]; }

bool InSplit(size_t adjective, size_t noun, Split split) {
  return ((adjective + noun) % kEvalShare == kEvalShare - 1) == (split == Split::kEval);
}

std::string ThingDraw::Next(Rng& rng) {
  KVG_CHECK(order_.size() < 1000, "more things than there are");
  const Words adjectives = Adjectives(), nouns = Nouns();
  while (true) {
    size_t adjective = rng.NextBelow(adjectives.size()), noun = rng.NextBelow(nouns.size());
    if (!order_.empty() && rng.NextBelow(3) == 0) {
      const auto& earlier = order_[rng.NextBelow(order_.size())];
      if (rng.NextBelow(2) == 0) {
        adjective = earlier.first;
      } else {
        noun = earlier.second;
      }
    }
    if (!InSplit(adjective, noun, split_) || !drawn_.emplace(adjective, noun).second) continue;
    order_.emplace_back(adjective, noun);
    return Thing(adjective, noun);
  }
}

std::string ThingDraw::WithNoun(Rng& rng, size_t noun) const {
  size_t adjective = rng.NextBelow(Adjectives().size());
  while (!InSplit(adjective, noun, split_)) adjective = rng.NextBelow(Adjectives().size());
  return Thing(adjective, noun);
}

std::string AnyThing(Rng& rng, Split split) {
  return ThingDraw(split).WithNoun(rng, rng.NextBelow(Nouns().size()));
}

std::string FullName(Rng& rng) {
  std::string text(Pick(rng, Names()));
  text += ' ';
  text += Pick(rng, FamilyNames());
  return text;
}

std::string PlaceWithAdjective(Rng& rng) {
  std::string text(Pick(rng, Adjectives()));
  text += ' ';
  text += Pick(rng, Places());
  return text;
}

std::string WithArticle(std::string_view words) {
  std::string text =
      std::string_view("aeiou").find(words.front()) == std::string_view::npos ? "a " : "an ";
  text += words;
  return text;
}

std::string Number(Rng& rng, int64_t least_digits, int64_t most_digits) {
  const int64_t digits = Between(rng, least_digits, most_digits);
  std::string text;
  for (int64_t i = 0; i < digits; ++i) {
    text += static_cast<char>('0' + Between(rng, i == 0 ? 1 : 0, 9));
  }
  return text;
}

std::string FillerSentence(Rng& rng, Split split) {
  const std::string_view name = Pick(rng, Names()), other = Pick(rng, Names(), name);
  const std::string_view verb = Pick(rng, Verbs()), place = Pick(rng, Places());
  const std::string_view time = Pick(rng, kTimes), weather = Pick(rng, kWeather);
  const std::string_view motion = Pick(rng, kMotions);
  const std::string thing = AnyThing(rng, split);
  const std::string_view noun = std::string_view(thing).substr(thing.find(' ') + 1);
  std::string text;
  const auto say = [&text](std::initializer_list<std::string_view> words) {
    for (const std::string_view word : words) {
      if (!text.empty()) text += ' ';
      text += word;
    }
    text += '.';
    return text;
  };
  switch (rng.NextBelow(10)) {
    case 0:
      return say({name, verb, "the", thing, "in the", place});
    case 1:
      return say({name, verb, WithArticle(thing)});
    case 2:
      return say({name, motion, "to the", place, "with", other});
    case 3:
      return say({"It was", weather, "near the", place});
    case 4:
      return say({time, name, motion, "to the", place});
    case 5:
      return say({"There were many more in the", place});
    case 6:
      return say({name, "and", other, verb, WithArticle(noun)});
    case 7:
      return say({"There was", WithArticle(thing), "in the", place});
    case 8:
      return say({time, "it was", weather, "in the", place});
    default:
      return say({name, "paid", Number(rng, 2, 3), "coins for the", thing});
  }
}

}  // namespace kvgauge::closed
