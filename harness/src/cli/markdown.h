// SPDX-License-Identifier: Apache-2.0
// Pieces of the Markdown pages that commands write.
#pragma once

#include <string>
#include <string_view>

namespace kvgauge {

// `text` as it stands: characters that Markdown would interpret are escaped.
std::string EscapedMarkdown(std::string_view text);
// "`text`"
std::string MarkdownCode(std::string_view text);
// "- text", on lines of at most 98 columns.
std::string MarkdownItem(std::string_view text);
// Links to arXiv for every "arXiv:NUMBER" of a list separated by commas; other texts stay, and "-"
// stands for none.
std::string MarkdownPapers(const std::string& papers);

}  // namespace kvgauge
