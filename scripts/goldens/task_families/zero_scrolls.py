# SPDX-License-Identifier: Apache-2.0
"""ZeroSCROLLS' whole prompts, and its scores. Its scorer is a server's and not in the repository."""

import re
import types

from task_families import scrolls
from task_goldens import OUTPUTS, TEXTS, load, one

REPOSITORY = "tau-nlp/zero_scrolls"
COMMIT = "c994676234c624ae32232eda9ee32b0329a37f04"
HOW = (
    "prompts: process_model_input of experiments/hf/run_hf_model.py with a tokenizer that keeps the"
    " text; scores: restated from the paper. Summaries and short answers are scored as SCROLLS scores"
    " them (task_families/scrolls.py); quality: the first letter A to D that stands alone;"
    " space_digest: 2^(-10 |p - p'|) of the first numbers, as shares; book_sum_sort: the share of"
    " pairs in the right order, none where the places are others"
)
PACKAGES = ("rouge-score",)

ANSWERS = {"quality": "B", "space_digest": "20%", "book_sum_sort": "2, 1, 3, 4"}
ROUGE = ("gov_report", "summ_screen_fd", "qmsum", "squality")
SHORT = "Stra\u00dfe of the \u00c9mile"
SUMMARY = "He met Ann, and then Bob left the stra\u00dfe."


def quality(output, answer):
    found = re.search(r"\b[A-D]\b", output)
    return found is not None and found.group(0) == answer


def similarity(output, answer):
    """No number is nothing right."""
    numbers = [re.search(r"\d+(\.\d+)?", text) for text in (output, answer)]
    if numbers[0] is None:
        return 0.0
    got, want = (float(n.group(0)) / 100 for n in numbers)
    return 2 ** (-10 * abs(got - want))


def concordance(output, answer):
    got, want = ([int(n) for n in re.findall(r"\d+", text)] for text in (output, answer))
    if sorted(got) != sorted(want):
        return 0.0
    pairs = [(a, b) for i, a in enumerate(want) for b in want[i + 1 :]]
    return sum(got.index(a) < got.index(b) for a, b in pairs) / len(pairs)


OWN = {
    "quality": (quality, ["B", "(B)", "B.", "b", "AB", "A or B", "\u00c9B", "B\u00c9", "B_", "\u4e2dB", "x B", "-B-", "1B"]),
    "space_digest": (similarity, ["20%", "20", "about 25 percent", "21.5%", "100%", "0", "none at all", "20 of 35", "1e3", "0.2"]),
    "book_sum_sort": (concordance, ["2, 1, 3, 4", "1, 2, 3, 4", "4 3 1 2", "2,1,3", "2, 1, 3, 3", "2, 1, 3, 4, 5", "Order: 3 > 1 > 2 > 4.",
                                    "02 01 03 04", "[2][1][4][3]", "first 2 then 1"]),
}  # fmt: skip


def scored(name, output):
    if name in OWN:
        return float(OWN[name][0](output, ANSWERS[name]))
    kind = "rouge" if name in ROUGE else "f1"
    return scrolls.score(kind, output, [SUMMARY if name in ROUGE else SHORT])


def make(root, golden):
    stubs = ("torch", "datasets", "fire", "transformers")
    module = load(root / "experiments/hf/run_hf_model.py", "zero_scrolls", stubs=stubs)

    def tokenizer(text, return_tensors):
        ids = types.SimpleNamespace(shape=(1, 1), text=text)
        ids.to = lambda device: ids
        return types.SimpleNamespace(input_ids=ids)

    for name in module.datasets:
        records, samples, rows = [], [], []
        for i, text in enumerate(TEXTS):
            # Offsets count characters, not bytes.
            whole = f"Instruction.\n\nStory:\n{text}\n\nQuestion:\nwho {text}?\n\nAnswer:\n"
            output = ANSWERS.get(name, SUMMARY if name in ROUGE else SHORT)
            record = {"id": str(i), "pid": f"{i}_0", "input": whole, "output": output,
                      "document_start_index": 14, "document_end_index": 21 + len(text),
                      "query_start_index": whole.rindex("Question:"), "query_end_index": len(whole),
                      "truncation_seperator": "... [The rest is omitted]\n\n"}  # fmt: skip
            records.append(record)
            samples.append([module.process_model_input(tokenizer, record, 8, "cpu").text])
        for output in OUTPUTS + (OWN[name][1] if name in OWN else scrolls.OUTPUTS_HERE):
            rows.append(one(0, output, scored(name, output)))
        golden.add(f"zero_scrolls/{name}", records, samples, rows)
