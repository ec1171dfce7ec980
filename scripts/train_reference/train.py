# SPDX-License-Identifier: Apache-2.0
"""Trains a reference model. Seeded; continues from its last checkpoint when started again."""
import argparse
import json
import pathlib
import shutil
import time

import torch
import torch.nn.functional as F

import data
import export
import vocabulary
from model import VARIANTS, build, converted, structured_start

LENGTHS = (128, 256, 512, 1024, 2048, 4096)
EARLIEST = (0.0, 0.0, 0.02, 0.1, 0.2, 0.4)  # share of the steps after which a length may come
HELD_OUT_EVERY = 25
CHAIN_VOCABULARY = 1024


class Batches:
    """Batches of whole texts. One generator runs per length and named set of tasks; a continued run
    asks each for the text that would have come next."""

    def __init__(self, program, folder, seed, tokens, split="train"):
        self.program, self.folder, self.seed = program, folder, seed
        self.tokens, self.split = tokens, split
        self.taken, self.running = {}, {}

    def get(self, length, which, tasks):
        name = f"{length}/{which}"
        if name not in self.running:
            self.running[name] = data.Texts(
                self.program, tasks, length, self.seed,
                split=self.split, model=self.folder, first=self.taken.get(name, 0))
        source = self.running[name]
        texts = [next(source) for _ in range(self.tokens // length)]
        self.taken[name] = source.taken
        ids = torch.full((len(texts), length), 2)
        kind = torch.full((len(texts), length), -1, dtype=torch.int8)  # 1 answer, 0 other, -1 none
        for i, text in enumerate(texts):
            row, answer = data.with_ends(text)
            ids[i, :len(row)] = torch.tensor(row)
            kind[i, :len(row) - 1] = torch.tensor(answer[1:], dtype=torch.int8)
        return [text["task"] for text in texts], ids, kind


def loss_and_hits(model, names, ids, kind, device, everywhere=0.25):
    """The loss, and per task the share of answer tokens guessed right."""
    flat = kind.flatten()
    other = (flat == 0) & (torch.rand(flat.shape) < everywhere)
    picked = ((flat == 1) | other).nonzero().flatten()
    target = F.pad(ids[:, 1:], (0, 1), value=0).flatten()[picked]
    answer = flat[picked] == 1
    with torch.autocast(device, torch.bfloat16):
        logits = model(ids.to(device), picked.to(device))
    logits = logits.float().cpu() if device != "cpu" else logits.float()
    each = F.cross_entropy(logits, target, reduction="none")
    right = (logits.argmax(1) == target)
    row = picked // ids.shape[1]
    hits, weight = {}, torch.zeros_like(each)
    for task in sorted(set(names)):
        mine = torch.tensor([name == task for name in names])[row] & answer
        if mine.any():
            hits[task] = right[mine].float().mean().item()
            # Copying has a hundred answer tokens where a needle has one: tasks weigh by their root.
            weight[mine] = mine.sum() ** -0.5
    loss = (each * weight).sum() / weight.sum() + 0.05 * each[~answer].mean()
    return loss, hits


def rate(step, total, cooldown):
    start = total * (1 - cooldown)
    return 1.0 if step < start else max(0.0, (total - step) / (total - start))


def tasks_of(everything, alone):
    """The name of the set of tasks that a step draws from, and the tasks."""
    if alone:
        return ",".join(alone), alone
    return ("all", data.TASKS) if everything else ("first", data.FIRST)


def rounded(hits):
    return {task: round(hit, 3) for task, hit in sorted(hits.items())}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=pathlib.Path, required=True, help="checkpoints and log")
    parser.add_argument("--variant", choices=sorted(VARIANTS), default="gqa")
    parser.add_argument("--from", dest="origin", type=pathlib.Path, metavar="CHECKPOINT",
                        help="begin with another Llama variant's weights, its KV heads copied or "
                        "merged, and its tokenizer, all tasks and its next texts; of a model's "
                        "directory the same, but texts begin anew: give another --seed")
    parser.add_argument("--kvgauge", help="the program; default: from the build folders")
    parser.add_argument("--chain", action="store_true",
                        help="chains of numbers and nothing else, with a tokenizer of their own")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--cooldown", type=float, default=0.4, help="share of steps to zero rate")
    parser.add_argument("--tokens", type=int, default=8192, help="tokens a step")
    parser.add_argument("--shorter", type=float, default=0.4,
                        help="share of the steps that stay on texts shorter than the present length")
    parser.add_argument("--more", default="copying,pairs", help="tasks to see more often")
    parser.add_argument("--more-share", type=float, default=0.0,
                        help="share of the steps, once all tasks are in, that have only those")
    parser.add_argument("--longest", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--muon", type=float, default=0.02)
    parser.add_argument("--adam", type=float, default=3e-3)
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--keep", type=int, default=[], nargs="*", metavar="STEP",
                        help="keep the checkpoints of these steps as checkpoint-STEP.pt")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    args.work.mkdir(parents=True, exist_ok=True)
    program = data.find_program(args.kvgauge)
    if args.origin:
        for name in vocabulary.FILES:
            if not (args.work / name).exists():
                folder = args.origin if args.origin.is_dir() else args.origin.parent
                shutil.copy(folder / name, args.work / name)
    if not (args.work / "tokenizer.json").exists():
        if args.chain:  # one digit is one token, with the space before it
            vocabulary.train(args.work / "tokenizer.model", program, data.CHAIN, CHAIN_VOCABULARY,
                             split_digits=False)
        else:
            vocabulary.train(args.work / "tokenizer.model", program)
    batches = Batches(program, args.work, args.seed, args.tokens)
    held_out = Batches(program, args.work, args.seed + 1000, args.tokens, split="eval")

    alone = data.CHAIN if args.chain else ()
    model = build(args.variant, vocabulary.size_of(args.work))
    structured_start(model, args.seed)
    last_level = LENGTHS.index(args.longest)
    at = {"step": 0, "stage": 0, "everything": False, "seconds": 0.0, "tokens": 0, "smooth": {},
          "starts": 0}
    at["everything"] = bool(alone)
    checkpoint = args.work / "checkpoint.pt"
    if args.origin and not checkpoint.exists():
        state = export.origin(args.origin) if args.origin.is_dir() else torch.load(
            args.origin, weights_only=True, map_location="cpu")
        model.load_state_dict(converted(state["model"], state["shape"], model.shape))
        batches.taken = state["taken"]
        at.update(stage=last_level, everything=True,
                  origin={"file": args.origin.name, "variant": state["arguments"]["variant"],
                          "step": state["at"]["step"], "tokens": state["at"]["tokens"]})
    model.to(args.device)
    matrices = [p for n, p in model.named_parameters() if n.endswith("_proj.weight")]
    others = [p for n, p in model.named_parameters() if not n.endswith("_proj.weight")]
    muon = torch.optim.Muon(matrices, lr=args.muon, weight_decay=0.0, momentum=0.95)
    adam = torch.optim.AdamW(others, lr=args.adam, betas=(0.9, 0.95), weight_decay=0.0)

    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        muon.load_state_dict(state["muon"])
        adam.load_state_dict(state["adam"])
        at, batches.taken = state["at"], state["taken"]
    at["starts"] += 1

    def save():
        temporary = checkpoint.with_suffix(".new")
        torch.save({"model": model.state_dict(), "muon": muon.state_dict(),
                    "adam": adam.state_dict(), "shape": model.shape.as_dict(),
                    "at": at, "taken": batches.taken, "arguments": {
                        "variant": args.variant, "seed": args.seed, "steps": args.steps,
                        "tokens": args.tokens, "shorter": args.shorter, "cooldown": args.cooldown,
                        "more": args.more, "more_share": args.more_share,
                        "muon": args.muon, "adam": args.adam}}, temporary)
        temporary.replace(checkpoint)
        if at["step"] in args.keep:
            shutil.copy(checkpoint, args.work / f"checkpoint-{at['step']}.pt")

    if args.steps == 0:  # the start alone, to be looked at
        save()
    log = open(args.work / "log.jsonl", "a", buffering=1)
    while at["step"] < args.steps:
        begin, step = time.time(), at["step"]
        torch.manual_seed(args.seed * 1000003 + step)
        level = at["stage"]
        if level > 0 and torch.rand(()).item() < args.shorter:
            level = int(torch.randint(level, ()).item())
        length = LENGTHS[level]
        which, tasks = tasks_of(at["everything"], alone)
        if at["everything"] and torch.rand(()).item() < args.more_share:
            which, tasks = args.more, tuple(args.more.split(","))
        names, ids, kind = batches.get(length, which, tasks)
        loss, hits = loss_and_hits(model, names, ids, kind, args.device)
        loss.backward()
        grad = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
        scale = rate(step, args.steps, args.cooldown) * min(1.0, (step + 1) / 10)
        # Half the Muon rate once the first length is solved.
        for optimizer, base in ((muon, args.muon * (1.0 if at["stage"] == 0 else 0.5)),
                                (adam, args.adam)):
            for g in optimizer.param_groups:
                g["lr"] = base * scale
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        step += 1
        at["step"], at["tokens"] = step, at["tokens"] + ids.numel()
        at["seconds"] += time.time() - begin
        if level == at["stage"]:
            for task, hit in hits.items():
                at["smooth"][task] = 0.8 * at["smooth"].get(task, hit) + 0.2 * hit
        entry = {"step": step, "length": length, "loss": round(loss.item(), 4),
                 "grad": round(grad, 3), "seconds": round(at["seconds"], 1),
                 "tokens": at["tokens"], "right": rounded(hits)}
        if step % HELD_OUT_EVERY == 0:
            length = LENGTHS[step // HELD_OUT_EVERY % (at["stage"] + 1)]
            with torch.no_grad():
                _, unseen = loss_and_hits(model, *held_out.get(
                    length, *tasks_of(at["everything"], alone)), args.device)
            entry["held_out"] = {"length": length, "right": rounded(unseen)}
        log.write(json.dumps(entry) + "\n")
        solved = all(at["smooth"].get(task, 0) > 0.9 for task in alone or ("copying", "pairs"))
        if solved and not at["everything"]:
            at["everything"] = True
            print(f"step {step}: all tasks from here", flush=True)
        elif solved and at["stage"] < last_level and \
                step >= EARLIEST[at["stage"] + 1] * args.steps:
            at["stage"] += 1
            at["smooth"] = {}
            print(f"step {step}: length {LENGTHS[at['stage']]}", flush=True)
        if step % args.save_every == 0 or step == args.steps or step in args.keep:
            save()
        if step % 10 == 0:
            print(f"step {step} length {ids.shape[1]} loss {loss.item():.3f} "
                  f"{at['seconds']:.0f} s {at['tokens'] / at['seconds']:.0f} tokens/s "
                  + " ".join(f"{t.removeprefix('longbench_')} {h:.2f}"
                             for t, h in sorted(hits.items())), flush=True)


if __name__ == "__main__":
    main()
