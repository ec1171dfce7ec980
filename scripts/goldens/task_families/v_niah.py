# SPDX-License-Identifier: Apache-2.0
"""V-NIAH: which frames stand around the needle, and what is asked."""

import json

import numpy as np
from task_goldens import one

REPOSITORY = "EvolvingLMMs-Lab/LongVA"
COMMIT = "f4c8781"
HOW = (
    "the needles' released file; the loops over frames, depths and needles of vision_niah/eval_vision_niah.py are restated."
    " It compares the likeliest token behind each token of the right answer, which is the same as the first tokens of a greedy"
    " answer, as many as the right one has: texts stand for them here"
)


def make(root, golden):
    needles = json.loads((root / "vision_niah/needle_datasets/dataset.json").read_text())
    frames = [f"frame {i}" for i in range(10)]
    files = {"": [json.dumps(needles)]}
    files |= {f"v_niah/haystack/{i}.jpg": [frames[i]] for i in range(10)}
    files |= {f"v_niah/images/{n['path']}": [n["path"]] for n in needles}
    prompts, pictures = [], []
    for count in (3, 10):
        for depth in np.arange(0, 1 + 0.2, 0.2):
            for needle in needles:
                place = int(depth * count)
                shown = [*frames[:place], needle["path"], *frames[place:count]]
                pictures.append(shown)
                prompts.append("".join(f"[picture {i + 1}]" for i in range(len(shown))) + needle["prompt"])
    outputs = [one(i, out, float(out == n["answer"])) for i, n in enumerate(needles)
               for out in (n["answer"], n["answer"] + " ", "\n" + n["answer"], n["answer"].lower(), "B.", "")]
    golden.add("v_niah/all", files, [[p] for p in prompts], outputs, set={"frames": "3,10"})
    for sample, shown in zip(golden.tasks[-1]["samples"], pictures, strict=True):
        sample["pictures"] = shown
