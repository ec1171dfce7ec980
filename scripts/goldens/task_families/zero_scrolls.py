# SPDX-License-Identifier: Apache-2.0
"""ZeroSCROLLS' whole prompts. Its scorer is a server's and not in the repository."""

import types

from task_goldens import OUTPUTS, TEXTS, load, one

REPOSITORY = "tau-nlp/zero_scrolls"
COMMIT = "c994676234c624ae32232eda9ee32b0329a37f04"
HOW = (
    "prompts: process_model_input of experiments/hf/run_hf_model.py with a tokenizer that keeps the"
    " text; scores of quality: the first letter A to D that stands alone, restated with Python's re from"
    " the paper's rule; of the others none: the packages' goldens stand for them"
)


def make(root, golden):
    stubs = ("torch", "datasets", "fire", "transformers")
    module = load(root / "experiments/hf/run_hf_model.py", "zero_scrolls", stubs=stubs)

    def tokenizer(text, return_tensors):
        ids = types.SimpleNamespace(shape=(1, 1), text=text)
        ids.to = lambda device: ids
        return types.SimpleNamespace(input_ids=ids)

    import re

    for name in module.datasets:
        records, samples, rows = [], [], []
        for i, text in enumerate(TEXTS):
            # Offsets count characters, not bytes.
            whole = f"Instruction.\n\nStory:\n{text}\n\nQuestion:\nwho {text}?\n\nAnswer:\n"
            output = {"quality": "B", "space_digest": "20%", "book_sum_sort": "2, 1, 3"}.get(name, "The stra\u00dfe.")
            record = {"id": str(i), "pid": f"{i}_0", "input": whole, "output": output,
                      "document_start_index": 14, "document_end_index": 21 + len(text),
                      "query_start_index": whole.rindex("Question:"), "query_end_index": len(whole),
                      "truncation_seperator": "... [The rest is omitted]\n\n"}  # fmt: skip
            records.append(record)
            samples.append([module.process_model_input(tokenizer, record, 8, "cpu").text])
        if name == "quality":
            for output in OUTPUTS + ["B", "(B)", "B.", "b", "AB", "A or B", "\u00c9B", "B\u00c9", "B_", "\u4e2dB", "x B", "-B-", "1B"]:
                found = re.search(r"\b[A-D]\b", output)
                rows.append(one(0, output, float(found is not None and found.group(0) == "B")))
        golden.add(f"zero_scrolls/{name}", records, samples, rows)
