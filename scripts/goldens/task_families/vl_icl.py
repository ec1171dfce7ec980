# SPDX-License-Identifier: Apache-2.0
"""VL-ICL as it asks LLaVA, with the demonstrations that its own code draws."""

import importlib
import json
import random
import sys
import types

from pictures_reference import functions
from task_goldens import one, stub

REPOSITORY = "ys-zong/VL-ICL"
COMMIT = "2b77eee"
HOW = (
    "select_demonstration of utils/ICL_utils.py after random.seed(0), over all numbers of demonstrations of one run, as"
    " I2T_inference.py goes through them; the LLaVA branch of utils/model_inference.py up to its message; evals/eval.py over one answer"
)


class Asked(Exception):
    pass


class Talk:
    roles = ("user", "assistant")

    def __init__(self):
        self.said = []

    def copy(self):
        return Talk()

    def append_message(self, role, text):
        self.said.append(text)

    def get_prompt(self):
        raise Asked(self.said[0])


class Templates:
    def __getitem__(self, name):
        return Talk()


class Processor:
    def preprocess(self, image, return_tensors):
        return {"pixel_values": [image]}


def make(root, golden):
    stub("torch", "PIL", "llava", "llava.conversation", "llava.constants", "llava.mm_utils")
    sys.modules["llava.conversation"].conv_templates = Templates()
    sys.modules["llava.constants"].DEFAULT_IMAGE_TOKEN = "<image>"
    sys.path.insert(0, str(root))
    own = importlib.import_module("utils.model_inference")
    tools = importlib.import_module("utils.ICL_utils")
    own.load_image = lambda names, folder: (names, names)
    own.Image = types.SimpleNamespace(open=lambda path: types.SimpleNamespace(convert=lambda mode: path))
    scores = functions(root / "evals/eval.py", {"eval_scores", "exact_match", "exact_yes_no"},
                       {"re": __import__("re"), "np": __import__("numpy")})

    def message(args, query, support, images):
        try:
            own.ICL_I2T_inference(args, "llava16-7b", args.dataset, None, None, query, support, "", Processor(), 15)
        except Asked as asked:
            text = str(asked)
        for i in range(images):
            text = text.replace("<image>", f"[picture {i + 1}]", 1)
        assert "<image>" not in text
        return text

    def put(name, queries, support, draws, said):
        args = types.SimpleNamespace(dataset=name, task_description="detailed")
        images = sorted({i for q in queries for i in q["image"]} | set(pictures_of(queries)) | set(pictures_of(support)))
        files = {"": [json.dumps(queries)], f"vl_icl/{name}/support.json": [json.dumps(support)]} | {f"vl_icl/{i}": [i] for i in images}
        random.seed(0)
        for shots in draws:
            prompts, shown = [], []
            for query in queries:
                chosen = tools.select_demonstration(support, shots, name, query=query)
                shown.append([i for c in chosen for i in c["image"]] + query["image"])
                prompts.append(message(args, query, chosen, len(shown[-1])))
            outputs = [one(i, out, lambda q=q, out=out: scores.eval_scores([q | {"prediction": out}], name))
                       for i, q in enumerate(queries) for out in (said if shots == draws[-1] else said[:2])]
            golden.add(f"vl_icl/{name}", files, [[p] for p in prompts], outputs, set={"shots": shots})
            for sample, names in zip(golden.tasks[-1]["samples"], shown, strict=True):
                sample["pictures"] = names

    said = ["12", " 12.", "It is 12. Or 13", "\n12\nx", ".12", "12\n13", "twelve", "", "Answer: \u0661\u0662", "Dax", "dax. x", " DAX\nblick", "yes", "Yes.", "no", "No, yes", "nothing\nyes"]
    shots = [0, 1, 2, 4, 8]
    many = [{"image": [f"operator_induction/{i}.png"], "question": f"What is {i}?", "answer": [i, i + 1, 2 * i], "operator": "?"} for i in range(90)]
    queries = [{"image": ["operator_induction/q.png"], "question": "What is {it}?", "answer": 12, "operator": o} for o in "+-x"]
    put("operator_induction", queries, many, shots, said)
    few = [{"image": [f"x/{i}.png", f"x/{i}b.png"], "question": f"What is {i}?", "answer": [i, i + 1, 2 * i]} for i in range(30)]
    put("operator_induction_interleaved", [{"image": ["x/q.png", "x/r.png"], "question": "?", "answer": 7, "operator": "x"}], few, [0, 1, 2, 4, 8], said)
    plain = [{"image": [f"x/{i}.png"], "question": f"shape: {i}", "answer": str(i)} for i in range(40)]
    put("clevr", [{"image": ["x/q.png"], "question": "color: red", "answer": 12}, {"image": ["x/r.png"], "question": "?", "answer": 3}], plain, [0, 1, 2, 4, 8], said)
    put("textocr", [{"image": ["x/q.png"], "question": "What text is shown in the red box?", "answer": "DAX"}], plain, [0, 1, 2, 4, 8], said)
    halves = [{h: {"image": [f"x/{i}{h}.png", f"x/{i}.png"], "question": "same?", "answer": a} for h, a in (("same", "Yes"), ("diff", "No"))} for i in range(25)]
    put("matching_mi", [{"image": ["x/q.png", "x/r.png"], "question": "same?", "answer": a} for a in ("Yes", "No")], halves, [0, 1, 2, 4, 8], said)
    classes = ["dax", "blick", "perpo"]
    support = {c: {"images": [f"x/{c}{i}.png" for i in range(5)]} for c in classes}
    put("open_mi", [{"image": ["x/q.png"], "question": "This is a", "answer": c, "classes": classes, "support": support} for c in classes], [], [0, 1, 2, 4, 5], said)


def pictures_of(value):
    """Every file's name in a value."""
    if isinstance(value, str):
        return [value] if value.endswith(".png") else []
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [name for one_of in inner for name in pictures_of(one_of)]
