# SPDX-License-Identifier: Apache-2.0
"""Scores a Hugging Face directory with transformers on held-out prompts, greedy answers.

The harness's own scores (kvgauge run) are those of the model cards; this is the second opinion and
the source of samples.jsonl, against which the tests hold the harness's answers.
"""
import argparse
import json
import pathlib
import subprocess

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

import data

STOPS = {"pairs": "\n", "passages": ")", "longbench_summary": "\n", "longbench_code": ";"}


def prompts(program, model, task, length, count, seed):
    """The samples as the harness would ask them."""
    source = json.loads((data.ROOT / "configs/tasks/reference" / f"{task}.json").read_text())
    source["source"]["lengths"] = str(length)
    path = pathlib.Path(model).parent / f".{task}-{length}.json"
    path.write_text(json.dumps(source))
    try:
        lines = subprocess.run(
            [program, "sample", str(path), "--n", str(count), "--seed", str(seed), "--json",
             "--model", str(model)], check=True, capture_output=True, text=True).stdout
    finally:
        path.unlink()
    for line in lines.splitlines():
        sample = json.loads(line)
        question = sample["questions"][0]
        yield (sample["context"] + question["text"] + question["answer_prefix"],
               question["answers"][0], question["max_new_tokens"])


@torch.no_grad()
def greedy(model, tokenizer, prompt, most):
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=most,
                         do_sample=False, pad_token_id=2)
    new = out[0, ids.shape[1]:]
    return ids.shape[1], tokenizer.decode(new, skip_special_tokens=True), bool((new == 2).any())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--kvgauge", help="the program; default: from the build folders")
    parser.add_argument("--lengths", default="512,1024,2048,4096")
    parser.add_argument("--count", type=int, default=22)
    parser.add_argument("--tasks", default=",".join(data.TASKS + ("needle",)))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--samples", type=pathlib.Path, help="write every prompt and answer here")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    logging.disable_progress_bar()
    program = data.find_program(args.kvgauge)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    samples = []
    for task in args.tasks.split(","):
        row = []
        for length in map(int, args.lengths.split(",")):
            right = ended = 0
            for prompt, answer, most in prompts(program, args.model, task, length, args.count,
                                                args.seed):
                size, text, end = greedy(model, tokenizer, prompt, most)
                got = text.split(STOPS.get(task, "."))[0].strip()
                right += got == answer
                ended += end
                samples.append({"task": task, "length": size, "prompt": prompt, "answer": answer,
                                "hf_greedy": text})
            row.append(f"{length}: {right}/{args.count}, {ended} ended")
        print(task.ljust(26), "   ".join(row), flush=True)
    if args.samples:
        with open(args.samples, "w") as out:
            for sample in samples:
                out.write(json.dumps(sample) + "\n")


if __name__ == "__main__":
    main()
