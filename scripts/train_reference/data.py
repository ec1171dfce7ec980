# SPDX-License-Identifier: Apache-2.0
"""Texts from `kvgauge data generate`: the only source of what the models are trained on."""
import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIRST = ("copying", "pairs", "labels")  # alone until key matching has formed
TASKS = FIRST + ("needles_16", "tracing", "passages", "longbench_single_doc_qa",
                 "longbench_multi_doc_qa", "longbench_summary", "longbench_few_shot",
                 "longbench_synthetic", "longbench_code")
CHAIN = ("chain",)  # what ref-chain learns, and nothing else


def find_program(given):
    places = [given] if given else [ROOT / "build" / preset / "harness" / "kvgauge"
                                    for preset in ("release", "dev", "default")]
    for place in places:
        if pathlib.Path(place).is_file():
            return str(place)
    raise SystemExit("kvgauge not found: build it, or name it with --kvgauge")


class Texts:
    """The texts of some tasks at one length, in turn, from the `first` on; without end."""

    def __init__(self, program, tasks, length, seed, split="train", model=None, first=0, texts=0,
                 questions=0):
        command = [program, "data", "generate", "--lengths", str(length), "--seed", str(seed),
                   "--split", split, "--first", str(first), "--questions", str(questions)]
        for task in tasks:
            command += ["--task", str(ROOT / "configs/tasks/reference" / f"{task}.json")]
        if model:
            command += ["--model", str(model)]
        if texts:
            command += ["--texts", str(texts)]
        self.taken = first
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)

    def __iter__(self):
        return self

    def __next__(self):
        line = self.process.stdout.readline()
        if not line:
            if self.process.wait() != 0:
                raise RuntimeError("kvgauge data generate failed")
            raise StopIteration
        self.taken += 1
        text = json.loads(line)
        text["task"] = text["task"].removeprefix("reference/")
        return text

    def close(self):
        self.process.stdout.close()
        self.process.kill()
        self.process.wait()


def with_ends(text, bos=1, eos=2):
    """(ids, answer): BOS in front, an end sign after each answer; which ids belong to answers."""
    ids, answer, at = [bos], [False], 0
    for begin, end in text["id_answers"]:
        ids += text["ids"][at:end] + [eos]
        answer += [False] * (begin - at) + [True] * (end - begin + 1)
        at = end
    ids += text["ids"][at:]
    answer += [False] * (len(text["ids"]) - at)
    return ids, answer
