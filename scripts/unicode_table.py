#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes runner/src/text/tokenizer/unicode_table.cpp.

General categories come from Unicode 16.0, the version that Hugging Face tokenizers 0.22 sees through
its regex engine. Two sets of the same library lag behind: its normaliser knows Unicode 9.0 and its
punctuation Unicode 8.0. The age of a code point comes from Perl, which carries DerivedAge.

    pip install unicodedata2==16.0.0 && scripts/unicode_table.py
"""

import pathlib
import subprocess
import sys

import unicodedata2

LETTER, NUMBER, PUNCTUATION, SYMBOL, MARK, SPACE, NEWER_THAN_9, OLD_PUNCTUATION = (
    1 << bit for bit in range(8)
)
CLASS_OF = {"L": LETTER, "N": NUMBER, "P": PUNCTUATION, "S": SYMBOL, "M": MARK}
WHITE_SPACE = (
    set(range(0x09, 0x0E))
    | set(range(0x2000, 0x200B))
    | {0x20, 0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}
)
# Punctuation in Unicode 8.0, recategorised since.
ONCE_PUNCTUATION = {0x166D, 0x111C9}


def present_in(version):
    """The code points that Unicode `version` had assigned."""
    program = (
        "no warnings; for my $c (0..0x10ffff) { next if $c >= 0xd800 && $c <= 0xdfff;"
        f" print $c, qq(\\n) if chr($c) =~ /\\p{{Present_In: {version}}}/ }}"
    )
    out = subprocess.run(["perl", "-e", program], check=True, capture_output=True, text=True).stdout
    return {int(line) for line in out.split()}


def flags_of(code_point, in_8, in_9):
    if 0xD800 <= code_point <= 0xDFFF:
        return 0
    category = unicodedata2.category(chr(code_point))
    flags = CLASS_OF.get(category[0], 0)
    if code_point in WHITE_SPACE:
        flags |= SPACE
    if category != "Cn" and code_point not in in_9:
        flags |= NEWER_THAN_9
    ascii_punctuation = code_point < 0x80 and category[0] in "PS"
    old = code_point in in_8 and category[0] == "P"
    if ascii_punctuation or old or code_point in ONCE_PUNCTUATION:
        flags |= OLD_PUNCTUATION
    return flags


def later_ranges(in_14):
    """Category letter pairs of what came after Unicode 14.0, as ranges, per category."""
    ranges = {}
    for code_point in range(0x110000):
        if 0xD800 <= code_point <= 0xDFFF or code_point in in_14:
            continue
        category = unicodedata2.category(chr(code_point))
        if category == "Cn":
            continue
        runs = ranges.setdefault(category, [])
        if runs and runs[-1][1] == code_point - 1:
            runs[-1][1] = code_point
        else:
            runs.append([code_point, code_point])
    return ranges


def wrapped(items, indent):
    lines, line = [], indent
    for item in items:
        if len(line) + len(item) + 2 > 100:
            lines.append(line.rstrip())
            line = indent
        line += item + ", "
    return "\n".join(lines + [line.rstrip()])


def main():
    if unicodedata2.unidata_version != "16.0.0":
        sys.exit(f"needs unicodedata2 of Unicode 16.0.0, not {unicodedata2.unidata_version}")
    in_8, in_9, in_14 = present_in("8.0"), present_in("9.0"), present_in("14.0")
    runs, last = [], None
    for code_point in range(0x110000):
        flags = flags_of(code_point, in_8, in_9)
        if flags != last:
            runs.append(f"0x{flags << 24 | code_point:x}")
            last = flags
    later = [
        f"{{'{category[0]}', '{category[1]}', 0x{first:x}, 0x{last:x}}}"
        for category, ranges in sorted(later_ranges(in_14).items())
        for first, last in ranges
    ]
    out = f"""// SPDX-License-Identifier: Apache-2.0
// Written by scripts/unicode_table.py from Unicode 16.0; do not edit.
#include "src/tokenizer/unicode.h"

namespace kvgauge {{

// Each run: flags in the top byte, first code point in the rest.
const uint32_t kUnicodeRuns[] = {{
{wrapped(runs, "    ")}
}};
const size_t kUnicodeRunCount = {len(runs)};

// What Unicode 15.0 to 16.0 added, by general category.
const LaterRange kLaterRanges[] = {{
{wrapped(later, "    ")}
}};
const size_t kLaterRangeCount = {len(later)};

}}  // namespace kvgauge
"""
    root = pathlib.Path(__file__).resolve().parent.parent
    (root / "runner/src/text/tokenizer/unicode_table.cpp").write_text(out)


if __name__ == "__main__":
    main()
