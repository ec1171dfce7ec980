# SPDX-License-Identifier: Apache-2.0
"""Trains a tower and a projector, without a language model: each patch of a picture becomes the
embedding of the word it shows."""
import math
import time

import numpy as np
import torch
import torch.nn.functional as F

import pages
import vlm
from pages import COLOURS, GROUND, NOUNS, SHOWN, UNNAMED

FORMS = ("pairs", "beside", "needle", "pairs_digit", "frames")
PICTURES = 16       # of a page


class Pool:
    """Pictures of a split and what they show, from pages of all forms."""

    def __init__(self, program, seed, split):
        self.source = pages.Pages(program, FORMS, PICTURES, seed, split=split, questions=1)
        self.pixels, self.labels = [], []

    def take(self, count):
        while sum(map(len, self.pixels)) < count:
            page = next(self.source)
            self.pixels.append(page["pixels"])
            self.labels.append(pages.labels_of(page))
        pixels, labels = np.concatenate(self.pixels), np.concatenate(self.labels)
        self.pixels, self.labels = [pixels[count:]], [labels[count:]]
        return pixels[:count].copy(), labels[:count].copy()

    def close(self):
        self.source.close()


def blur_names(pixels, labels, share, rng):
    """Takes names away, in place: some things get other colour channels, and their colour has no name
    then; others get their rows shuffled, and their noun has none. Without it a tower learns nouns
    colour by colour and does not read those it has not seen in a colour."""
    for i, row, column in np.argwhere((labels >= 0) & (labels < len(COLOURS))):
        draw = rng.random()
        if draw >= 2 * share:
            continue
        box = pixels[i, 8 * row:8 * row + 8, 8 * column:8 * column + 16]
        if draw < share:
            order, turned = rng.permutation(3), rng.random(3) < 0.5
            if (order == np.arange(3)).all() and not turned.any():
                turned[:] = True
            box[:] = box[:, :, order]
            mirrored = np.clip(240 - box.astype(np.int16), 0, 255).astype(np.uint8)  # greys stay
            box[:, :, turned] = mirrored[:, :, turned]
            labels[i, row, column] = UNNAMED
        else:
            box[:] = box[rng.permutation(8)]
            labels[i, row, column + 1] = UNNAMED


class Targets:
    """What each patch should become. Backgrounds become vectors of the embeddings' size that say how
    the patch looks and where it is. One vector for all would make it easy for methods that keep what
    differs from the mean."""

    def __init__(self, table, ids, context=None, size=0.8):
        """`context`: qwen.Context, where eyes have to say what stands left of a patch."""
        self.context = context
        self.words = table[torch.tensor(ids)]
        self.middle = table.mean(0)
        self.spread = (self.words - self.middle).square().mean()
        # Directions in which the embeddings of words differ that no picture shows: a background is no
        # mixture of things.
        own = torch.linalg.svd(self.words - self.middle, full_matrices=False).Vh
        others = table - self.middle
        others = torch.linalg.svd(others - others @ own.T @ own, full_matrices=False).Vh[:48]
        g = torch.Generator().manual_seed(17)
        mix, _ = torch.linalg.qr(torch.randn(len(others), 12, generator=g))
        self.map = mix.T @ others                                            # [features, width]
        self.size = size * (self.words - self.middle).norm(dim=1).mean()
        at = (torch.arange(vlm.GRID) - (vlm.GRID - 1) / 2) / (vlm.GRID / 2)
        self.where = torch.stack(torch.meshgrid(at, at, indexing="ij"), -1).reshape(1, -1, 2)

    def grounds(self, images):
        """u8 [pictures, side, side, 3] -> [pictures, ROWS, width]."""
        grid, side = vlm.GRID, vlm.PATCH
        x = (images.float() - 120) / 24
        x = x.view(-1, grid, side, grid, side, 3).transpose(2, 3).flatten(1, 2)  # patch, y, x, rgb
        grey, half = x.mean(-1), side // 2
        features = torch.cat((
            torch.full((*x.shape[:2], 1), 0.5), x.mean((2, 3)), grey.flatten(2).std(2, keepdim=True),
            (grey[:, :, :half] - grey[:, :, half:]).mean((2, 3))[..., None],
            (grey[..., :half] - grey[..., half:]).mean((2, 3))[..., None],
            ((x[..., 0] - x[..., 2]).mean((2, 3)) * 2)[..., None],
            self.where.expand(len(x), -1, -1),
            (self.where * math.pi).sin().expand(len(x), -1, -1)), -1)
        return self.middle + self.size * F.normalize(features, dim=-1) @ self.map

    def loss(self, rows, present, images, labels):
        """The loss, and whether each patch is nearest to what it should be."""
        grounds = self.grounds(images)
        shown, named = labels >= 0, labels.clamp_min(0)
        weight = shown.float() + 0.4 * (labels == GROUND)
        wanted = torch.where(shown[..., None], self.words[named], grounds)
        rows, silent = rows.split((wanted.shape[-1], rows.shape[-1] - wanted.shape[-1]), -1)
        if self.context is not None:
            rows = rows - self.context(wanted)
            weight = weight * self.context.certain(labels != UNNAMED)
        error = (rows - wanted).square().sum(-1) + silent.square().sum(-1)
        error = error / wanted.shape[-1] / self.spread
        # Nearest word, or the patch's own background: scores are distances.
        scores = rows @ self.words.T - 0.5 * self.words.square().sum(1)
        own = (rows * grounds).sum(-1) - 0.5 * grounds.square().sum(-1)
        scores = torch.cat((scores, own[..., None]), -1)
        choice = torch.where(shown, named, len(self.words))
        chosen = F.cross_entropy((scores / self.spread / 16).flatten(0, 1), choice.flatten(),
                                 reduction="none").view_as(weight)
        counted = weight.sum()
        loss = ((error + 0.5 * chosen) * weight).sum() / counted
        if present is not None:
            words = torch.zeros(len(labels), len(SHOWN) + 1)
            words.scatter_(1, torch.where(shown, named, len(SHOWN)), 1.0)
            loss = loss + F.binary_cross_entropy_with_logits(present.float(), words[:, :-1])
        return loss, scores.argmax(-1) == choice


def kinds(labels):
    """Patches by what they show."""
    digits = len(COLOURS) + len(NOUNS)
    return {"colour": (labels >= 0) & (labels < len(COLOURS)),
            "noun": (labels >= len(COLOURS)) & (labels < digits), "digit": labels >= digits,
            "ground": labels == GROUND}


@torch.no_grad()
def shares_right(eyes, targets, pixels, labels):
    images, labels = torch.from_numpy(pixels), torch.from_numpy(labels).long().flatten(1)
    rows, present = eyes.forward_with_words(eyes.pixels_of(images))
    _, right = targets.loss(rows, present, images, labels)
    return {name: right[kind].float().mean().item() for name, kind in kinds(labels).items()}


def train(args, program, eyes, targets, log):
    rng = np.random.default_rng(args.seed)
    with torch.no_grad():
        eyes.start_at(targets.middle)
    matrices = eyes.matrices()
    chosen = {id(p) for p in matrices}
    others = [p for p in eyes.parameters() if id(p) not in chosen]
    optimizers = (
        (torch.optim.Muon(matrices, lr=0.02, weight_decay=0.0, momentum=0.95), 0.02),
        (torch.optim.AdamW(others, lr=1.5e-3, betas=(0.9, 0.95), weight_decay=0.0), 1.5e-3))
    pool, held = Pool(program, args.seed, "train"), Pool(program, args.seed + 1000, "eval")
    unseen = held.take(256)
    held.close()
    start, step, spent = time.time(), 0, 0.0
    while spent < 1:
        pixels, labels = pool.take(args.batch)
        blur_names(pixels, labels, args.unnamed, rng)
        images = torch.from_numpy(pixels)
        labels = torch.from_numpy(labels).long().flatten(1)
        with torch.autocast("cpu", torch.bfloat16):
            rows, present = eyes.forward_with_words(eyes.pixels_of(images))
        loss, right = targets.loss(rows.float(), present, images, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(eyes.parameters(), 1.0)
        rate = min(1.0, (step + 1) / 20) * min(1.0, (1 - spent) / 0.5)
        for optimizer, base in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = base * rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        step, spent = step + 1, (time.time() - start) / (60 * args.minutes)
        if step % 25 == 0 or spent >= 1:
            now = {name: right[kind].float().mean().item() for name, kind in kinds(labels).items()}
            log({"step": step, "seconds": round(time.time() - start, 1),
                 "loss": round(loss.item(), 4), "right": now,
                 "held_out": shares_right(eyes, targets, *unseen)})
            torch.save({"eyes": eyes.state_dict(), "step": step, "pictures": step * args.batch,
                        "seconds": time.time() - start}, args.work / "eyes.pt")
    pool.close()
