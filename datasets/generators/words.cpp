// SPDX-License-Identifier: Apache-2.0
#include "generators/words.h"

#include "core/strings.h"

namespace kvgauge {
namespace {

// clang-format off
constexpr std::string_view kAdjectives[] = {
    "able", "amber", "ancient", "autumn", "awake", "bitter", "blank", "bold", "brave", "brief",
    "bright", "broad", "broken", "calm", "careful", "cheap", "cheerful", "clean", "clear",
    "clever", "coarse", "cold", "common", "cool", "crisp", "curious", "daily", "damp", "dark",
    "dear", "deep", "dense", "distant", "double", "dry", "dull", "dusty", "eager", "early",
    "easy", "empty", "equal", "even", "faint", "fair", "faithful", "famous", "fast", "fierce",
    "final", "fine", "firm", "flat", "fluffy", "formal", "fragile", "free", "fresh", "friendly",
    "frosty", "full", "gentle", "giant", "glad", "golden", "grand", "grave", "great", "hard",
    "harsh", "heavy", "hidden", "hollow", "honest", "humble", "idle", "inner", "jolly", "keen",
    "kind", "large", "late", "lazy", "lean", "light", "lively", "lonely", "long", "loose",
    "loud", "low", "lucky", "mellow", "mild", "misty", "modest", "muddy", "narrow", "neat",
    "new", "noble", "noisy", "odd", "open", "outer", "pale", "patient", "plain", "pleasant",
    "polite", "proud", "pure", "quick", "quiet", "rapid", "rare", "raw", "ready", "rich",
    "ripe", "rough", "round", "royal", "rusty", "sacred", "safe", "salty", "sandy", "scarce",
    "secret", "severe", "shallow", "sharp", "shiny", "short", "shy", "silent", "silver",
    "simple", "single", "sleepy", "slim", "slow", "small", "smooth", "sober", "soft", "solid",
    "sour", "spare", "steady", "steep", "stern", "stiff", "still", "strange", "strict",
    "strong", "sturdy", "subtle", "sudden", "sunny", "sweet", "swift", "tall", "tame", "tender",
    "thick", "thin", "tidy", "timid", "tiny", "tough", "upper", "usual", "vague", "vast",
    "vivid", "warm", "weak", "wet", "whole", "wide", "wild", "wise", "wooden", "worn", "young",
    "zealous"};

constexpr std::string_view kNouns[] = {
    "acorn", "anchor", "anvil", "apple", "apron", "arch", "arrow", "attic", "axle", "badge",
    "bakery", "balcony", "ballad", "bank", "barley", "barn", "barrel", "basin", "basket",
    "beacon", "bell", "bench", "bishop", "blanket", "boat", "bottle", "boulder", "bowl",
    "bracket", "branch", "bread", "brick", "bridge", "broom", "brush", "bucket", "bundle",
    "button", "cabin", "cable", "candle", "canoe", "canvas", "carpet", "castle", "cattle",
    "cedar", "cellar", "chain", "chair", "chalk", "chapel", "chest", "chimney", "cider",
    "clock", "cloud", "coat", "cobbler", "comet", "compass", "copper", "coral", "corner",
    "cotton", "cradle", "crane", "cricket", "crown", "curtain", "dairy", "desk", "diary",
    "dock", "donkey", "door", "drawer", "drum", "eagle", "engine", "envelope", "falcon",
    "farmer", "feather", "fence", "ferry", "fiddle", "field", "finch", "fisher", "flag",
    "flask", "flour", "flute", "forge", "fountain", "fox", "frame", "garden", "gate", "giraffe",
    "glacier", "glass", "glove", "goat", "goose", "grain", "granite", "grape", "gravel",
    "guitar", "hammer", "harbor", "harp", "hat", "hawk", "hedge", "helmet", "heron", "hill",
    "honey", "hook", "horn", "horse", "inn", "island", "ivy", "jacket", "jar", "jewel", "judge",
    "kettle", "key", "kitchen", "kite", "knot", "ladder", "lake", "lamp", "lantern", "lawn",
    "leaf", "ledger", "lemon", "letter", "lighthouse", "lily", "linen", "lock", "loom",
    "magnet", "map", "maple", "marble", "market", "mason", "meadow", "medal", "mill", "mirror",
    "monk", "moss", "motor", "mountain", "museum", "needle", "nest", "notebook", "oak", "oar",
    "ocean", "olive", "onion", "orchard", "otter", "oven", "owl", "paddle", "painter", "palace",
    "panel", "paper", "parcel", "parrot", "path", "pebble", "pencil", "pepper", "piano",
    "pillow", "pine", "pipe", "planet", "plate", "plough", "plum", "pocket", "poem", "pond",
    "poplar", "porch", "pot", "potter", "pump", "puzzle", "quarry", "quilt", "rabbit", "raft",
    "rail", "raven", "reed", "ribbon", "river", "road", "robin", "rocket", "roof", "rope",
    "rose", "rudder", "saddle", "sail", "salmon", "scarf", "school", "scroll", "shed", "shelf",
    "shell", "ship", "shoe", "shore", "shovel", "sickle", "signal", "sofa", "spade", "sparrow",
    "spoon", "spring", "squirrel", "stable", "stairs", "statue", "stone", "stool", "stove",
    "stream", "street", "suitcase", "sunset", "swan", "table", "tailor", "teapot", "temple",
    "thistle", "throne", "thunder", "timber", "tower", "trail", "train", "tray", "treasure",
    "trumpet", "tulip", "tunnel", "turnip", "valley", "vase", "velvet", "village", "vine",
    "violin", "wagon", "wall", "walnut", "water", "weaver", "well", "wheat", "wheel", "whistle",
    "willow", "window", "winter", "wolf", "wool", "workshop", "yard"};

constexpr std::string_view kVerbs[] = {
    "admired", "ignored", "carried", "borrowed", "cleaned", "closed", "collected", "counted",
    "covered", "crossed", "described", "discovered", "drew", "emptied", "examined", "explored",
    "fetched", "filled", "finished", "followed", "found", "guarded", "guided", "hid",
    "improved", "inspected", "kept", "lifted", "liked", "lost", "loved", "measured", "mended",
    "moved", "noticed", "offered", "opened", "ordered", "packed", "painted", "passed",
    "planned", "polished", "praised", "promised", "protected", "pulled", "pushed", "raised",
    "recalled", "remembered", "repaired", "replaced", "rescued", "returned", "sketched", "sold",
    "sorted", "studied", "tested", "touched", "trusted", "visited", "washed", "watched",
    "weighed", "welcomed", "wrapped"};

constexpr std::string_view kPeople[] = {
    "Ada", "Agnes", "Albert", "Alma", "Anton", "Arthur", "Basil", "Beatrix", "Bruno", "Cecil",
    "Clara", "Conrad", "Dora", "Edith", "Edwin", "Elsa", "Emil", "Esther", "Felix", "Flora",
    "Frieda", "George", "Greta", "Gustav", "Hanna", "Harold", "Hilda", "Hugo", "Ida", "Ingrid",
    "Irma", "Ivan", "Jonas", "Josef", "Julia", "Karl", "Klara", "Laura", "Leo", "Lotte",
    "Lydia", "Magda", "Marta", "Max", "Mira", "Nora", "Olga", "Oscar", "Otto", "Paula", "Petra",
    "Rosa", "Rudolf", "Selma", "Simon", "Stella", "Theo", "Tilda", "Viktor", "Vera", "Walter",
    "Wanda"};

constexpr std::string_view kCities[] = {
    "Accra", "Algiers", "Amsterdam", "Ankara", "Athens", "Baghdad", "Bangkok", "Belgrade",
    "Berlin", "Bogota", "Brussels", "Budapest", "Cairo", "Caracas", "Chicago", "Copenhagen",
    "Dakar", "Damascus", "Delhi", "Dublin", "Edinburgh", "Geneva", "Glasgow", "Hamburg",
    "Hanoi", "Havana", "Helsinki", "Istanbul", "Jakarta", "Kampala", "Kiev", "Lagos", "Lima",
    "Lisbon", "London", "Lusaka", "Madrid", "Manila", "Melbourne", "Milan", "Montreal",
    "Moscow", "Munich", "Nairobi", "Naples", "Osaka", "Oslo", "Ottawa", "Paris", "Prague",
    "Quito", "Rabat", "Riga", "Rome", "Santiago", "Seoul", "Sofia", "Stockholm", "Sydney",
    "Tallinn", "Tehran", "Tokyo", "Toronto", "Tunis", "Turin", "Vienna", "Vilnius", "Warsaw",
    "Zagreb", "Zurich"};
// clang-format on

}  // namespace

std::span<const std::string_view> Adjectives() { return kAdjectives; }
std::span<const std::string_view> Nouns() { return kNouns; }
std::span<const std::string_view> Verbs() { return kVerbs; }
std::span<const std::string_view> People() { return kPeople; }
std::span<const std::string_view> Cities() { return kCities; }

std::string_view Pick(Rng& rng, std::span<const std::string_view> words) {
  return words[rng.NextBelow(words.size())];
}

std::string WordPair(Rng& rng) {
  const std::string_view adjective = Pick(rng, kAdjectives);
  return StrCat(adjective, "-", Pick(rng, kNouns));
}

}  // namespace kvgauge
