# SPDX-License-Identifier: Apache-2.0
"""VNBench as its LLaVA example asks and scores, 8 frames."""

import ast
import json

from pictures_reference import functions
from task_goldens import one

REPOSITORY = "joez17/VideoNIAH"
COMMIT = "8193a3b20ac1c2fcac9c3e8c1550095628f7628f"
HOW = (
    "get_detail_result of llava_examples/evaluation_utils.py as it is, over the four orders of one question;"
    " the question's format string of llava_examples/model_video_niah.py, taken out of it and filled in"
)
FRAMES = 8


def question_of(root):
    """The first f-string that is given to the name `question`."""
    tree = ast.parse((root / "llava_examples/model_video_niah.py").read_text())
    node = next(n for n in ast.walk(tree) if isinstance(n, ast.Assign) and isinstance(n.value, ast.JoinedStr)
                and n.targets[0].id == "question")
    code = compile(ast.fix_missing_locations(ast.Expression(node.value)), "question", "eval")
    return lambda row: eval(code, {"question0": row["question"], "options": row["options"]})  # noqa: S307


def make(root, golden):
    question = question_of(root)
    own = functions(root / "llava_examples/evaluation_utils.py", {"get_detail_result"}, {})
    options = ["train, cow", "cow, train", "{sheep}", " 12 "]
    rows = [{"video": "v_x_ret_insert1.mp4", "question": "What is the order\nof images? ", "type": "ret_insert1", "try": t,
             "options": options[t:] + options[:t], "gt": "cow, train"} for t in range(4)]
    seen = "".join(f"[picture {f + 1}]" for f in range(FRAMES)) + "\n"
    prompts = [seen + question(row) for row in rows]
    letters = [chr(ord("A") + row["options"].index(row["gt"])) for row in rows]

    def score(t, out):
        """Whether the question would be right, were the other three answers."""
        data = [{"video_path": "v", "task_type": kind, "gt": letter, "pred": out if i == t and kind == "ret_insert1" else letter}
                for kind in ("ret_insert1", "ret_insert2", "ret_edit") for i, letter in enumerate(letters)]
        for row in data:
            row["video_path"] += row["task_type"]
        # Its two insertions are printed under each other's names.
        return own.get_detail_result(data)["ret_insert2"]

    outputs = [one(0, out, lambda t=t, out=out: score(t, out), t)
               for t in range(4) for out in (letters[t], letters[t] + ". x", "Z", "", " " + letters[t], "(" + letters[t], letters[t].lower())]
    files = {f"vnbench/frames/v_x_ret_insert1.mp4/{f}.jpg": [f"frame {f}"] for f in range(FRAMES)}
    golden.add("vnbench/all", {"": [json.dumps(rows)]} | files, [prompts], outputs)
