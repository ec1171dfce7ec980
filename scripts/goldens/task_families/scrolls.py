# SPDX-License-Identifier: Apache-2.0
"""SCROLLS: which lines are one sample, and the scores. Its scorer is a file of the data set on the
hub, not of the repository."""

import ast
import re
import string
from collections import Counter

from task_goldens import OUTPUTS, TEXTS, one

REPOSITORY = "tau-nlp/scrolls"
COMMIT = "bfc0da0747976418cd0c4b8837db023ea567ba84"
HOW = (
    "samples: drop_duplicates_in_input of evaluator/dataset_evaluator.py over a stand-in for a data set;"
    " prompts: the field input, as the baselines feed it; scores: restated from the hub's"
    " metrics/scrolls.py, exact match and F1 after SQuAD's normalisation, and the rouge-score package,"
    " of which each kind takes its best answer before the geometric mean"
)
PACKAGES = ("rouge-score",)

METRICS = {"contract_nli": "exact_match", "quality": "exact_match", "narrative_qa": "f1", "qasper": "f1",
           "gov_report": "rouge", "qmsum": "rouge", "summ_screen_fd": "rouge"}  # fmt: skip


class Rows:
    """What drop_duplicates_in_input asks of a data set."""

    def __init__(self, columns):
        self.columns = columns

    def __getitem__(self, name):
        return self.columns[name]

    def select(self, rows):
        return Rows({k: [v[i] for i in rows] for k, v in self.columns.items()})

    def flatten_indices(self):
        return self

    def remove_columns(self, name):
        return Rows({k: v for k, v in self.columns.items() if k != name})

    def add_column(self, name, values):
        return Rows(self.columns | {name: values})


def function_of(path, name):
    """One function of a script whose imports are not needed."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kept = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    held = {}
    exec(compile(ast.Module(kept, []), str(path), "exec"), held)
    return held[name]


def normalised(text):
    text = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def f1(prediction, answer):
    got, want = normalised(prediction).split(), normalised(answer).split()
    same = sum((Counter(got) & Counter(want)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(got), same / len(want)
    return 2 * precision * recall / (precision + recall)


def rouges(prediction, answers):
    """The three kinds; each the best of the answers."""
    from rouge_score import rouge_scorer

    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=False)
    got = [scorer.score(answer, prediction) for answer in answers]
    return [max(one[kind].fmeasure for one in got) for kind in ("rouge1", "rouge2", "rougeL")]


def mean_of_kinds(kinds):
    product = 1.0
    for kind in kinds:
        product *= kind
    return product ** (1.0 / 3.0)


def score(metric, prediction, answers):
    if metric == "exact_match":
        return float(max(normalised(prediction) == normalised(a) for a in answers))
    if metric == "f1":
        return max(f1(prediction, a) for a in answers)
    return mean_of_kinds(rouges(prediction, answers))


def printed(metric, rows, answers):
    """What the scorer gives for all outputs: of ROUGE the mean of the means, of the rest the mean."""
    if metric != "rouge":
        return round(100 * sum(r["score"] for r in rows) / len(rows), 2)
    kinds = [rouges(r["output"], answers[r["sample"]]) for r in rows]
    return round(100 * mean_of_kinds([sum(k) / len(kinds) for k in zip(*kinds)]), 2)


OUTPUTS_HERE = OUTPUTS + ["Entailment", "entailment.", " The  Entailment\n", "Not mentioned", "not-mentioned",
                          "the Stra\u00dfe of \u00c9mile", "strasse an \u00c9MILE", "He met Ann, then Bob left.",
                          "ann met bob", "\uff11\uff12", "a an the", "\u00bd 2\u00b2", "Ann\u2019s"]  # fmt: skip


def make(root, golden):
    merged = function_of(root / "evaluator/dataset_evaluator.py", "drop_duplicates_in_input")
    answers = {
        "contract_nli": [["Entailment"], ["Not mentioned", "Contradiction"]],
        "quality": [["The stra\u00dfe."], ["1. \uff11\uff12", " a  the "]],
    }
    texts = [["He met Ann, and then Bob left the stra\u00dfe.", "Ann met Bob."], ["\u00c9mile\u2019s \u0661\u0662"],
             ["12", "Twelve of the \u00bd"]]  # fmt: skip
    for name, metric in METRICS.items():
        records = []
        for i, text in enumerate(TEXTS):
            held = answers.get(name, texts)
            for k, answer in enumerate(held[i % len(held)]):
                records.append({"id": f"id-{i}", "pid": f"id-{i}_{k}", "input": f"Who is {i}?\n\n{text}", "output": answer})
        rows = merged(Rows({k: [r[k] for r in records] for k in records[0]}))
        outputs = [
            one(s, output, score(metric, output, rows["outputs"][s])) for s in range(3) for output in OUTPUTS_HERE
        ]
        more = {"printed": printed(metric, outputs, rows["outputs"])}
        golden.add(f"scrolls/{name}", records, [[text] for text in rows["input"]], outputs, **more)
