# SPDX-License-Identifier: Apache-2.0
"""Rows of make_models, as those of model_families."""

import torch

from model_families import LAYER_NORM, base, row, setter

row("arcee",
    base("ArceeForCausalLM", "arcee", hidden_act="relu2", head_dim=12, attention_bias=False, mlp_bias=True,
         intermediate_size=64,
         rope_scaling=dict(rope_type="yarn", factor=20.0, original_max_position_embeddings=64, beta_fast=32.0,
                           beta_slow=1.0, mscale=1.0)),
    note="An MLP without gate whose ReLU is squared; YaRN; head_dim 12.",
    ablate={"no scaling": setter(rope_scaling=None)})
GRANITE3 = dict(attention_bias=False, embedding_multiplier=12.0, residual_multiplier=0.22, attention_multiplier=0.2,
                logits_scaling=6.0, num_experts_per_tok=2, output_router_logits=False, router_aux_loss_coef=0.001,
                rope_scaling=None, pad_token_id=0)
row("granitemoe",
    base("GraniteMoeForCausalLM", "granitemoe", num_local_experts=5, intermediate_size=16, **GRANITE3),
    embed_gain=0.05,
    router_gap=0.02,
    note="Multipliers as granite; the experts of a layer lie in one tensor, [experts, out, in].",
    ablate={"one expert more": setter(num_experts_per_tok=3), "no residual multiplier": setter(residual_multiplier=1.0)})
row("granitemoeshared",
    base("GraniteMoeSharedForCausalLM", "granitemoeshared", num_local_experts=4, intermediate_size=12,
         shared_intermediate_size=20, **GRANITE3),
    embed_gain=0.05,
    router_gap=0.02,
    note="The same beside an MLP that all tokens share.",
    ablate={"one expert more": setter(num_experts_per_tok=3)})
row("glm4_moe_lite",
    base("Glm4MoeLiteForCausalLM", "glm4_moe_lite", attention_bias=False, first_k_dense_replace=1, kv_lora_rank=12,
         moe_intermediate_size=12, n_group=1, topk_group=1, n_routed_experts=6, n_shared_experts=1,
         norm_topk_prob=True, num_experts_per_tok=2, num_key_value_heads=4, num_nextn_predict_layers=1,
         partial_rotary_factor=1.0, q_lora_rank=16, qk_nope_head_dim=12, qk_rope_head_dim=4, v_head_dim=16,
         routed_scaling_factor=1.8, rope_scaling=None, rope_theta=1000000, topk_method="noaux_tc", pad_token_id=0),
    strays={"model.layers.2.eh_proj.weight": torch.zeros(32, 64), "model.layers.2.enorm.weight": torch.ones(32)},
    expert_gain=0.5,
    router_gap=0.01,
    note="Latent attention and corrected sigmoids, as deepseek_v3; values wider than keys without rotation; the layer "
    "behind the last is not run.",
    ablate={"not renormalised": setter(norm_topk_prob=False)})
row("ministral3",
    base("Ministral3ForCausalLM", "ministral3", head_dim=12, sliding_window=None, rope_theta=...,
         max_position_embeddings=160,
         rope_parameters=dict(rope_type="yarn", type="yarn", rope_theta=1000000.0, factor=16.0, beta_fast=32.0,
                              beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, original_max_position_embeddings=10,
                              llama_4_scaling_beta=0.4)),
    note="YaRN; queries are longer from each tenth position on.",
    ablate={"queries do not grow": lambda c: c["rope_parameters"].update(llama_4_scaling_beta=0.0)})
MINIMAX = dict(head_dim=12, intermediate_size=12, num_local_experts=6, num_experts_per_tok=2, rope_theta=5000000,
               attn_type_list=[1, 1], qk_norm_type="per_layer", use_qk_norm=True, use_routing_bias=True,
               scoring_func="sigmoid", shared_intermediate_size=0, router_aux_loss_coef=0.001, router_jitter_noise=0.0,
               output_router_logits=False)
row("minimax_m2",
    base("MiniMaxM2ForCausalLM", "minimax_m2", rotary_dim=6, **MINIMAX),
    as_hf=(base("MiniMaxM2ForCausalLM", "minimax_m2", partial_rotary_factor=0.5, **MINIMAX), lambda weights, c: weights),
    expert_gain=0.6,
    router_gap=0.01,
    note="Corrected sigmoids, whose corrections lie beside the router; queries and keys are normed over all heads; "
    "half of each head turns, which 5.2 does not read of rotary_dim: it is given as partial_rotary_factor there.",
    ablate={"all of a head turns": setter(partial_rotary_factor=1.0)})


def exaone_names(weights, c):
    """Llama's tensors as the authors' files have them."""
    names = {"model.embed_tokens.": "transformer.wte.", "model.norm.": "transformer.ln_f.", "model.layers.":
             "transformer.h.", "input_layernorm": "ln_1", "post_attention_layernorm": "ln_2", "self_attn.o_proj":
             "self_attn.out_proj", "self_attn": "attn.attention", "gate_proj": "c_fc_0", "up_proj": "c_fc_1",
             "down_proj": "c_proj"}
    out = {}
    for key, value in weights.items():
        for old, new in names.items():
            key = key.replace(old, new)
        out[key] = value
    return out


LLAMA3 = dict(rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                original_max_position_embeddings=64))
row("exaone",
    base("ExaoneForCausalLM", "exaone", activation_function="silu", hidden_act=..., num_layers=2,
         num_hidden_layers=..., layer_norm_epsilon=1e-5, rms_norm_eps=..., embed_dropout=0.0, attention_dropout=0.0,
         head_dim=12, pad_token_id=0, **LLAMA3),
    as_hf=(base("LlamaForCausalLM", "llama", attention_bias=False, head_dim=12, **LLAMA3), exaone_names),
    note="Llama's mathematics under GPT-2's names; head_dim 12.",
    ablate={"no scaling": setter(rope_scaling=None)})
row("nemotron",
    base("NemotronForCausalLM", "nemotron", hidden_act="relu2", head_dim=12, norm_eps=1e-5, rms_norm_eps=...,
         attention_bias=False, mlp_bias=False, intermediate_size=64, partial_rotary_factor=0.5, kv_channels=12,
         rope_percent=0.5),
    norms_from_one=True,
    note="LayerNorms whose weights are stored less one; an MLP without gate whose ReLU is squared; half of each head "
    "turns.",
    ablate={"all of a head turns": setter(partial_rotary_factor=1.0)})
row("olmo",
    base("OlmoForCausalLM", "olmo", attention_bias=False, clip_qkv=1.5, rms_norm_eps=..., pad_token_id=1),
    note="LayerNorms without weights; queries, keys and values are clipped.",
    ablate={"nothing is clipped": setter(clip_qkv=None)})
row("jais2",
    base("Jais2ForCausalLM", "jais2", hidden_act="relu2", head_dim=12, intermediate_size=64, attention_bias=True,
         mlp_bias=True, rope_theta=500000.0, **LAYER_NORM),
    note="LayerNorms and biases; an MLP without gate whose ReLU is squared; head_dim 12.",
    ablate={"another base": setter(rope_theta=10000.0)})
row("youtu",
    base("YoutuForCausalLM", "youtu", attention_bias=False, mlp_bias=False, kv_lora_rank=12, num_key_value_heads=4,
         q_lora_rank=16, qk_nope_head_dim=12, qk_rope_head_dim=4, v_head_dim=16, rope_interleave=True,
         rope_scaling=None, rope_theta=1600000, embedding_initializer_range=0.04, tie_word_embeddings=True),
    note="Latent attention as deepseek_v3, and no experts; tied.",
    ablate={"another base": setter(rope_theta=10000.0)})
