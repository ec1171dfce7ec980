# SPDX-License-Identifier: Apache-2.0
"""Where ref-vlm looks at pictures: its answers when one layer's question does not see them, when only
one layer's does, and when rows of pictures are given up behind a layer, as FastV does.

Whole answers on held-out pages, teacher-forced, float32, from the directory that is shipped. Tables
for the model's card.
"""
import argparse
import json
import pathlib

import torch

import data
import export_vlm
import kinds
import pages
import vlm
from model import Shape, rotate


def load(directory):
    read = json.loads((directory / "config.json").read_text())
    text = read.get("text_config", read)
    shape = Shape(vocab=text["vocab_size"], width=text["hidden_size"],
                  layers=text["num_hidden_layers"], heads=text["num_attention_heads"],
                  kv_heads=text["num_key_value_heads"], head_dim=text.get("head_dim", text["hidden_size"] // text["num_attention_heads"]),
                  ffn=text["intermediate_size"], theta=text["rope_theta"], eps=text["rms_norm_eps"])
    weights = export_vlm.shipped(directory)
    kind = kinds.OF_FILES[read["model_type"]]
    eyes = kind(shape.width, len(pages.SHOWN))
    found = eyes.load_state_dict(weights["eyes"], strict=False)
    unread = [name for name in found.missing_keys if not name.startswith("present.")]
    if unread or found.unexpected_keys:
        raise SystemExit(f"{directory}: {unread} missing, {found.unexpected_keys} unknown")
    return vlm.text_model(weights["text"], shape, kind.SECTIONS), eyes


def attend(attention, x, cos, sin, visible, row):
    """The layer's output, and how much `row` looks at each place, mean over heads."""
    s, length = attention.s, x.shape[1]
    q, k, v = (part(x).view(1, length, -1, s.head_dim).transpose(1, 2)
               for part in (attention.q_proj, attention.k_proj, attention.v_proj))
    q, k = rotate(q, cos, sin), rotate(k, cos, sin)
    repeat = s.heads // s.kv_heads
    k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=visible)
    scores = torch.einsum("hd,hnd->hn", q[0, :, row], k[0]) / s.head_dim ** 0.5
    scores = scores.masked_fill(~visible[row], float("-inf"))
    return attention.o_proj(y.transpose(1, 2).reshape(1, length, -1)), scores.softmax(-1).mean(0)


class Page:
    """A page with one question, read once; what is asked of it goes on from some layer's input."""

    @torch.no_grad()
    def __init__(self, reader, page):
        self.llama = reader.llama
        ids, answer = pages.encode(page, reader.tokenizer, reader.signs)
        self.wanted = [(i - 1, ids[i]) for i, inside in enumerate(answer) if inside and ids[i] != 2]
        self.last = answer.index(True) - 1      # of the prompt
        self.seen = torch.tensor(ids) == reader.signs.image
        self.at = torch.arange(len(ids))
        self.behind = self.at > self.seen.nonzero().max()
        self.tables = [table.view(-1, *table.shape[-2:])[0] for table in vlm.tables(
            self.llama, torch.tensor([ids]), reader.signs.image, torch.float)]
        features = reader.eyes(reader.eyes.pixels_of(torch.from_numpy(page["pixels"])))
        x = vlm.rows_of(self.llama, torch.tensor([ids]), features, reader.signs.image)
        self.inputs, self.looks = [x], []       # of each layer; of the last row behind each
        for i in range(len(self.llama.model.layers)):
            x, looks = self.step(i, x, self.at, False)
            self.inputs.append(x)
            self.looks.append(looks)

    def step(self, i, x, at, blind):
        layer = self.llama.model.layers[i]
        visible = at[:, None] >= at[None]
        if blind:
            visible &= ~(self.behind[at][:, None] & self.seen[at][None])
        cos, sin = (table[at] for table in self.tables)
        row = int((at == self.last).nonzero())
        y, looks = attend(layer.self_attn, layer.input_layernorm(x), cos, sin, visible, row)
        x = x + y
        return x + layer.mlp(layer.post_attention_layernorm(x)), looks

    @torch.no_grad()
    def right(self, blind=(), behind=0, dropped=0.0, by_attention=True):
        """Whether the answer is right. `blind`: layers whose rows behind the pictures do not see them.
        `behind`: the number of layers after which a share of the pictures' rows goes."""
        start = min(blind) if blind else behind or len(self.inputs) - 1
        x, at = self.inputs[start], self.at
        if dropped:
            places = self.seen.nonzero().flatten()
            score = self.looks[behind - 1][places] if by_attention else torch.rand(len(places))
            stays = ~self.seen
            stays[places[score.topk(len(places) - int(dropped * len(places))).indices]] = True
            x, at = x[:, stays], at[stays]
        for i in range(start, len(self.llama.model.layers)):
            x, _ = self.step(i, x, at, i in blind)
        rows = torch.tensor([int((at == place).nonzero()) for place, _ in self.wanted])
        guess = self.llama.lm_head(self.llama.model.norm(x[0, rows])).argmax(-1)
        return guess.tolist() == [token for _, token in self.wanted]


class Reader:
    def __init__(self, directory):
        self.llama, self.eyes = load(directory)
        self.tokenizer, self.signs = pages.load_tokenizer(directory, self.eyes.AROUND)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--kvgauge", help="the program; default: from the build folders")
    parser.add_argument("--forms", default="pairs,pairs_digit")
    parser.add_argument("--pictures", type=int, default=16)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=4242)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    reader, program = Reader(args.model), data.find_program(args.kvgauge)
    layers = range(len(reader.llama.model.layers))
    parts = (0.25, 0.5, 0.75, 0.875, 0.95)
    for form in args.forms.split(","):
        ways = {"full": {}}
        for i in layers:
            ways[f"layer {i + 1} blind"] = {"blind": (i,)}
            ways[f"layer {i + 1} alone"] = {"blind": tuple(set(layers) - {i})}
        for behind in layers[1:]:
            for by_attention in (True, False):
                for part in parts:
                    name = "by attention" if by_attention else "at random"
                    ways[f"{part:.1%} given up behind layer {behind}, {name}"] = {
                        "behind": behind, "dropped": part, "by_attention": by_attention}
        right = dict.fromkeys(ways, 0)
        source = pages.Pages(program, (form,), args.pictures, args.seed, split="eval", questions=1)
        for _ in range(args.count):
            page = Page(reader, next(source))
            for name, how in ways.items():
                right[name] += page.right(**how)
        source.close()
        print(f"{form}, {args.pictures} pictures, {args.count} pages")
        for name, count in right.items():
            print(f"  {name:45} {count / args.count:.2f}", flush=True)


if __name__ == "__main__":
    main()
