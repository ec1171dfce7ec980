# SPDX-License-Identifier: Apache-2.0
"""Trains ref-vlm and ref-vlm-mrope: their eyes, where one layer looks, then their text model on
pages with pictures. README.md has the why.

A stage lasts so many minutes: rates and lengths follow the clock, so that a slow machine gives a
finished, if weaker, model. `log.jsonl` says what was done.
"""
import argparse
import json
import pathlib
import time

import torch
import torch.nn.functional as F

import data
import export
import export_vlm
import eyes as eyes_stage
import pages
import qwen
import vlm
from kinds import EYES

LENGTHS = (256, 512, 1024, 2048, 4096)
EARLIEST = (0.0, 0.0, 0.06, 0.14, 0.26)  # share of the time after which a length may come
LATEST = (0.0, 0.12, 0.2, 0.3, 0.42)     # and after which it does
ALL_FORMS = 0.1                          # and after which all forms are in
HELD_OUT_EVERY = 40


class PageBatches:
    """Batches of pages. Half of the lengths' pages show few pictures and ask for all they hold, half
    show nearly as many as fit, so that its questions may be cut off. Pages whose pictures do not fit
    are left out."""

    def __init__(self, program, seed, tokenizer, signs, split="train"):
        self.program, self.seed, self.split = program, seed, split
        self.tokenizer, self.signs, self.running, self.turn = tokenizer, signs, {}, 0

    def get(self, length, forms, count):
        """names, ids, kind, pixels, labels."""
        rows, names, pixels, labels = [], [], [], []
        for _ in range(count):
            self.turn += 1
            pictures = length // (112 if self.turn % 2 == 0 else 70)
            key = (pictures, forms)
            if key not in self.running:
                self.running[key] = pages.Pages(self.program, forms, pictures, self.seed,
                                                split=self.split)
            row = None
            while row is None or row[0][:length].count(self.signs.image) < pages.ROWS * pictures:
                page = next(self.running[key])
                row = pages.encode(page, self.tokenizer, self.signs)
            rows.append(row)
            names.append(page["form"])
            pixels.append(torch.from_numpy(page["pixels"]))
            labels.append(torch.from_numpy(pages.labels_of(page)).long())
        ids, kind = pages.tensors(rows, length, self.signs.image)
        return names, ids, kind, torch.cat(pixels), torch.cat(labels)

    def close(self):
        for source in self.running.values():
            source.close()


class TextBatches:
    """Batches of the reference tasks' texts, so that they are not forgotten."""

    def __init__(self, program, seed, model, split="train"):
        self.program, self.seed, self.model, self.split = program, seed, model, split
        self.running = {}

    def get(self, length, count, tasks=data.TASKS):
        key = (length, tasks)
        if key not in self.running:
            self.running[key] = data.Texts(self.program, tasks, length, self.seed,
                                           split=self.split, model=str(self.model))
        texts = [next(self.running[key]) for _ in range(count)]
        ids, kind = pages.tensors([data.with_ends(text) for text in texts], length, image=-1)
        return ["text_" + text["task"] for text in texts], ids, kind, None, None

    def close(self):
        for source in self.running.values():
            source.close()


def loss_and_hits(llama, eyes, batch, image, swapped, looks=0.0):
    """As in train.py: tasks weigh by the root of their answer tokens, other tokens count little.
    `looks`: the weight of vlm.Looks."""
    names, ids, kind, pixels, labels = batch
    flat = kind.flatten()
    other = (flat == 0) & (torch.rand(flat.shape) < 0.25)
    picked = ((flat == 1) | other).nonzero().flatten()
    target = F.pad(ids[:, 1:], (0, 1), value=0).flatten()[picked]
    answer = flat[picked] == 1
    with torch.autocast("cpu", torch.bfloat16):
        features = None
        if pixels is not None:
            with torch.no_grad():
                features = eyes(eyes.pixels_of(pixels))
        values_from = vlm.swapped_values(ids, image, labels, things) if swapped else None
        looking = vlm.Looks(ids, kind, image, labels) if looks and pixels is not None else None
        scores = vlm.logits(llama, ids, features, image, picked, values_from, looking)
    scores = scores.float()
    each = F.cross_entropy(scores, target, reduction="none")
    right, row = scores.argmax(1) == target, picked // ids.shape[1]
    hits, weight = {}, torch.zeros_like(each)
    for name in sorted(set(names)):
        mine = torch.tensor([n == name for n in names])[row] & answer
        if mine.any():
            hits[name] = right[mine].float().mean().item()
            weight[mine] = mine.sum() ** -0.5
    loss = (each * weight).sum() / weight.sum() + 0.05 * each[~answer].mean()
    if looking is not None:
        loss = loss + looks * looking.loss
        hits["looks"] = round(looking.loss.item(), 3)  # 0: as wanted
    return loss, hits


def things(labels):
    kinds = eyes_stage.kinds(labels)
    return [kinds[name] for name in ("colour", "noun", "digit")]


def rounded(hits):
    return {name: round(hit, 3) for name, hit in sorted(hits.items())}


def start_of(args):
    state = export.origin(args.text_model)
    weights, shape = vlm.second_matching_layer(state["model"], state["shape"], args.share)
    if args.origin:
        weights = load_origin(args)["text"]
    if args.eyes == "qwen":
        weights, shape = qwen.widened(weights, shape.as_dict())
    return vlm.text_model(weights, shape, EYES[args.eyes].SECTIONS)


def optimizers_of(llama, args):
    """The embeddings stay as they are: the eyes were taught to speak in them."""
    llama.model.embed_tokens.requires_grad_(False)
    new = f"model.layers.{vlm.MATCHING}."
    matrices = {name: p for name, p in llama.named_parameters() if name.endswith("_proj.weight")}
    others = [p for name, p in llama.named_parameters() if name not in matrices and p.requires_grad]
    look = [new + f"self_attn.{name}_proj.weight" for name in "qk"]
    groups = [{"params": [matrices[name] for name in look], "base": args.muon_look},
              {"params": [p for name, p in matrices.items()
                          if name.startswith(new) and name not in look], "base": args.muon_new},
              {"params": [p for name, p in matrices.items() if not name.startswith(new)],
               "base": args.muon}]
    return (torch.optim.Muon(groups, lr=args.muon, weight_decay=0.0, momentum=0.95),
            torch.optim.AdamW([{"params": others, "base": args.adam}], lr=args.adam,
                              betas=(0.9, 0.95), weight_decay=0.0))


def load_eyes(args, width):
    eyes = EYES[args.eyes](width, len(pages.SHOWN))
    if args.origin and args.origin.is_dir() and not (args.work / "eyes.pt").is_file():
        # The reader of the class row is not shipped, and stages after the first do not use it.
        eyes.load_state_dict(export_vlm.shipped(args.origin)["eyes"], strict=False)
    else:
        eyes.load_state_dict(torch.load(args.work / "eyes.pt", weights_only=True)["eyes"])
    return eyes.requires_grad_(False)


def load_origin(args):
    """{"text": weights, "tokens": what they were trained on} of a checkpoint or a model's folder."""
    if args.origin.is_dir():
        return {"text": export_vlm.shipped(args.origin)["text"], "tokens": args.origin_tokens}
    state = torch.load(args.origin, weights_only=True)
    return {"text": state["text"], "tokens": state["at"]["tokens"]}


@torch.no_grad()
def speak_of_pictures(llama, tokenizer, signs):
    """Signs around pictures begin as the end of a line, which the text model knows between them."""
    table = llama.model.embed_tokens.weight
    for sign in (*signs.before, *signs.behind):
        if not table[sign].any():
            table[sign] = table[end_of_line(tokenizer)]


def end_of_line(tokenizer):
    return tokenizer.encode("a\n", add_special_tokens=False).ids[-1]


def train_looks(args, program, tokenizer, signs, log):
    """Queries and keys of the layer before the matching one, and nothing else."""
    llama = start_of(args)
    eyes = load_eyes(args, llama.shape.width)
    layer = llama.model.layers[vlm.MATCHING]
    llama.requires_grad_(False)
    trained = [layer.self_attn.q_proj.weight, layer.self_attn.k_proj.weight]
    for weight in trained:
        weight.requires_grad_(True)
    muon = torch.optim.Muon(trained, lr=args.muon_look, weight_decay=0.0, momentum=0.95)
    seen, image = PageBatches(program, args.seed + 2, tokenizer, signs), signs.image
    start, step, spent = time.time(), 0, 0.0
    while spent < 1:
        torch.manual_seed(args.seed * 1000003 + step)
        length = LENGTHS[int(torch.randint(0, len(LENGTHS), ()).item())]
        _, ids, kind, pixels, labels = seen.get(length, tuple(pages.FORMS), max(1, 4096 // length))
        looking = vlm.Looks(ids, kind, image, labels)
        with torch.no_grad():
            cos, sin = vlm.tables(llama, ids, image, torch.float)
            x = vlm.rows_of(llama, ids, eyes(eyes.pixels_of(pixels)), image)
            for before in llama.model.layers[:vlm.MATCHING]:
                x = before(x, cos, sin)
        looking.watch(layer, x, llama, ids)
        looking.loss.backward()
        for group in muon.param_groups:
            group["lr"] = args.muon_look * min(1.0, (step + 1) / 10) * min(1.0, (1 - spent) / 0.5)
        muon.step()
        muon.zero_grad(set_to_none=True)
        step, spent = step + 1, (time.time() - start) / (60 * args.minutes)
        if step % 10 == 0 or spent >= 1:
            log({"step": step, "length": length, "loss": round(looking.loss.item(), 4),
                 "seconds": round(time.time() - start, 1)})
    torch.save({"text": llama.state_dict()}, args.work / "looks.pt")
    seen.close()


def train_joint(args, program, tokenizer, signs, log):
    llama = start_of(args)
    if not args.origin:
        llama.load_state_dict(torch.load(args.work / "looks.pt", weights_only=True)["text"])
    eyes = load_eyes(args, llama.shape.width)
    optimizers = optimizers_of(llama, args)
    seen, image = PageBatches(program, args.seed, tokenizer, signs), signs.image
    read = TextBatches(program, args.seed + 1, args.text_model)
    held = PageBatches(program, args.seed + 1000, tokenizer, signs, split="eval")
    level, everything, smooth, tokens = 0, False, {}, 0
    if args.origin:
        speak_of_pictures(llama, tokenizer, signs)
        level, everything, tokens = len(LENGTHS) - 1, True, load_origin(args)["tokens"]
    step, spent, before = 0, 0.0, 0.0
    run = {name: str(value) for name, value in vars(args).items()}
    running = args.work / "joint.pt"
    state = torch.load(running, weights_only=True) if running.is_file() else {"run": None}
    if state["run"] == run and state["spent"] < 1:
        llama.load_state_dict(state["text"])
        for optimizer, values in zip(optimizers, state["optimizers"]):
            optimizer.load_state_dict(values)
        level, everything, smooth = state["level"], state["everything"], state["smooth"]
        step, tokens, spent = state["at"]["step"], state["at"]["tokens"], state["spent"]
        before = state["at"]["seconds"]
        print(f"goes on behind step {step}", flush=True)
        # Other texts than those that were read: streams begin anew.
        for source in (seen, read):
            source.seed += 17 * step
    del state
    start = time.time() - before
    while spent < 1:
        torch.manual_seed(args.seed * 1000003 + step)
        at = level
        if level > 0 and torch.rand(()).item() < args.shorter:
            at = int(torch.randint(min(args.least, level - 1), level, ()).item())
        length, textual = LENGTHS[at], torch.rand(()).item() < args.text
        swapped = not textual and torch.rand(()).item() < args.swapped
        if textual:
            # Long texts from the first step on: the text model knows them already.
            length = LENGTHS[int(torch.randint(1, len(LENGTHS), ()).item())]
            chosen = args.tasks if torch.rand(()).item() < args.chosen else data.TASKS
            batch = read.get(length, max(1, args.tokens // length), chosen)
        else:
            batch = seen.get(length, tuple(pages.FORMS) if everything else pages.FIRST,
                             max(1, args.tokens // length))
        loss, hits = loss_and_hits(llama, eyes, batch, image, swapped, args.looks)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(llama.parameters(), 1.0)
        rate = min(1.0, (step + 1) / 10) * min(1.0, (1 - spent) / args.cooldown)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["base"] * rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        step, tokens = step + 1, tokens + batch[1].numel()
        spent = (time.time() - start) / (60 * args.minutes)
        if not textual and at == level and swapped == (args.swapped >= 0.5):
            for form, hit in hits.items():
                smooth[form] = 0.8 * smooth.get(form, hit) + 0.2 * hit
        solved = step > 15 and all(smooth.get(form, 0) > 0.9 for form in pages.FIRST)
        if not everything:
            everything = solved or spent >= ALL_FORMS
            if everything:
                print(f"step {step}: all forms", flush=True)
        elif level + 1 < len(LENGTHS) and spent >= (EARLIEST if solved else LATEST)[level + 1]:
            level, smooth = level + 1, {}
            print(f"step {step}: length {LENGTHS[level]}", flush=True)
        entry = {"step": step, "length": length, "swapped": swapped, "loss": round(loss.item(), 4),
                 "seconds": round(time.time() - start, 1), "tokens": tokens, "right": rounded(hits)}
        if step % HELD_OUT_EVERY == 0:
            now = LENGTHS[min(level, step // HELD_OUT_EVERY % 4 + 1)]
            with torch.no_grad():
                entry["held_out"] = {"length": now, "right": rounded(loss_and_hits(
                    llama, eyes, held.get(now, tuple(pages.FORMS), 7), image, False)[1])}
        log(entry)
        if step % args.save_every == 0 or spent >= 1:
            temporary = args.work / "joint.new"
            torch.save({"eyes": eyes.state_dict(), "text": llama.state_dict(), "at": entry,
                        "shape": llama.shape.as_dict(), "run": run, "spent": spent,
                        "level": level, "everything": everything, "smooth": smooth,
                        "optimizers": [optimizer.state_dict() for optimizer in optimizers]},
                       temporary)
            temporary.replace(running)
    for source in (seen, read, held):
        source.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stage", choices=("eyes", "looks", "joint"))
    parser.add_argument("--work", type=pathlib.Path, required=True, help="checkpoints and log")
    parser.add_argument("--text-model", type=pathlib.Path, default=data.ROOT / "models/ref-gqa")
    parser.add_argument("--eyes", choices=EYES, default="clip",
                        help="clip: LLaVA's; qwen: Qwen2-VL's, with its positions of three axes")
    parser.add_argument("--kvgauge", help="the program; default: from the build folders")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, required=True, help="length of the stage")
    parser.add_argument("--threads", type=int, default=2)
    eyes = parser.add_argument_group("stage eyes")
    eyes.add_argument("--batch", type=int, default=128, help="pictures a step")
    eyes.add_argument("--unnamed", type=float, default=0.3,
                      help="share of things whose colour has no name, and again whose noun has none")
    joint = parser.add_argument_group("stage joint")
    joint.add_argument("--from", dest="origin", type=pathlib.Path, metavar="CHECKPOINT",
                       help="go on with its text model: all forms and lengths from the first step; "
                       "give another --seed; a model's folder brings its eyes as well, where the "
                       "work folder has none")
    joint.add_argument("--origin-tokens", type=int, default=0,
                       help="what a model's folder was trained on")
    joint.add_argument("--tokens", type=int, default=8192, help="a step")
    joint.add_argument("--text", type=float, default=0.25, help="share of steps on texts")
    joint.add_argument("--chosen", type=float, default=0.0,
                       help="share of the steps on texts that read --tasks alone")
    joint.add_argument("--tasks", type=lambda names: tuple(names.split(",")),
                       default=("passages", "copying", "longbench_synthetic", "longbench_code"))
    joint.add_argument("--swapped", type=float, default=0.3, help="share of the steps with pictures "
                       "in which the first matching layer finds false values in them")
    joint.add_argument("--share", type=float, default=0.0,
                       help="of what the second matching layer writes at first")
    joint.add_argument("--shorter", type=float, default=0.4,
                       help="share of the steps that stay on pages shorter than the present length")
    joint.add_argument("--least", type=int, default=0, choices=range(len(LENGTHS)),
                       help="the shortest of those, by its number")
    joint.add_argument("--cooldown", type=float, default=0.45, help="share of the time to zero rate")
    joint.add_argument("--muon", type=float, default=0.005)
    joint.add_argument("--muon-new", type=float, default=0.001, help="of the layer before")
    joint.add_argument("--muon-look", type=float, default=0.003, help="of its queries and keys")
    joint.add_argument("--looks", type=float, default=0.2, help="weight of where that layer looks")
    joint.add_argument("--adam", type=float, default=5e-4)
    joint.add_argument("--save-every", type=int, default=10)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    args.work.mkdir(parents=True, exist_ok=True)
    program = data.find_program(args.kvgauge)
    tokenizer, signs = pages.load_tokenizer(args.text_model, EYES[args.eyes].AROUND)
    file = open(args.work / "log.jsonl", "a", buffering=1)

    def log(entry):
        file.write(json.dumps({"stage": args.stage, **entry}) + "\n")
        names = ("right", "held_out")
        print(" ".join([args.stage] + [f"{k} {v}" for k, v in entry.items() if k not in names]
                       + [f"{k} {v}" for k, v in entry.items() if k in names]), flush=True)

    if args.stage == "eyes":
        table = export.origin(args.text_model)["model"]["model.embed_tokens.weight"]
        width, context = table.shape[1], None
        if args.eyes == "qwen":
            state = export.origin(args.text_model)
            narrow = vlm.text_model(*vlm.second_matching_layer(state["model"], state["shape"]))
            if args.origin:
                narrow.load_state_dict(load_origin(args)["text"])
            context = qwen.Context(narrow, end_of_line(tokenizer))
            width = narrow.shape.heads * narrow.shape.head_dim
        eyes_stage.train(args, program, EYES[args.eyes](width, len(pages.SHOWN)),
                         eyes_stage.Targets(table, pages.patch_ids(tokenizer), context), log)
    elif args.stage == "looks":
        train_looks(args, program, tokenizer, signs, log)
    else:
        train_joint(args, program, tokenizer, signs, log)


if __name__ == "__main__":
    main()
