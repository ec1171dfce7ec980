# SPDX-License-Identifier: Apache-2.0
"""A small Qwen2-VL for training: a tower whose patches turn by line and column, a merger of squares
of patches, and a reference Llama in a wider stream whose keys turn by time, line and column.
Parameter names are those of Hugging Face's checkpoints."""
import math

import torch
import torch.nn.functional as F
from torch import nn

import vlm
from model import SHIFTS, Shape, rotate

PATCH, MERGE = vlm.PATCH // 2, 2
GRID = vlm.SIDE // PATCH
LAYERS = 3
SECTIONS = (8, 12, 12)      # rotary pairs of time, line and column, in the shares of Qwen2-VL
IMAGE, VIDEO = vlm.IMAGE, "<video>"
BEGINS, ENDS = "<|vision_start|>", "<|vision_end|>"
AROUND = ((BEGINS,), (ENDS,), (VIDEO,))


# -------------------------------------------------------------------------------------- the text model

def widened(weights, shape, seed=5):
    """The weights of a Llama in a stream as wide as its heads together: Qwen2-VL has no head_dim of
    its own. New channels are silent, so the model computes what it did; what reads them is not zero,
    so that training can use them. Wide weights stay as they are."""
    g, width = torch.Generator().manual_seed(seed), shape["width"]
    new = shape["heads"] * shape["head_dim"]
    wide, grown = Shape(**{**shape, "width": new}), {}
    if len(weights["model.norm.weight"]) == new:
        return weights, wide
    for name, weight in weights.items():
        if name.endswith(("layernorm.weight", "norm.weight")):
            # A norm is the mean over all channels, of which the new ones are zero.
            weight = torch.cat((weight, torch.ones(new - width))) * math.sqrt(width / new)
        elif name.endswith(("o_proj.weight", "down_proj.weight")):
            weight = F.pad(weight, (0, 0, 0, new - width))
        else:
            more = torch.zeros(len(weight), new - width)
            if name.endswith("_proj.weight"):
                more = torch.randn(len(weight), new - width, generator=g) * 0.3 / math.sqrt(new)
            weight = torch.cat((weight, more), 1)
        grown[name] = weight.contiguous()
    return grown, wide


# ------------------------------------------------------------------------------------------- the tower

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(vlm.WIDTH, 3 * vlm.WIDTH), nn.Linear(vlm.WIDTH, vlm.WIDTH)

    def forward(self, x, cos, sin):
        pictures, rows, _ = x.shape
        q, k, v = self.qkv(x).view(pictures, rows, 3, vlm.HEADS, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v)
        return self.proj(y.transpose(1, 2).reshape(pictures, rows, -1))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(vlm.WIDTH, 1e-6), Attention()
        self.norm2, self.mlp = nn.LayerNorm(vlm.WIDTH, 1e-6), vlm.ClipMlp()

    def forward(self, x, cos, sin):
        x = x + self.attn(self.norm1(x), cos, sin)
        return x + self.mlp(self.norm2(x))


def by_squares(x):
    """[pictures, GRID, GRID, ...] -> [pictures, GRID * GRID, ...]: square by square."""
    side = GRID // MERGE
    x = x.unflatten(1, (side, MERGE)).unflatten(3, (side, MERGE)).transpose(2, 3)
    return x.flatten(1, 4)


class Tower(nn.Module):
    def __init__(self, text_width):
        super().__init__()
        self.patch_embed, self.merger = nn.Module(), nn.Module()
        # One picture stands for both frames of a pair: one kernel, which is halved where it is saved.
        self.patch_embed.proj = nn.Conv2d(3, vlm.WIDTH, PATCH, PATCH, bias=False)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.merger.ln_q = nn.LayerNorm(vlm.WIDTH, 1e-6)
        wide = MERGE * MERGE * vlm.WIDTH
        self.merger.mlp = nn.Sequential(nn.Linear(wide, wide), nn.GELU(), nn.Linear(wide, text_width))
        at = torch.arange(GRID)
        where = by_squares(torch.stack(torch.meshgrid(at, at, indexing="ij"), -1)[None])[0]
        spatial = vlm.WIDTH // vlm.HEADS // 2
        frequencies = 1e4 ** (-torch.arange(0, spatial, 2).double() / spatial)
        angle = (where[..., None].double() * frequencies).flatten(1).repeat(1, 2)
        self.cos, self.sin = angle.cos().float(), angle.sin().float()

    def forward(self, pixels):
        x = self.patch_embed.proj(pixels).permute(0, 2, 3, 1)
        x = by_squares(x)
        for block in self.blocks:
            x = block(x, self.cos.to(x.dtype), self.sin.to(x.dtype))
        return self.merger.mlp(self.merger.ln_q(x).unflatten(1, (-1, MERGE * MERGE)).flatten(2))


class Eyes(nn.Module):
    AROUND, SECTIONS = AROUND, SECTIONS

    def __init__(self, text_width, words):
        super().__init__()
        del words   # no class row has to know them
        self.visual = Tower(text_width)

    def matrices(self):
        return [p for p in self.visual.blocks.parameters() if p.dim() == 2]

    def start_at(self, middle):
        self.visual.merger.mlp[2].bias[:len(middle)].copy_(middle)

    @staticmethod
    def pixels_of(images):
        return vlm.normalised(images, vlm.MEAN, vlm.STD)

    @staticmethod
    def as_given(pixels):
        """As its processor lays them out: patches square by square, each twice."""
        x = pixels.unflatten(2, (GRID, PATCH)).unflatten(4, (GRID, PATCH))
        x = by_squares(x.permute(0, 2, 4, 1, 3, 5)).flatten(0, 1)       # patch, colour, y, x
        return x[:, :, None].expand(-1, -1, 2, -1, -1).flatten(1)

    def forward(self, pixels):
        """Rows of the prompt, [pictures, ROWS, text width]."""
        return self.visual(pixels)

    def forward_with_words(self, pixels):
        return self(pixels), None


class Context:
    """What the first layer of a reference Llama would bring each patch of its left neighbours, if a
    line of patches was a line of text. Positions of three axes do not let that layer see what stands
    left of a patch, so the eyes have to say it."""

    def __init__(self, llama, end_of_line):
        self.llama, self.line = llama, llama.model.embed_tokens.weight[end_of_line].detach()

    @torch.no_grad()
    def __call__(self, wanted):
        """[pictures, ROWS, narrow width] -> the same."""
        lines = wanted.unflatten(1, (vlm.GRID, vlm.GRID)).flatten(0, 1)
        lines = torch.cat((self.line.expand(len(lines), SHIFTS, -1), lines), 1)
        layer = self.llama.model.layers[0]
        cos, sin = self.llama.table(lines.shape[1], torch.float)
        brought = layer.self_attn(layer.input_layernorm(lines), cos, sin)[:, SHIFTS:]
        return brought.reshape(wanted.shape)

    @staticmethod
    def certain(named):
        """Whether all that a patch and those left of it show has a name."""
        lines = named.view(-1, 1, vlm.GRID).float()
        return (F.max_pool1d(F.pad(1 - lines, (SHIFTS, 0)), SHIFTS + 1, 1) == 0).view(named.shape)


# ------------------------------------------------------------------------------------------- its files

def names_shipped(state):
    """A checkpoint's parameters under the names of Qwen2-VL's files. Biases of queries, keys and
    values are none."""
    weights = {}
    for name, value in state["text"].items():
        weights[name] = value
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
            weights[name.replace("weight", "bias")] = torch.zeros(len(value))
    for name, value in state["eyes"].items():
        if name.endswith("patch_embed.proj.weight"):
            value = value[:, :, None].repeat(1, 1, 2, 1, 1) / 2
        weights[name] = value
    return weights


def config(text, signs):
    for key in ("architectures", "head_dim", "attention_bias", "mlp_bias", "pretraining_tp",
                "rope_scaling", "torch_dtype", "model_type"):
        text.pop(key)
    tower = {"model_type": "qwen2_vl", "depth": LAYERS, "embed_dim": vlm.WIDTH,
             "hidden_act": "quick_gelu", "hidden_size": text["hidden_size"], "in_channels": 3,
             "in_chans": 3, "mlp_ratio": 4, "num_heads": vlm.HEADS, "patch_size": PATCH,
             "spatial_merge_size": MERGE, "spatial_patch_size": PATCH, "temporal_patch_size": 2}
    return {"architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl",
            "image_token_id": signs.image, "video_token_id": signs.others[0],
            "vision_start_token_id": signs.before[0], "vision_end_token_id": signs.behind[0],
            **text, "rope_scaling": {"type": "mrope", "mrope_section": list(SECTIONS)},
            "use_sliding_window": False, "torch_dtype": "bfloat16", "vision_config": tower}


def preprocessor():
    pixels = vlm.SIDE * vlm.SIDE
    return {"image_processor_type": "Qwen2VLImageProcessor", "do_convert_rgb": True,
            "do_resize": True, "resample": 3, "min_pixels": pixels, "max_pixels": pixels,
            "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
            "image_mean": list(vlm.MEAN), "image_std": list(vlm.STD), "patch_size": PATCH,
            "merge_size": MERGE, "temporal_patch_size": 2}


def processor():
    return {"processor_class": "Qwen2VLProcessor"}
