# SPDX-License-Identifier: Apache-2.0
"""Visual Haystacks as its LLaVA solver asks, the needle at each place; its rule for a word."""

import json
import pathlib
import random
import tempfile

import nltk
from nltk.tokenize.punkt import PunktSentenceTokenizer
from task_goldens import load, one

REPOSITORY = "visual-haystacks/vhs_benchmark"
COMMIT = "1a9abb5"
HOW = (
    "run_detailed of solvers/base_solver.py, with the marks that llava_solver.py puts before its prompts; the test of"
    " utils.py, `gt in nltk.word_tokenize(pred.lower())`, where sentences are split by nltk's own code without its trained model"
)
PACKAGES = ("nltk",)


def make(root, golden):
    base = load(root / "solvers/base_solver.py", stubs=("tqdm",))
    base.tqdm = lambda rows, total=None: rows
    asked = []

    class Solver(base.Solver):
        def generate(self, prompt, image_paths):
            names = [pathlib.Path(p).stem for p in image_paths]
            asked.append(("".join(f"[picture {i + 1}]\n" for i in range(len(names))) + prompt, names))
            return "", None

    files = [f"{name}.jpg" for name in "abcdefghijklmnopqrstuvw"]
    pictures = {f"visual_haystacks/coco/{f}": [f[0]] for f in files}
    question = "For the image with a dog, is there a {cat}? "
    said = ["Yes", "no", "Yes.", "No, there is none.", "'Yes'", '"yes"', "yes/no", "not", "nothing", "", "yes-no", "Yes: a cat", "no...", "no. yes",
            "Answer:no", "(no)", "no's", "1,no", "yes,1", "yes, 1", "\u201cNo\u201d", "n.o.", "no.\n", "x.no", "no\u00a0", "YES!", "a'yes", "'yes, x"]
    rng = random.Random(1)
    pieces = ["yes", "no", ".", ",", "'", '"', " ", " ", "-", "/", "s", "'ll ", "n't", ")", "(", ":", "5", "\n", "--", "..", "...", "?", "the", "`", "*", "\u2019"]
    said += ["".join(rng.choice(pieces) for _ in range(rng.randint(2, 9))) for _ in range(400)]
    nltk.tokenize._get_punkt_tokenizer = lambda language: PunktSentenceTokenizer()

    def put(name, row, answers):
        rows = [row | {"conversations": [{"from": "human", "value": question}, {"from": "gpt", "value": a}]} for a in answers]
        asked.clear()
        with tempfile.TemporaryDirectory() as scratch:
            path = pathlib.Path(scratch)
            (path / "test.json").write_text(json.dumps(rows))
            solver = Solver("", False)
            if name.endswith("single"):
                solver.run_detailed(path / "test.json", scratch)
            else:
                solver.run_fast(path / "test.json", scratch)
        per = len(asked) // len(rows)
        outputs = [one(i * per, out, float(a in nltk.word_tokenize(out.lower()))) for i, a in enumerate(answers) for out in said]
        golden.add(name, {"": [json.dumps(rows)]} | pictures, [[text] for text, _ in asked], outputs)
        if name.endswith("single"):
            for sample, (_, names) in zip(golden.tasks[-1]["samples"], asked, strict=True):
                sample["pictures"] = names

    put("visual_haystacks/single", {"pos_image": [files[0]], "neg_image": files[1:]}, ["yes", "no"])
    put("visual_haystacks/multi", {"pos_image": files[:2], "neg_image": files[2:5]}, ["yes", "no"])
