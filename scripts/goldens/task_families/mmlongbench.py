# SPDX-License-Identifier: Apache-2.0
"""MMLongBench: prompts and scores of its nine kinds of records."""

import json
import math
import os
import random
import re
import string
import sys
import types
from collections import Counter
from functools import partial

from pictures_reference import functions
from rouge_score import rouge_scorer
from task_goldens import one, stub

REPOSITORY = "EdinburghNLP/MMLongBench"
COMMIT = "22b9f27"
HOW = (
    "the load functions of data.py over records in memory, one process, nothing drawn out of them; their post_process over what"
    " the prompt begins the answer with and an output, of ROUGE rougeLsum_f1. Demonstrations of labels are drawn after random.seed(42)"
)
PACKAGES = ("rouge_score", "nltk")
LOADERS = {"load_vrag", "load_visual_haystack", "load_mm_niah_text", "load_mm_niah_image_count", "load_mm_niah_image_mc", "load_icl_er",
           "load_gov_report", "load_multi_lexsum", "load_doc_qa", "default_post_process", "DefaultAnswerGenerator"}
SCORES = {"remove_articles", "white_space_fix", "remove_punc", "lower", "normalize_answer", "normalize_answer_with_punc", "f1_score",
          "substring_exact_match_score", "drqa_metric_max_over_ground_truths", "parse_output", "extract_binary_label", "turn_int_list",
          "extract_cnt_list", "extract_choice_letter", "extract_class_num", "get_soft_acc", "get_docqa_clean_string", "is_float_equal",
          "need_exact_match_check", "extract_number_list", "get_str_type", "eval_docqa_score", "calculate_metrics", "r_scorer"}


class Rows(list):
    """What is used of a data set: rows, filtered and mapped."""

    def filter(self, keep, num_proc=None):
        return Rows(row for row in self if keep(row))

    def map(self, change, num_proc=None, remove_columns=()):
        return Rows({k: v for k, v in row.items() if k not in remove_columns} | change(row) for row in self)

    @staticmethod
    def from_list(rows):
        return Rows(rows)


def make(root, golden):
    stub("datasets")
    sys.modules["datasets"].Dataset = Rows
    held = {}
    utils = functions(root / "utils.py", SCORES, {
        "re": re, "string": string, "json": json, "math": math, "isclose": math.isclose, "Counter": Counter, "rouge_scorer": rouge_scorer})
    data = functions(root / "data.py", LOADERS, {
        "os": os, "json": json, "random": random, "partial": partial, "print": lambda *said: None,
        "load_dataset": lambda kind, data_files: {"train": Rows(json.loads(json.dumps(held["rows"])))},
        "calculate_metrics": utils.calculate_metrics, "parse_output": utils.parse_output})

    class Opened:
        def __enter__(self):
            return self

        def __exit__(self, *args):
            return False

        def read(self):
            return json.dumps(held["rows"])

    data.open = lambda path: Opened()

    def load(loader, name):
        random.seed(42)
        args = types.SimpleNamespace(test_file_root="", image_file_root="", preprocessing_num_workers=None, seed=42)
        return getattr(data, loader)(args, f"{name}.jsonl", max_test_samples=None)

    def put(tasks, loader, rows, said, lines=None, path="x"):
        held["rows"] = rows
        loaded = load(loader, path)
        prompts, pictures, outputs = [], [], []
        for i, item in enumerate(loaded["data"]):
            text = loaded["user_template"].format(**item)
            assert text.count("<image>") == len(item["image_list"])
            for n in range(len(item["image_list"])):
                text = text.replace("<image>", f"[picture {n + 1}]", 1)
            prompts.append(text)
            pictures.append(item["image_list"])
            for out in said:
                fresh = load(loader, path)
                for _ in range(i if loader == "load_visual_haystack" else 0):
                    fresh["post_process"]({"output": ""}, item)
                outputs.append(one(i, out, lambda item=item, out=out, fresh=fresh: score(fresh, item, out)))
        tasks = [f"mmlongbench/{t}" for t in tasks]
        files = {"": lines or rows} | {f"mmlongbench/mmlb_image/{p}": [p] for p in sorted({p for all_of in pictures for p in all_of})}
        golden.add(tasks, files, [[p] for p in prompts], outputs)
        for sample, names in zip(golden.tasks[-1]["samples"], pictures, strict=True):
            sample |= {"prefixes": [loaded["system_template"]], "pictures": names}

    def score(loaded, item, out):
        mets, _ = loaded["post_process"]({"output": loaded["system_template"] + out}, item)
        return mets["rougeLsum_f1"] if "rougeLsum_f1" in mets else next(iter(mets.values()))

    passages = [{"title": "A {title}", "text": "Text one. "}, {"title": " B", "text": "two\nlines"}]
    texts = [{"text": "Text <image> between"}, {"text": "<image> {x}\nlast."}]
    rag = [{"id": i, "ctxs": passages, "question": f"Who is it{i}?", "image": f"v/{n}.jpg", "answer": a}
           for i, (n, a) in enumerate([("a", ["The Red-Bus", "bus"]), ('b"', ["x"]), ("c", ["1984"])])]
    words = ["the red bus", "Answer: Red Bus.", "answer:answer: it's a BUS", "", "In 1984.", "redbus", "a n", "Answer:\n 19 84", "abus"]
    put(["infoseek", "viquae"], "load_vrag", rag, words)
    yes = [{"id": i, "ctxs": [f"v/{c}.jpg" for c in "abc"[: i % 3 + 1]], "question": "Is there a dog?", "answer": "Yes" if i % 2 else "No"} for i in range(5)]
    put(["haystack_single", "haystack_multi"], "load_visual_haystack", yes,
        ["Yes", "no.", "Answer: yes, no", "", "None", "Answer: I know", "yesno", "The answer: Yes!\nNo?", "0", "no_", "yes-a"])
    needle = {"ctxs": texts, "image_list": ["m/a.jpg", "m/b.jpg"]}
    put(["retrieval_text", "reasoning_text"], "load_mm_niah_text", [needle | {"id": 1, "question": "Which bus?", "answer": "the red bus"},
                                                                    needle | {"id": 2, "question": "Which?", "answer": ["Dog", "a cat"]}],
        [*words, "dogs", "Cat!"], path="retrieval-text")
    numbers = ["[1, 2]", "[3]", "3", "Answer: 1 and 2", "[1,2] or [4, 4]", '["1", "2"]', "[1.9, 2.5]", "[a, 3]", "[]", "[ ]", "", "[1, [2]]", "[true, 2]", "x [2, 1",
               '["1.5", " 3 "]', "[01, 2]", "[null, 3]", "\u0661\u0662", "[1e0, 2]", "the 1, an 2", '["1_0"]', "[-1, 4]", "1 2 3 [0, 3] 9"]
    put(["counting_text"], "load_mm_niah_text", [needle | {"id": 1, "question": "Count.", "answer": [1, 2]}], numbers, path="counting-text")
    put(["counting_image"], "load_mm_niah_image_count", [needle | {"id": 1, "question": "Count <image>.", "needle_image_list": ["m/c.jpg"], "answer": [1, 2]}], numbers)
    letters = ["A", "B", "Answer: B", "Both", "The answer is (B)", "answer is B or A", "a", "b", "", "C. A", "I think B", "Answer:\nA.", "BA", "B_", "(B)", "K", "An answer: B", "Answer is B",
               "it is A\nnot B"]
    put(["retrieval_image", "reasoning_image"], "load_mm_niah_image_mc",
        [needle | {"id": i, "question": "Which?", "choices_image": ["m/c.jpg", "m/d.jpg"], "answer": i} for i in range(2)], letters)
    labels = {f"domain {d}": {"exemplar_list": [[[{"image": f"i/{d}{c}{r}{k}.jpg", "id": 10 * r + k} for k in range(4)] for r in range(2)] for c in range(3)],
                              "test_example": [{"image": f"i/t{d}{t}.jpg", "answer": t + 3} for t in range(3)]} for d in range(2)}
    put(["cars196", "food101", "inat2021", "sun397"], "load_icl_er", labels,
        ["3", "label: 3", " 4", "Label:\n5", "3 or 4", "label: 3 label: 4", "x3", "3x 4y", "", "none", "label 3", "5.", "a 3, b", "label:\u0663", "3_", "03"], lines=[json.dumps(labels)])
    pages = ["s/doc \u00e9ab with a long name/page1.png", "s/short/page12.x.png", "s/page/my page3page4.png"]
    report = [{"section_title": "What GAO Found", "paragraphs": ["One found two.", "Two\nfound."]}, {"section_title": "Why", "paragraphs": []}]
    prose = ["One found two.", "Summary: What GAO found", "", "Summary:\nWhy\nTwo", "The courts ruled. It ended.", "summary: summary: courts ruling"]
    named = ["s/doc \u00e9ab with a long name/page1.png", "s/short/page12.x.png"]
    put(["gov_report"], "load_gov_report", [{"id": 1, "image_list": named, "summary": report}], prose)
    put(["multi_lexsum"], "load_multi_lexsum", [{"id": 1, "image_list": named, "summary": "The court ruled.\nIt ended."}], prose)
    answers = [("Integer", "12"), ("Integer", "1,200"), ("Float", "12.5%"), ("Float", "0.125"), ("String", "The Red Bus"), ("String", "12-13"), ("String", "2020/1/12"), ("String", "a@b.co"),
               ("String", "page 3"), ("String", "3 p.m. on"), ("None", "Not answerable"), ("List", '["red bus", "12", "x.py"]'), ("List", '["a", "the dog"]'), ("List", "[1, 2.5]"),
               ("String", "12/13"), ("String", "https://x"), ("List", '["1,200", "12%", "dog"]'), ("String", "12 13"), ("String", "12-13-14"), ("String", "1/12/20"), ("String", "2020 1")]
    said = ["12", "Answer: 12", "1200 people", "1,200", "12.5", "12.5%", "0.126", "1250", "12.6 kg", "the red bus", "Red Bus and 12", "Not answerable.", "", "12-13", "x.py a dog", "$12.50", "'12'",
            "2020/1/12", "a@b.co", "page 3", "at 3 p.m. on", "1 or 2.5", "-12", ".125", "12 million", "about 12/13", "12m", "https://x.y", "nan", "12 13", "1e3", "'", "dog, bus", "12-13-14 1/12/20 2020 1"]
    put(["longdocurl", "mmlongdoc", "slidevqa"], "load_doc_qa",
        [{"id": i, "page_list": pages[: i % 3 + 1], "doc_name": "a long document name.pdf", "question": f"What {{is}} {i}?", "answer": a, "answer_format": f} for i, (f, a) in enumerate(answers)], said)
