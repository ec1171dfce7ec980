// SPDX-License-Identifier: Apache-2.0
#include "src/cli/markdown.h"

#include <vector>

#include "core/strings.h"

namespace kvgauge {

std::string EscapedMarkdown(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (std::string_view("\\`*_<>[]|#").find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string MarkdownCode(std::string_view text) { return StrCat("`", text, "`"); }

std::string MarkdownItem(std::string_view text) {
  constexpr size_t kColumns = 98;
  std::string item, line = "-";
  for (const std::string& word : Split(EscapedMarkdown(text), ' ')) {
    if (line.size() + 1 + word.size() > kColumns) {
      item += line + "\n";
      line = " ";
    }
    line += " " + word;
  }
  return item + line + "\n";
}

std::string MarkdownPapers(const std::string& papers) {
  constexpr std::string_view kArxiv = "arXiv:";
  if (papers.empty()) return "-";
  std::vector<std::string> links;
  for (const std::string& part : Split(papers, ',')) {
    const std::string paper(Trim(part));
    const std::string number = paper.starts_with(kArxiv) ? paper.substr(kArxiv.size()) : "";
    links.push_back(number.empty() ? EscapedMarkdown(paper)
                                   : StrCat("[", number, "](https://arxiv.org/abs/", number, ")"));
  }
  return Join(links, ", ");
}

}  // namespace kvgauge
