# SPDX-License-Identifier: Apache-2.0
"""LooGLE's prompt texts and its automatic scores."""

import itertools
import json
import warnings

import task_goldens
from task_goldens import OUTPUTS, SHORT, TEXTS, load, one

REPOSITORY = "bigai-nlco/LooGLE"
COMMIT = "6734382215bea3a63f055ffd7873b2967b6a2477"
HOW = (
    "prompts: the texts of config/task2prompt.json, filled as its README's script does (that script is"
    " not in the repository: restated); scores: get_rouge_score, get_exact_match and get_partial_match"
    " over what evaluation() of automatic_eval.py hands them. A text of which rouge finds no word raises"
    " there"
)
PACKAGES = ("rouge", "nltk")


def make(root, golden):
    warnings.simplefilter("ignore")
    task_goldens.stub("bert_score")
    scorer = load(root / "Evaluation/automatic_metrics.py", "automatic_metrics")
    task_goldens.stub("openai")
    evaluation = load(root / "Evaluation/automatic_eval.py", "loogle_eval").evaluation
    prompts = json.loads((root / "config/task2prompt.json").read_text(encoding="utf-8"))

    def scored(function, reference, output, take):
        # One pair through the script's own loop, which replaces an empty output.
        data = {"llm_output": [output], "output": [reference], "qa_pairs": [{"Q": ""}]}
        return lambda: take(evaluation(data, {}, [function], "t")[function][0])

    answers = ["None of the above", "Stra\u00dfe, 2.5.\nTwo lines. ", " It's Bob's dog", "\u0661\u0662 \u4e2d\u6587"]
    outputs = OUTPUTS + ["None", "none of the above.", "2.5. Stra\u00dfe", "It's Bob's", "a\nb. It's", ".", "\u4e2d\u6587",
                         "Two lines.\nStra\u00dfe"]  # fmt: skip
    for name in ("shortdep_qa", "longdep_qa"):
        records, texts, rows = [], [], []
        for s, text in enumerate(TEXTS[:3]):
            pairs = [{"Q": SHORT[s + k], "A": answers[(s + k) % 4], "S": ["x", None], "type": 1.5} for k in range(2)]
            records.append({"input": text, "title": "t", "output": "None", "qa_pairs": repr(pairs)})
            texts.append([prompts[name].format(input=text, Q=p["Q"]) for p in pairs])
            for (q, pair), output in itertools.product(enumerate(pairs), outputs):
                score = scored("get_rouge_score", pair["A"], output, lambda r: r[2])
                rows.append(one(s, output, score, question=q))
        golden.add([f"loogle/{name}"], records, texts, rows)
        golden.add([f"loogle/{name}_judge"], records, texts)
    records = [{"input": t, "title": "t", "output": answers[i], "qa_pairs": "none"} for i, t in enumerate(TEXTS[:4])]
    texts = [[prompts["longdep_summarization"].format(**r)] for r in records]
    rows = [
        one(s, o, scored("get_rouge_score", r["output"], o, lambda r: r[2]))
        for (s, r), o in itertools.product(enumerate(records), outputs)
    ]
    golden.add("loogle/longdep_summarization", records, texts, rows)
    masks = [{"<mask-0>": "Bob Dylan", "<mask-1>": "Paris"}, {"<mask-0>": "\u00c9mile's"}, {"<mask-0>": "2.5", "<mask-1>": "New York"}]
    outputs = OUTPUTS + [repr(m) for m in masks] + [json.dumps(masks[0]), "{'<mask-0>': 'Bob'}", "['<mask-0>']",
                         " {'<mask-0>': 'dylan', '<mask-1>': 'paris'}", "{'<mask-0>': 2.5}", "\n{'<mask-0>': 'New'}",
                         "{'<mask-0>': 'x' 'Bob Dylan', '<mask-1>': '''York'''}", "<mask-0> is Bob", "{'a': 'b'",
                         "{'<mask-1>': 'New York',}", "{\"<mask-0>\": u'Bob'}"]  # fmt: skip
    for function, name in (("get_exact_match", "shortdep_cloze"), ("get_partial_match", "shortdep_cloze_partial")):
        records, texts, rows = [], [], []
        for s, mask in enumerate(masks):
            pairs = [{"Q": "<mask-0> met. " + SHORT[s], "A": mask, "S": "x"}]
            records.append({"input": TEXTS[s], "title": "t", "output": "None", "qa_pairs": repr(pairs)})
            texts.append([prompts["shortdep_cloze"].format(input=TEXTS[s], Q=pairs[0]["Q"])])
            for output in outputs:
                rows.append(one(s, output, scored(function, mask, output, lambda r: r[0] / r[1])))
        golden.add(f"loogle/{name}", records, texts, rows)
