# SPDX-License-Identifier: Apache-2.0
"""InfiniteBench's completion prompts (src/eval_utils.py, the model name yarn-mistral) and its scorer."""

import copy
import sys

import task_goldens
from task_goldens import OUTPUTS, SHORT, TEXTS, load, one

REPOSITORY = "OpenBMB/InfiniteBench"
COMMIT = "88b3daa6989da2fbe0077170d7a3c84c25d5ae58"
HOW = (
    "prompts: create_prompt with yarn-mistral's templates; scores: get_score_one over get_answer."
    " ROUGE is rouge-score as the package `evaluate` calls it"
)
PACKAGES = ("rouge-score",)


class Rouge:
    def compute(self, predictions, references, use_aggregator):
        from rouge_score import rouge_scorer

        scorer = rouge_scorer.RougeScorer(["rougeLsum"], use_stemmer=False)
        return {"rougeLsum": [scorer.score(r, p)["rougeLsum"].fmeasure for p, r in zip(predictions, references)]}


def make(root, golden):
    for name in ("torch", "transformers", "evaluate", "args", "tiktoken"):
        task_goldens.stub(name)
    sys.modules["evaluate"].load = lambda _: Rouge()
    prompts = load(root / "src/eval_utils.py", "infinitebench_prompts")
    scorer = load(root / "src/compute_scores.py", "infinitebench_scores")
    options = ["f.one", " two ", "\u00c9mile", "four_4"]
    answers = {
        "passkey": ["01234", "9"],
        "number_string": ["5500", "0"],
        "kv_retrieval": ["u-1-Z", "Stra\u00dfe", "\u0661"],
        "longbook_sum_eng": ["One sentence.\nAnother one.", "\u00c9mile wins"],
        "longbook_choice_eng": [["f.one"], "\u00c9mile", [" two ", "B"], ["four_4", "D"]],
        "longbook_qa_eng": [["The stra\u00dfe", "b"], ["\u0661\u0662"]],
        "longbook_qa_chn": [["\u4e2d\u6587\u3002"], ["\uff11\uff12\u4e2a", "b"]],
        "longdialogue_qa_eng": [["\u00c9MILE"], ["STRASSE"], ["\u03a3\u039f\u03a3"], ["ANN", "BOB"]],
        "math_find": [2, 2.5, -3, 0.25, 7],
        "math_calc": [[1, -2, 30], [5]],
        "code_run": [-7, 10, 0],
        "code_debug": [["f.one"], "four_4", ["\u00c9mile", "C"]],
    }
    own = {
        "passkey": ["01234", "is 01234.", "1234", "\u0660\u0661\u0662\u0663\u0664", "9\u0661"],
        "kv_retrieval": ["u-1-Z", '"u-1-Z"', "u-1-z", "{Stra\u00dfe}", "STRASSE", "\u0661"],
        "longbook_sum_eng": ["one sentence.\nanother", "\u00c9mile"],
        "longbook_choice_eng": ["A", "D.", "f.one", "two", "the answer is: C", "option is B", "BC", "it is ABCD", "\u00c9mile"],
        "longbook_qa_eng": ["the stra\u00dfe!", "STRASSE", "A b", "\u0661\u0662", "12"],
        "longbook_qa_chn": ["\u4e2d\u6587", "\u4e2d x", "\uff11\uff12\u4e2a\uff01", "B"],
        "longdialogue_qa_eng": ["\u00e9mile", "e\u0301mile", "stra\u00dfe.", "\u03c3\u03bf\u03c2", "Ann", "bob", "Ann:Bob"],
        "math_find": ["2", "2.0", "2.5", "-3", "3", "\u0662", "\u0662.\u0665", "0.250", ".25", "2,5", "7.", "07", "1e3"],
        "math_calc": ["[1, 2, 30]", "1 2", "1,-2,31", "\u0661 2", "5.5", "0005"],
        "code_run": ["-7", "is -7.", "1_0", "10 ", "+10", "\u0661\u0660", "0", "-0", "00", "1__0", "`10`", "10.0"],
        "code_debug": ["A.", "A: x", "answer is: f.one", "is:`four_4", "correct option is: C", "Option C", "C"],
    }  # fmt: skip
    own["number_string"] = own["passkey"]
    for name, labels in answers.items():
        records, texts, rows = [], [], []
        for i, answer in enumerate(labels):
            question = SHORT[i]
            if name == "math_find":
                question = ["You should answer with the following: The largest number of ",
                            "x The 2nd Smallest number of the list of it\nThe last of",
                            "The \u00c9 of", "The A of B of", "The x of"][i]  # fmt: skip
            if name == "code_run":
                question = ["call func_12(-3).", "func_1() func_2(3) func_4(5)", "\u0661func_7(8)"][i]
            choice = name in ("longbook_choice_eng", "code_debug")
            record = {"id": i, "context": TEXTS[i], "input": question, "answer": answer,
                      "options": options if choice else []}  # fmt: skip
            records.append(record)
            texts.append([prompts.create_prompt(copy.deepcopy(record), name, "yarn-mistral", ".")])
            label = prompts.get_answer(record, name)
            for text in OUTPUTS + own[name]:
                score = lambda: scorer.get_score_one(text, label, name, "yarn-mistral")  # noqa: B023, E731
                rows.append(one(i, text, score))
        golden.add(f"infinitebench/{name}", records, texts, rows)
