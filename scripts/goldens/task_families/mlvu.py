# SPDX-License-Identifier: Apache-2.0
"""MLVU's seven tasks of options and two for a judge, 16 frames, as its own evaluation asks."""

import json
import types

from pictures_reference import functions
from task_goldens import one

REPOSITORY = "JUNJIE99/MLVU"
COMMIT = "fd060c10a43ea48a35100a22688a927b8e531199"
HOW = (
    "qa_template and check_ans of evaluation/multiple_choice_evaluation/choice_bench.py, taken out of it;"
    " the template of its comment is restated, with the line break before its last sentence that"
    " evaluation/models/videochat2 has; for a judge qa_template of"
    " evaluation/generation_evaluation/open_bench.py"
)
FRAMES = 16
TASKS = {"plotqa": "1_plotQA", "needle": "2_needle", "ego": "3_ego", "count": "4_count", "order": "5_order",
         "anomaly_reco": "6_anomaly_reco", "topic_reasoning": "7_topic_reasoning"}
OPEN = {"sub_scene": "8_sub_scene", "summary": "9_summary"}


def make(root, golden):
    own = functions(root / "evaluation/multiple_choice_evaluation/choice_bench.py", {"qa_template@MLVU", "check_ans"}, {})
    rows = [
        {"video": "v1.mp4", "duration": 246, "question": "What color is it?", "answer": "Two dogs", "question_type": "plotQA",
         "candidates": ["A red bus", "Two dogs", "12 ", "{x}"]},
        {"video": "v1.mp4", "duration": 246, "question": " Blank in front\nand a line ", "answer": "no", "question_type": "plotQA",
         "candidates": ["yes", "no", "(B) no"]},
    ]
    owner = types.SimpleNamespace()
    said = ["B", "B)", "B) Two dogs", "(B)", "B.", "b)", "A) or B)", "", ")", "Two dogs", " B", "the B) is right", "C)"]
    prompts, outputs = [], []
    for i, row in enumerate(rows):
        question, truth = own.qa_template(owner, row)
        seen = "".join(f"[picture {f + 1}]" for f in range(FRAMES))
        prompts.append(f"{seen}{question}\nOnly give the best option.")
        outputs += [one(i, out, lambda out=out, truth=truth: own.check_ans(out, truth)) for out in said]
    for name, folder in TASKS.items():
        files = {f"mlvu/frames/{folder}/v1.mp4/{f}.jpg": [f"frame {f}"] for f in range(FRAMES)}
        golden.add(f"mlvu/{name}", {"": [json.dumps(rows)]} | files, [[p] for p in prompts], outputs,
                   set={"group": ""})
    asks = functions(root / "evaluation/generation_evaluation/open_bench.py", {"qa_template@MLVU"}, {}).qa_template
    for name, folder in OPEN.items():
        files = {f"mlvu/frames/{folder}/v1.mp4/{f}.jpg": [f"frame {f}"] for f in range(FRAMES)}
        golden.add(f"mlvu/{name}", {"": [json.dumps(rows)]} | files, [[seen + asks(owner, row)[0]] for row in rows],
                   set={"group": ""})
