# SPDX-License-Identifier: Apache-2.0
"""VLMEvalKit's Video-MME, LongVideoBench, MVBench and MLVU, 8 frames, the first two with subtitles as
well; rows are those of the sets' own files, of which its tables are made (Video-MME's as lines of
JSON)."""

import json
import os
import pathlib
import random
import re
import string
import tempfile

from pictures_reference import functions, picture_names
from task_families import vlmevalkit
from task_goldens import one

PACKAGES = ("pysubs2",)
REPOSITORY = "open-compass/VLMEvalKit"
COMMIT = "e8e78f05f3080fe28154f2130321f17951c3be94"
HOW = (
    "build_prompt and qa_template of the classes, taken out of their files, over frames that are named;"
    " extract_characters_regex, and check_ans_with_model without a model with its"
    " extract_answer_from_item, as they are; what evaluate gives the last of options is restated;"
    " SubRip is read by pysubs2"
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
    rate = 1.0
    use_subtitle = False

    def __init__(self, module, **facts):
        self.qa_template = lambda line: module.qa_template(self, line)
        vars(self).update(facts)

    def save_video_frames(self, *_):
        return [f"{i}.jpg" for i in range(FRAMES)], list(range(FRAMES)), {"fps": self.rate}

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
    shape = {"container": "jsonl", "file": "video_mme/rows.jsonl", "group": ""}
    golden.add("video_mme/vlmevalkit", {"": rows} | frames("video_mme/frames/v1"), [[p] for p in prompts], outputs,
               set=shape)
    # A frame every 312.5 ms: times are rounded to even ms. The second video has no subtitles.
    owner.use_subtitle, owner.rate = True, 3.2
    owner.FRAMES_TMPL_SUB = constant(root, path, "VideoMME", "FRAMES_TMPL_SUB")
    rows = [rows[0], rows[1] | {"videoID": "v2"}, rows[0] | {"question_id": "1-3", "videoID": "v3"}]
    subtitles = {"video_mme/subtitle/v1.srt": SUBRIP, "video_mme/subtitle/v3.srt": ODD_SUBRIP}
    module = told(root, path, "VideoMME", "build_prompt", os=os, osp=os.path)
    with tempfile.TemporaryDirectory() as folder:
        write(folder, subtitles)
        owner.data_root = folder + "/video_mme"
        prompts = [shown(module.build_prompt(
            owner, row | {"video": row["videoID"], "candidates": row["options"],
                          "subtitle_path": f"./subtitle/{row['videoID']}.srt"}, False)) for row in rows]
    shows = {}
    for row in rows:
        shows |= frames(f"video_mme/frames/{row['videoID']}") | timed(f"video_mme/frames/{row['videoID']}", 3.2)
    golden.add("video_mme/vlmevalkit_subtitles", {"": rows} | shows | subtitles, [[p] for p in prompts], outputs[:2],
               set=shape)


# Starts and ends at a frame's very time, several at one time, tags, lines, a number behind a text,
# blanks, hours and odd fractions.
SUBRIP = ["\ufeff1", "00:00:00,000 --> 00:00:00,312", "Not at the first frame,", "whose time is 0.", "",
          "2", "00:00:00,311 --> 00:00:00,313", '<font color="white" size=".72c">Up to {the} second <i>frame</i></font>',
          "<b >two</ b> lines < u>and</u > <x", "", "3", "00:00:00,000 --> 00:00:00,900", "the first wins, not this", "",
          "4", "00:00:00,900 --> 00:00:00,938", " \u00c9t\u00e9 \\N and 5 < 6 > 4 ", "", "12", "5",
          "00:00:01,249 --> 00:00:01.3", "<i>", "", "6", "0:0:1,5 --> 0:0:1,6", "", "7",
          "00:00:01,8 --> 00:01:00,000 x 00:00", "still here", "8 ", "", "9", "00:00:02,100 --> 00:00:09,000", "never seen"]
ODD_SUBRIP = ["1\r", "00:00:00,300 --> 00:00:00,400\r", "carriage returns\r", "in here\r", "\r", "2",
              "00:00:00,600 --> 00:00:00,700", "", "", "3", "00:00:00,900 --> 00:00:00,950", "4", "",
              "00:00:01,200 --> 00:00:01,300", "12:34 and 1:2:3,4 stand here", "7", "7",
              "100:00:01,500 --> 00:00:01,600 <a", "<a\nhref='x'>link</a> <<b>> <i<i>>", "\u3000", "",
              "00:00:01,800 --> 00:00:02,500", "\u00a0 \u3000"]


def timed(folder, rate):
    return {f"{folder}/frames.json": [json.dumps({"fps": rate, "total": FRAMES})]}


def write(folder, files):
    """As the test writes them."""
    for name, lines in files.items():
        path = pathlib.Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="")


# Ends that are whole numbers or missing, short ones that are widened, times before and behind the
# clip, one at a frame's very time.
STAMPED = [
    {"timestamp": [9.0, 9.5], "text": "before the clip"},
    {"timestamp": [10.2, 10.4], "text": " in the first {half} second "},
    {"timestamp": [10.5, 11], "text": "its end is a whole number"},
    {"timestamp": [11.0, None], "text": "without an end\nin two lines"},
    {"timestamp": [11.25, 12.75], "text": "long"},
    {"timestamp": [12, 12.1], "text": ""},
    {"timestamp": [30.0, 40.0], "text": "behind it"},
]
CLOCKED = [
    {"start": "00:00:00.5", "end": "0:00:01.250", "line": "one"},
    {"start": "0:00:01", "end": "00:00:01.1", "line": "two, \u00c9t\u00e9"},
    {"start": "00:00:06.2", "end": "00:01:00", "line": "three"},
    {"start": "01:00:00", "end": "01:00:01", "line": "not seen"},
]


def long_video_bench(root, golden):
    path = "vlmeval/dataset/longvideobench.py"
    helpers = functions(root / path, {"insert_subtitles_into_frames", "timestamp_to_seconds"}, {})
    module = told(root, path, "LongVideoBench", "build_prompt", osp=os.path, json=json,
                  insert_subtitles_into_frames=helpers.insert_subtitles_into_frames)
    owner = Owner(module, SYS=constant(root, path, "LongVideoBench", "SYS"), rate=1.6)
    letters = functions(root / "vlmeval/dataset/utils/longvideobench.py", {"extract_characters_regex"}, {"re": re})
    rows = [
        {"id": "a_0", "video_id": "v1", "video_path": "v1.mp4", "question": " What IS\nshown? ", "correct_choice": 1,
         "candidates": ["a red bus", "{Two} dogs", "12", "\u00c9t\u00e9", "none"], "duration": 5.0, "duration_group": 15,
         "question_category": "S2E", "subtitle_path": "v1_en.json", "starting_timestamp_for_subtitles": 10},
        {"id": "a_1", "video_id": "v2", "video_path": "v2.mp4", "question": "Which?", "correct_choice": 0,
         "candidates": ["1", "2"], "duration": 4.75, "duration_group": 15, "question_category": "T3O",
         "subtitle_path": "v2_en.json", "starting_timestamp_for_subtitles": 0.5},
    ]
    said = ["B", "The answer is (A).", "Answer: E, not B", "", "b", "Option: B\n", "The best option is B",
            "Because of what the last of all the eight frames shows I take it"]
    outputs = [one(i, out, letters.extract_characters_regex(out) == "AB"[row["correct_choice"]])
               for i, row in enumerate(rows) for out in said
               if letters.extract_characters_regex(out)]  # else other rules look for an option
    files = {"": [json.dumps(rows)]}
    for row in rows:
        files |= frames(f"longvideobench/frames/{row['video_id']}") | timed(f"longvideobench/frames/{row['video_id']}", 1.6)
    prompts = [[shown(module.build_prompt(owner, dict(row), False))] for row in rows]
    golden.add("longvideobench/vlmevalkit", files, prompts, outputs)
    owner.use_subtitle = True
    subtitles = {"longvideobench/subtitles/v1_en.json": [json.dumps(STAMPED, indent=1)],
                 "longvideobench/subtitles/v2_en.json": [json.dumps(CLOCKED)]}
    with tempfile.TemporaryDirectory() as folder:
        write(folder, subtitles)
        owner.data_root = folder + "/longvideobench"
        prompts = [[shown(module.build_prompt(owner, dict(row), False))] for row in rows]
    golden.add("longvideobench/vlmevalkit_subtitles", files | subtitles, prompts, outputs[:2])


def frames(folder, count=FRAMES):
    return {f"{folder}/{i}.jpg": [f"frame {i}"] for i in range(count)}


def rule_of(root, name):
    """A set's check_ans_with_model without a model, and the item that evaluate hands it."""
    given = {"can_infer": vlmevalkit.inferring(root).can_infer, "string": string, "pd": vlmevalkit.Missing,
             "cn_string": lambda _: False, "build_option_str": str}  # both for a judge's prompt
    infer = functions(root / "vlmeval/dataset/utils/multiple_choice.py",
                      {"extract_answer_from_item", "build_choices", "build_prompt"}, given)
    rule = functions(root / f"vlmeval/dataset/utils/{name}.py", {"check_ans_with_model"},
                     {"extract_answer_from_item": infer.extract_answer_from_item})

    def right(row, truth, out):
        item = row | {"prediction": out, "answer": string.ascii_uppercase[row["candidates"].index(row["answer"])]}
        item |= dict(zip(string.ascii_uppercase, row["candidates"]))
        return rule.check_ans_with_model(out, truth, None, item)

    return right


def mvbench(root, golden):
    path = "vlmeval/dataset/mvbench.py"
    module = told(root, path, "MVBench", "build_prompt", "qa_template")
    owner = Owner(module, SYS=constant(root, path, "MVBench", "SYS"))
    # Outputs without a letter, which are within "(b)" and right there, are not among these: they are
    # wrong here.
    right = rule_of(root, "mvbench")
    rows = [
        {"video": "v1.mp4", "question": "What happened after the person\ntook the bag?", "answer": "Two dogs.",
         "candidates": ["A red bus.", "Two dogs.", "12 "], "start": 0.0, "end": 8.0},
        {"video": "v1.mp4", "question": " Is it {red}? ", "answer": "no", "candidates": ["yes", "no"], "start": 0.0, "end": 8.0},
    ]
    prompts = [[shown(module.build_prompt(owner, row, False))] for row in rows]
    said = ["B", "(B)", "b) Two dogs", "B. Two dogs", "(A) a red bus", "A or B", "(b", "two dogs", "Best option:(B)", "Z", "(C",
            " B", "B..", "The answer is (B).", "I see two dogs. and no bus", "It is no", "the answer is **b**"]
    outputs = []
    for i, row in enumerate(rows):
        truth = module.qa_template(owner, row)[1]
        outputs += [one(i, out, right(row, truth, out)) for out in said]
    for name in MVBENCH:
        folder = f"mvbench/frames/{name}/v1.mp4"
        golden.add(f"mvbench/{name}", {"": [json.dumps(rows)]} | frames(folder) | timed(folder, 1), prompts, outputs)


MLVU = {"plotqa": "1_plotQA", "needle": "2_needle", "ego": "3_ego", "count": "4_count", "order": "5_order",
        "anomaly_reco": "6_anomaly_reco", "topic_reasoning": "7_topic_reasoning"}
MLVU_OPEN = {"sub_scene": "8_sub_scene", "summary": "9_summary"}


def mlvu(root, golden):
    path = "vlmeval/dataset/mlvu.py"
    choice = told(root, path, "MLVU_MCQ", "build_prompt", "qa_template", os=os)
    right = rule_of(root, "mlvu")
    rows = [
        {"video": "v1.mp4", "duration": 246, "question": "What color is it?", "answer": "Two dogs", "question_type": "plotQA",
         "candidates": ["A red bus", "Two dogs", "12 ", "{x}"]},
        {"video": "v1.mp4", "duration": 246, "question": " Blank in front\nand a line ", "answer": "no", "question_type": "plotQA",
         "candidates": ["yes", "no"]},
    ]
    said = ["B", "B)", "B) Two dogs", "(B)", "B.", "b)", "A) or B)", "", ")", "Two dogs", " B", "the B) is right", "C)",
            "The answer is (A).", "It is no", "A or B"]
    ask = lambda module, row: shown(module.build_prompt(  # noqa: E731
        Owner(module, SYS="", data_root=""), row | {"prefix": "x"}, False))
    truths = [choice.qa_template(None, row)[1] for row in rows]
    outputs = [one(i, out, right(row, truths[i], out)) for i, row in enumerate(rows) for out in said]
    for name, folder in MLVU.items():
        golden.add(f"mlvu/vlmevalkit_{name}", {"": [json.dumps(rows)]} | frames(f"mlvu/frames/{folder}/v1.mp4"),
                   [[ask(choice, row)] for row in rows], outputs, set={"group": ""})
    free = told(root, path, "MLVU_OpenEnded", "build_prompt", "qa_template", os=os)
    for name, folder in MLVU_OPEN.items():
        golden.add(f"mlvu/vlmevalkit_{name}", {"": [json.dumps(rows)]} | frames(f"mlvu/frames/{folder}/v1.mp4"),
                   [[ask(free, row)] for row in rows], set={"group": ""})


def make(root, golden):
    video_mme(root, golden)
    long_video_bench(root, golden)
    mvbench(root, golden)
    mlvu(root, golden)
