# SPDX-License-Identifier: Apache-2.0
"""Scores a model that sees with transformers on held-out pages with pictures, greedy answers.

The harness's own scores (kvgauge run) are those of a model's card; this is the second opinion. Pages
ask what those of `kvgauge run` with seed 0 ask, by their ids, but `data generate` places the things
of pages with several cells elsewhere, so a single answer may differ.
"""
import argparse
import json
import pathlib

import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor
from transformers.utils import logging

import data
import kinds
import pages
import vlm

TASKS = ("pairs", "needle", "pairs_digit", "beside", "frames", "fact")


@torch.no_grad()
def greedy(model, processor, prompt, images, most):
    """Text, and the least lead of a chosen token over the next best."""
    given = processor(text=prompt, images=images, return_tensors="pt")
    out = model.generate(**given, max_new_tokens=most, do_sample=False, pad_token_id=2,
                         output_logits=True, return_dict_in_generate=True)
    lead = min((best[0, 0] - best[0, 1]).item() for best in
               (logits.topk(2).values for logits in out.logits))
    size = given["input_ids"].shape[1]
    return size, processor.tokenizer.decode(out.sequences[0, size:], skip_special_tokens=True), lead


def with_marks(text, eyes):
    """The text with what stands around a picture's sign in its prompts."""
    before, behind, _ = map("".join, eyes.AROUND)
    return text.replace(vlm.IMAGE, before + vlm.IMAGE + behind)


def check_processor(model, eyes, processor, page, images):
    """The processor's ids and pixels are those of training."""
    tokenizer, signs = pages.load_tokenizer(model, eyes.AROUND)
    given = processor(text=with_marks(page["text"], eyes), images=images, return_tensors="pt")
    ids, _ = pages.encode({**page, "answers": []}, tokenizer, signs)
    pixels = eyes.as_given(eyes.pixels_of(torch.from_numpy(page["pixels"])))
    print("processor: ids equal", given["input_ids"][0].tolist() == ids, "pixels differ by",
          (given["pixel_values"] - pixels).abs().max().item())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--kvgauge", help="the program; default: from the build folders")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--pictures", default="4,16,48")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--samples", type=pathlib.Path, help="write every page and answer here")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    logging.disable_progress_bar()
    program = data.find_program(args.kvgauge)
    eyes = kinds.OF_FILES[json.loads((args.model / "config.json").read_text())["model_type"]]
    processor = AutoProcessor.from_pretrained(args.model)
    model, loading = AutoModelForImageTextToText.from_pretrained(
        args.model, dtype=torch.float32, output_loading_info=True)
    print("loading:", {name: found for name, found in loading.items() if found} or "all names fit")
    model, samples, checked = model.eval(), [], False
    for task in args.tasks.split(","):
        row = []
        for pictures in map(int, args.pictures.split(",")):
            source = pages.Pages(program, (task,), pictures, seed=0, split="eval", questions=1,
                                 as_shipped=True)
            right, leads = 0, []
            for _ in range(args.count):
                page = next(source)
                begin, end = page["answers"][0]
                prompt = with_marks(page["text"][:begin], eyes)
                answer = page["text"][begin:end].strip()
                images = [Image.fromarray(pixels) for pixels in page["pixels"]]
                if not checked:
                    check_processor(args.model, eyes, processor, page, images)
                    checked = True
                size, text, lead = greedy(model, processor, prompt, images, 8)
                right += text.split("\n")[0].strip() == answer
                leads.append(lead)
                samples.append({"task": f"visual/{task}", "pictures": pictures, "id": page["id"],
                                "length": size, "prompt": prompt, "answer": answer,
                                "hf_greedy": text, "lead": round(lead, 3)})
            source.close()
            row.append(f"{pictures} pictures: {right}/{args.count}, least lead {min(leads):.2f}")
        print(task.ljust(14), "   ".join(row), flush=True)
    if args.samples:
        with open(args.samples, "w") as out:
            for sample in samples:
                out.write(json.dumps(sample) + "\n")


if __name__ == "__main__":
    main()
