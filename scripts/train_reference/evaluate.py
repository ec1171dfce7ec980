"""Scores a Hugging Face directory on held-out pages, given as text, with greedy answers.

A score is the share of whole answers that are right. Uses nothing of the training model.
"""
import argparse
import json
import pathlib
import re

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

import tasks
import vocabulary

TASKS = {  # name -> (task, options)
    "copying": ("copying", {}),
    "key_value": ("key_value", {}),
    "needle": ("needles", {"counts": (1,)}),
    "needles_16": ("needles", {"counts": (16,)}),
    "labels_seen": ("labels", {"new": 0.0}),
    "labels_new": ("labels", {"new": 1.0}),
    "passages": ("passages", {}),
    "journeys": ("journeys", {}),
}


def clean(text):
    """An answer ends at the first full stop, closing bracket or line end."""
    return re.split(r"[.)\n]", text.strip())[0].strip()


def question(codec, name, length, index, seed):
    task, options = TASKS[name]
    page = tasks.make(codec, task, length, tasks.HELD_OUT, seed, index, limit=1, **options)
    prompt, answer = tasks.prompt_and_answer(page)
    if name == "copying":  # six words are enough to tell
        answer = " ".join(answer.split()[:6])
    return prompt, answer


@torch.no_grad()
def greedy(model, tokenizer, prompt, most):
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=most,
                         do_sample=False, pad_token_id=2)
    return ids.shape[1], tokenizer.decode(out[0, ids.shape[1]:], skip_special_tokens=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--lengths", default="256,512,1024,2048,4096")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--samples", type=pathlib.Path, help="write every question and answer here")
    parser.add_argument("--scores", type=pathlib.Path, help="write the table here as JSON")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=getattr(torch, args.dtype)).eval()
    codec = vocabulary.Codec(args.model / "tokenizer.model")
    table, samples = {}, []
    for name in args.tasks.split(","):
        for length in map(int, args.lengths.split(",")):
            right = 0
            for index in range(args.count):
                prompt, answer = question(codec, name, length, index, args.seed)
                size, text = greedy(model, tokenizer, prompt, len(codec.encode_piece(answer)) + 2)
                got = clean(text)
                if name == "copying":
                    got = " ".join(got.split()[:6])
                right += got == answer
                samples.append({"task": name, "length": size, "prompt": prompt, "answer": answer,
                                "hf_greedy": got})
            table.setdefault(name, {})[length] = right / args.count
        print(name.ljust(12), table[name], flush=True)
    if args.samples:
        with open(args.samples, "w") as out:
            for sample in samples:
                out.write(json.dumps(sample) + "\n")
    if args.scores:
        args.scores.write_text(json.dumps({"count": args.count, "seed": args.seed,
                                           "scores": table}, indent=2) + "\n")


if __name__ == "__main__":
    main()
