# SPDX-License-Identifier: Apache-2.0
"""BAMBOO's run script and evaluate.py. The script reads other field names than the released files
have: records go into it under its names, and into the fixture under the released ones."""

import itertools
import json
import pathlib
import re
import tempfile
import types

from task_goldens import OUTPUTS, SHORT, TEXTS, load, one, printed_by

REPOSITORY = "RUCAIBox/BAMBOO"
COMMIT = "f230f206148396c12774ef3a632df291d96dc6ab"
HOW = (
    "prompts: Evaluator.evaluate of run_for_transformers.py with the fields renamed to those that it"
    " reads and prompt.json's texts; scores: evaluate.py's functions, and what it prints"
)
PACKAGES = ("scikit-learn",)


class Prompts:
    """The prompts that the run script would hand to the model."""

    def __init__(self, root):
        stubs = ("transformers", "torch", "fastchat", "fastchat.model")
        self.module = load(root / "run_for_transformers.py", stubs=stubs)
        self.texts = json.loads((root / "prompt.json").read_text(encoding="utf-8"))

    def __call__(self, task, kind, record):
        got = []

        class Recorder(self.module.Evaluator):
            def generate(self, input_data, history=()):
                got.append(input_data)
                return "", history

        with tempfile.NamedTemporaryFile() as out:
            self.module.args = types.SimpleNamespace(prompt_name=kind)
            Recorder(None, None, [record], out.name, "", self.texts[task], kind).evaluate()
        assert len(got) == 1, record
        return got


def evaluate(scorer, task, rows):
    """What evaluate.py prints for (prediction, answer) pairs: the last number, of F1 too."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "rows.jsonl")
        path.write_text("\n".join(json.dumps({"pred": p, "answer": a}) for p, a in rows))
        return float(re.findall(r"[\d.]+", printed_by(scorer.evaluate, str(path), task))[-1])


def both_sizes(golden, task, *args, **more):
    golden.add([f"bamboo/{task}_{size}" for size in ("4k", "16k")], *args, **more)


def choices(golden, prompt, scorer):
    options = [
        ["A. one", "B. two", "C. three", "D. four"],
        [" A. blank ", "B.\nbreak", "C. \u00c9", "D. 4.0"],
        ["only one option, a sentence of the evidence"],
        ["A. 1", "B. 2", "C. 3", "D. 4", "a fifth that is evidence"],
        ["A. 1", "B\\C: 2", "D. 3"],
        ["A. 1", "B. 2", "C. 3", "D. 4", "E. 5", "F. 6", "G. 7"],
    ]
    records = [
        {"question": SHORT[i], "evidence": "e", "options": options[i], "answer": "ABCD"[i % 4],
         "content": TEXTS[i]}
        for i in range(len(options))
    ]  # fmt: skip
    outputs = OUTPUTS + ["A", " b. It is", "\nC", "c) x", "[A]", "(B)", "Answer: A", "\u0410", "d\nA",
                         "\t D", "F", "\uff21", "\u00c5ngstr\u00f6m", "bob"]  # fmt: skip
    for task in ("meetingqa", "paperqa"):
        rows = [
            one(s, text, lambda: scorer.qa_accuracy(text, records[s]["answer"]))
            for s, text in itertools.product(range(4), outputs)
        ]
        samples = [prompt(task, "question_answering", r) for r in records]
        both_sizes(golden, task, records, samples, rows)


def claims(golden, prompt, scorer):
    records = [
        {"title": "t", "content": text, "hypothesis": SHORT[i], "answer": i % 2 == 0}
        for i, text in enumerate(TEXTS)
    ]
    outputs = OUTPUTS + ["Yes.", " Yes", "\nYes.", "yes", "YES!", "No.", "\n No", "Oh yes", "y es",
                         "Ye", "'Yes'", "\u3000yes it is", "Ja, yes"]  # fmt: skip
    pairs = list(itertools.product(range(2), outputs))
    for task in ("senhallu", "abshallu"):
        rows = []
        for s, text in pairs:
            # Accuracy of one sample is ours; the set's F1 is the reference's.
            got = "yes" in text.strip()[:3].lower()
            rows.append(one(s, text, float(got == records[s]["answer"])))
        samples = [prompt(task, "hallucination", r) for r in records]
        printed = evaluate(scorer, task, [(t, records[s]["answer"]) for s, t in pairs])
        both_sizes(golden, task, records, samples, rows, printed=printed)


def texts(golden, prompt, scorer):
    answers = ["12", " 3.5. ", "Ann", "\u00c9MILE", "stra\u00dfe", "\u03a3\u039f\u03a3"]
    outputs = OUTPUTS + ["12", "12.", " 12 \n", ".12.", "3.5", "12\nbecause", "\n12", "ann", " ANN.\nx",
                         "\u00e9mile", "STRASSE", "\u03c3\u03bf\u03c3", "\u03c3\u03bf\u03c2"]  # fmt: skip
    for task, kind, score in (
        ("altqa", "wikiqa", scorer.altqa_accuracy),
        ("meetingpred", "speaker_complete", scorer.pred_accuracy),
        ("showspred", "speaker_complete", scorer.pred_accuracy),
    ):
        records = [{"content": t, "answer": answers[i]} for i, t in enumerate(TEXTS)]
        pairs = list(itertools.product(range(len(answers)), outputs))
        rows = [one(s, t, score(t, answers[s])) for s, t in pairs]
        samples = [
            prompt(task, kind, r | {"text": r["content"], "target": r["answer"]}) for r in records
        ]
        printed = evaluate(scorer, task, [(t, answers[s]) for s, t in pairs])
        both_sizes(golden, task, records, samples, rows, printed=printed)


def orders(golden, prompt, scorer):
    want = [[4, 3, 2, 1, 0], [1, 3, 4, 2, 0], [0, 1, 2, 3, 4]]
    outputs = ["", "no order", "[4] > [3] > [2] > [1] > [0]", "[1] > [2] > [3] > [4] > [5]",
               "[5] > [4] > [3] > [2] > [1]", "4 3 2 1", "0,1,2,3,4,5", "[1] > [1] > [2] > [2] > [3]",
               "\u0661 \u0662 \u0663 \u0664 \u0665", "04 03 02 01 00", "1 2 3 4 12345678901",
               "The order is [1] > [3] > [4] > [2] > [0].", "-4 > -3 > -2 > -1 > -0"]  # fmt: skip
    pieces = [SHORT[:5], SHORT[4:9], TEXTS[:5]]
    for task, kind, listed, answer in (
        ("showssort", "reorder", "content", "order"),
        ("reportsumsort", "event_reorder", "summaries", "original_order"),
    ):
        records, samples, rows, pairs = [], [], [], []
        for s, order in enumerate(want):
            record = {"content": TEXTS[s + 1], "answer": order, listed: pieces[s]}
            records.append(record)
            renamed = record | {"events": record.get("summaries"), answer: order}
            samples.append(prompt(task, kind, renamed))
            for text in outputs:
                numbers = [int(y) for y in re.findall(r"\d+", text)]

                def score():
                    index, error = scorer.concordinary_index(numbers, order)
                    return 0 if error else index

                rows.append(one(s, text, score))
                if "raises" not in rows[-1]:
                    pairs.append((numbers, order))
        both_sizes(golden, task, records, samples, rows)


def make(root, golden):
    prompt = Prompts(root)
    scorer = load(root / "evaluate.py", "bamboo_evaluate", stubs=("private_eval", "private_eval.evaluation"))
    choices(golden, prompt, scorer)
    claims(golden, prompt, scorer)
    texts(golden, prompt, scorer)
    orders(golden, prompt, scorer)
    records = [
        {"task_id": f"PrivateLibrary/{i}", "prompt": t, "entry_point": "f", "canonical_solution": ["x"],
         "test": "def check(f): pass"}
        for i, t in enumerate(TEXTS)
    ]  # fmt: skip
    samples = [prompt("private_eval", "api_completion", r) for r in records]
    both_sizes(golden, "private_eval", records, samples)
