# SPDX-License-Identifier: Apache-2.0
"""Writes a checkpoint as a plain Hugging Face directory."""
import argparse
import json
import pathlib
import shutil

import torch
from safetensors.torch import load_file, save_file

import vocabulary
from model import VARIANTS, Shape

COMMON = {"attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
          "hidden_act": "silu", "initializer_range": 0.02, "max_position_embeddings": 8192,
          "mlp_bias": False, "pretraining_tp": 1, "rope_scaling": None,
          "tie_word_embeddings": False, "torch_dtype": "bfloat16",
          "transformers_version": "4.46.0", "use_cache": True}


def config(shape):
    sizes = {"hidden_size": shape["width"], "intermediate_size": shape["ffn"],
             "num_attention_heads": shape["heads"], "num_hidden_layers": shape["layers"],
             "num_key_value_heads": shape["kv_heads"], "rms_norm_eps": shape["eps"],
             "rope_theta": shape["theta"], "vocab_size": shape["vocab"]}
    if not shape.get("latent"):
        return {"architectures": ["LlamaForCausalLM"], "model_type": "llama",
                "head_dim": shape["head_dim"], **COMMON, **sizes}
    # Every layer dense: the experts' numbers are there because loaders ask for them.
    return {"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2",
            "kv_lora_rank": shape["latent"], "q_lora_rank": None,
            "qk_nope_head_dim": shape["head_dim"], "qk_rope_head_dim": shape["rope_dim"],
            "v_head_dim": shape["head_dim"], "first_k_dense_replace": shape["layers"],
            "moe_layer_freq": 1, "moe_intermediate_size": shape["ffn"], "n_routed_experts": 1,
            "n_shared_experts": 1, "num_experts_per_tok": 1, "n_group": 1, "topk_group": 1,
            "topk_method": "greedy", "norm_topk_prob": False, "routed_scaling_factor": 1.0,
            "scoring_func": "softmax", "aux_loss_alpha": 0.001, "seq_aux": True, "ep_size": 1,
            **COMMON, **sizes, "num_key_value_heads": shape["heads"]}


def origin(directory):
    """A directory that `main` wrote for a Llama, as far as a training needs a checkpoint of it."""
    read = json.loads((directory / "config.json").read_text())
    if read["model_type"] != "llama":
        raise SystemExit(f"{directory}/config.json: model_type {read['model_type']}; --from takes a "
                         "Llama")
    shape = Shape(vocab=read["vocab_size"], width=read["hidden_size"],
                  layers=read["num_hidden_layers"], heads=read["num_attention_heads"],
                  kv_heads=read["num_key_value_heads"], head_dim=read["head_dim"],
                  ffn=read["intermediate_size"], theta=read["rope_theta"],
                  eps=read["rms_norm_eps"]).as_dict()
    variant = next(name for name, sizes in VARIANTS.items()
                   if sizes == {"kv_heads": shape["kv_heads"]})
    weights = {name: weight.float()
               for name, weight in load_file(directory / "model.safetensors").items()}
    return {"model": weights, "shape": shape, "taken": {}, "at": {"step": None, "tokens": None},
            "arguments": {"variant": variant}}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=pathlib.Path, nargs="+",
                        help="folder with checkpoint.pt, tokenizer.*; of several, which must have a "
                        "checkpoint in common, the mean of the weights")
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    states = [torch.load(work / "checkpoint.pt", weights_only=True, map_location="cpu")
              for work in args.work]
    state = states[-1]
    weights = {name: (sum(s["model"][name] for s in states) / len(states)).to(torch.bfloat16)
               .contiguous() for name in state["model"]}
    save_file(weights, args.out / "model.safetensors", metadata={"format": "pt"})
    (args.out / "model.safetensors").chmod(0o644)
    (args.out / "config.json").write_text(json.dumps(config(state["shape"]), indent=2) + "\n")
    (args.out / "generation_config.json").write_text(json.dumps({
        "bos_token_id": 1, "eos_token_id": 2, "do_sample": False,
        "transformers_version": "4.46.0"}, indent=2) + "\n")
    for name in vocabulary.FILES:
        shutil.copy(args.work[-1] / name, args.out / name)
    print(f"{sum(p.numel() for p in weights.values()) / 1e6:.2f} M parameters")
    for at in (state["at"] for state in states):
        print(f"step {at['step']}, {at['tokens'] / 1e6:.2f} M tokens, {at['seconds'] / 60:.0f} "
              f"minutes, started {at['starts']} times")


if __name__ == "__main__":
    main()
