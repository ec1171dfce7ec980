# SPDX-License-Identifier: Apache-2.0
"""A small LLaVA for training: a CLIP tower, a projector, and a reference Llama with a second layer
of matching heads. Parameter names are those of Hugging Face's checkpoints."""
import math

import torch
import torch.nn.functional as F
from torch import nn

from model import Llama, Shape, rotate

SIDE, PATCH = 64, 8
GRID = SIDE // PATCH
ROWS = GRID * GRID          # of a picture in the prompt
WIDTH, LAYERS, HEADS = 128, 3, 4
MEAN = (0.48145466, 0.4578275, 0.40821073)   # CLIP's
STD = (0.26862954, 0.26130258, 0.27577711)
IMAGE = "<image>"
VOCABULARY = 1856           # the text model's, the sign for a picture, and up to the next 64
MATCHING = 1                # the layer of a reference Llama whose heads find what stood before


class TowerAttention(nn.Module):
    def __init__(self):
        super().__init__()
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            setattr(self, name, nn.Linear(WIDTH, WIDTH))

    def forward(self, x):
        batch, rows, _ = x.shape
        q, k, v = (part(x).view(batch, rows, HEADS, -1).transpose(1, 2)
                   for part in (self.q_proj, self.k_proj, self.v_proj))
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out_proj(y.transpose(1, 2).reshape(batch, rows, WIDTH))


class ClipMlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = self.fc1(x)
        return self.fc2(x * torch.sigmoid(1.702 * x))  # quick_gelu


class TowerLayer(nn.Module):
    def __init__(self, mlp):
        super().__init__()
        self.layer_norm1, self.self_attn = nn.LayerNorm(WIDTH), TowerAttention()
        self.layer_norm2, self.mlp = nn.LayerNorm(WIDTH), mlp

    def forward(self, x):
        x = x + self.self_attn(self.layer_norm1(x))
        return x + self.mlp(self.layer_norm2(x))


class ClipEmbeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.class_embedding = nn.Parameter(torch.randn(WIDTH) * 0.02)
        self.patch_embedding = nn.Conv2d(3, WIDTH, PATCH, PATCH, bias=False)
        self.position_embedding = nn.Embedding(ROWS + 1, WIDTH)
        nn.init.normal_(self.position_embedding.weight, std=0.02)

    def forward(self, pixels):
        x = self.patch_embedding(pixels).flatten(2).transpose(1, 2)
        return (torch.cat((self.class_embedding.expand(len(x), 1, -1), x), 1)
                + self.position_embedding.weight)


class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = ClipEmbeddings()
        self.pre_layrnorm = nn.LayerNorm(WIDTH)  # spelled like that
        self.encoder = nn.Module()
        self.encoder.layers = nn.ModuleList(TowerLayer(ClipMlp()) for _ in range(LAYERS))
        self.post_layernorm = nn.LayerNorm(WIDTH)

    def patches(self, pixels):
        """What LLaVA reads: all rows of the last layer but one; the first is the class row."""
        x = self.pre_layrnorm(self.embeddings(pixels))
        for layer in self.encoder.layers[:-1]:
            x = layer(x)
        return x


class Projector(nn.Module):
    def __init__(self, text_width):
        super().__init__()
        self.linear_1, self.linear_2 = nn.Linear(WIDTH, text_width), nn.Linear(text_width, text_width)

    def forward(self, x):
        return self.linear_2(F.gelu(self.linear_1(x)))


class Eyes(nn.Module):
    """Tower and projector. `present` exists while training: it reads from the class row which words
    a picture shows, as CLIP's class row has to know, so that its attention says something."""
    AROUND = ((), (), ())   # signs of the prompt: before a picture's rows, behind them, others
    SECTIONS = None

    def __init__(self, text_width, words):
        super().__init__()
        self.vision_model = Clip()
        self.multi_modal_projector = Projector(text_width)
        self.present = nn.Linear(WIDTH, words)

    def matrices(self):
        return [p for p in self.vision_model.encoder.parameters() if p.dim() == 2]

    def start_at(self, middle):
        self.multi_modal_projector.linear_2.bias.copy_(middle)

    @staticmethod
    def pixels_of(images):
        return normalised(images, MEAN, STD)

    @staticmethod
    def as_given(pixels):
        """As its processor lays them out."""
        return pixels

    def forward(self, pixels):
        """Rows of the prompt, [pictures, ROWS, text width]."""
        return self.multi_modal_projector(self.vision_model.patches(pixels)[:, 1:])

    def forward_with_words(self, pixels):
        rows = self.vision_model.patches(pixels)
        last = self.vision_model.encoder.layers[-1](rows)[:, 0]
        return (self.multi_modal_projector(rows[:, 1:]),
                self.present(self.vision_model.post_layernorm(last)))


def normalised(images, mean, std):
    """u8 [pictures, SIDE, SIDE, 3] -> what a preprocessor gives."""
    x = images.float() / 255
    return ((x - torch.tensor(mean)) / torch.tensor(std)).permute(0, 3, 1, 2).contiguous()


def second_matching_layer(weights, shape, share=0.0, sharp=0.25):
    """A reference Llama's weights with one more layer before the matching one: its copy, which looks
    where that one looks, less sharply. `share`: of what the copy's heads write. Its MLP begins
    silent, so without a share the model computes what it did."""
    grown, copied = {}, {}
    for name, weight in weights.items():
        if not name.startswith("model.layers."):
            grown[name] = weight.clone()
            continue
        layer, rest = name.removeprefix("model.layers.").split(".", 1)
        layer = int(layer)
        grown[f"model.layers.{layer + (layer >= MATCHING)}.{rest}"] = weight.clone()
        if layer == MATCHING:
            copied[rest] = weight.clone()
    copied["self_attn.o_proj.weight"] *= share
    copied["self_attn.q_proj.weight"] *= sharp
    copied["mlp.down_proj.weight"].zero_()
    grown |= {f"model.layers.{MATCHING}.{rest}": weight for rest, weight in copied.items()}
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        more = torch.zeros(VOCABULARY - len(grown[name]), grown[name].shape[1])
        grown[name] = torch.cat((grown[name], more))
    return grown, Shape(**{**shape, "layers": shape["layers"] + 1, "vocab": VOCABULARY})


def text_model(weights, shape, sections=None):
    """`sections`: rotary pairs of time, line and column, for a model with positions of three axes."""
    llama = Llama(shape)
    llama.load_state_dict(weights)
    llama.sections = sections
    return llama


def positions(ids, image):
    """Of three axes, [3, pages, length]: time, line and column. A picture takes as many steps as its
    longer side."""
    seen = ids == image
    nth = seen.cumsum(1) - 1
    at = nth % ROWS
    step = torch.where(seen, torch.where(at == ROWS - 1, GRID, 0), 1)
    time = step.cumsum(1) - step
    line, column = (torch.where(seen, part, 0) for part in (at // GRID, at % GRID))
    return torch.stack((time, time + line, time + column))


def tables(llama, ids, image, dtype):
    """cos and sin of each place: [length, head_dim], or [pages, 1, length, head_dim] where keys turn by
    three axes."""
    if llama.sections is None:
        return llama.table(ids.shape[1], dtype)
    at = positions(ids, image).double()
    axis = torch.arange(3).repeat_interleave(torch.tensor(llama.sections))
    angle = at[axis].permute(1, 2, 0) * llama.frequencies()
    angle = angle.repeat(1, 1, 2)[:, None]
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rows_of(llama, ids, features, image):
    """The input of the first layer: embeddings, and a picture's rows at its signs."""
    x = llama.model.embed_tokens(ids)
    if features is None:
        return x
    return x.masked_scatter((ids == image)[..., None], features.to(x.dtype).flatten(0, 1))


def logits(llama, ids, features, image, picked, values_from=None, looking=None):
    """Logits of the picked places of the flattened batch. `values_from`: as in model.Attention, for
    the layer before the matching one. `looking`: a `Looks` that watches that layer."""
    kind = ids.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float
    cos, sin = tables(llama, ids, image, dtype)
    x = rows_of(llama, ids, features, image)
    for i, layer in enumerate(llama.model.layers):
        if i == MATCHING and looking is not None:
            looking.watch(layer, x, llama, ids)
        x = layer(x, cos, sin, **({"values_from": values_from} if i == MATCHING else {}))
    return llama.lm_head(llama.model.norm(x.flatten(0, 1)[picked]))


class Looks:
    """Where the last rows of questions look, among the pictures' rows, in the layer before the
    matching one: at things, and at one as much as at another, is what `loss` wants."""

    def __init__(self, ids, kind, image, labels, most=4):
        self.image, self.seen = image, ids == image
        self.shown, self.loss = labels.flatten() >= 0, 0.0
        begins = (kind == 1) & (F.pad(kind, (1, 0))[:, :-1] != 1)
        self.rows = [row.nonzero().flatten() for row in begins]
        self.rows = [row[torch.randperm(len(row))[:most]] for row in self.rows]

    def watch(self, layer, x, llama, ids):
        attention, s = layer.self_attn, llama.shape
        pages, at = 0, 0
        with torch.autocast(x.device.type, enabled=False):
            turns = (table.view(-1, *table.shape[-2:]).expand(len(x), -1, -1)
                     for table in tables(llama, ids, self.image, torch.float))
            for page, seen, rows, cos, sin in zip(x, self.seen, self.rows, *turns):
                shown = self.shown[at:at + int(seen.sum())]
                at += len(shown)
                if not len(rows) or not shown.any():
                    continue
                h = layer.input_layernorm(page.float()).detach()
                q = attention.q_proj(h[rows]).view(len(rows), s.heads, -1).transpose(0, 1)
                k = attention.k_proj(h).view(len(h), s.kv_heads, -1).transpose(0, 1)
                q, k = rotate(q, cos[rows], sin[rows]), rotate(k, cos, sin)
                scores = q @ k.repeat_interleave(s.heads // s.kv_heads, 0).mT / s.head_dim ** 0.5
                later = torch.arange(len(h)) > rows[:, None]
                scores = scores.masked_fill(later, -1e9).log_softmax(-1)
                looks = scores.logsumexp(0)[:, seen].log_softmax(-1)    # of the mean over heads
                self.loss = self.loss - looks[:, shown].mean() - math.log(int(shown.sum()))
                pages += 1
        self.loss = self.loss / max(1, pages)


def swapped_values(ids, image, labels, kinds):
    """For a batch, values_from: each digit of a picture stands for any other, each colour and each
    noun as well, so that what the first matching layer finds is as likely as false."""
    values_from = torch.arange(ids.numel())
    seen = (ids.flatten() == image).nonzero().flatten()
    for kind in kinds(labels.flatten()):
        alike = seen[kind]
        values_from[alike] = alike[torch.randperm(len(alike))]
    return values_from
