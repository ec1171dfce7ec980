# SPDX-License-Identifier: Apache-2.0
"""LongBench, LongBench-E (LongBench/) and LongBench v2 (pred.py)."""

import json
import os
import sys
import types

import task_goldens
from task_goldens import OUTPUTS, SHORT, TEXTS, load, one

REPOSITORY = "THUDM/LongBench"
COMMIT = "2e00731f8d0bff23dc4325161044d0ed8af94c1e"
HOW = (
    "LongBench: the texts of dataset2prompt.json filled by str.format as pred.py does (restated: one"
    " line), scorer and scorer_e of eval.py; v2: get_pred of pred.py with a server that keeps the"
    " prompts. jieba reads the invented dictionary of tests/golden/metrics"
)
PACKAGES = ("rouge", "fuzzywuzzy", "jieba")

CLASSES = ["Number", "Food", "Other number", "\u5a31\u4e50", "\u5a31\u4e50\u65b0\u95fb"]


def longbench(root, golden):
    task_goldens.use_test_jieba()
    assert "Levenshtein" not in sys.modules
    sys.modules["Levenshtein"] = None  # LongBench's requirements do not install it
    scorer = load(root / "LongBench/eval.py", "longbench_eval")
    prompts = json.loads((root / "LongBench/config/dataset2prompt.json").read_text(encoding="utf-8"))
    answers = {
        "passage_retrieval_en": ["Paragraph 3", "Paragraph \u0661\u0662"],
        "passage_retrieval_zh": ["\u6bb5\u843d3", "\u6bb5\u843d12"],
        "passage_count": ["3", "12"],
        "trec": ["Number", "Other number"],
        "lsht": ["\u5a31\u4e50", "\u5a31\u4e50\u65b0\u95fb"],
        "lcc": ["    return x + 1", "\u00c9 = 'stra\u00dfe'  "],
    }
    answers["repobench-p"] = answers["lcc"]
    own = {
        "passage_retrieval_en": ["Paragraph 3", "3 3 4", "\u0663", "paragraph 12, \u0661\u0662", "03"],
        "passage_count": ["3", "3.0", "\u0663", "12 3", "-3"],
        "trec": ["Number", "\n\nOther number\nFood", "Number Food", "number", "Food, Other number"],
        "lsht": ["\u5a31\u4e50\u65b0\u95fb", "\u5a31\u4e50\n\u65b0", "Food \u5a31\u4e50"],
        "lcc": ["return x + 1", "\n\n    return x + 1\n}", "# c\n    return x+1", "`x`\n\u00c9 = 'STRASSE'", "//"],
    }
    own["passage_retrieval_zh"] = [t.replace("Paragraph ", "\u6bb5\u843d") for t in own["passage_retrieval_en"]]
    own["repobench-p"] = own["lcc"]
    texts = ["The stra\u00dfe of an \u00c9mile.", " Ann,\nBob ", "\u4e2d\u6587\u3002\u7b2c\u4e8c\u53e5", "2.50"]
    for name, prompt in sorted(prompts.items()):
        metric = scorer.dataset2metric.get(name)
        if metric is None:
            continue
        held = answers.get(name)
        records, samples, rows = [], [], []
        for i, text in enumerate(TEXTS):
            record = {"input": SHORT[i], "context": text, "answers": [held[i % 2]] if held else texts[i % 4 :][:2],
                      "length": [3999, 4000, 7999, 8000, 1, 70000][i], "dataset": name, "language": "en",
                      "all_classes": CLASSES if name in ("trec", "lsht") else None, "_id": f"id-{i}"}  # fmt: skip
            records.append(record)
            samples.append([prompt.format(**record)])
            if i > 3:
                continue
            for output in OUTPUTS + own.get(name, ["an \u00c9mile of Strasse", "\nAnn, Bob\nmore", "the \u4e2d\u6587 \u3002", "2.5", "250", "bob ann"]):
                score = lambda: sum(  # noqa: B023, E731 its rounded percentages are too coarse
                    [max(metric(first_line(name, output), a, all_classes=CLASSES) for a in record["answers"])]
                )
                rows.append(one(i, output, score))
        scored = [r for r in rows if "raises" not in r]
        every = [records[r["sample"]] for r in scored]
        printed = scorer.scorer(name, [r["output"] for r in scored], [r["answers"] for r in every], CLASSES)
        twin = task_goldens.ROOT / f"configs/tasks/longbench_e/{name}.json"
        tasks = [f"longbench/{name}"] + ([f"longbench_e/{name}"] if twin.exists() else [])
        more = {"printed": printed} if len(scored) == len(rows) else {}
        golden.add(tasks, records, samples, rows, **more)


def first_line(name, text):
    """What scorer() does before the metric."""
    return text.lstrip("\n").split("\n")[0] if name in ("trec", "triviaqa", "samsum", "lsht") else text


def longbench_v2(root, golden):
    for name in ("torch", "torch.multiprocessing", "tiktoken", "datasets", "transformers", "openai"):
        task_goldens.stub(name)
    before = os.getcwd()
    os.chdir(root)
    try:
        module = load(root / "pred.py", "longbench_v2")
    finally:
        os.chdir(before)
    records = [
        {"_id": f"id-{i}", "domain": "d", "sub_domain": "s", "difficulty": "hard", "length": "long",
         "question": SHORT[i], "choice_A": SHORT[i + 1], "choice_B": " $C_C$ ", "choice_C": "$Q$",
         "choice_D": "2.50\n", "answer": "ABCD"[i % 4], "context": text}
        for i, text in enumerate(TEXTS)
    ]  # fmt: skip
    outputs = OUTPUTS + ["The correct answer is (A)", "**The correct answer is (B).**", "The correct answer is C",
                         "The correct answer is (E) or The correct answer is D", "the correct answer is (A)",
                         "The correct answer is\n(A)", "The correct answer is (B or The correct answer is (C)",
                         "A", "The *correct* answer is **(D)**"]  # fmt: skip
    for name, args in (("longbench_v2", {}), ("longbench_v2_no_context", {"no_context": True})):
        settings = types.SimpleNamespace(**({"model": "gpt", "rag": 0, "no_context": False, "cot": False} | args))
        samples, rows = [], []
        for record in records:
            kept = []
            module.query_llm = lambda prompt, *a, **k: kept.append(prompt) or "x"  # noqa: B023
            module.get_pred([dict(record)], settings, types.SimpleNamespace(write=lambda t: 0, flush=lambda: 0))
            samples.append(kept)
        for s in range(2):
            for output in outputs:
                rows.append(one(s, output, float(module.extract_answer(output.strip()) == records[s]["answer"])))
        golden.add(name, [json.dumps(records)], samples, rows)
    settings = types.SimpleNamespace(model="gpt", rag=0, no_context=False, cot=True)
    samples, conclusions = [], []
    for record in records:
        kept = []
        module.query_llm = lambda prompt, *a, **k: kept.append(prompt) or " thought $Q$ \n"  # noqa: B023
        module.get_pred([dict(record)], settings, types.SimpleNamespace(write=lambda t: 0, flush=lambda: 0))
        samples.append(kept[:1])
        conclusions.append(kept[1])
    # The letter is looked for in the second answer.
    golden.add("longbench_v2_cot", [json.dumps(records)], samples, rows)
    for sample, conclusion in zip(golden.tasks[-1]["samples"], conclusions):
        sample["reasoning"], sample["conclusion"] = " thought $Q$ \n", conclusion


def make(root, golden):
    longbench(root, golden)
    longbench_v2(root, golden)
