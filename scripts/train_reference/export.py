"""Writes a checkpoint as a plain Hugging Face directory."""
import argparse
import json
import pathlib
import shutil

import torch
from safetensors.torch import save_file

import vocabulary


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=pathlib.Path, help="folder with checkpoint.pt, tokenizer.model")
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    state = torch.load(args.work / "checkpoint.pt", weights_only=True)
    shape = state["shape"]
    weights = {name: p.to(torch.bfloat16).contiguous() for name, p in state["model"].items()}
    save_file(weights, args.out / "model.safetensors", metadata={"format": "pt"})
    (args.out / "model.safetensors").chmod(0o644)
    (args.out / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
        "bos_token_id": 1, "eos_token_id": 2, "head_dim": shape["head_dim"],
        "hidden_act": "silu", "hidden_size": shape["width"], "initializer_range": 0.02,
        "intermediate_size": shape["ffn"], "max_position_embeddings": 8192, "mlp_bias": False,
        "model_type": "llama", "num_attention_heads": shape["heads"],
        "num_hidden_layers": shape["layers"], "num_key_value_heads": shape["kv_heads"],
        "pretraining_tp": 1, "rms_norm_eps": shape["eps"], "rope_scaling": None,
        "rope_theta": shape["theta"], "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "transformers_version": "4.46.0", "use_cache": True, "vocab_size": shape["vocab"]},
        indent=2) + "\n")
    (args.out / "generation_config.json").write_text(json.dumps({
        "bos_token_id": 1, "eos_token_id": 2, "do_sample": False,
        "transformers_version": "4.46.0"}, indent=2) + "\n")
    shutil.copy(args.work / "tokenizer.model", args.out / "tokenizer.model")
    vocabulary.write_config(args.out)


if __name__ == "__main__":
    main()
