// SPDX-License-Identifier: Apache-2.0
// Characters as NLTK's code sees them beyond what metrics/text.h has: Python's cases and digits,
// and the classes of the package `regex`, which NLTK matches its patterns with.
#pragma once

#include "core/sha256.h"
#include "metrics/text.h"

namespace kvgauge::metrics::nltk {

inline bool Among(TextView all, char32_t c) { return all.find(c) != TextView::npos; }

bool IsUpper(char32_t c);       // str.isupper() of one character
bool IsLower(char32_t c);       // str.islower() of one character
bool IsDigitLike(char32_t c);   // str.isdigit(): superscripts and circled digits, too
bool IsRegexSpace(char32_t c);  // \s of `regex`: without the separators U+001C to U+001F
bool IsRegexWord(char32_t c);   // \w of `regex`: marks and joiners, too, and no fractions

// A file of NLTK's data, whose size and bytes go into `digest`. Ill-formed UTF-8 is an error.
Result<std::string> ReadData(const std::string& path, Sha256& digest);

}  // namespace kvgauge::metrics::nltk
