# SPDX-License-Identifier: Apache-2.0
"""RepoBench 1.1: prompts of its own code, uncut; the first line of an output and its similarity."""


import sys

sys.modules["Levenshtein"] = None  # its requirements name difflib

from fuzzywuzzy import fuzz  # noqa: E402
from pictures_reference import functions  # noqa: E402
from task_goldens import TEXTS, load, one  # noqa: E402

REPOSITORY = "Leolty/repobench"
COMMIT = "630c865"
HOW = (
    "construct_prompt of data/utils.py without a tokenizer; get_first_line_not_comment of run.py and edit_similarity_score of"
    " evaluation/metrics.py over one pair, by difflib"
)
PACKAGES = ("fuzzywuzzy",)


def make(root, golden):
    prompts = load(root / "data/utils.py")
    run = functions(root / "run.py", {"get_first_line_not_comment"}, {})
    scores = functions(root / "evaluation/metrics.py", {"edit_similarity_score"}, {"fuzz": fuzz})
    said = ["return x", "\n\n  return x\n", "# a\nreturn x", '"""a\nb\n"""\nreturn x', "'''a'''\nb\nreturn y", "//x\nreturn x", "/* a */\nb\n*/\nreturn x", "/*\n*/\n\n x = 1", "#only", "", "\n", "  ",
            "return  x # it", '"""\nnever closed', "retrun y", "\r\nreturn x", "# a\n \t\n// b"]
    for language in ("python", "java"):
        rows = [{"repo_name": "a/b", "file_path": "src/{x}.py", "import_statement": "import x\n\n\n\nimport y", "cropped_code": text, "all_code": text, "next_line": line, "level": "2k",
                 "gold_snippet_index": 0, "created_at": "2023-12-01", "context": [{"identifier": "f", "path": "p.py", "snippet": t} for t in TEXTS[: i % 3]]}
                for i, (text, line) in enumerate(zip(TEXTS, ["return x", "    return x", "// b", "x = 1", "  ## {x}", "y\u00e9"], strict=True))]
        rows.append(rows[0] | {"level": "24k"})
        kept = [r for r in rows if r["level"] == "2k"]
        outputs = [one(i, out, lambda r=r, out=out: scores.edit_similarity_score(
            [r["next_line"]], [run.get_first_line_not_comment(out, language=language)]) / 100) for i, r in enumerate(kept) for out in said]
        names = [f"repobench/{language}_{n}" for n in ("cross_file_first", "cross_file_random", "in_file")]
        golden.add(names, rows, [[prompts.construct_prompt(r, language=language)] for r in kept], outputs, set={"container": "jsonl"})
