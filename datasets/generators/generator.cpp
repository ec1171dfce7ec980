// SPDX-License-Identifier: Apache-2.0
#include "generators/generator.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_set>

#include "core/check.h"
#include "core/json.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

class GeneratedStream : public SampleStream {
 public:
  GeneratedStream(int64_t total, std::function<Result<Sample>(int64_t)> make,
                  std::vector<std::string> faults)
      : total_(total), make_(std::move(make)), faults_(std::move(faults)) {}

  Result<std::optional<Sample>> Next() override {
    if (next_ == total_) return std::optional<Sample>();
    Result<Sample> sample = make_(next_);
    if (!sample.ok()) return sample.error().Wrap(StrCat("sample at position ", next_));
    ++next_;
    return std::optional<Sample>(*std::move(sample));
  }

  int64_t skipped() const override { return std::ssize(faults_); }
  const std::vector<std::string>& faults() const override { return faults_; }

 private:
  int64_t total_;
  int64_t next_ = 0;
  std::function<Result<Sample>(int64_t)> make_;
  std::vector<std::string> faults_;
};

Error BadList(std::string_view owner, std::string_view name, std::string_view entry,
              std::string_view expected) {
  return BadInput(StrCat(owner, ".", name, ": ", Quoted(entry), " is not valid; expected ",
                         expected, ", separated by commas"));
}

// Digits with at most one point, without the locale: "12", "93.106".
bool ParsePercent(std::string_view text, double& value) {
  int64_t digits = 0, scale = 1;
  bool point = false, any = false;
  for (const char c : text) {
    if (c == '.' && !point) {
      point = true;
    } else if (c >= '0' && c <= '9' && digits < 100'000'000) {
      digits = digits * 10 + (c - '0');
      if (point) scale *= 10;
      any = true;
    } else {
      return false;
    }
  }
  value = static_cast<double>(digits) / static_cast<double>(scale);
  return any && value <= 100;
}

}  // namespace

std::unique_ptr<SampleStream> MakeStream(int64_t total, const TaskOptions& options,
                                         std::function<Result<Sample>(int64_t)> make,
                                         std::vector<std::string> faults) {
  if (options.limit >= 0) total = std::min(total, options.limit);
  return std::make_unique<GeneratedStream>(total, std::move(make), std::move(faults));
}

ParamSpec TextParam(std::string name, std::string default_value, std::string help) {
  ParamSpec spec;
  spec.name = std::move(name);
  spec.default_value = std::move(default_value);
  spec.help = std::move(help);
  return spec;
}

Result<std::vector<int64_t>> ParseInts(const Params& params, std::string_view name,
                                       std::string_view owner, int64_t least, int64_t most) {
  std::vector<int64_t> values;
  for (const std::string& entry : Split(params.Text(name), ',')) {
    const std::string_view text = Trim(entry);
    int64_t value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc() || end != text.data() + text.size() || value < least || value > most) {
      return BadList(owner, name, text, StrCat("whole numbers from ", least, " to ", most));
    }
    values.push_back(value);
  }
  return values;
}

Result<std::vector<Percent>> ParsePercents(const Params& params, std::string_view name,
                                           std::string_view owner) {
  std::vector<Percent> values;
  for (const std::string& entry : Split(params.Text(name), ',')) {
    Percent percent;
    percent.text = std::string(Trim(entry));
    if (!ParsePercent(percent.text, percent.value)) {
      return BadList(owner, name, percent.text, "percentages from 0 to 100");
    }
    values.push_back(std::move(percent));
  }
  return values;
}

Result<bool> ReadFill(const Params& params, std::string_view owner) {
  const bool fill = params.Bool("fill");
  if (fill && params.Text("lengths").empty()) {
    return BadInput(StrCat(owner, ".fill: there is no length to fill; name lengths, in tokens"));
  }
  return fill;
}

int64_t NewTokens(const Json& task, int64_t otherwise) {
  if (!task.is_object()) return otherwise;
  const auto found = task.find("max_new_tokens");
  return found == task.end() || !found->is_number_integer() ? otherwise : found->get<int64_t>();
}

Rng RngFor(uint64_t seed, int64_t index, Draw purpose) {
  // The sample's own generator hands out one seed per purpose.
  const auto words = Rng(seed, static_cast<uint64_t>(index)).At(static_cast<uint64_t>(purpose));
  return Rng(words[0] | uint64_t{words[1]} << 32, words[2] | uint64_t{words[3]} << 32);
}

int64_t Between(Rng& rng, int64_t least, int64_t most) {
  return least + static_cast<int64_t>(rng.NextBelow(static_cast<uint64_t>(most - least + 1)));
}

std::string Uuid(Rng& rng) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  std::string text;
  uint64_t words[2] = {rng.NextU64(), rng.NextU64()};
  words[0] = (words[0] & ~uint64_t{0xF000}) | 0x4000;
  words[1] = (words[1] & ~(uint64_t{3} << 62)) | uint64_t{2} << 62;
  for (int digit = 0; digit < 32; ++digit) {
    if (digit == 8 || digit == 12 || digit == 16 || digit == 20) text += '-';
    text += kHex[words[digit / 16] >> (60 - 4 * (digit % 16)) & 15];
  }
  return text;
}

std::vector<int64_t> DrawDistinct(Rng& rng, int64_t bound, int64_t count) {
  KVG_CHECK(count <= bound, "more than there are");
  std::vector<int64_t> drawn;
  if (count * 4 > bound) {
    std::vector<int64_t> all(static_cast<size_t>(bound));
    for (int64_t i = 0; i < bound; ++i) all[static_cast<size_t>(i)] = i;
    for (int64_t i = 0; i < count; ++i) {
      std::swap(all[static_cast<size_t>(i)], all[static_cast<size_t>(Between(rng, i, bound - 1))]);
      drawn.push_back(all[static_cast<size_t>(i)]);
    }
    return drawn;
  }
  std::unordered_set<int64_t> seen;
  while (static_cast<int64_t>(drawn.size()) < count) {
    const int64_t value = Between(rng, 0, bound - 1);
    if (seen.insert(value).second) drawn.push_back(value);
  }
  return drawn;
}

std::string FillIn(std::string_view text,
                   const std::vector<std::pair<std::string_view, std::string_view>>& values) {
  std::string out;
  while (!text.empty()) {
    const size_t brace = text.find('{');
    out += text.substr(0, brace);
    if (brace == std::string_view::npos) break;
    text.remove_prefix(brace);
    const auto named = [&](const auto& value) {
      return text.size() >= value.first.size() + 2 &&
             text.substr(1, value.first.size()) == value.first &&
             text[value.first.size() + 1] == '}';
    };
    const auto found = std::find_if(values.begin(), values.end(), named);
    if (found == values.end()) {
      out += '{';
      text.remove_prefix(1);
    } else {
      out += found->second;
      text.remove_prefix(found->first.size() + 2);
    }
  }
  return out;
}

Mark MarkAt(MarkKind kind, size_t begin, size_t size) {
  return {kind, static_cast<int64_t>(begin), static_cast<int64_t>(begin + size)};
}

}  // namespace kvgauge
