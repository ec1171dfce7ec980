# SPDX-License-Identifier: Apache-2.0
"""MM-NIAH: needles of text and pictures between texts and pictures."""

import copy
import json
import re

from pictures_reference import functions
from task_goldens import one

REPOSITORY = "OpenGVLab/MM-NIAH"
COMMIT = "2fd03ddcf0fa9f028963af3de1eea3b538a4314a"
HOW = "get_input of utils/tools.py, with what eval_internvl.py puts between context and question; is_correct"


def make(root, golden):
    tools = functions(root / "utils/tools.py", {"get_input", "VQAEval", "has_word", "IMAGE_PLACEHOLDER"}, {"re": re})
    scores = functions(root / "calculate_scores.py", {"is_correct"}, {"json": json, "vqa": tools.VQAEval()})
    pictures = {f"mm_niah/images/{name}.jpg": [name] for name in "abcd"}
    meta = {"placed_depth": [0.2, 0.6], "context_length": 3999, "context_length_text": 10, "context_length_image": 5,
            "num_images": 2, "needles": ["x"], "choices": None, "choices_image_path": None}
    base = {"images_list": ["a.jpg", "b.jpg"], "context": "Text <image> between\n<image> {pictures}.", "id": 3}
    said = ["a", "B", "1", "the answer is b.", "**A**", "[1, 0]", "```json\n[1, 2]\n```", "[2", "the red bus", "forty", "", "None"]

    def put(name, rows):
        prompts, outputs = [], []
        for i, row in enumerate(rows):
            context, images, question, answer = tools.get_input(copy.deepcopy(row))
            text = f"{context}\n{question}"
            assert text.count("<image>") == len(images)
            for n in range(len(images)):
                text = text.replace("<image>", f"[picture {n + 1}]", 1)
            prompts.append([text])
            if "counting" in name and not isinstance(answer, list):
                answer = json.loads(answer)
            outputs += [one(i, out, scores.is_correct(copy.deepcopy(answer), out)) for out in said]
        golden.add(name, {"": rows} | pictures, prompts, outputs)

    put("mm_niah/retrieval_text", [base | {"question": "Who is it?", "answer": "the red bus", "meta": meta}])
    put("mm_niah/reasoning_text", [base | {"question": "How many?", "answer": "40", "meta": meta}])
    put("mm_niah/counting_text", [base | {"question": "Count.", "answer": [1, 0], "meta": meta}])
    put("mm_niah/counting_image", [base | {"question": "Count.", "answer": "[1, 2]", "meta": meta | {"placed_depth": 1.0}}])
    put("mm_niah/retrieval_image", [base | {"question": "Which?", "answer": 1, "meta": meta | {"choices_image_path": ["c.jpg", "d.jpg"]}}])
    put("mm_niah/reasoning_image", [base | {"question": "Which?", "answer": 0, "meta": meta | {"choices": ["left", "right"]}}])
