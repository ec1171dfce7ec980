# SPDX-License-Identifier: Apache-2.0
"""lmms-eval's prompts of sets with pictures and of videos, over rows in the released fields; rows are
lines of JSON and pictures are files here, where the sets are Parquet files with both."""

import ast
import contextlib
import copy
import io
import json
import os
import pathlib
import re
import statistics
import string
import sys
import tempfile
import types

from pictures_reference import functions
from task_families import vlmevalkit
from task_goldens import one

REPOSITORY = "EvolvingLMMs-Lab/lmms-eval"
COMMIT = "75571cfe0fa36ca5ec2e6aa2bb268f9d38295af3"
HOW = (
    "doc_to_text and process_results of the tasks' utils.py, taken out of their files; MMMU's messages"
    " by its own doc_to_messages; GQA's and AI2D's exact match by api/metrics.py, AI2D's filter before it;"
    " MMBench's rows, which are Parquet there, are VLMEvalKit's table here, each scored by its eval_result"
    " without a judge as if it were a question of its own; MVBench's set by its aggregation"
)
PACKAGES = ("pandas", "PyYAML")
SHORT = "\nAnswer the question using a single word or phrase."
LETTER = "\nAnswer with the option's letter from the given choices directly."
NOTHING = types.SimpleNamespace(choice=lambda options: None)
IMAGE, OTHER = "pictures_of_tests/a.png", "pictures_of_tests/b.png"
PICTURES = {IMAGE: ["a picture"], OTHER: ["another"]}
QUESTIONS = ["what IS on the \u00c9tag\u00e8re?", " Blank in front\nand a line ", "Is it {red}?"]
SAID = ["a red bus", "A", "b.", "(B)", "The answer is C", "12", "12.0", "yes", "No.", "", "red bus?", "B. Two dogs",
        "it's \uff21\u3000b", " a red, bus "]


def make(root, golden):
    tasks = root / "lmms_eval/tasks"
    given = {"re": re, "statistics": statistics, "random": NOTHING, "string": string, "ast": ast}

    def load(path, *names, **more):
        return functions(tasks / path, set(names), given | more)

    def put(name, rows, prompt, score, kwargs=None, said=SAID, **more):
        prompts = [[f"[picture 1]{prompt(copy.deepcopy(row), kwargs) if kwargs else prompt(copy.deepcopy(row))}"]
                   for row in rows]
        outputs = [one(i, out, lambda row=row, out=out: score(copy.deepcopy(row), out))
                   for i, row in enumerate(rows) for out in said]
        folder = name.split("/")[0]
        golden.add(name, {"": rows} | PICTURES, prompts, outputs,
                   set={"container": "jsonl", "file": f"{folder}/rows.jsonl"} | more)

    short = {"pre_prompt": "", "post_prompt": SHORT}
    evalai = load("_task_utils/vqa_eval_metric.py", "EvalAIAnswerProcessor").EvalAIAnswerProcessor
    ten = ["a red bus", "red bus", "bus", "a red bus", "Red bus.", "bus", "12", "twelve", "a red bus", "van"]
    vqa = load("textvqa/utils.py", "textvqa_doc_to_text", "textvqa_process_results", EvalAIAnswerProcessor=evalai)
    rows = [{"question": q, "answers": ten, "ocr_tokens": [], "question_id": i, "image": IMAGE}
            for i, q in enumerate(QUESTIONS)]
    put("textvqa/lmms_eval", rows, vqa.textvqa_doc_to_text,
        lambda row, out: vqa.textvqa_process_results(row, [out])["exact_match"], short)
    v2 = load("vqav2/utils.py", "vqav2_doc_to_text", "vqav2_process_results", EvalAIAnswerProcessor=evalai)
    rows = [{"question": q, "answers": [{"answer": a, "answer_id": n} for n, a in enumerate(ten)], "answer_type": "other",
             "question_id": i, "image": {"bytes": None, "path": IMAGE}} for i, q in enumerate(QUESTIONS)]
    put("vqav2/lmms_eval", rows, v2.vqav2_doc_to_text,
        lambda row, out: v2.vqav2_process_results(row, [out])["exact_match"], short)
    metrics = functions(root / "lmms_eval/api/metrics.py",
                        {"anls", "levenshtein_distance", "exact_match_hf_evaluate"},
                        given | {"np": __import__("numpy")})
    doc = load("docvqa/utils.py", "docvqa_doc_to_text")
    rows = [{"question": q, "answers": ["a red bus", "12"], "questionId": str(i), "image": IMAGE}
            for i, q in enumerate(QUESTIONS)]
    for name in ("docvqa/lmms_eval", "infovqa/lmms_eval"):
        put(name, rows, doc.docvqa_doc_to_text,
            lambda row, out: metrics.anls(row["answers"], [out])["anls"], short)
    chart = load("chartqa/utils.py", "chartqa_doc_to_text", "chartqa_process_results", "relaxed_correctness")
    rows = [{"question": q, "answer": a, "type": "human_test", "image": IMAGE} for q, a in zip(QUESTIONS, ["12", "A red bus", "0"])]
    put("chartqa/lmms_eval", rows, chart.chartqa_doc_to_text,
        lambda row, out: chart.chartqa_process_results(row, [out])["relaxed_overall"],
        {"pre_prompt": "", "post_prompt": "\nAnswer the question with a single word."})
    gqa = load("gqa/utils.py", "gqa_doc_to_text")
    rows = [{"question": q, "answer": "red bus", "id": str(i), "imageId": "a"} for i, q in enumerate(QUESTIONS)]
    put("gqa/lmms_eval", rows, gqa.gqa_doc_to_text,
        lambda row, out: metrics.exact_match_hf_evaluate([out], [row["answer"]], ignore_case=True,
                                                         ignore_punctuation=True)["exact_match"],
        short, image_file="pictures_of_tests/{image}.png")
    sqa = load("scienceqa/utils.py", "sqa_doc_to_text", "sqa_process_results", "sqa_doc_to_target")
    rows = [{"question": q, "choices": ["a red bus", "Two dogs"], "answer": 1, "hint": h, "subject": "s", "image": IMAGE}
            for q, h in zip(QUESTIONS, ["Two\nlines.", "", "x"])]
    put("scienceqa/lmms_eval", rows, sqa.sqa_doc_to_text,
        lambda row, out: sqa.sqa_process_results(row, [out])["exact_match"],
        {"format": "default", "pre_prompt": "", "post_prompt": LETTER})
    ai2d = load("ai2d/utils.py", "ai2d_doc_to_text", "ai2d_doc_to_target", "MultiChoiceRegexFilter", ExtendedRegexFilter=object)
    rows = [{"question": q, "options": ["a red bus", "Two dogs", "12 "], "answer": a, "image": IMAGE}
            for q, a in zip(QUESTIONS, ["1", "0", "2"])]

    def ai2d_score(row, out):
        found = ai2d.MultiChoiceRegexFilter().apply([[out]], [row])
        return metrics.exact_match_hf_evaluate(found, [ai2d.ai2d_doc_to_target(row, "mcq")], ignore_case=True,
                                               ignore_punctuation=True)["exact_match"]

    for name in ("ai2d/lmms_eval", "ai2d/lmms_eval_no_mask"):
        put(name, rows, ai2d.ai2d_doc_to_text, ai2d_score, kwargs_of(tasks / "ai2d/ai2d.yaml"),
            SAID + [" B. Two dogs", "\u3000\nA.", "C.", "c", "**B**", "b!", "B A.", "\u00c9. x", "a.", " B"])
    mme = load("mme/utils.py", "mme_doc_to_text", "parse_pred_ans", "replace_prompt")
    rows = [{"question": q + " Please answer yes or no.", "answer": a, "category": "color", "question_id": str(i),
             "image": IMAGE} for i, (q, a) in enumerate(zip(QUESTIONS, ["Yes", "No", "Yes"]))]
    put("mme/lmms_eval", rows, mme.mme_doc_to_text,
        lambda row, out: mme.parse_pred_ans(out) == row["answer"].lower(), short)
    pope = load("pope/utils.py", "pope_doc_to_text", "pope_process_results")
    put("pope/lmms_eval", rows, pope.pope_doc_to_text,
        lambda row, out: pope.pope_process_results(row, [out])["pope_accuracy"]["score"], short)
    ocr = load("ocrbench/utils.py", "ocrbench_doc_to_text", "ocrbench_process_results", "_fold_fullwidth_ascii")
    rows = [{"question": QUESTIONS[i], "answer": ["A b", "red  bus"], "dataset": d, "question_type": "Doc-oriented VQA",
             "image": IMAGE} for i, d in enumerate(["HME100k", "TextVQA"])]
    put("ocrbench/lmms_eval", rows, ocr.ocrbench_doc_to_text,
        lambda row, out: ocr.ocrbench_process_results(row, [out])["ocrbench_accuracy"]["score"],
        {"pre_prompt": "", "post_prompt": ""})
    typing = __import__("typing")
    ranked = load("_task_utils/mcq_extract.py", "extract_mcq_answer", "_DEFAULT_CHOICES", "_ANSWER_PHRASES",
                  "_FORMAT_PRIORITY", List=typing.List, Optional=typing.Optional)
    for name in ("lmms_eval", "lmms_eval.tasks", "lmms_eval.tasks._task_utils"):
        sys.modules.setdefault(name, types.ModuleType(name))
    sys.modules["lmms_eval.tasks._task_utils.mcq_extract"] = ranked
    star = load("mmstar/utils.py", "mmstar_doc_to_text", "exact_match", "replace_prompt")
    rows = [{"index": i, "question": q + "\nOptions: A: a red bus, B: Two dogs", "answer": "B", "category": "c",
             "l2_category": "l", "image": IMAGE} for i, q in enumerate(QUESTIONS)]
    put("mmstar/lmms_eval", rows, star.mmstar_doc_to_text, lambda row, out: star.exact_match(out, row["answer"]),
        {"pre_prompt": "", "post_prompt": "\nAnswer with the option's letter from the given choices directly"})
    seed = load("seedbench/utils.py", "seed_doc_to_text", "seed_process_result", "seed_aggregation_result")
    rows = [{"question": q, "choice_a": "a red bus", "choice_b": "Two dogs", "choice_c": "12", "choice_d": "x", "answer": "B",
             "data_type": "image", "question_id": i, "image": [IMAGE]} for i, q in enumerate(QUESTIONS)]
    put("seedbench/lmms_eval", rows, seed.seed_doc_to_text,
        lambda row, out: seed.seed_aggregation_result([seed.seed_process_result(row, [out])["seed_all"]]))
    real = load("realworldqa/utils.py", "realworldqa_doc_to_text", "realworldqa_process_results", "REPLACE_PROMPT")
    rows = [{"question": q, "answer": a, "image": IMAGE} for q, a in zip(QUESTIONS, ["B", "12", "Red bus?"])]
    put("realworldqa/lmms_eval", rows, real.realworldqa_doc_to_text,
        lambda row, out: real.realworldqa_process_results(row, [out])["exact_match"], {"pre_prompt": "", "post_prompt": ""})
    captions(load, golden)
    mmmu_rows(load, golden)
    mmbench(tasks, load, golden)
    videos(load, golden)
    short_videos(tasks, load, golden)


def kwargs_of(path):
    """A task's own texts; what its file names of functions is left out."""
    import yaml

    plain = "".join(line for line in path.read_text().splitlines(True) if "!function" not in line)
    return yaml.safe_load(plain)["lmms_eval_specific_kwargs"]["default"]


def mmbench(tasks, load, golden):
    import pandas
    import yaml

    folder = tasks / "mmbench"
    given = {"pd": pandas, "math": __import__("math"), "os": os, "string": string, "rd": __import__("random"),
             "eval_logger": types.SimpleNamespace(info=lambda *_: None)}
    evals = functions(folder / "mmbench_evals.py", {"MMBench_Evaluator"}, given)
    asks = yaml.safe_load((folder / "mmbench.yaml").read_text())["metadata"]["sys_prompt"]
    judge = evals.MMBench_Evaluator(sys_prompt=asks)
    shared = {"hint": None, "C": None, "D": None, "category": "c 1", "l2-category": "l", "source": "s", "split": "dev",
              "image": vlmevalkit.PICTURE}
    rows = [
        shared | {"index": 7, "question": "What is\tshown?", "hint": "Look \"well\".\nTwice", "A": "a bus", "B": "Two dogs",
                  "answer": "B"},
        shared | {"index": 1000007, "question": "What is\tshown?", "hint": "Look \"well\".\nTwice", "A": "Two dogs", "B": "a bus",
                  "answer": "A", "image": "7"},
        shared | {"index": 8, "question": " Blank in front ", "A": "12", "B": "1,200", "C": "{braces}", "D": "\u00c9t\u00e9\u3002",
                  "answer": "D", "image": vlmevalkit.OTHER},
        shared | {"index": 1000008, "question": " Blank in front ", "A": "\u00c9t\u00e9\u3002", "B": "12", "C": "1,200",
                  "D": "{braces}", "answer": "A", "image": "8"},
    ]
    columns = ["index", "question", "hint", "A", "B", "C", "D", "answer", "category", "l2-category", "image"]
    said = ["B", "A", "(D).", "B)", "D:", ":A", "The answer is (D).", "two dogs", "a bus or Two dogs", "a", "", " ", "\u00e9t\u00e9\u3002",
            "**B**", "E", "Z", "A man with two dogs and more", "A bus", "A and B", "B, or A.", "None: (A) (B) B", "answer is **b**",
            "Failed to obtain answer via API. B", "I pick D because of it", "12", "1,200 or 12", "D. \u00c9t\u00e9", "BAD"]
    for name, file in (("en", "en_utils.py"), ("cn", "cn_utils.py")):
        own = load(f"mmbench/{file}", "mmbench_doc_to_text", "mmbench_process_results", pd=pandas, mmbench_evaluator=judge)
        texts = kwargs_of(folder / f"_default_template_mmbench_{name}_yaml")
        docs = [row | {"L2-category": row["l2-category"]} for row in rows]

        def hit(doc, out, own=own):
            result = own.mmbench_process_results(doc | {"index": 7}, [out])["gpt_eval_score"]
            with contextlib.redirect_stdout(io.StringIO()):
                return float(judge.eval_result([result], "static")[0])

        prompts = ["[picture 1]" + own.mmbench_doc_to_text(doc, texts) for doc in docs]
        outputs = [one(i // 2, out, lambda doc=doc, out=out: hit(doc, out), i % 2) for i, doc in enumerate(docs) for out in said]
        golden.add(f"mmbench/lmms_eval_dev_{name}", vlmevalkit.table(rows, columns), [prompts[:2], prompts[2:]], outputs)


def short_videos(tasks, load, golden):
    """MVBench, whose twenty tasks are alike but for their folders, and MLVU."""
    mv = load("mvbench/utils.py", "mvbench_doc_to_text", "mvbench_process_results", "mvbench_aggregate_results", "mcq_acc")
    asks = [kwargs_of(path) for path in sorted((tasks / "mvbench").glob("mvbench_*.yaml"))]
    assert len(asks) == 20 and len({one_of["post_prompt"] for one_of in asks}) == 1
    rows = [
        {"video": "v1.mp4", "question": "What happened after the person\ntook the bag?", "answer": "Two dogs.",
         "candidates": ["A red bus.", "Two dogs.", "12 "]},
        {"video": "v1.mp4", "question": " Is it {red}? ", "answer": "no", "candidates": ["yes", "no", "no"], "start": 0.0, "end": 8.0},
    ]
    said = SAID + ["e", "Best option: (B", "b) or a)", "'B'", "\"(B)\"", "B.\nA red bus", "b. two", "a man, B", "\uff22", " ", "A.B"]
    outputs, results = [], []
    for i, row in enumerate(rows):
        for out in said:
            results.append(mv.mvbench_process_results(row, [out])["mvbench_accuracy"])
            outputs.append(one(i, out, results[-1]["score"]))
    assert any(result["pred_answer"] == "" for result in results)
    place = f"mvbench_lmms/frames/{asks[0]['sub_task']}"  # for all of them
    files = {f"{place}/v1.mp4/{i}.jpg": [f"frame {i}"] for i in range(16)}
    frames = "".join(f"[picture {i + 1}]" for i in range(16))
    golden.add([f"mvbench/lmms_eval_{text['sub_task']}" for text in asks], {"": [json.dumps(rows)]} | files,
               [[frames + mv.mvbench_doc_to_text(row, asks[0])] for row in rows], outputs,
               set={"file": "mvbench_lmms/rows.json", "video": place + "/{video}"},
               printed=round(mv.mvbench_aggregate_results(results), 2))

    mlvu = load("mlvu/utils.py", "mlvu_doc_to_text", "mlvu_process_results", "extract_characters_regex")
    texts = kwargs_of(tasks / "mlvu/mlvu_dev.yaml")
    rows = [{"video_name": "1_plotQA/v1.mp4", "question": q + "\n(A) a red bus\n(B) Two dogs\n(C) 12\n(D) x", "task_type": "plotQA",
             "answer": a} for q, a in zip(QUESTIONS, "BAC")]
    frames = "".join(f"[picture {i + 1}]" for i in range(32))
    outputs = [one(i, out, mlvu.mlvu_process_results(row, [out])["mlvu_percetion_score"]["pred_answer"] == row["answer"])
               for i, row in enumerate(rows) for out in SAID]
    golden.add("mlvu/lmms_eval", {"": rows} | {f"mlvu_lmms/frames/1_plotQA/v1.mp4/{i}.jpg": [f"frame {i}"] for i in range(32)},
               [[frames + mlvu.mlvu_doc_to_text(row, texts)] for row in rows], outputs,
               set={"container": "jsonl", "file": "mlvu_lmms/rows.jsonl"})


def captions(load, golden):
    """Prompts alone: the scorers are a judge, and another package's over all captions of a set."""
    coco = load("coco_cap/utils.py", "coco_doc_to_text")
    rows = [{"question_id": f"{i}.jpg", "image": IMAGE, "answer": ["A red bus.", "the bus is red"]} for i in range(2)]
    golden.add("coco_caption/lmms_eval", {"": rows} | PICTURES,
               [["[picture 1]" + coco.coco_doc_to_text(row)] for row in rows],
               set={"container": "jsonl", "file": "coco_caption_lmms/rows.jsonl"})
    wild = load("llava-in-the-wild/utils.py", "llava_doc_to_text")
    rows = [{"question_id": i, "image": "a.png", "text": q, "category": "conv"} for i, q in enumerate(QUESTIONS)]
    golden.add("llava_bench/wild", {"": rows} | {"llava_bench_wild/images/a.png": ["a picture"]},
               [["[picture 1]" + wild.llava_doc_to_text({"question": row["text"]})] for row in rows])
    # Rows are those of the authors' file of questions.
    coco = load("llava-bench-coco/utils.py", "llava_doc_to_text")
    rows = [{"question_id": i, "image": "a.png", "text": q, "category": "detail"} for i, q in enumerate(QUESTIONS)]
    golden.add("llava_bench/coco", {"": rows} | {"llava_bench/val2014/COCO_val2014_a.png": ["a picture"]},
               [["[picture 1]" + coco.llava_doc_to_text({"question": row["text"]})] for row in rows])


def mmmu_rows(load, golden):
    mcq = load("_task_utils/mmmu_mcq_utils.py", "get_multi_choice_info", "parse_mmmu_multi_choice_response",
               np=__import__("numpy"))
    mmmu = load("mmmu/utils.py", "mmmu_doc_to_messages", "mmmu_doc_to_text", "construct_prompt", "parse_options",
                "replace_images_tokens", "parse_open_response", "extract_numbers", "normalize_str", "check_is_number",
                "eval_open", config={"metadata": {"interleaved_format": True}},
                os=types.SimpleNamespace(environ={}))
    mmmu.mmmu_doc_to_visual = None
    kwargs = {"prompt_type": "format", "multiple_choice_prompt": LETTER.strip(), "open_ended_prompt": SHORT.strip()}
    rows = [
        {"id": "validation_Art_1", "question": " Between <image 1> and <image 2>, which? ", "options": "['a red bus', 'Two dogs']",
         "answer": "B", "question_type": "multiple-choice", "topic_difficulty": "Easy", "image_1": IMAGE, "image_2": OTHER},
        {"id": "validation_Art_2", "question": "<image 1> How much?", "options": "[]", "answer": "12",
         "question_type": "open", "topic_difficulty": "Hard", "image_1": IMAGE},
        {"id": "validation_Art_3", "question": "Which?", "options": "['<image 1>', '<image 2>', 'none']", "answer": "A",
         "question_type": "multiple-choice", "topic_difficulty": "Hard", "image_1": IMAGE, "image_2": OTHER},
    ]
    prompts, outputs = [], []
    for i, row in enumerate(rows):
        seen = sorted(set(re.findall(r"<image \d+>", mmmu.construct_prompt(row))))
        mmmu.__dict__["mmmu_doc_to_visual"] = lambda doc, seen=seen: list(seen)
        content = mmmu.mmmu_doc_to_messages(row, kwargs)[0]["content"]
        text, pictures = "", 0
        for part in content:
            if part["type"] == "image":
                pictures += 1
                text += f"[picture {pictures}]"
            else:
                text += part["text"]
        prompts.append([text])
        for out in SAID:
            if row["question_type"] == "open":
                score = mmmu.eval_open(row["answer"], mmmu.parse_open_response(out))
            else:
                info, letters = mcq.get_multi_choice_info(ast.literal_eval(row["options"]))
                score = mcq.parse_mmmu_multi_choice_response(out, letters, info) == row["answer"]
            outputs.append(one(i, out, score))
    golden.add("mmmu/lmms_eval", {"": rows} | PICTURES, prompts, outputs,
               set={"container": "jsonl", "file": "mmmu/rows.jsonl"})


WHITE = '<font color="white" size=".72c">{}</font>'
# Two at one frame, one that ends where a frame begins, texts over lines, without white letters and
# with other sizes, two with the same times.
TIMES = [("00:00:00,000", "00:00:00,900", WHITE.format("first {of} all")),
         ("00:00:01,000", "00:00:05,000", "no tag"),
         ("00:00:01,100", "00:00:02,000", "x " + WHITE.format("two\nlines") + WHITE.format("and one more")),
         ("00:00:02,000", "00:00:02,000", WHITE.format("no time")),
         ("00:00:03,000", "00:00:04,000", WHITE.format("is lost")),
         ("00:00:03,000", "00:00:04,000", WHITE.replace(".", "1", 1).format("has its place \u00c9t\u00e9"))]


def sub_rip():
    """So many that a set of their numbers has another order than the numbers."""
    many = list(TIMES)
    for i in range(145):
        at = 3750 + 250 * i
        stamp = "{:02}:{:02}:{:02},{:03}"
        many.append((stamp.format(0, 0, at // 1000, at % 1000), stamp.format(0, 0, (at + 250) // 1000, (at + 250) % 1000),
                     WHITE.format(f"said {i}")))
    return ["\n".join((str(i + 1), f"{begin} --> {end}", text, "")) for i, (begin, end, text) in enumerate(many)]


def with_subtitles(load, golden, ranked):
    """Video-MME, whose frames a second and number OpenCV says, and LongVideoBench."""
    total, fps = 1200, 30.0
    capture = types.SimpleNamespace(get=lambda what: {"fps": fps, "count": total}[what])
    cv2 = types.SimpleNamespace(VideoCapture=lambda _: capture, CAP_PROP_FPS="fps", CAP_PROP_FRAME_COUNT="count")
    rows = [{"question_id": f"1-{i}", "videoID": f"v{i}", "question": QUESTIONS[0], "answer": "B", "duration": "short",
             "options": ["A. a red bus.", "B. Two dogs", "C. 12", "D. x"], "domain": "d", "task_type": "t"} for i in (1, 2)]
    files = {"video_mme/subtitle/v1.srt": sub_rip()}
    with tempfile.TemporaryDirectory() as folder:
        for name, lines in files.items():
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True)
            path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        mme = load("videomme/utils.py", "videomme_doc_to_text_subtitle", "extract_subtitles", "load_subtitles",
                   "parse_subtitle_time", "convert_time_to_frame", os=os, np=__import__("numpy"), cv2=cv2, re=re,
                   base_cache_dir=folder, cache_name="video_mme")
        prompts = [mme.videomme_doc_to_text_subtitle(row, {"frame_num": 32}) for row in rows]
    shown = __import__("numpy").linspace(0, total - 1, 32, dtype=int).tolist()
    for row in rows:
        place = f"video_mme/frames/{row['videoID']}"
        files |= {f"{place}/{i}.jpg": [f"frame {i}"] for i in shown}
        files[f"{place}/frames.json"] = [json.dumps({"fps": fps, "total": total})]
    frames = "".join(f"[picture {i + 1}]" for i in range(32))
    golden.add("video_mme/lmms_eval_subtitles", {"": rows} | files, [[frames + prompt] for prompt in prompts],
               [one(0, out, ranked.extract_mcq_answer(out, choices=list("ABCD")) == "B") for out in SAID],
               set={"container": "jsonl", "file": "video_mme/rows.jsonl", "group": ""})

    rows = [{"id": f"x_{i}", "video_id": f"v{i}", "question": QUESTIONS[1], "option0": "a red bus", "option1": "Two dogs",
             "option2": "12", "option3": "N/A", "option4": "N/A", "correct_choice": 1, "duration_group": 60,
             "question_category": "c", "duration": duration, "subtitle_path": f"v{i}_en.json",
             "starting_timestamp_for_subtitles": begin} for i, duration, begin in ((1, 40.5, 3), (2, 6.3, 0))]
    subtitles = {"longvideobench/subtitles/v1_en.json": [json.dumps([
        {"timestamp": [3.1, 3.4], "text": "at its {first} frame"}, {"timestamp": [5.6, 5.9], "text": "between two"},
        {"timestamp": [20, 30], "text": "its end is a whole number"}, {"timestamp": [20.0, 30.5], "text": "two\nlines"}])],
        "longvideobench/subtitles/v2_en.json": [json.dumps([
            {"start": "00:00:00.2", "end": "00:00:00.7", "line": "\u00c9t\u00e9 <image 3>"},
            {"start": "00:00:02", "end": "00:00:02.5", "line": "at the very time"},
            {"start": "00:00:09", "end": "00:00:20", "line": "behind it"}])]}
    files, texts = dict(subtitles), {pathlib.Path(name).name: lines[0] for name, lines in subtitles.items()}
    lvb = load("longvideobench/utils.py", "longvideobench_doc_to_text", "compute_frame_timestamps", "timestamp_to_seconds",
               "insert_subtitles_into_frames", "parse_multi_choice_response", json=json, os=os,
               _resolve_dataset_dir=lambda *_: ("", {}), open=lambda path: io.StringIO(texts[path]))
    prompts = []
    for row, rate in zip(rows, (10, 7)):
        place = f"longvideobench/frames/{row['video_id']}"
        # The rule of its load_video.
        count = min(16, int(row["duration"]))
        for i in range(count):
            at = int(int(row["duration"] * rate) / count) * i
            files[f"{place}/{at}.jpg"] = [f"frame {at}"]
        files[f"{place}/frames.json"] = [json.dumps({"fps": rate, "total": int(row["duration"] * rate) + 9})]
        text = lvb.longvideobench_doc_to_text(row, {"pre_prompt": "", "post_prompt": LETTER.strip() + "\n",
                                                    "insert_interleave_subtitles": True})
        for i in range(count):
            text = text.replace("<image>", f"[picture {i + 1}]", 1)
        assert "<image>" not in text
        prompts.append([text])
    golden.add("longvideobench/val_subtitles", {"": rows} | files, prompts,
               [one(0, out, lvb.parse_multi_choice_response(out, None, None) == "B") for out in SAID],
               set={"container": "jsonl", "file": "longvideobench/rows.jsonl"})


def videos(load, golden):
    """Prompts behind the frames. `shown` frames of a folder with as many."""

    def put(name, rows, folder, shown, prompt, score, before="", **more):
        files = {f"{folder}/{i}.jpg": [f"frame {i}"] for i in range(shown)}
        frames = "".join(f"[picture {i + 1}]" for i in range(shown))
        outputs = [one(i, out, lambda row=row, out=out: score(row, out))
                   for i, row in enumerate(rows) for out in SAID if score is not None]
        golden.add(name, {"": rows} | files, [[frames + before + prompt(row)] for row in rows], outputs,
                   set={"container": "jsonl", "file": f"{name.split('/')[0]}/rows.jsonl"} | more)

    ranked = sys.modules["lmms_eval.tasks._task_utils.mcq_extract"]
    mme = load("videomme/utils.py", "videomme_doc_to_text")
    rows = [{"question_id": "1-1", "videoID": "v1", "question": QUESTIONS[0], "options": ["A. a red bus.", "B. Two dogs", "C. 12", "D. x"],
             "answer": "B", "duration": "short", "domain": "d", "task_type": "t"}]
    put("video_mme/lmms_eval", rows, "video_mme/frames/v1", 32,
        lambda row: mme.videomme_doc_to_text(row, {"post_prompt": LETTER}),
        lambda row, out: ranked.extract_mcq_answer(out, choices=list("ABCD")).lower() == row["answer"].lower())
    with_subtitles(load, golden, ranked)
    lvb = load("longvideobench/utils.py", "longvideobench_doc_to_text", "parse_multi_choice_response")
    rows = [{"id": "x_0", "video_id": "v1", "question": QUESTIONS[1], "option0": "a red bus", "option1": "Two dogs", "option2": "12",
             "option3": "N/A", "option4": "N/A", "correct_choice": 1, "duration_group": 15, "question_category": "c", "duration": 8}]
    put("longvideobench/val", rows, "longvideobench/frames/v1", 16,
        lambda row: lvb.longvideobench_doc_to_text(row, {"pre_prompt": "", "post_prompt": LETTER.strip() + "\n"}),
        lambda row, out: lvb.parse_multi_choice_response(out, None, None) == "B", frame_rule="linspace")
    nextqa = load("nextqa/utils.py", "nextqa_doc_to_text_mc", "get_multi_choice_info", "parse_multi_choice_response",
                  OPTIONS=list("ABCDE"), np=__import__("numpy"))
    rows = [{"video": "v1", "question": QUESTIONS[1], "a0": "a red bus", "a1": "Two dogs", "a2": "12", "a3": "x", "a4": "yes",
             "answer": 1, "type": "CW"}]

    def nextqa_score(row, out):
        info, letters = nextqa.get_multi_choice_info(row)
        return nextqa.parse_multi_choice_response(out, letters, info) == "B"

    put("nextqa/multiple_choice", rows, "nextqa/frames/v1", 8, nextqa.nextqa_doc_to_text_mc, nextqa_score)
    # Its WUPS lemmatizes with a package of its own; ours is held on a dictionary of the tests.
    free = load("nextqa/utils.py", "nextqa_doc_to_text")
    ask = {"post_prompt": "\nAnswer a question using a short phrase or sentence."}
    rows = [{"video": "v1", "question": q, "answer": "a red bus", "type": "CW"} for q in QUESTIONS]
    put("nextqa/open", rows, "nextqa/frames/v1", 8, lambda row: free.nextqa_doc_to_text(row, ask), None)
    ego = load("egoschema/utils.py", "egoschema_doc_to_text", "parse_multi_choice_response", "get_multi_choice_info", np=__import__("numpy"))
    rows = [{"question_idx": "1", "video_idx": "v1", "question": QUESTIONS[0], "answer": "1",
             "option": ["A. a red bus", "B. Two dogs", "C. 12", "D. x", "E. yes"]}]

    def ego_score(row, out):
        info, letters = ego.get_multi_choice_info(row)
        try:
            return ego.parse_multi_choice_response(out, letters, info)[0] == "B"
        except AttributeError:
            return False

    put("egoschema/subset", rows, "egoschema/frames/v1", 32, ego.egoschema_doc_to_text, ego_score)
