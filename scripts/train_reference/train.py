"""Trains a reference model. Seeded; continues from its last checkpoint when started again."""
import argparse
import json
import pathlib
import time

import torch
import torch.nn.functional as F

import tasks
import vocabulary
from model import Llama, Shape, structured_start

LENGTHS = (128, 256, 512, 1024, 2048, 4096)
EARLIEST = (0.0, 0.0, 0.02, 0.1, 0.2, 0.5)  # share of the steps after which a length may come


class Batches:
    """Step -> batch. A step's content follows from the seed and the step alone."""

    def __init__(self, codec, seed, tokens):
        self.codec, self.seed, self.tokens = codec, seed, tokens

    def get(self, step, stage, everything):
        rng = tasks.stream(tasks.TRAIN, self.seed, "step", step)
        level = stage if stage == 0 or rng.random() < 0.35 else rng.randrange(stage)
        length = LENGTHS[level]
        names = list(tasks.TASKS) if everything else list(tasks.FIRST)
        rows = []
        order = []
        for row in range(self.tokens // length):
            if not order:
                order = rng.sample(names, len(names))
            task = order.pop()
            # Every fourth page has few questions, as the pages of a benchmark have.
            limit = 10**6 if rng.random() < 0.75 else rng.randrange(1, 4)
            page = tasks.make(self.codec, task, length, tasks.TRAIN, self.seed, f"{step}/{row}",
                              limit=limit)
            rows.append((task, page))
        ids = torch.full((len(rows), length), 2)
        kind = torch.full((len(rows), length), -1, dtype=torch.int8)  # 1 answer, 0 other, -1 none
        for i, (_, page) in enumerate(rows):
            n = min(len(page.ids), length)
            ids[i, :n] = torch.tensor(page.ids[:n])
            kind[i, :n - 1] = torch.tensor(page.counts[1:n], dtype=torch.int8)
        return [task for task, _ in rows], ids, kind, length


def loss_and_hits(model, names, ids, kind, everywhere=0.25):
    """The loss, and per task the share of answer tokens guessed right."""
    flat = kind.flatten()
    other = (flat == 0) & (torch.rand(flat.shape) < everywhere)
    picked = ((flat == 1) | other).nonzero().flatten()
    target = F.pad(ids[:, 1:], (0, 1), value=0).flatten()[picked]
    answer = flat[picked] == 1
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(ids, picked)
    logits = logits.float()
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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=pathlib.Path, required=True, help="checkpoints and log")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--vocab", type=int, default=1280)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--cooldown", type=float, default=0.4, help="share of steps to zero rate")
    parser.add_argument("--tokens", type=int, default=8192, help="tokens a step")
    parser.add_argument("--longest", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--muon", type=float, default=0.02)
    parser.add_argument("--adam", type=float, default=3e-3)
    parser.add_argument("--save-every", type=int, default=50)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    args.work.mkdir(parents=True, exist_ok=True)
    if not (args.work / "tokenizer.model").exists():
        vocabulary.train(args.work / "tokenizer.model", args.vocab)
    codec = vocabulary.Codec(args.work / "tokenizer.model")
    batches = Batches(codec, args.seed, args.tokens)

    model = Llama(Shape(vocab=args.vocab))
    structured_start(model, args.seed)
    matrices = [p for n, p in model.named_parameters() if n.endswith("_proj.weight")]
    others = [p for n, p in model.named_parameters() if not n.endswith("_proj.weight")]
    muon = torch.optim.Muon(matrices, lr=args.muon, weight_decay=0.0, momentum=0.95)
    adam = torch.optim.AdamW(others, lr=args.adam, betas=(0.9, 0.95), weight_decay=0.0)

    step, stage, everything, seconds, tokens = 0, 0, False, 0.0, 0
    smooth = {}
    checkpoint = args.work / "checkpoint.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        muon.load_state_dict(state["muon"])
        adam.load_state_dict(state["adam"])
        step, stage, everything, seconds, tokens, smooth = state["progress"]

    def save():
        temporary = checkpoint.with_suffix(".new")
        torch.save({"model": model.state_dict(), "muon": muon.state_dict(),
                    "adam": adam.state_dict(), "shape": vars(model.shape),
                    "progress": (step, stage, everything, seconds, tokens, smooth)}, temporary)
        temporary.replace(checkpoint)

    if args.steps == 0:  # the start alone, to be looked at
        save()
    last_level = LENGTHS.index(args.longest)
    log = open(args.work / "log.jsonl", "a", buffering=1)
    while step < args.steps:
        begin = time.time()
        torch.manual_seed(args.seed * 1000003 + step)
        names, ids, kind, length = batches.get(step, stage, everything)
        loss, hits = loss_and_hits(model, names, ids, kind)
        loss.backward()
        grad = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
        scale = rate(step, args.steps, args.cooldown) * min(1.0, (step + 1) / 10)
        # Half the Muon rate once the first length is solved.
        for optimizer, base in ((muon, args.muon * (1.0 if stage == 0 else 0.5)),
                                (adam, args.adam)):
            for g in optimizer.param_groups:
                g["lr"] = base * scale
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        step += 1
        tokens += ids.numel()
        seconds += time.time() - begin
        if length == LENGTHS[stage]:
            for task, hit in hits.items():
                smooth[task] = 0.8 * smooth.get(task, hit) + 0.2 * hit
        log.write(json.dumps({"step": step, "length": length, "loss": round(loss.item(), 4),
                              "grad": round(grad, 3), "seconds": round(seconds, 1),
                              "tokens": tokens,
                              "right": {t: round(h, 3) for t, h in sorted(hits.items())}}) + "\n")
        solved = all(smooth.get(task, 0) > 0.9 for task in ("copying", "key_value"))
        if solved and not everything:
            everything = True
            print(f"step {step}: all tasks from here", flush=True)
        elif solved and stage < last_level and step >= EARLIEST[stage + 1] * args.steps:
            stage += 1
            smooth = {}
            print(f"step {step}: length {LENGTHS[stage]}", flush=True)
        if step % args.save_every == 0 or step == args.steps:
            save()
        if step % 20 == 0:
            print(f"step {step} length {length} loss {loss.item():.3f} {seconds:.0f} s "
                  f"{tokens / seconds:.0f} tokens/s "
                  + " ".join(f"{t} {h:.2f}" for t, h in sorted(hits.items())), flush=True)


if __name__ == "__main__":
    main()
