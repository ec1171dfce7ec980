# SPDX-License-Identifier: Apache-2.0
"""MileBench: its 29 sets, which are of four kinds."""

import json
import sys
import types

import task_goldens
from task_goldens import load, one

REPOSITORY = "MileBench/MileBench"
COMMIT = "9583e1fe23ef0017e96ad4d53da0be40259547e1"
HOW = (
    "MileBenchDataset of utils.py with a tokenizer of one token for each character and room for all;"
    " Eval of evaluate.py"
)
PACKAGES = ("rouge",)


class Characters:
    """A tokenizer that gives every text back."""

    def __call__(self, text, add_special_tokens=False):
        return types.SimpleNamespace(input_ids=list(text))

    @staticmethod
    def decode(ids):
        return "".join(ids)


def make(root, golden):
    sys.modules["workers"] = types.ModuleType("workers")
    workers = types.ModuleType("workers.model_workers")
    workers.LLaVA = object
    sys.modules["workers.model_workers"] = workers
    torch = types.ModuleType("torch")
    torch.__path__ = []
    utils, data = types.ModuleType("torch.utils"), types.ModuleType("torch.utils.data")
    utils.__path__ = []
    data.Dataset, data.DataLoader = object, object
    sys.modules |= {"torch": torch, "torch.utils": utils, "torch.utils.data": data}
    dataset = load(root / "utils.py", "milebench_utils").MileBenchDataset
    scorer = load(root / "evaluate.py", "milebench_evaluate").Eval()
    instructions = ["Look at the pictures.", "Second {image#1} instruction\n"]

    def put(names, kind, records, score, said):
        annotation = [
            {"sample_id": i, "task_instruction_id": i % 2, "image_quantity_level": "Few", "response": response,
             "task_instance": {"context": context, "images_path": images} | ({"choice_list": choices} if choices else {})}
            for i, (context, images, choices, response) in enumerate(records)]
        made = dataset(annotation=annotation, task_instructions=instructions, img_dir="images", max_context_len=10**9,
                       n_tokens_per_image=1, tokenizer=Characters(), dataset_name=names[0])
        prompts = []
        for i in range(len(annotation)):
            text = made[i]["context"]
            head, rest = text[: len(instructions[i % 2])], text[len(instructions[i % 2]):]
            for n in range(len(annotation[i]["task_instance"]["images_path"])):
                rest = rest.replace("<ImageHere>", f"[picture {n + 1}]", 1)
            prompts.append([head + rest])
        whole = json.dumps({"meta_data": {"task_instruction": instructions, "question_type": kind}, "data": annotation})
        pictures = {f"milebench/{name}/images/{p}": [p] for name in names for p in ("a.jpg", "b.jpg", "c/d.jpg")}
        outputs = [one(i, out, lambda a=a, out=out: score(a, out)) for i, a in enumerate(annotation) for out in said]
        tasks = ["milebench/" + name.lower().replace("-", "_") for name in names]
        golden.add(tasks, {"": [whole]} | pictures, prompts, outputs)

    def choice(record, out):
        sample = {"sample_id": 1, "gt_response": record["response"], "pred_response": out,
                  "choice_list": list(record["task_instance"]["choice_list"])}
        scorer.process_sample(sample)
        return scorer.judge_multi_choice(sample)[0]

    def rouge(record, out):
        gold, said = scorer.process(record["response"]), scorer.process(out)
        return 0 if said == "" else sys.modules["milebench_evaluate"].Rouge().get_scores(said, gold)[0]["rouge-l"]["f"]

    options = ["Put the bag down.", "took (a) bag", "3.5", "C. x"]
    many = [f"class {i}" for i in range(30)]
    records = [("First {image#1}, then {image#2}. What?", ["a.jpg", "b.jpg"], options, options[1]),
               ("{image#1}{table#2} {image#3}\nWhich one", ["a.jpg", "b.jpg", "c/d.jpg"], options, options[3]),
               ("No mark at all?", ["a.jpg"], options, options[0])]
    said = ["B", "b. took (a) bag", "took (a) bag", "A. Put the bag down", "", "C. x", "D", "putthebagdown", "AB", "none"]
    put("""ActionLocalization ActionPrediction ActionSequence CharacterOrder CounterfactualInference DocVQA
        EgocentricNavigation MovingAttribute MovingDirection MultiModalQA OCR-VQA ObjectExistence ObjectInteraction
        ObjectShuffle SceneTransition SlideVQA StateChange TQA WebQA WikiVQA nuscenes""".split(),
        "multi-choice", records, choice, said)
    put(["GPR1200"], "multi-choice", [("Which? {image#1}", ["a.jpg"], many, many[28])], choice,
        ["class 28", "AC", "class 2", "28", ""])
    records = [("Before {image#1} and after {image#2}: what changed?", ["a.jpg", "b.jpg"], None, "The red bus, it left.")]
    put(["Spot-the-Diff", "ALFRED", "CLEVR-Change", "IEdit"], "open-ended", records, rouge, ["the red bus", "The bus left", "", "a, b", "red bus it left"])
    put(["TextNeedleInAHaystack", "ImageNeedleInAHaystack"], "open-ended", [("See {image#1}", ["a.jpg"], None, "Zebra")],
        lambda r, out: scorer.process(r["response"]) in scorer.process(out).split(), ["zebra", "The Zebra.", "zebras", ""])
    put(["MMCoQA"], "open-ended", [("See {image#1}", ["a.jpg"], None, "Red bus")],
        lambda r, out: scorer.process(r["response"]) in scorer.process(out), ["a red buss", "red  bus", "Red bus!", ""])
