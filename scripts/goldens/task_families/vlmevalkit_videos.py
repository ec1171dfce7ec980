# SPDX-License-Identifier: Apache-2.0
"""VLMEvalKit's Video-MME and MVBench, 8 frames; rows are those of the sets' own files, of which its
tables are made (Video-MME's as lines of JSON)."""

import json
import random
import re

from pictures_reference import functions, picture_names
from task_goldens import one

REPOSITORY = "open-compass/VLMEvalKit"
COMMIT = "e8e78f05f3080fe28154f2130321f17951c3be94"
HOW = (
    "build_prompt and qa_template of the classes, taken out of their files, over frames that are named;"
    " extract_characters_regex and check_ans_with_model without a model as they are"
)
FRAMES = 8
MVBENCH = """action_antonym action_count action_localization action_prediction action_sequence
character_order counterfactual_inference egocentric_navigation episodic_reasoning
fine_grained_action fine_grained_pose moving_attribute moving_count moving_direction
object_existence object_interaction object_shuffle scene_transition state_change
unexpected_action""".split()


class Told:
    """eval() of a cell that holds a list, whatever is in it."""

    def __call__(self, value):
        return list(value)


class Owner:
    """What a build_prompt needs of its class."""

    fps = -1
    use_subtitle = False

    def __init__(self, module, **facts):
        self.qa_template = lambda line: module.qa_template(self, line)
        vars(self).update(facts)

    def save_video_frames(self, *_):
        return [f"{i}.jpg" for i in range(FRAMES)], list(range(FRAMES)), {"fps": 1.0}

    def save_video_into_images(self, _):
        return [f"{i}.jpg" for i in range(FRAMES)]


def told(root, path, owner, *names, **given):
    return functions(root / path, {f"{name}@{owner}" for name in names}, {"eval": Told(), "os": None} | given)


def constant(root, path, owner, name):
    """A text that a class holds."""
    import ast

    tree = ast.parse((root / path).read_text())
    held = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == owner)
    return next(ast.literal_eval(n.value) for n in held.body
                if isinstance(n, ast.Assign) and n.targets[0].id == name)


def shown(messages):
    """Of the user alone: a system text and the begin of the answer stand elsewhere here."""
    return picture_names([m for m in messages if m.get("role") in (None, "user")])


def video_mme(root, golden):
    path = "vlmeval/dataset/videomme.py"
    module = told(root, path, "VideoMME", "build_prompt")
    owner = Owner(module, SYS=constant(root, path, "VideoMME", "SYS"),
                  FRAMES_TMPL_NOSUB=constant(root, path, "VideoMME", "FRAMES_TMPL_NOSUB"))
    letters = functions(root / "vlmeval/dataset/utils/videomme.py", {"extract_characters_regex"}, {"re": re})
    rows = [
        {"question_id": "1-1", "videoID": "v1", "question": " What IS\nshown? ", "duration": "short", "domain": "d",
         "task_type": "t", "options": ["A. a red bus.", "B. {Two} dogs", "C. 12", "D. \u00c9t\u00e9"], "answer": "B"},
        {"question_id": "1-2", "videoID": "v1", "question": "Which comes first?", "duration": "long", "domain": "d",
         "task_type": "t", "options": ["A. 1", "B. 2", "C. 3", "D. None of the above"], "answer": "D"},
    ]
    prompts = [shown(module.build_prompt(owner, row | {"video": "v1", "candidates": row["options"]}, False))
               for row in rows]
    said = ["B", "D.", "The answer is (D).", "The best option is B", "Answer: D, not B", "", "b", "Best answer:Best option:D",
            "I think that of all the four it must be the second of them", "None of these", "Option: B\n",
            "Because of what the last of all the eight frames shows I take D"]
    outputs = [one(i, out, letters.extract_characters_regex(out) == row["answer"]) for i, row in enumerate(rows) for out in said]
    # Both ask of one video, in a request each.
    golden.add("video_mme/vlmevalkit", {"": rows} | frames("video_mme/frames/v1"), [[p] for p in prompts], outputs,
               set={"container": "jsonl", "file": "video_mme/rows.jsonl", "group": ""})


def frames(folder, count=FRAMES):
    return {f"{folder}/{i}.jpg": [f"frame {i}"] for i in range(count)}


def mvbench(root, golden):
    path = "vlmeval/dataset/mvbench.py"
    module = told(root, path, "MVBench", "build_prompt", "qa_template")
    owner = Owner(module, SYS=constant(root, path, "MVBench", "SYS"))
    # Without a model the last of its three ways finds no option. Outputs without a letter, which are
    # within "(b)" and right there, are not among them: they are wrong here.
    rule = functions(root / "vlmeval/dataset/utils/mvbench.py", {"check_ans_with_model"},
                     {"extract_answer_from_item": lambda *_: {"opt": "Z"}, "random": random})
    rows = [
        {"video": "v1.mp4", "question": "What happened after the person\ntook the bag?", "answer": "Two dogs.",
         "candidates": ["A red bus.", "Two dogs.", "12 "], "start": 0.0, "end": 8.0},
        {"video": "v1.mp4", "question": " Is it {red}? ", "answer": "no", "candidates": ["yes", "no"], "start": 0.0, "end": 8.0},
    ]
    prompts = [[shown(module.build_prompt(owner, row, False))] for row in rows]
    said = ["B", "(B)", "b) Two dogs", "B. Two dogs", "(A) a red bus", "A or B", "(b", "two dogs", "Best option:(B)", "Z", "(C",
            " B", "B.."]
    outputs = []
    for i, row in enumerate(rows):
        truth = module.qa_template(owner, row)[1]
        outputs += [one(i, out, rule.check_ans_with_model(out, truth, None, {"answer": "B"})) for out in said]
    for name in MVBENCH:
        folder = f"mvbench/frames/{name}/v1.mp4"
        timed = {f"{folder}/frames.json": [json.dumps({"fps": 1, "total": FRAMES})]}
        golden.add(f"mvbench/{name}", {"": [json.dumps(rows)]} | frames(folder) | timed, prompts, outputs)


def make(root, golden):
    video_mme(root, golden)
    mvbench(root, golden)
