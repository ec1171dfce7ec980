# SPDX-License-Identifier: Apache-2.0
"""VLMEvalKit's tables: questions with options, short answers, yes and no, OCRBench, MMMU, captions,
LLaVA-Bench, MM-NIAH."""

import base64
import contextlib
import copy
import io
import json
import math
import os
import re
import string
import types

import task_goldens
from task_goldens import one
from pictures_reference import functions, picture_names

REPOSITORY = "open-compass/VLMEvalKit"
COMMIT = "e8e78f05f3080fe28154f2130321f17951c3be94"
HOW = (
    "build_prompt of the classes, taken out of their files and run over rows whose pictures are paths;"
    " a table's empty cells are NaN there; can_infer, process_line, the scorer of captions and MM-NIAH's"
    " is_correct as they are; the question of captions is taken out of load_data"
)
PACKAGES = ("pycocoevalcap",)

PICTURE = base64.b64encode(b"\x89PNG" + b"a picture's bytes " * 4).decode()
OTHER = base64.b64encode(b"\x89PNG" + b"another picture's " * 4).decode()


class Missing:
    """pandas.isna for the values of these rows."""

    @staticmethod
    def isna(value):
        return value is None or (isinstance(value, float) and math.isnan(value))


def cell(text):
    text = "" if text is None else str(text)
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in '\t\n\r"') else text


def table(rows, columns):
    return ["\t".join(columns)] + ["\t".join(cell(row.get(c)) for c in columns) for row in rows]


def to_list(value):
    return list(value) if isinstance(value, list) else [value]


def base_prompt(root):
    base = functions(root / "vlmeval/dataset/image_base.py", {"build_prompt"},
                     {"toliststr": to_list, "pd": Missing})
    return base.build_prompt


class Row:
    """What a build_prompt needs of its class."""

    meta_only = True


def prompt_of(method, record, images=("x",), owner=None):
    line = {k: (math.nan if v is None else v) for k, v in record.items()}
    line["image_path"] = list(images)
    return picture_names(method(owner or Row(), line))


def inferring(root):
    return functions(root / "vlmeval/utils/matching_util.py",
                     {"can_infer_option", "can_infer_text", "can_infer", "_VERBOSE_ANSWER_RE"},
                     {"os": types.SimpleNamespace(environ={}), "re": re, "cp": copy, "string": string})


class Table:
    """One row, as OCRBench's evaluate goes through a file of predictions."""

    def __init__(self, row):
        self.iloc = [row]

    def __len__(self):
        return 1


def ocr_score(evaluate, row, out):
    evaluate.__globals__["load"] = lambda _: Table(row | {"prediction": out})
    return evaluate(None, "x.xlsx")["Final Score"]


def choices(root, golden):
    mcq = functions(root / "vlmeval/dataset/image_mcq.py", {"build_prompt@ImageMCQDataset"},
                    {"toliststr": to_list, "pd": Missing, "string": string}).build_prompt
    split = functions(root / "vlmeval/dataset/image_mcq.py", {"split_MMMU@MMMUDataset"},
                      {"istype": lambda x, _: x.isdigit()}).split_MMMU
    infer = inferring(root)
    rows = [
        {"index": 7, "question": "What is\tshown?", "hint": "Look \"well\".\nTwice", "A": "a bus", "B": "Two dogs",
         "C": None, "D": None, "answer": "B", "category": "c 1", "image": PICTURE},
        {"index": 8, "question": " Blank in front ", "hint": None, "A": "12", "B": "1,200", "C": "{braces}",
         "D": "\u00c9t\u00e9\u3002", "answer": "D", "category": "c 2", "image": "7"},
        {"index": 9, "question": "Which?", "hint": None, "A": "no", "B": "None of these", "C": "<image 1>",
         "D": None, "answer": "C", "category": "c 1", "image": OTHER},
    ]
    columns = ["index", "question", "hint", "A", "B", "C", "D", "answer", "category", "image"]
    said = ["B", "The answer is (D).", "two dogs", "a bus or Two dogs", "c", "", "\u00e9t\u00e9\u3002", "**C**", "Z",
            "I think that of all four it is B which fits here so well", "answer is **b**", "none of these"]
    samples = [[prompt_of(mcq, row)] for row in rows]

    def outputs(hit):
        return [one(i, out, hit(row, out)) for i, row in enumerate(rows) for out in said]

    def hit(row, out):
        options = {c: str(row[c]) for c in "ABCD" if row[c] is not None}
        return infer.can_infer(out, options) == row["answer"]

    golden.add(["mmstar/vlmevalkit", "seedbench/vlmevalkit", "scienceqa/vlmevalkit_val",
                "scienceqa/vlmevalkit_test", "ai2d/vlmevalkit", "ai2d/vlmevalkit_no_mask",
                "realworldqa/vlmevalkit"], table(rows, columns), samples, outputs(hit))

    marked = [dict(rows[0], question="See <image 2> and <image 1>.", image=f"['{PICTURE}', '{OTHER}']"),
              dict(rows[1], image=PICTURE), dict(rows[2], A=None, B=None, C=None, answer="3.5", question="How many <image 1>?")]
    prompts, scores = [], []
    for i, row in enumerate(marked):
        images = ["1", "2"] if i == 0 else ["1"]
        line = {k: (math.nan if v is None else v) for k, v in row.items()} | {"image_path": images}
        prompts.append([picture_names(split(mcq(Row(), line)))])
        for out in said + ["3.5", "other answers", "A"]:
            open_one = row["A"] is None
            options = {"A": "3.5", "B": "Other Answers"} if open_one else {
                c: str(row[c]) for c in "ABCD" if row[c] is not None}
            scores.append(one(i, out, infer.can_infer(out, options) == ("A" if open_one else row["answer"])))
    golden.add("mmmu/vlmevalkit", table(marked, columns), prompts, scores)

    turned = [rows[0], dict(rows[0], index=1000007, A="Two dogs", B="a bus", answer="A", image="7")]
    requests = [prompt_of(mcq, row) for row in turned]
    golden.add(["mmbench/dev_en", "mmbench/dev_cn", "mmbench/dev_en_v11", "mmbench/dev_cn_v11"],
               table(turned, columns), [requests],
               [one(0, out, hit(turned[q], out), q) for q in (0, 1) for out in said])


def short_answers(root, golden):
    import types
    import re

    import numpy as np

    base = base_prompt(root)
    vqa_prompt = functions(root / "vlmeval/dataset/image_vqa.py", {"build_prompt@ImageVQADataset"}, {})
    vqa_prompt.__dict__["super"] = lambda: types.SimpleNamespace(build_prompt=lambda line: base(Row(), line))
    prompt = vqa_prompt.build_prompt
    punctuation = functions(root / "vlmeval/smp/misc.py", {"process_punctuation"}, {"re": re})
    import ast
    from typing import Optional

    def is_list(value, kind):
        try:
            return isinstance(ast.literal_eval(value), kind)
        except Exception:  # noqa: BLE001 as istype does
            return False

    vqa = functions(root / "vlmeval/dataset/utils/vqa_eval.py",
                    {"_process_digit_article", "hit_calculate", "relaxed_correctness", "levenshtein_distance",
                     "anls_compute", "process_answer", "process_line"},
                    {"np": np, "Optional": Optional, "istype": is_list,
                     "listinstr": lambda some, name: any(s in name for s in some),
                     "process_punctuation": punctuation.process_punctuation})
    rows = [
        {"index": 1, "question": "What does it say?", "answer": "['stop', 'Stop sign', 'stop', 'STOP', 'a stop']",
         "split": "val", "category": "x", "image": PICTURE},
        {"index": 2, "question": "How much?\nIn all.", "answer": "12.5%", "split": "test", "category": "x", "image": OTHER},
        {"index": 3, "question": "Who [is] it?", "answer": "[Ann]", "split": "test", "category": "x", "image": "1"},
    ]
    columns = ["index", "question", "answer", "split", "category", "image"]
    said = ["stop", "Stop sign.", "a STOP", "12.5%", "0.13", "13%", "[Ann]", "ann", "", " [ann] ", "stopp", "12,5"]
    prompts = [[prompt_of(prompt, row)] for row in rows]

    for tasks, method, name in ((["textvqa/vlmevalkit"], "vqa_score", "TextVQA"),
                                (["docvqa/vlmevalkit", "infovqa/vlmevalkit"], "anls", "DocVQA"),
                                (["chartqa/vlmevalkit"], "relaxed_accuracy", "ChartQA"),
                                (["ocrvqa/vlmevalkit", "gqa/vlmevalkit"], "accuracy", "OCRVQA")):
        outputs = [one(i, out, vqa.hit_calculate([vqa.process_line(row | {"prediction": out}, method)], name)[0])
                   for i, row in enumerate(rows) for out in said]
        golden.add(tasks, table(rows, columns), prompts, outputs)
    ocr = [dict(rows[0], category="Doc-oriented VQA"),
           dict(rows[1], answer="['x ^ 2', 'y']", category="Handwritten Mathematical Expression Recognition")]
    evaluate = functions(root / "vlmeval/dataset/image_vqa.py", {"evaluate@OCRBench"},
                         {"tqdm": lambda x: x, "get_intermediate_file_path": lambda *a: "", "dump": lambda *a: None}).evaluate
    read = said + ["X ^ 2", "x^2", "it is x\n^ 2 .", "the y", "a\nSTOP\nsign", "stop  sign"]
    golden.add("ocrbench/vlmevalkit", table(ocr, columns), [[prompt_of(base, row)] for row in ocr],
               [one(i, out, lambda: ocr_score(evaluate, row, out)) for i, row in enumerate(ocr) for out in read])
    yes = [dict(rows[0], question="Is it a bus? Please answer yes or no.", answer="Yes", category="color",
                image_path="color/1.png"),
           dict(rows[0], index=2, question="Is it a dog? Please answer yes or no.", answer="No", category="color",
                image_path="color/1.png")]
    yes_columns = [*columns, "image_path"]
    prompts = [prompt_of(base, row) for row in yes]
    yorn = functions(root / "vlmeval/dataset/utils/yorn.py", {"YOrN_Extraction"},
                     {"process_punctuation": punctuation.process_punctuation})
    said = ["yes", "No.", "Yes, no", "", "I say: no!", "not yes"]
    golden.add(["pope/vlmevalkit", "hallusionbench/vlmevalkit"], table(yes, yes_columns), [[p] for p in prompts],
               [one(i, out, yorn.YOrN_Extraction(out) == row["answer"]) for i, row in enumerate(yes) for out in said])
    golden.add("mme/vlmevalkit", table(yes, yes_columns), [prompts],
               [one(0, out, yorn.YOrN_Extraction(out) == row["answer"], i) for i, row in enumerate(yes) for out in said])
    closed = [{"index": 5, "question": "Hint: pick.\nQuestion: Which?\nChoices:\n(A) 1\n(B) 2", "choices": "['1', '2']",
               "answer_option": "B", "question_type": "multi_choice", "task": "geometry", "image": PICTURE}]
    check = functions(root / "vlmeval/dataset/utils/mathvista.py", {"post_check", "list_to_dict"},
                      {"can_infer": inferring(root).can_infer}).post_check
    said = ["B", "(B)", "2", "The answer is 2.", "A", "1 or 2", "", "B. 2", "The answer is (A), no: (B)", "1.2", "C"]
    golden.add("mathvista/closed", table([dict(closed[0], index=4, question_type="free_form"), *closed], list(closed[0])),
               [[prompt_of(base, closed[0])]],
               [one(0, out, check(closed[0] | {"answer": "2", "prediction": out}, prefetch=True) == "B") for out in said])


def captions(root, golden):
    import ast

    path = root / "vlmeval/dataset/image_caption.py"
    asked = next(ast.literal_eval(node.left.elts[0]) for node in ast.walk(ast.parse(path.read_text()))
                 if isinstance(node, ast.BinOp) and isinstance(node.left, ast.List))
    scorer = functions(path, {"COCO_Caption_Scorer"}, {}).COCO_Caption_Scorer
    rows = [{"index": 1, "answer": repr(["A red bus.", "the bus is  red", "It's red"]), "image": PICTURE},
            {"index": 2, "answer": repr(["Two dogs, one cat", "\u00c9t\u00e9\u3000dogs"]), "image": OTHER}]

    def rouge(row, out):
        with contextlib.redirect_stdout(io.StringIO()):
            return scorer({"0": [out]}, {"0": ast.literal_eval(row["answer"])}).compute_scores()["ROUGE_L"] / 100

    said = ["A red bus.", "a red bus", "the bus", "", " ", "dogs", "Two dogs, one\ncat", "\u00c9t\u00e9 dogs", "It's  red and the bus"]
    golden.add("coco_caption/vlmevalkit", table(rows, ["index", "answer", "image"]),
               [[prompt_of(base_prompt(root), row | {"question": asked})] for row in rows],
               [one(i, out, rouge(row, out)) for i, row in enumerate(rows) for out in said])
    rows = [{"index": 1, "question": " What is\nit? ", "gpt4_ans": "A bus.", "caption": "a bus", "category": "conv", "image": PICTURE},
            {"index": 2, "question": "{Describe} it.", "gpt4_ans": "Two\tdogs", "caption": "x", "category": "detail", "image": "1"}]
    golden.add("llava_bench/vlmevalkit", table(rows, list(rows[0])), [[prompt_of(base_prompt(root), row)] for row in rows])


def mm_niah(root, golden):
    asks = functions(root / "vlmeval/dataset/image_vqa.py", {"build_prompt@MMNIAH"},
                     {"osp": os.path, "LMUDataRoot": lambda: "/", "super": lambda: types.SimpleNamespace(
                         build_prompt=lambda line: base_prompt(root)(Row(), line))}).build_prompt
    scores = functions(root / "vlmeval/dataset/utils/mmniah.py", {"is_correct", "VQAEval", "has_word"}, {"re": re, "json": json})
    owner = types.SimpleNamespace(dataset_name="MM_NIAH_VAL")
    context = "Text <image> between\n<image> {pictures}, \"it's\"."
    rows = [
        {"category": "find-text", "question": [context, "Who is it?"], "multi-choice options": [None, None], "answer": "the red bus"},
        {"category": "infer-choose", "question": ["<image>Only one.", "How\nmany?"], "multi-choice options": [[], []], "answer": "40"},
        {"category": "count-text", "question": [context, "Count."], "multi-choice options": [None, None], "answer": "[1, 0]"},
        {"category": "count-image", "question": [context, "Count <image>."], "multi-choice options": [None, None], "answer": "[1,2]"},
        {"category": "find-image", "question": [context, "Which?"], "multi-choice options": [None, ["a", "b", "c", "d"]], "answer": "1"},
        {"category": "visual-reasoning", "question": ["At last\n<image>", "Which?"], "multi-choice options": [["left", "right"], None],
         "answer": "0"},
    ]
    said = ["a", "B", "1", "the answer is b.", "**A**", "[1, 0]", "1 0", "1,2", "the red bus", "A red bus!", "forty", "40.", "", "None",
            "the camera is moving left"]
    filled, prompts, outputs = [], [], []
    for i, row in enumerate(rows):
        pictures = sum(part.count("<image>") for part in row["question"]) + len(row["multi-choice options"][1] or [])
        shown = ([PICTURE, OTHER] * 3)[:pictures]
        cells = {"index": i + 1, "image": PICTURE if pictures == 1 else repr(shown)} | row
        cells |= {"question": repr(row["question"]), "multi-choice options": repr(row["multi-choice options"])}
        filled.append(cells)
        prompts.append([prompt_of(asks, cells, [str(n) for n in range(pictures)], owner)])
        answer = int(row["answer"]) if row["category"] in ("visual-reasoning", "find-image") else row["answer"]
        outputs += [one(i, out, lambda answer=answer, out=out: scores.is_correct(answer, out)) for out in said]
    golden.add("mm_niah/vlmevalkit", table(filled, ["index", "category", "question", "multi-choice options", "answer", "image"]),
               prompts, outputs)


def make(root, golden):
    choices(root, golden)
    short_answers(root, golden)
    captions(root, golden)
    mm_niah(root, golden)
