// SPDX-License-Identifier: Apache-2.0
#include "metrics/wordnet.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <utility>

#include "core/strings.h"

namespace kvgauge::metrics {
namespace {

constexpr std::array<const char*, 4> kNames = {"noun", "verb", "adj", "adv"};
constexpr std::string_view kLetters = "nvar";  // 's', a satellite, lies with the adjectives
constexpr const char* kDebian = "/usr/share/wordnet";

struct Ending {
  const char* from;
  const char* to;
};
const std::vector<Ending>& Endings(size_t part) {
  static const std::array<std::vector<Ending>, 4> endings = {{
      {{"s", ""},
       {"ses", "s"},
       {"ves", "f"},
       {"xes", "x"},
       {"zes", "z"},
       {"ches", "ch"},
       {"shes", "sh"},
       {"men", "man"},
       {"ies", "y"}},
      {{"s", ""},
       {"ies", "y"},
       {"es", "e"},
       {"es", ""},
       {"ed", "e"},
       {"ed", ""},
       {"ing", "e"},
       {"ing", ""}},
      {{"er", ""}, {"est", ""}, {"er", "e"}, {"est", "e"}},
      {},
  }};
  return endings[part];
}

std::vector<std::string_view> Columns(std::string_view line) {
  std::vector<std::string_view> columns;
  size_t at = 0;
  while (true) {
    at = line.find_first_not_of(" \t\r", at);
    if (at == std::string_view::npos) return columns;
    const size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
    columns.push_back(line.substr(at, end - at));
    at = end;
  }
}

bool ToNumber(std::string_view text, int base, int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size() && value >= 0;
}

std::string_view Bytes(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// Calls `take(line, number)` for every line that is not of the licence.
template <class Take>
Status EachLine(std::string_view text, Take take) {
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.empty() && line.front() != ' ') KVG_TRY(take(line, number));
  }
  return {};
}

// Names are "word.n.01", the sense counted from 1 and of two digits at least.
std::string NameOf(std::string_view word, char letter, int64_t sense) {
  std::array<char, 24> number = {};
  std::snprintf(number.data(), number.size(), "%02lld", static_cast<long long>(sense));
  return StrCat(word, ".", letter, ".", number.data());
}

std::string AsciiLower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

}  // namespace

Result<std::shared_ptr<const WordNet>> WordNet::Load(const std::string& directory) {
  std::shared_ptr<WordNet> net(new WordNet);
  for (size_t part = 0; part < kParts; ++part) KVG_TRY(net->LoadPart(directory, part));
  return std::shared_ptr<const WordNet>(std::move(net));
}

Result<std::shared_ptr<const WordNet>> WordNet::Shared() {
  static const Result<std::shared_ptr<const WordNet>> shared =
      []() -> Result<std::shared_ptr<const WordNet>> {
    const char* given = std::getenv("KVGAUGE_WORDNET");
    const std::string directory = given != nullptr && *given != '\0' ? given : kDebian;
    if (!FileExists(directory + "/index.noun")) {
      return BadInput(
          StrCat("synonyms need WordNet's dictionary files, and ", directory,
                 "/index.noun is not there: install the package wordnet-base, or set "
                 "KVGAUGE_WORDNET to the directory that holds index.noun and data.noun"));
    }
    return Load(directory);
  }();
  return shared;
}

Status WordNet::LoadPart(const std::string& directory, size_t part) {
  const std::string index_path = StrCat(directory, "/index.", kNames[part]);
  const std::string exceptions_path = StrCat(directory, "/", kNames[part], ".exc");
  KVG_ASSIGN(data_[part], MappedFile::Open(StrCat(directory, "/data.", kNames[part])));
  KVG_ASSIGN(const auto index, MappedFile::Open(index_path));
  const std::string_view data = Bytes(*data_[part]);
  if (data.substr(0, data.find('\n')).ends_with('\r')) {
    return BadInput(StrCat(data_[part]->path(), ": its lines end in CR LF, so they do not begin ",
                           "at the bytes that ", index_path, " names; WordNet's own files end ",
                           "lines in LF: take those, or these without CR (tr -d '\\r')"));
  }
  KVG_TRY(EachLine(Bytes(*index), [&](std::string_view line, int64_t number) -> Status {
    // word part synsets pointers symbol... senses tagged offset...
    const std::vector<std::string_view> columns = Columns(line);
    const auto bad = [&] {
      return BadInput(StrCat(index_path, ":", number, ": not a line of a WordNet index"));
    };
    int64_t synsets = 0, pointers = 0;
    if (columns.size() < 4 || !ToNumber(columns[2], 10, synsets) ||
        !ToNumber(columns[3], 10, pointers) ||
        static_cast<int64_t>(columns.size()) < 6 + pointers + synsets) {
      return bad();
    }
    std::vector<int64_t> offsets(static_cast<size_t>(synsets));
    for (size_t i = 0; i < offsets.size(); ++i) {
      if (!ToNumber(columns[6 + static_cast<size_t>(pointers) + i], 10, offsets[i])) return bad();
    }
    longest_[part] = std::max(longest_[part], columns[0].size());
    index_[part][std::string(columns[0])] = std::move(offsets);
    return {};
  }));
  KVG_ASSIGN(const std::string exceptions, ReadFile(exceptions_path));
  return EachLine(exceptions, [&](std::string_view line, int64_t) -> Status {
    const std::vector<std::string_view> columns = Columns(line);
    if (columns.empty()) return {};
    exceptions_[part][std::string(columns[0])].assign(columns.begin() + 1, columns.end());
    return {};
  });
}

bool WordNet::Has(const std::string& word, size_t part) const {
  return index_[part].find(word) != index_[part].end();
}

std::vector<std::string> WordNet::BaseForms(const std::string& word, size_t part) const {
  std::vector<std::string> forms = {word};
  if (const auto found = exceptions_[part].find(word); found != exceptions_[part].end()) {
    forms.insert(forms.end(), found->second.begin(), found->second.end());
  } else {
    for (const auto& [from, to] : Endings(part)) {
      if (word.ends_with(from)) {
        forms.push_back(word.substr(0, word.size() - std::string_view(from).size()) + to);
      }
    }
  }
  std::vector<std::string> known;
  for (std::string& form : forms) {
    if (Has(form, part) && std::find(known.begin(), known.end(), form) == known.end()) {
      known.push_back(std::move(form));
    }
  }
  return known;
}

std::string WordNet::Lemma(const std::string& word, int part) const {
  const std::vector<std::string> forms = BaseForms(word, static_cast<size_t>(part));
  const auto shortest = std::ranges::min_element(forms, {}, &std::string::size);
  return shortest == forms.end() ? word : *shortest;
}

bool WordNet::HasForm(const std::string& word, size_t part) const {
  if (Has(word, part)) return true;
  if (const auto found = exceptions_[part].find(word); found != exceptions_[part].end()) {
    return std::ranges::any_of(found->second,
                               [&](const std::string& form) { return Has(form, part); });
  }
  // A form is the front of the word and a new ending, so that a long word is not copied for each.
  using Form = std::pair<size_t, std::string>;
  constexpr size_t kLongestEnding = 4;
  std::vector<Form> open = {{word.size(), ""}};
  std::set<Form> seen;
  while (!open.empty()) {
    const Form form = std::move(open.back());
    open.pop_back();
    const size_t shown = std::min(form.first, kLongestEnding);
    const std::string end = word.substr(form.first - shown, shown) + form.second;
    for (const auto& [from, to] : Endings(part)) {
      const std::string_view taken = from;
      if (!end.ends_with(taken)) continue;
      const size_t of_word = taken.size() - std::min(taken.size(), form.second.size());
      const size_t left = form.second.size() - (taken.size() - of_word);
      Form next = {form.first - of_word, form.second.substr(0, left) + to};
      if (next.first + next.second.size() <= longest_[part] &&
          Has(word.substr(0, next.first) + next.second, part)) {
        return true;
      }
      if (seen.insert(next).second) open.push_back(std::move(next));
    }
  }
  return false;
}

bool WordNet::HasForm(const std::string& word) const {
  for (size_t part = 0; part < kParts; ++part) {
    if (HasForm(word, part)) return true;
  }
  return false;
}

std::vector<Synset> WordNet::Synsets(const std::string& word) const {
  std::vector<Synset> synsets;
  for (size_t part = 0; part < kParts; ++part) {
    for (const std::string& form : BaseForms(word, part)) {
      for (const int64_t offset : index_[part].at(form)) {
        synsets.push_back({static_cast<int>(part), offset});
      }
    }
  }
  return synsets;
}

std::optional<WordNet::Entry> WordNet::Read(Synset synset) const {
  const std::string_view data = Bytes(*data_[static_cast<size_t>(synset.part)]);
  if (static_cast<uint64_t>(synset.offset) >= data.size()) return std::nullopt;
  std::string_view line = data.substr(static_cast<size_t>(synset.offset));
  line = line.substr(0, line.find('\n'));
  line = line.substr(0, line.find('|'));
  // offset file letter words(hex) word id ... pointers symbol offset letter source/target ...
  const std::vector<std::string_view> columns = Columns(line);
  int64_t offset = 0, words = 0, pointers = 0;
  if (columns.size() < 4 || !ToNumber(columns[0], 10, offset) || offset != synset.offset ||
      !ToNumber(columns[3], 16, words) || static_cast<int64_t>(columns.size()) < 5 + 2 * words) {
    return std::nullopt;
  }
  Entry entry;
  entry.satellite = columns[2] == "s";
  for (int64_t i = 0; i < words; ++i) {
    std::string_view word = columns[static_cast<size_t>(4 + 2 * i)];
    // "(a)", "(p)" and "(ip)" say where an adjective may stand.
    if (const size_t open = word.rfind('('); word.ends_with(')') && open != word.npos) {
      word = word.substr(0, open);
    }
    entry.words.emplace_back(word);
  }
  const auto first = static_cast<size_t>(4 + 2 * words);
  if (!ToNumber(columns[first], 10, pointers) ||
      static_cast<int64_t>(columns.size() - first - 1) < 4 * pointers) {
    return std::nullopt;
  }
  std::vector<Synset> instances;
  for (size_t i = 0; i < static_cast<size_t>(pointers); ++i) {
    const auto column = [&](size_t at) { return columns[first + 1 + 4 * i + at]; };
    const bool of_instance = column(0) == "@i";
    if ((column(0) != "@" && !of_instance) || column(3) != "0000") continue;
    const char letter = column(2) == "s" ? 'a' : column(2).front();
    const size_t part = kLetters.find(letter);
    int64_t parent = 0;
    if (part == std::string_view::npos || !ToNumber(column(1), 10, parent)) return std::nullopt;
    (of_instance ? instances : entry.parents).push_back({static_cast<int>(part), parent});
  }
  entry.parents.insert(entry.parents.end(), instances.begin(), instances.end());

  const std::string word = entry.words.empty() ? "" : AsciiLower(entry.words[0]);
  int64_t sense = 0;
  const auto& index = index_[static_cast<size_t>(synset.part)];
  if (const auto found = index.find(word); found != index.end()) {
    for (const int64_t other : found->second) {
      // Satellites are counted among themselves.
      bool counts = true;
      if (entry.satellite && other != synset.offset) {
        const size_t mark = static_cast<size_t>(other) + 12;  // "01234567 00 s"
        counts = mark < data.size() && data[mark] == 's';
      }
      sense += counts ? 1 : 0;
      if (other == synset.offset) break;
    }
  }
  const char letter = entry.satellite ? 's' : kLetters[static_cast<size_t>(synset.part)];
  entry.name = NameOf(word, letter, sense);
  return entry;
}

std::vector<std::string> WordNet::Words(Synset synset) const {
  std::optional<Entry> entry = Read(synset);
  return entry ? std::move(entry->words) : std::vector<std::string>();
}

std::vector<Synset> WordNet::Parents(Synset synset) const {
  std::optional<Entry> entry = Read(synset);
  return entry ? std::move(entry->parents) : std::vector<Synset>();
}

// Steps to a synset without parents, the most or the fewest. A faulty file may hold a ring: what
// stands above is not entered again.
int64_t WordNet::Depth(Synset synset, bool longest, std::set<Synset>& above) const {
  std::optional<int64_t> best;
  above.insert(synset);
  for (const Synset parent : Parents(synset)) {
    if (above.contains(parent)) continue;
    const int64_t depth = 1 + Depth(parent, longest, above);
    best = !best ? depth : longest ? std::max(*best, depth) : std::min(*best, depth);
  }
  above.erase(synset);
  return best.value_or(0);
}

// The fewest steps to every ancestor, the synset itself included.
std::map<Synset, int64_t> WordNet::Distances(Synset synset) const {
  std::map<Synset, int64_t> steps;
  std::deque<std::pair<Synset, int64_t>> open = {{synset, 0}};
  while (!open.empty()) {
    const std::pair<Synset, int64_t> here = open.front();
    open.pop_front();
    if (!steps.emplace(here).second) continue;
    for (const Synset parent : Parents(here.first)) open.emplace_back(parent, here.second + 1);
  }
  return steps;
}

std::optional<double> WordNet::Similarity(Synset a, Synset b) const {
  // Only nouns have one root of their own; above all others an invented one is thought.
  const bool root = a.part != 0 || b.part != 0;
  const std::map<Synset, int64_t> from_a = Distances(a), from_b = Distances(b);

  // The common ancestors of the greatest least depth, and of these the first by name,
  // unless `a` itself is one of them. The invented root has depth 0 and a name before all letters.
  std::optional<Synset> subsumer;
  std::string subsumer_name;
  bool at_root = root;
  int64_t deepest = root ? 0 : -1;
  for (const auto& entry : from_a) {
    const Synset common = entry.first;
    if (!from_b.contains(common)) continue;
    std::set<Synset> above;
    const int64_t depth = Depth(common, false, above);
    if (depth < deepest) continue;
    const std::optional<Entry> read = Read(common);
    const std::string name = read ? read->name : "";
    constexpr const char* kRootName = "*ROOT*";
    const bool wins = depth > deepest || common == a ||
                      (subsumer != a && (at_root ? name < kRootName : name < subsumer_name));
    deepest = depth;
    if (!wins) continue;
    subsumer = common;
    subsumer_name = name;
    at_root = false;
  }
  if (!subsumer && !at_root) return std::nullopt;

  int64_t depth = 1, steps = 0;
  const auto most = [](const std::map<Synset, int64_t>& distances) {
    int64_t far = 0;
    for (const auto& entry : distances) far = std::max(far, entry.second);
    return far;
  };
  if (at_root) {
    steps = most(from_a) + 1 + most(from_b) + 1;
  } else {
    std::set<Synset> above;
    depth = Depth(*subsumer, true, above) + 1;
    // The shortest way from one to the other through any common ancestor, the invented root too.
    const std::map<Synset, int64_t> from_subsumer = Distances(*subsumer);
    const auto shortest = [&](Synset from, const std::map<Synset, int64_t>& distances) {
      if (from == *subsumer) return int64_t{0};
      int64_t best = root ? most(distances) + 1 + most(from_subsumer) + 1 : distances.at(*subsumer);
      for (const auto& entry : from_subsumer) {
        if (const auto found = distances.find(entry.first); found != distances.end()) {
          best = std::min(best, entry.second + found->second);
        }
      }
      return best;
    };
    steps = shortest(a, from_a) + shortest(b, from_b);
  }
  return 2.0 * static_cast<double>(depth) / static_cast<double>(steps + 2 * depth);
}

}  // namespace kvgauge::metrics
