# SPDX-License-Identifier: Apache-2.0
"""Lost in the middle's prompts and scores."""

import sys

from task_goldens import OUTPUTS, ROOT, SHORT, load, one

REPOSITORY = "nelson-liu/lost-in-the-middle"
COMMIT = "29b8a6d042ce29abccee3db1a73171a107d7e6af"
HOW = (
    "prompts: prompting.py's functions; scores: get_metrics_for_example of evaluate_qa_responses.py, and"
    " evaluate_kv_responses.py's comparison (restated: one line). The right pair goes to place 0, as the"
    " scripts move it. Combining marks are left out: its pattern engine takes them for parts of words"
)
PACKAGES = ("pydantic", "regex")


def make(root, golden):
    sys.path.insert(0, str(root / "src"))
    from lost_in_the_middle import prompting

    scorer = load(root / "scripts/evaluate_qa_responses.py", "lost_scores", stubs=("xopen", "tqdm"))
    documents = [
        [{"title": t, "text": x, "isgold": i == 0, "hasanswer": i == 0, "id": str(i)} for i, (t, x) in enumerate(rows)]
        for rows in (
            [("A", "One."), (" B {b} ", "Two.\nLines \n")],
            [("Stra\u00dfe", " \u0661 "), ("", "x"), ("\u4e2d", "\u3000y")],
            [("(C)", "Document [1](Title: x)")],
        )
    ]
    answers = [["Stra\u00dfe", "The A"], ["\u0661\u0662"], ["\u00c9mile.", "2.50"]]
    outputs = OUTPUTS + ["strasse", "in the Stra\u00dfe!", "A\nStra\u00dfe", "\u00e9mile", "250", "2.50", "\u0661\u0662.", "12"]
    pairs = [[["k1", "v1"], ["k{2}", "Stra\u00dfe"], ["k3 ", "\u00c9-\u0661"]], [["a\"b", "c\\d"], ["\u4e2d", " v "]]]
    for path in sorted((ROOT / "configs/tasks/lost_in_the_middle").glob("*.json")):
        name, aware = path.stem, path.stem.endswith("_query_aware")
        records, samples, rows = [], [], []
        if name.startswith("qa"):
            for i, held in enumerate(documents):
                record = {"question": SHORT[i + 3], "answers": answers[i], "ctxs": held, "nq_annotated_gold": {}}
                records.append(record)
                if name == "qa_closed_book":
                    prompt = prompting.get_closedbook_qa_prompt(record["question"])
                else:
                    made = [prompting.Document.from_dict(dict(d)) for d in held]
                    prompt = prompting.get_qa_prompt(record["question"], made, False, aware)
                samples.append([prompt])
                for output in outputs:
                    row = {"answers": answers[i], "model_answer": output}
                    score = lambda: scorer.get_metrics_for_example(row)[0]["best_subspan_em"]  # noqa: B023, E731
                    rows.append(one(i, output, score))
        else:
            for i, held in enumerate(pairs):
                key, value = held[-1]
                records.append({"ordered_kv_records": held, "key": key, "value": value})
                moved = [held[-1], *held[:-1]]
                samples.append([prompting.get_kv_retrieval_prompt(moved, key, aware)])
                for output in OUTPUTS + [value, value.lower(), value.upper(), "is " + value.strip(), "\u00e9-\u0661"]:
                    rows.append(one(i, output, float(value.lower() in output.lower())))
        golden.add(f"lost_in_the_middle/{name}", records, samples, rows)
