// SPDX-License-Identifier: Apache-2.0
// Reads a page as a strict parser would: every element closed in order, every attribute quoted, no
// id twice, no link to nothing, nothing from elsewhere, and a name for every figure.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/strings.h"

namespace kvgauge {

inline bool Holds(const std::string& html, const std::string& part) {
  return html.find(part) != std::string::npos;
}

struct HtmlFacts {
  std::vector<std::string> faults;
  std::map<std::string, int> elements;  // count by name
  std::string text;                     // outside of elements, entities as written
};

class HtmlChecker {
 public:
  // `neighbours`: what the page may link to besides its own parts.
  explicit HtmlChecker(std::string_view html, std::set<std::string> neighbours = {})
      : html_(html), neighbours_(std::move(neighbours)) {}

  HtmlFacts Check() {
    at_ = html_.find("<html");
    while (at_ < html_.size()) {
      if (html_[at_] == '<') {
        if (!ReadElement()) return facts_;
        continue;
      }
      const size_t end = std::min(html_.find('<', at_), html_.size());
      facts_.text.append(html_.substr(at_, end - at_));
      at_ = end;
    }
    for (const std::string& name : open_) {
      facts_.faults.push_back(StrCat("<", name, "> is never closed"));
    }
    for (const std::string& target : targets_) {
      if (ids_.count(target) == 0) facts_.faults.push_back(StrCat("a link to nothing: #", target));
    }
    return facts_;
  }

 private:
  using Attributes = std::map<std::string, std::string>;

  void Fault(size_t at, const std::string& what) {
    if (facts_.faults.size() >= 20) return;
    facts_.faults.push_back(StrCat(what, " near ", Quoted(html_.substr(at, 80), 80)));
  }

  // False where nothing more can be read.
  bool ReadElement() {
    static const std::set<std::string, std::less<>> kVoid = {"meta", "input", "br",
                                                             "hr",   "img",   "wbr"};
    const size_t begin = at_;
    const bool closing = html_.substr(at_, 2) == "</";
    at_ += closing ? 2 : 1;
    size_t end = at_;
    while (end < html_.size() &&
           (isalnum(static_cast<unsigned char>(html_[end])) || html_[end] == '-')) {
      ++end;
    }
    const std::string name(html_.substr(at_, end - at_));
    at_ = end;
    if (name.empty()) {
      Fault(begin, "a stray <");
      ++at_;
      return true;
    }
    if (closing) {
      if (open_.empty() || open_.back() != name) {
        Fault(begin, StrCat("</", name, "> closes nothing"));
      }
      if (!open_.empty()) open_.pop_back();
      at_ = html_.find('>', at_) + 1;
      return true;
    }
    ++facts_.elements[name];
    bool self_closed = false;
    const Attributes attributes = ReadAttributes(begin, self_closed);
    CheckAttributes(begin, name, attributes);
    if (name == "script" || name == "style") {
      // Raw text up to the first end, whatever it is meant to be.
      at_ = html_.find(StrCat("</", name), at_);
      if (at_ == std::string_view::npos) {
        Fault(begin, "never ends");
        return false;
      }
      open_.push_back(name);
      return true;
    }
    if (!self_closed && kVoid.count(name) == 0) open_.push_back(name);
    return true;
  }

  Attributes ReadAttributes(size_t begin, bool& self_closed) {
    Attributes attributes;
    while (at_ < html_.size() && html_[at_] != '>') {
      if (html_[at_] == ' ' || html_[at_] == '/') {
        self_closed |= html_[at_] == '/';
        ++at_;
        continue;
      }
      const size_t stop = std::min(html_.find_first_of("= >/", at_), html_.size());
      const std::string key(html_.substr(at_, stop - at_));
      at_ = stop;
      std::string value;
      if (at_ < html_.size() && html_[at_] == '=') {
        if (html_[at_ + 1] != '"') Fault(begin, "an attribute without quotes");
        const size_t quote = html_.find('"', at_ + 2);
        value = std::string(html_.substr(at_ + 2, quote - at_ - 2));
        at_ = quote + 1;
      }
      if (key.substr(0, 2) == "on") Fault(begin, "an event attribute");
      if (!attributes.emplace(key, value).second) Fault(begin, StrCat("attribute ", key, " twice"));
    }
    ++at_;
    return attributes;
  }

  void CheckAttributes(size_t begin, const std::string& name, const Attributes& attributes) {
    const auto has = [&](const char* key) { return attributes.count(key) > 0; };
    if (has("style")) Fault(begin, "an inline style, which the policy forbids");
    if (has("src")) Fault(begin, "something from elsewhere");
    if (has("id") && !ids_.insert(attributes.at("id")).second) Fault(begin, "an id twice");
    if (has("href")) {
      const std::string& href = attributes.at("href");
      if (neighbours_.contains(href)) return;
      if (name == "image" && href.starts_with("data:image/jpeg;base64,")) {
        const size_t bad = href.find_first_not_of(
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=", 23);
        if (bad != std::string::npos) Fault(begin, "a picture that is no base64");
      } else if (href.empty() || href[0] != '#') {
        Fault(begin, "a link out of the page");
      } else {
        targets_.insert(href.substr(1));
      }
    }
    if (name == "svg" && !has("aria-hidden") &&
        (!has("role") || !has("aria-label") || attributes.at("aria-label").empty())) {
      Fault(begin, "a figure without a name");
    }
    if ((name == "input" || name == "select") && open_.back() != "label") {
      Fault(begin, "a field without a label");
    }
    if (name == "th" && !has("scope")) Fault(begin, "a heading of nothing");
  }

  std::string_view html_;
  std::set<std::string> neighbours_;
  size_t at_ = 0;
  HtmlFacts facts_;
  std::vector<std::string> open_;
  std::set<std::string> ids_, targets_;
};

inline HtmlFacts CheckHtml(std::string_view html, std::set<std::string> neighbours = {}) {
  return HtmlChecker(html, std::move(neighbours)).Check();
}

}  // namespace kvgauge
