// SPDX-License-Identifier: Apache-2.0
// Reads a page as a strict parser would: every element closed in order, every attribute quoted, no
// id twice, no link to nothing, nothing from elsewhere, and a name for every figure.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
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

inline HtmlFacts CheckHtml(std::string_view html) {
  static const std::set<std::string, std::less<>> kVoid = {"meta", "input", "br",
                                                           "hr",   "img",   "wbr"};
  HtmlFacts facts;
  std::vector<std::string> open;
  std::set<std::string> ids, targets;
  const auto fault = [&](size_t at, const std::string& what) {
    if (facts.faults.size() < 20) {
      facts.faults.push_back(StrCat(what, " near ", Quoted(html.substr(at, 80), 80)));
    }
  };
  size_t i = html.find("<html");
  while (i < html.size()) {
    if (html[i] != '<') {
      const size_t end = std::min(html.find('<', i), html.size());
      facts.text.append(html.substr(i, end - i));
      i = end;
      continue;
    }
    const size_t begin = i;
    const bool closing = html.substr(i, 2) == "</";
    i += closing ? 2 : 1;
    size_t end = i;
    while (end < html.size() &&
           (isalnum(static_cast<unsigned char>(html[end])) || html[end] == '-'))
      ++end;
    const std::string name(html.substr(i, end - i));
    i = end;
    if (name.empty()) {
      fault(begin, "a stray <");
      ++i;
      continue;
    }
    if (closing) {
      if (open.empty() || open.back() != name) fault(begin, StrCat("</", name, "> closes nothing"));
      if (!open.empty()) open.pop_back();
      i = html.find('>', i) + 1;
      continue;
    }
    ++facts.elements[name];
    std::map<std::string, std::string> attributes;
    bool self_closed = false;
    while (i < html.size() && html[i] != '>') {
      if (html[i] == ' ') {
        ++i;
        continue;
      }
      if (html[i] == '/') {
        self_closed = true;
        ++i;
        continue;
      }
      size_t stop = i;
      while (stop < html.size() && html[stop] != '=' && html[stop] != ' ' && html[stop] != '>' &&
             html[stop] != '/')
        ++stop;
      const std::string key(html.substr(i, stop - i));
      i = stop;
      std::string value;
      if (i < html.size() && html[i] == '=') {
        if (html[i + 1] != '"') fault(begin, "an attribute without quotes");
        const size_t quote = html.find('"', i + 2);
        value = std::string(html.substr(i + 2, quote - i - 2));
        i = quote + 1;
      }
      if (key.substr(0, 2) == "on") fault(begin, "an event attribute");
      if (!attributes.emplace(key, value).second) fault(begin, StrCat("attribute ", key, " twice"));
    }
    ++i;
    const auto has = [&](const char* key) { return attributes.count(key) > 0; };
    if (has("style")) fault(begin, "an inline style, which the policy forbids");
    if (has("src")) fault(begin, "something from elsewhere");
    if (has("id") && !ids.insert(attributes["id"]).second) fault(begin, "an id twice");
    if (has("href")) {
      const std::string& href = attributes["href"];
      if (href.empty() || href[0] != '#') {
        fault(begin, "a link out of the page");
      } else {
        targets.insert(href.substr(1));
      }
    }
    if (name == "svg" && !has("aria-hidden")) {
      if (!has("role") || attributes["aria-label"].empty()) fault(begin, "a figure without a name");
    }
    if ((name == "input" || name == "select") && open.back() != "label")
      fault(begin, "a field without a label");
    if (name == "th" && !has("scope")) fault(begin, "a heading of nothing");
    if (name == "script" || name == "style") {
      // Raw text up to the first end, whatever it is meant to be.
      const std::string stop = StrCat("</", name);
      i = html.find(stop, i);
      if (i == std::string_view::npos) {
        fault(begin, "never ends");
        return facts;
      }
      open.push_back(name);
      continue;
    }
    if (!self_closed && kVoid.count(name) == 0) open.push_back(name);
  }
  for (const std::string& name : open)
    facts.faults.push_back(StrCat("<", name, "> is never closed"));
  for (const std::string& target : targets) {
    if (ids.count(target) == 0) facts.faults.push_back(StrCat("a link to nothing: #", target));
  }
  return facts;
}

}  // namespace kvgauge
