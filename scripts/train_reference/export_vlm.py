# SPDX-License-Identifier: Apache-2.0
"""Writes a checkpoint of train_vlm.py as a plain Hugging Face directory: LLaVA or Qwen2-VL, as its eyes
are."""
import argparse
import itertools
import json
import pathlib
import shutil
import sys

import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import data
import export
import pages
import qwen
import vlm

AROUND = vlm.Eyes.AROUND
TOKENIZER = ("tokenizer.model", "special_tokens_map.json", "generation_config.json")


def config(text, signs):
    """With the names that files of the hub have: transformers and others read all of them."""
    vision = {"model_type": "clip_vision_model", "attention_dropout": 0.0,
              "hidden_act": "quick_gelu", "hidden_size": vlm.WIDTH, "image_size": vlm.SIDE,
              "intermediate_size": 4 * vlm.WIDTH, "layer_norm_eps": 1e-5,
              "num_attention_heads": vlm.HEADS, "num_channels": 3,
              "num_hidden_layers": vlm.LAYERS, "patch_size": vlm.PATCH,
              "projection_dim": vlm.WIDTH}
    return {"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava",
            "ignore_index": -100, "image_seq_length": vlm.ROWS, "image_token_index": signs.image,
            "multimodal_projector_bias": True, "projector_hidden_act": "gelu",
            "text_config": text, "tie_word_embeddings": False,
            "torch_dtype": "bfloat16", "transformers_version": "4.46.0", "vision_config": vision,
            "vision_feature_layer": -2, "vision_feature_select_strategy": "default"}


def preprocessor():
    return {"image_processor_type": "CLIPImageProcessor", "do_convert_rgb": True,
            "do_resize": True, "size": {"shortest_edge": vlm.SIDE}, "resample": 3,
            "do_center_crop": True, "crop_size": {"height": vlm.SIDE, "width": vlm.SIDE},
            "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
            "image_mean": list(vlm.MEAN), "image_std": list(vlm.STD)}


def processor():
    return {"processor_class": "LlavaProcessor", "image_token": vlm.IMAGE,
            "patch_size": vlm.PATCH, "num_additional_image_tokens": 1,
            "vision_feature_select_strategy": "default"}


def names_shipped(state):
    """The names of all llava-hf files; `present` is for training only."""
    weights = {f"language_model.{name}": value for name, value in state["text"].items()}
    for name, value in state["eyes"].items():
        if name.startswith("vision_model."):
            weights[f"vision_tower.{name}"] = value
        elif name.startswith("multi_modal_projector."):
            weights[name] = value
    return weights


def shipped(directory):
    """{"text", "eyes"} of a directory that `main` wrote, as float32."""
    read = {"text": {}, "eyes": {}}
    for name, value in load_file(directory / "model.safetensors").items():
        if name.startswith("visual."):
            if name.endswith("patch_embed.proj.weight"):
                value = value.sum(2)    # of both frames
            read["eyes"][name] = value.float()
        elif name.startswith(("language_model.", "lm_head.", "model.layers.", "model.norm.",
                              "model.embed_tokens.")):
            if name.endswith("_proj.bias"):
                continue                # zeros of Qwen2-VL
            read["text"][name.removeprefix("language_model.")] = value.float()
        else:
            read["eyes"][name.removeprefix("vision_tower.")] = value.float()
    return read


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def write_tokenizer(text_model, out, around, processor_class):
    for name in TOKENIZER:
        shutil.copyfile(text_model / name, out / name)
    tokenizer, signs = pages.load_tokenizer(text_model, around)
    tokenizer.save(str(out / "tokenizer.json"))
    settings = json.loads((text_model / "tokenizer_config.json").read_text())
    names = dict.fromkeys((vlm.IMAGE, *itertools.chain(*around)))
    settings |= {"processor_class": processor_class, "image_token": vlm.IMAGE,
                 "added_tokens_decoder": {str(tokenizer.token_to_id(name)): {
                     "content": name, "lstrip": False, "rstrip": False, "normalized": False,
                     "single_word": False, "special": True} for name in names}}
    write_json(out / "tokenizer_config.json", settings)
    return signs


def write_demo(program, out, form, pictures=3):
    """A held-out page: its pictures, and its text up to the answer."""
    out.mkdir(exist_ok=True)
    source = pages.Pages(program, (form,), pictures, seed=2026, split="eval", questions=1)
    page = next(source)
    source.close()
    for i, pixels in enumerate(page["pixels"]):
        Image.fromarray(pixels).save(out / f"{i + 1}.png", optimize=True)
    begin, end = page["answers"][0]
    (out / "page.txt").write_text(page["text"][:begin])
    print(f"demo: {pictures} pictures, answer: {page['text'][begin:end]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=pathlib.Path, help="folder with joint.pt")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--text-model", type=pathlib.Path, default=data.ROOT / "models/ref-gqa")
    parser.add_argument("--demo", choices=pages.FIRST, default="pairs", help="what its page asks")
    parser.add_argument("--kvgauge", help="the program; default: from the build folders")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    state = torch.load(args.work / "joint.pt", weights_only=True)
    kind = {"clip": sys.modules[__name__], "qwen": qwen}[state["run"].get("eyes", "clip")]
    text, settings = export.config(state["shape"]), kind.processor()
    signs = write_tokenizer(args.text_model, args.out, kind.AROUND, settings["processor_class"])
    weights = {name: value.to(torch.bfloat16).contiguous()
               for name, value in kind.names_shipped(state).items()}
    save_file(weights, args.out / "model.safetensors", metadata={"format": "pt"})
    (args.out / "model.safetensors").chmod(0o644)
    write_json(args.out / "config.json", kind.config(text, signs))
    write_json(args.out / "preprocessor_config.json", kind.preprocessor())
    write_json(args.out / "processor_config.json", settings)
    write_demo(data.find_program(args.kvgauge), args.out / "demo", args.demo)
    print(f"{sum(p.numel() for p in weights.values()) / 1e6:.2f} M parameters, "
          f"step {state['at']['step']}, {state['at']['tokens'] / 1e6:.2f} M tokens, "
          f"{state['at']['seconds'] / 60:.0f} minutes")


if __name__ == "__main__":
    main()
