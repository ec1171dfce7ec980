# SPDX-License-Identifier: Apache-2.0
"""M4LE's prompt and evaluation.py."""

import ast
import copy
import re
import sys

import task_goldens
from task_goldens import OUTPUTS, SHORT, TEXTS, load, one

REPOSITORY = "KwanWaiChung/M4LE"
COMMIT = "47c2af92c5ddf60941d8564e96ba19652e9caa77"
HOW = (
    "prompts: the instruction, a line break and the input, as inference.py joins them (restated: one"
    " line); scores: evaluate_by_dict of evaluation.py with the task's own entry of tasks_param. jieba"
    " reads the invented dictionary of tests/golden/metrics"
)
PACKAGES = ("rouge", "rouge-chinese", "jieba")


def parameters(root, module):
    """The table within evaluate(), read out of the source and evaluated with the module's names."""
    tree = ast.parse((root / "evaluation.py").read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "tasks_param":
            return eval(compile(ast.Expression(node.value), "tasks_param", "eval"), vars(module))
    raise SystemExit("evaluation.py has no tasks_param")


def stem(name):
    """The task file's name."""
    return re.sub(r"(_cls\+ret|_cls\+cnt|_qa|_ret|\+)$", "", name)


def make(root, golden):
    limit = sys.getrecursionlimit()
    task_goldens.use_test_jieba()
    task_goldens.stub("strictfire")
    import jieba

    jieba.initialize = lambda: None
    sys.path.insert(0, str(root))
    module = load(root / "evaluation.py", "m4le_evaluation")
    sys.setrecursionlimit(limit)
    answers = {
        "acc": [["Stra\u00dfe", "b"], ["\u00c9mile"], ["3"]],
        "exact_match": [["3."], ["Stra\u00dfe\u3002x"], ["\u00c9mile "]],
        "cls_f1": [["b, a, stra\u00dfe"], ["a"], ["a\uff0cb"]],
        "rouge": [["The stra\u00dfe of a b."], ["\u4e2d\u6587\u3002\u7b2c\u4e8c\u53e5", "x y"], ["\u00c9mile\nwins", ""]],
        "bleu": [["the cat is on the mat ."], ["\u4e2d\u6587 \u7b2c\u4e8c \u53e5 \u5b50"], ["x"]],
    }
    own = {
        "acc": ["die STRASSE", "\u00e9MILE. b", "Stra\u00dfe\n", "a:Stra\u00dfe", "Stra\u00dfe\uff0c3", "3\u3002"],
        "exact_match": ["3", " 3.", "stra\u00dfe", "\u00c9MILE", "\u00e9mile. x", "\u0663", "stra\u00dfe\u3002"],
        "cls_f1": ["a, b", "a,b,stra\u00dfe.", "b\uff0ca\u3002", " a , a ", "STRASSE, a", "\na,\nb"],
        "rouge": ["the stra\u00dfe", "\u4e2d\u6587", '"\u4e2d\u6587\n\u65b0\u95fb" x', "say \"x y\"", "\u00c9mile wins", "."],
        "bleu": ["the cat is on the mat .", "the cat sat on the mat .", "\u4e2d\u6587 \u7b2c\u4e8c \u53e5", "x"],
    }  # fmt: skip
    for name, settings in parameters(root, module).items():
        metric = settings["metric"]
        records, samples, rows = [], [], []
        for i, held in enumerate(answers[metric]):
            record = {"instruction": SHORT[i], "input": TEXTS[i + 2], "answers": held, "input_length": 5,
                      "total_length": 9, "length_bucket": 1000}  # fmt: skip
            records.append(record)
            samples.append([record["instruction"] + "\n" + record["input"]])
            for output in OUTPUTS + own[metric]:
                row = copy.deepcopy(record) | {"gen_resp": output}
                score = lambda: module.evaluate_by_dict([row], **settings)[1000]  # noqa: B023, E731
                rows.append(one(i, output, score))
        golden.add(f"m4le/{stem(name)}", records, samples, rows)
