# SPDX-License-Identifier: Apache-2.0
"""Rows of make_models for families whose checkpoints are kept small: stored in bf16, few tokens.

A family that the pinned transformers does not have is computed as one that it has: `as_hf` says which
config that is, and what the weights are called on disk.
"""

import math

import torch

from four_bits import as_four_bits, four_bit_files


def base(arch, model_type, **keys):
    c = dict(
        architectures=[arch],
        model_type=model_type,
        bos_token_id=1,
        eos_token_id=2,
        hidden_act="silu",
        hidden_size=32,
        initializer_range=0.02,
        intermediate_size=36,
        max_position_embeddings=512,
        num_attention_heads=4,
        num_hidden_layers=2,
        num_key_value_heads=2,
        rms_norm_eps=1e-05,
        tie_word_embeddings=False,
        use_cache=True,
        vocab_size=101,
        rope_theta=10000.0,
        torch_dtype="bfloat16",
        transformers_version="4.51.0",
    )
    c.update(keys)
    return {k: v for k, v in c.items() if v is not ...}


def setter(**keys):
    return lambda c: c.update(keys)


def dropper(*keys):
    def edit(c):
        for key in keys:
            c.pop(key, None)

    return edit


MOE = dict(num_experts_per_tok=2, moe_intermediate_size=12, output_router_logits=False, router_aux_loss_coef=0.001)
LAYER_NORM = dict(rms_norm_eps=..., layer_norm_eps=1e-5)
ROWS = []


def row(name, config, n=24, **extra):
    if config.get("tie_word_embeddings") and config["model_type"] != "smollm3":
        extra.setdefault("embed_gain", 0.12)  # or a model would say its last token again and again
    ROWS.append((name, config, n, dict(stored=torch.bfloat16, distinct=16, saved=True, **extra)))


row("mixtral",
    base("MixtralForCausalLM", "mixtral", num_local_experts=4, num_experts_per_tok=2, intermediate_size=16,
         rope_theta=1e6, output_router_logits=False, router_aux_loss_coef=0.02, sliding_window=None),
    note="Experts under block_sparse_moe; the weights of a token's two sum to 1.",
    expert_gain=0.6)
row("qwen2_moe",
    base("Qwen2MoeForCausalLM", "qwen2_moe", num_experts=5, shared_expert_intermediate_size=20, norm_topk_prob=False,
         decoder_sparse_step=1, mlp_only_layers=[0], num_hidden_layers=3, use_sliding_window=False, sliding_window=4096,
         max_window_layers=2, rms_norm_eps=1e-6, **MOE),
    note="Layer 0 dense; a shared expert under a sigmoid gate; biases of q, k and v.",
    expert_gain=0.6)
row("qwen3_moe",
    base("Qwen3MoeForCausalLM", "qwen3_moe", num_experts=6, norm_topk_prob=True, head_dim=12, decoder_sparse_step=2,
         mlp_only_layers=[], attention_bias=False, use_sliding_window=False, sliding_window=None, max_window_layers=2,
         rms_norm_eps=1e-6, **MOE),
    note="Every second layer has experts; norms of queries and keys; head_dim 12.",
    expert_gain=0.6)
row("olmo2",
    base("Olmo2ForCausalLM", "olmo2", attention_bias=False, rope_theta=500000, pad_token_id=0),
    note="Norms of what layers add, none of what they read; queries and keys are normed over all heads.")
row("olmo3",
    base("Olmo3ForCausalLM", "olmo3", attention_bias=False, rope_theta=500000, pad_token_id=0, num_hidden_layers=4,
         intermediate_size=24, sliding_window=7,
         rope_scaling=dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=512, beta_fast=32.0,
                           beta_slow=1.0, attention_factor=1.2079441541679836),
         max_position_embeddings=4096,
         layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]),
    unscaled_windows=True,
    note="Sliding layers turn unscaled, as in the authors' code and in transformers 4.57; 5.2 scales them too, so "
    "the oracle has them patched.",
    ablate={"no window": setter(sliding_window=4096)})
row("granite",
    base("GraniteForCausalLM", "granite", attention_bias=False, mlp_bias=False, embedding_multiplier=12.0,
         residual_multiplier=0.22, attention_multiplier=0.2, logits_scaling=8.0),
    embed_gain=0.05,
    note="Multipliers of embeddings, of what layers add, of attention and of logits.",
    ablate={"no residual multiplier": setter(residual_multiplier=1.0),
            "scale 1/sqrt(head_dim)": setter(attention_multiplier=8 ** -0.5)})
row("smollm3",
    base("SmolLM3ForCausalLM", "smollm3", attention_bias=False, mlp_bias=False, rope_theta=5000000.0,
         num_hidden_layers=4, intermediate_size=24, no_rope_layers=[1, 0, 1, 0], no_rope_layer_interval=2,
         max_window_layers=28, use_sliding_window=False, sliding_window=None, tie_word_embeddings=True,
         layer_types=["full_attention"] * 4, pretraining_tp=2 - 1, pad_token_id=0),
    note="Layers 1 and 3 do not turn.",
    ablate={"all layers turn": setter(no_rope_layers=[1, 1, 1, 1])})
row("glm",
    base("GlmForCausalLM", "glm", attention_bias=True, head_dim=8, partial_rotary_factor=0.5, rms_norm_eps=1.5625e-07,
         pad_token_id=0),
    note="Half of each head turns, by pairs of neighbours; fused gate and up; biases of q, k and v.")
row("glm4",
    base("Glm4ForCausalLM", "glm4", attention_bias=False, head_dim=12, partial_rotary_factor=0.5, pad_token_id=0),
    note="As glm, with norms of what attention and the MLP add.")
row("phi",
    base("PhiForCausalLM", "phi", hidden_act="gelu_new", num_key_value_heads=4, partial_rotary_factor=0.5,
         qk_layernorm=False, embd_pdrop=0.0, resid_pdrop=0.0, intermediate_size=64, **LAYER_NORM),
    note="Attention and MLP side by side under one LayerNorm; a bias of the head.")
row("phi_qk",
    base("PhiForCausalLM", "phi", hidden_act="gelu_new", num_key_value_heads=2, partial_rotary_factor=0.5,
         qk_layernorm=True, embd_pdrop=0.0, resid_pdrop=0.0, intermediate_size=64, num_hidden_layers=1, **LAYER_NORM),
    note="LayerNorms of queries and keys; grouped heads.")
NEOX = dict(hidden_act="gelu", num_key_value_heads=..., rope_theta=..., rotary_emb_base=10000, rotary_pct=0.25,
            intermediate_size=64, hidden_dropout=0.0, classifier_dropout=0.1, **LAYER_NORM)
row("gpt_neox",
    base("GPTNeoXForCausalLM", "gpt_neox", use_parallel_residual=True, attention_bias=True, **NEOX),
    strays={"gpt_neox.layers.0.attention.masked_bias": torch.tensor(-1e9),
            "gpt_neox.layers.0.attention.bias": torch.ones(1, 1, 4, 4, dtype=torch.uint8)},
    note="Queries, keys and values of a head lie together; two norms side by side; a quarter of each head turns. Old "
    "files also store the mask.",
    ablate={"one after the other": setter(use_parallel_residual=False)})
row("gpt_neox_sequential",
    base("GPTNeoXForCausalLM", "gpt_neox", use_parallel_residual=False, attention_bias=False, num_hidden_layers=1,
         **NEOX),
    note="Attention, then the MLP; no biases of attention.")
row("gptj",
    base("GPTJForCausalLM", "gptj", n_embd=32, n_head=4, n_layer=2, n_positions=256, n_inner=None, rotary_dim=4,
         activation_function="gelu_new", layer_norm_epsilon=1e-5, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0,
         rotary=True, scale_attn_weights=True, hidden_size=..., num_attention_heads=..., num_hidden_layers=...,
         num_key_value_heads=..., intermediate_size=..., max_position_embeddings=..., rms_norm_eps=...,
         rope_theta=..., hidden_act=...),
    note="Four of eight dims turn, by pairs of neighbours; a bias of the head.")
row("stablelm",
    base("StableLmForCausalLM", "stablelm", use_qkv_bias=True, qk_layernorm=False, use_parallel_residual=False,
         partial_rotary_factor=0.25, hidden_dropout=0.0, **LAYER_NORM),
    note="LayerNorms with bias and a gated MLP; a quarter of each head turns.")
row("stablelm_12b",
    base("StableLmForCausalLM", "stablelm", use_qkv_bias=False, qk_layernorm=True, use_parallel_residual=True,
         partial_rotary_factor=0.25, hidden_dropout=0.0, num_hidden_layers=1, **LAYER_NORM),
    note="Each head of queries and keys has a norm of its own; attention and MLP side by side.")
row("starcoder2",
    base("Starcoder2ForCausalLM", "starcoder2", hidden_act="gelu_pytorch_tanh", norm_epsilon=1e-5, rms_norm_eps=...,
         use_bias=True, sliding_window=9, mlp_type="default", norm_type="layer_norm", residual_dropout=0.0,
         embedding_dropout=0.0, tie_word_embeddings=True, intermediate_size=64),
    note="LayerNorms, biases everywhere, an MLP without gate; window 9.",
    ablate={"no window": setter(sliding_window=4096)})
row("cohere",
    base("CohereForCausalLM", "cohere", logit_scale=0.0625, use_qk_norm=False, attention_bias=False, rope_theta=8e6,
         tie_word_embeddings=True, pad_token_id=0, model_max_length=131072, **LAYER_NORM),
    note="Attention and MLP side by side under a LayerNorm without bias; pairs of neighbours turn; scaled logits.")
row("cohere_qk",
    base("CohereForCausalLM", "cohere", logit_scale=0.8333333333333334, use_qk_norm=True, attention_bias=False,
         rope_theta=75e6, tie_word_embeddings=True, pad_token_id=0, num_hidden_layers=1, **LAYER_NORM),
    note="A LayerNorm of each head by a weight of its own.")
row("cohere2",
    base("Cohere2ForCausalLM", "cohere2", logit_scale=0.25, attention_bias=False, head_dim=8, num_hidden_layers=4,
         intermediate_size=24, sliding_window=7, sliding_window_pattern=2, layer_switch=2, rope_theta=50000,
         order_of_interleaved_layers="local_attn_first", position_embedding_type="rope_gptj", rotary_pct=1.0,
         use_embedding_sharing=True, use_gated_activation=True, use_parallel_block=True, use_parallel_embedding=False,
         use_qk_norm=False, tie_word_embeddings=True, pad_token_id=0, cache_implementation="hybrid",
         layer_types=["sliding_attention", "full_attention"] * 2, **LAYER_NORM),
    note="Every second layer slides and turns; the others see all and do not turn.",
    ablate={"no window": setter(sliding_window=4096)})
FALCON = dict(layer_norm_epsilon=1e-5, rms_norm_eps=..., intermediate_size=..., num_key_value_heads=..., hidden_act=...,
              hidden_dropout=0.0, attention_dropout=0.0, alibi=False, tie_word_embeddings=True)
row("falcon",
    base("FalconForCausalLM", "falcon", multi_query=True, parallel_attn=True, bias=False,
         new_decoder_architecture=False, **FALCON),
    note="One KV head for all; attention and MLP side by side under one norm.")
row("falcon_40b",
    base("FalconForCausalLM", "falcon", num_kv_heads=2, parallel_attn=True, bias=False, new_decoder_architecture=True,
         num_hidden_layers=1, **FALCON),
    note="Grouped heads whose queries, key and value lie together; a norm for each of attention and MLP.")
row("falcon_bias",
    base("FalconForCausalLM", "falcon", multi_query=False, parallel_attn=False, bias=True,
         new_decoder_architecture=False, num_hidden_layers=1, **FALCON),
    note="Attention, then the MLP; biases; a KV head for each query head.")
row("falcon_rw",
    base("FalconForCausalLM", "falcon", multi_query=False, parallel_attn=False, bias=True, new_decoder_architecture=False,
         num_attention_heads=12, hidden_size=96, ffn_hidden_size=64, **{**FALCON, "alibi": True}),
    bias_gain=0.05, attention="sdpa", oracle="transformers, attn_implementation sdpa, since eager adds distances twice",
    note="Scores count distances (ALiBi): slopes and their products with positions are rounded to bf16.")
BLOOM = dict(layer_norm_epsilon=1e-5, rms_norm_eps=..., intermediate_size=..., num_key_value_heads=..., hidden_act=...,
             num_attention_heads=..., num_hidden_layers=..., max_position_embeddings=..., rope_theta=..., n_layer=2,
             seq_length=512, apply_residual_connection_post_layernorm=False, hidden_dropout=0.0, attention_dropout=0.0,
             pretraining_tp=1, slow_but_exact=False, attention_softmax_in_fp32=True, bias_dropout_fusion=True,
             masked_softmax_fusion=True, offset_alibi=100, skip_bias_add=True, skip_bias_add_qkv=False, unk_token_id=0,
             pad_token_id=3, tie_word_embeddings=True)
row("bloom",
    base("BloomForCausalLM", "bloom", n_head=4, **BLOOM),
    bias_gain=0.05,
    note="ALiBi; a norm of what is looked up; queries, key and value of a head lie together; biases.")
row("bloom_heads",
    base("BloomForCausalLM", "bloom", n_head=6, **(BLOOM | dict(n_layer=1, hidden_size=48))),
    bias_gain=0.05,
    note="Six heads: the slopes of four, and two of those of eight.")
PHIMOE = dict(num_local_experts=5, num_experts_per_tok=2, intermediate_size=12, attention_bias=True, lm_head_bias=True,
              input_jitter_noise=0.01, router_jitter_noise=0.25, router_aux_loss_coef=0.0, output_router_logits=False,
              hidden_dropout=0.0, attention_dropout=0.0)
row("phimoe",
    base("PhiMoEForCausalLM", "phimoe", original_max_position_embeddings=256, sliding_window=512,
         rope_scaling=dict(type="longrope", short_factor=[1.0, 1.02, 1.1, 1.4], long_factor=[1.1, 2.0, 5.0, 12.0],
                           short_mscale=1.243163121016122, long_mscale=1.243163121016122,
                           original_max_position_embeddings=256),
         **PHIMOE),
    expert_gain=0.6,
    router_gap=0.01,
    note="Two experts are taken one after the other, each weighed among those left whose logit is near; LayerNorms; "
    "biases of attention and of the head; longrope whose factor the file says. A wide tolerance, so that it matters.",
    ablate={"no others are near": setter(router_jitter_noise=0.0),
            "all others are near": setter(router_jitter_noise=50.0)})
row("phimoe_window",
    base("PhiMoEForCausalLM", "phimoe", sliding_window=7, num_hidden_layers=1, head_dim=12, rope_theta=1e6,
         rope_scaling=None, **(PHIMOE | dict(attention_bias=False, lm_head_bias=False, router_jitter_noise=0.1))),
    expert_gain=0.6,
    router_gap=0.01,
    note="No scaling; a window; head_dim 12; no biases but those of norms.",
    ablate={"no window": setter(sliding_window=None)})
MPT = dict(d_model=32, n_heads=4, n_layers=2, expansion_ratio=4, max_seq_len=256, no_bias=True, learned_pos_emb=True,
           layer_norm_epsilon=1e-5, emb_pdrop=0, resid_pdrop=0, embedding_fraction=1.0, logit_scale=None, verbose=0,
           norm_type="low_precision_layernorm", init_device="cpu", tokenizer_name="EleutherAI/gpt-neox-20b",
           hidden_size=..., intermediate_size=..., num_attention_heads=..., num_hidden_layers=...,
           num_key_value_heads=..., max_position_embeddings=..., rms_norm_eps=..., rope_theta=..., hidden_act=...,
           tie_word_embeddings=True)
MPT_ATTENTION = dict(alibi=True, alibi_bias_max=8, attn_impl="torch", attn_pdrop=0, attn_type="multihead_attention",
                     attn_uses_sequence_id=False, clip_qkv=None, prefix_lm=False, qk_ln=False, softmax_scale=None)
row("mpt",
    base("MptForCausalLM", "mpt", attn_config=MPT_ATTENTION, **MPT),
    note="ALiBi; LayerNorms without bias; no biases.")
row("mpt_clip",
    base("MptForCausalLM", "mpt", attn_config=MPT_ATTENTION | dict(clip_qkv=0.75, softmax_scale=0.25),
         **(MPT | dict(d_model=40, n_heads=5, n_layers=1))),
    note="Five heads: the slopes of eight, every second first; queries, keys and values within 0.75; another scale.",
    ablate={"not clipped": setter(attn_config=MPT_ATTENTION | dict(softmax_scale=0.25))})
DEEPSEEK3 = base(
    "DeepseekV3ForCausalLM", "deepseek_v3", attention_bias=False, aux_loss_alpha=0.001, ep_size=1,
    first_k_dense_replace=1, kv_lora_rank=12, moe_intermediate_size=10, moe_layer_freq=1, n_group=4, n_routed_experts=8,
    n_shared_experts=1, norm_topk_prob=True, num_experts_per_tok=3, num_key_value_heads=4, num_nextn_predict_layers=1,
    pretraining_tp=1, q_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4, rms_norm_eps=1e-6,
    rope_scaling=dict(beta_fast=32, beta_slow=1, factor=40, mscale=1.0, mscale_all_dim=1.0,
                      original_max_position_embeddings=4096, type="yarn"),
    max_position_embeddings=163840, routed_scaling_factor=2.5, scoring_func="sigmoid", seq_aux=True, topk_group=2,
    topk_method="noaux_tc", v_head_dim=8)
row("deepseek_v3", DEEPSEEK3,
    strays={"model.layers.2.eh_proj.weight": torch.zeros(32, 64), "model.layers.2.enorm.weight": torch.ones(32)},
    expert_gain=0.5,
    note="Experts are chosen by corrected sigmoids, of the two groups whose best two are best; the layer behind the "
    "last is not run.",
    ablate={"one group": setter(n_group=1, topk_group=1), "not renormalised": setter(norm_topk_prob=False)})
row("glm4_moe",
    base("Glm4MoeForCausalLM", "glm4_moe", attention_bias=True, head_dim=8, partial_rotary_factor=0.5, use_qk_norm=True,
         first_k_dense_replace=1, moe_intermediate_size=12, n_group=1, topk_group=1, n_routed_experts=6,
         n_shared_experts=1, norm_topk_prob=True, num_experts_per_tok=2, routed_scaling_factor=1.5, rope_theta=1e6,
         num_nextn_predict_layers=0, pad_token_id=0),
    expert_gain=0.5,
    router_gap=0.01,
    note="Corrected sigmoids without groups; norms of queries and keys; half of each head turns, in the half layout.")

row("gemma",
    base("GemmaForCausalLM", "gemma", hidden_act="gelu_pytorch_tanh", hidden_activation=None, head_dim=16,
         num_key_value_heads=1, tie_word_embeddings=True, attention_bias=False, rms_norm_eps=1e-6, pad_token_id=0,
         bos_token_id=2, eos_token_id=1),
    embed_gain=0.05,
    note="Embeddings times the root of the width; norms count from one; one KV head; head_dim 16.")
row("seed_oss",
    base("SeedOssForCausalLM", "seed_oss", attention_bias=True, attention_out_bias=False, mlp_bias=False, head_dim=12,
         residual_dropout=0.1, attention_dropout=0.1, pretraining_tp=2 - 1, pad_token_id=1, bos_token_id=0,
         rms_norm_eps=1e-6, rope_theta=1e7),
    note="Biases of q, k and v alone; head_dim 12.")
row("exaone4",
    base("Exaone4ForCausalLM", "exaone4", num_hidden_layers=4, intermediate_size=24, sliding_window=7,
         sliding_window_pattern="LLLG", pad_token_id=0, rope_theta=1e6,
         rope_scaling=dict(rope_type="llama3", factor=16.0, low_freq_factor=1.0, high_freq_factor=4.0,
                           original_max_position_embeddings=64),
         layer_types=["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]),
    note="Norms of what layers add, none of what they read; norms of queries and keys; the full layer does not turn.",
    ablate={"no window": setter(sliding_window=4096)})
row("exaone4_full",
    base("Exaone4ForCausalLM", "exaone4", num_hidden_layers=2, sliding_window=None, sliding_window_pattern=None,
         pad_token_id=0, tie_word_embeddings=True, layer_types=["full_attention"] * 2),
    note="The small models have no windows, and every layer turns.")
row("dots1",
    base("Dots1ForCausalLM", "dots1", attention_bias=False, first_k_dense_replace=1, moe_intermediate_size=12, n_group=1,
         topk_group=1, n_routed_experts=6, n_shared_experts=2, norm_topk_prob=True, num_experts_per_tok=2,
         routed_scaling_factor=2.5, rms_norm_eps=1e-5, sliding_window=None, max_window_layers=62),
    expert_gain=0.5,
    router_gap=0.01,
    note="Corrected sigmoids; two shared experts; norms of queries and keys.")
row("olmoe",
    base("OlmoeForCausalLM", "olmoe", attention_bias=False, clip_qkv=None, num_experts=6, num_experts_per_tok=2,
         norm_topk_prob=False, intermediate_size=16, output_router_logits=False, router_aux_loss_coef=0.01,
         num_key_value_heads=4, pad_token_id=1, rope_scaling=None),
    expert_gain=0.6,
    note="Experts in every layer, whose weights stay shares of all; queries and keys are normed over all heads.")
row("ernie4_5",
    base("Ernie4_5ForCausalLM", "ernie4_5", use_bias=False, head_dim=12, tie_word_embeddings=True, pad_token_id=0,
         rope_theta=500000.0),
    note="Pairs of neighbours turn; head_dim 12.")
row("helium",
    base("HeliumForCausalLM", "helium", attention_bias=False, mlp_bias=False, head_dim=8, num_key_value_heads=4,
         rms_norm_eps=1e-8, rope_theta=100000.0, pad_token_id=3),
    note="Pairs of neighbours turn.")
row("cwm",
    base("CwmForCausalLM", "cwm", head_dim=12, mlp_bias=False, num_hidden_layers=4, intermediate_size=24,
         sliding_window=7, rope_theta=1e6, pretraining_tp=2 - 1,
         rope_scaling=dict(rope_type="llama3", factor=16.0, low_freq_factor=1.0, high_freq_factor=4.0,
                           original_max_position_embeddings=64),
         layer_types=["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"]),
    note="Three of four layers slide.",
    ablate={"no window": setter(sliding_window=4096)})


# --------------------------------------------------------------------------------------------------
# Families that transformers does not have.


def internlm2_names(weights, c):
    """Llama's tensors as the authors' files have them: queries, key and value of a group together."""
    d, groups = c["hidden_size"] // c["num_attention_heads"], c["num_key_value_heads"]
    names = {"model.embed_tokens.": "model.tok_embeddings.", "lm_head.": "output.", "input_layernorm": "attention_norm",
             "post_attention_layernorm": "ffn_norm", "self_attn.o_proj": "attention.wo", "mlp.gate_proj":
             "feed_forward.w1", "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2"}
    out = {}
    for key, value in weights.items():
        if any(k in key for k in ("q_proj", "k_proj", "v_proj")):
            continue
        for old, new in names.items():
            key = key.replace(old, new)
        out[key] = value
    for i in range(c["num_hidden_layers"]):
        for kind in ("weight", "bias"):
            at = f"model.layers.{i}.self_attn."
            if at + "q_proj." + kind not in weights:
                continue
            parts = [weights[f"{at}{p}_proj.{kind}"] for p in "qkv"]
            parts = [p.reshape(groups, -1, d, *p.shape[1:]) for p in parts]
            out[f"model.layers.{i}.attention.wqkv.{kind}"] = torch.cat(parts, 1).flatten(0, 2)
    return out


INTERNLM2 = base("InternLM2ForCausalLM", "internlm2", bias=False, rope_theta=1e6, pad_token_id=2,
                 rope_scaling=dict(type="dynamic", factor=2.0), attn_implementation="eager")
row("internlm2", INTERNLM2,
    as_hf=(base("LlamaForCausalLM", "llama", attention_bias=False, rope_theta=1e6), internlm2_names),
    note="Llama's mathematics, the projections of a group in one matrix. The scaling has no effect at this length.")
MINICPM = base("MiniCPMForCausalLM", "minicpm", scale_emb=12, scale_depth=1.4, dim_model_base=8, rms_norm_eps=1e-5,
               auto_map={"AutoConfig": "configuration_minicpm.MiniCPMConfig"})
row("minicpm", MINICPM,
    as_hf=(base("GraniteForCausalLM", "granite", attention_bias=False, mlp_bias=False, embedding_multiplier=12.0,
                residual_multiplier=1.4 / math.sqrt(2), attention_multiplier=8 ** -0.5, logits_scaling=4.0,
                tie_word_embeddings=False), lambda weights, c: weights),
    embed_gain=0.05,
    note="Granite's mathematics with other keys: embeddings times scale_emb, what a layer adds times scale_depth / "
    "sqrt(layers), the last hidden state divided by hidden_size / dim_model_base.")


def minicpm3_scales(weights, c):
    """What MiniCPM3 multiplies by at run time is in the weights of the model that computes it. All are powers of 2."""
    branch = c["scale_depth"] / math.sqrt(c["num_hidden_layers"])
    last = c["hidden_size"] / c["dim_model_base"]
    out = {}
    for name, weight in weights.items():
        if "embed_tokens" in name:
            weight = weight / c["scale_emb"]
        elif "o_proj" in name or "down_proj" in name:
            weight = weight / branch
        elif name == "lm_head.weight":
            weight = weight * last
        out[name] = weight
    return out


LATENTS = dict(q_lora_rank=12, kv_lora_rank=16, qk_nope_head_dim=6, qk_rope_head_dim=4, num_key_value_heads=4,
               num_hidden_layers=4, attention_bias=False, rms_norm_eps=1e-5,
               rope_scaling=dict(type="longrope", short_factor=[1.1, 1.7], long_factor=[1.3, 4.0],
                                 original_max_position_embeddings=512))
row("minicpm3",
    base("MiniCPM3ForCausalLM", "minicpm3", scale_emb=8, scale_depth=1.0, dim_model_base=8,
         auto_map={"AutoConfig": "configuration_minicpm.MiniCPM3Config"}, **LATENTS),
    as_hf=(base("DeepseekV3ForCausalLM", "deepseek_v3", rope_interleave=False, first_k_dense_replace=4, v_head_dim=8,
                n_group=1, topk_group=1, n_routed_experts=2, num_experts_per_tok=1, moe_intermediate_size=4,
                n_shared_experts=1, **{**LATENTS, "rope_scaling": dict(LATENTS["rope_scaling"], factor=1.0)}),
           minicpm3_scales),
    note="DeepSeek-V3's latent attention with the two halves of each rotated part as pairs, no experts, and the "
    "multipliers of MiniCPM, which the oracle has in its weights.",
    ablate={"pairs of neighbours turn": setter(rope_interleave=True),
            "no factors": dropper("rope_scaling")})


# --------------------------------------------------------------------------------------------------
# gpt-oss: experts of a layer lie together, as bf16 or as blocks of 32 four-bit floats.


def gpt_oss(**keys):
    return base("GptOssForCausalLM", "gpt_oss", attention_bias=True, head_dim=8, intermediate_size=32,
                num_experts_per_tok=2, experts_per_token=2, num_local_experts=4, sliding_window=9, swiglu_limit=7.0,
                rope_theta=150000, initial_context_length=4096, router_aux_loss_coef=0.9, output_router_logits=False,
                rope_scaling=dict(rope_type="yarn", factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                                  original_max_position_embeddings=4096), max_position_embeddings=131072,
                layer_types=["sliding_attention", "full_attention"], **keys)


row("gpt_oss", gpt_oss(),
    expert_gain=0.5,
    note="Each head has a logit without a value; every second layer slides; gates are limited; the experts of a layer "
    "lie in one tensor, gates and what they open in turns.",
    router_gap=0.06,
    ablate={"no window": setter(sliding_window=4096), "rounded bounds": lambda c: c["rope_scaling"].update(truncate=True)})
row("gpt_oss_mxfp4",
    gpt_oss(quantization_config=dict(quant_method="mxfp4", modules_to_not_convert=[
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"])),
    as_hf=(gpt_oss(), four_bit_files),
    round=as_four_bits,
    router_gap=0.06,
    expert_gain=0.5,
    note="The same with experts in blocks of 32 four-bit floats; the oracle has what they stand for.")


def lckv_names(weights, c):
    """Layers that read the keys and values of another one store no projections for them."""
    reads = [int(part.rstrip("s")) for part in c["layer_types"].split("_")]
    gone = [f"layers.{l}.self_attn.{p}_proj." for l, read in enumerate(reads) if read != l for p in "kv"]
    return {k: v for k, v in weights.items() if not any(g in k for g in gone)}


def lckv(name, layer_types, note, **keys):
    row(name,
        base("LCKVLlamaForCausalLM", "lckv-llama", num_hidden_layers=layer_types.count("_") + 1, layer_types=layer_types,
             forward_passes=7, backward_passes=2, use_sequential=False, force_nodiag=False, **keys),
        as_hf=(base("LlamaForCausalLM", "llama", attention_bias=False, num_hidden_layers=layer_types.count("_") + 1),
               lckv_names),
        layer_map=layer_types, window=keys.get("sliding_window"),
        note=note)


lckv("lckv_cla", "0_0_2_2", "LCKV's code (whyNLP/LCKV 2dcbabe4, models/modeling_lckv.py) with the map of CLA.")
lckv("lckv_window", "0s_0s_2_2_2", "The same with the map of YOCO: windows below, one cache for all layers above.",
     sliding_window=9)


# --------------------------------------------------------------------------------------------------
# Llama 4: its text part alone, and within a checkpoint that also sees.

LLAMA4 = dict(attention_bias=False, attention_chunk_size=9, attn_scale=0.4, attn_temperature_tuning=4, floor_scale=5,
              for_llm_compressor=False, head_dim=8, interleave_moe_layer_step=1, intermediate_size=12,
              intermediate_size_mlp=20, no_rope_layers=[], no_rope_layer_interval=2, num_experts_per_tok=1,
              num_local_experts=4, output_router_logits=False, router_aux_loss_coef=0.001, router_jitter_noise=0.0,
              rope_theta=500000.0, use_qk_norm=True, pad_token_id=0,
              rope_scaling=dict(factor=16.0, high_freq_factor=1.0, low_freq_factor=1.0,
                                original_max_position_embeddings=8192, rope_type="llama3"))
row("llama4_text",
    base("Llama4ForCausalLM", "llama4_text", **(LLAMA4 | dict(interleave_moe_layer_step=2, use_qk_norm=False,
                                                              num_hidden_layers=3, num_experts_per_tok=2,
                                                              layer_types=["chunked_attention", "full_attention",
                                                                           "chunked_attention"]))),
    expert_gain=0.6,
    router_gap=0.01,
    note="The middle layer has experts, two a token, sees all and does not turn; its queries grow with their position. "
    "The others see chunks of 9.",
    ablate={"no chunks": setter(attention_chunk_size=4096), "queries do not grow": setter(attn_temperature_tuning=0)})
LLAMA4_TEXT = base("Llama4ForCausalLM", "llama4_text", **LLAMA4)
row("llama4",
    dict(architectures=["Llama4ForConditionalGeneration"], model_type="llama4", boi_token_index=97, eoi_token_index=98,
         image_token_index=99, text_config={k: v for k, v in LLAMA4_TEXT.items() if k != "architectures"},
         vision_config=dict(model_type="llama4_vision_model", hidden_size=16), torch_dtype="bfloat16",
         tie_word_embeddings=False, transformers_version="4.51.0"),
    as_hf=(LLAMA4_TEXT, lambda weights, c: {"language_model." + k: v for k, v in weights.items()}),
    strays={"vision_model.class_embedding": torch.zeros(16), "multi_modal_projector.linear_1.weight": torch.ones(32, 16)},
    expert_gain=0.6,
    router_gap=0.01,
    note="Within a checkpoint that also sees, whose tower is left alone: a shared expert and one of four in each layer, "
    "whose input is weighed; lengths of queries and keys are evened in the layer that turns.",
    ablate={"no chunks": setter(attention_chunk_size=4096), "lengths stay": setter(use_qk_norm=False),
            "queries do not grow": setter(attn_temperature_tuning=0)})

GEMMA3N = base("Gemma3nForCausalLM", "gemma3n_text", hidden_act=..., hidden_activation="gelu_pytorch_tanh",
               hidden_size=24, intermediate_size=[28] * 5, num_hidden_layers=5, head_dim=8, num_attention_heads=4,
               layer_types=["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"],
               num_kv_shared_layers=3, sliding_window=7, activation_sparsity_pattern=[0.9, 0.9, 0.0, 0.0, 0.0],
               altup_active_idx=0, altup_coef_clip=120.0, altup_correct_scale=True, altup_lr_multiplier=1.0,
               altup_num_inputs=4, laurel_rank=4, hidden_size_per_layer_input=6, vocab_size_per_layer_input=101,
               final_logit_softcapping=30.0, query_pre_attn_scalar=256, rms_norm_eps=1e-6, rope_theta=1000000.0,
               rope_local_base_freq=10000.0, rope_scaling=None, attention_bias=False, attention_dropout=0.0,
               pad_token_id=0, eos_token_id=1, bos_token_id=2, tie_word_embeddings=False)
# Without a cache 5.2 has layers compute keys and values that are to read those of earlier ones, and
# what it saves has names that it cannot read.
row("gemma3n_text", GEMMA3N,
    use_cache=True,
    as_held=True,
    note="Gemma 3n's text part: four streams of the residual, embeddings of every layer, narrow matrices beside attention, "
    "gates of which a tenth opens, and three layers that read the caches of earlier ones of their kind.",
    ablate={"all gates open": setter(activation_sparsity_pattern=[0.0] * 5), "no window": setter(sliding_window=4096),
            "another stream is worked on": setter(altup_active_idx=1), "it is not scaled": setter(altup_correct_scale=False)})

row("gemma3n",
    dict(architectures=["Gemma3nForConditionalGeneration"], model_type="gemma3n", audio_soft_tokens_per_image=188,
         audio_token_id=98, boa_token_id=93, boi_token_id=95, eoa_token_id=94, eoi_token_id=96, image_token_id=97,
         audio_config=dict(model_type="gemma3n_audio", hidden_size=16),
         text_config={k: v for k, v in GEMMA3N.items() if k != "architectures"},
         vision_config=dict(model_type="gemma3n_vision", hidden_size=16), vision_soft_tokens_per_image=256,
         torch_dtype="bfloat16", tie_word_embeddings=False, transformers_version="4.53.0"),
    as_hf=(GEMMA3N, lambda weights, c: {k.replace("model.", "model.language_model.", 1): v for k, v in weights.items()}),
    use_cache=True,
    as_held=True,
    strays={"model.vision_tower.timm_model.conv_stem.bias": torch.zeros(4), "model.audio_tower.conformer.0.norm": torch.ones(4),
            "model.embed_vision.embedding.weight": torch.ones(4, 4), "model.embed_audio.embedding.weight": torch.ones(4, 4)},
    note="The same within a checkpoint that also sees and hears, whose towers are left alone.")

def gemma4(**keys):
    return base("Gemma4ForCausalLM", "gemma4_text", **dict(
        hidden_act=..., hidden_activation="gelu_pytorch_tanh", hidden_size=24, intermediate_size=28, num_hidden_layers=4,
        head_dim=8, global_head_dim=16, num_attention_heads=4, num_key_value_heads=2, num_global_key_value_heads=None,
        layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention"], sliding_window=7,
        attention_k_eq_v=False, num_kv_shared_layers=0, hidden_size_per_layer_input=0, vocab_size_per_layer_input=101,
        use_double_wide_mlp=False, enable_moe_block=False, num_experts=None, top_k_experts=None, moe_intermediate_size=None,
        use_bidirectional_attention=None, final_logit_softcapping=30.0, rms_norm_eps=1e-6, rope_theta=...,
        rope_parameters={
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}},
        attention_bias=False, attention_dropout=0.0, pad_token_id=0, eos_token_id=1, bos_token_id=2,
        tie_word_embeddings=False) | keys)


def full_heads_turn(config):
    config["rope_parameters"]["full_attention"]["partial_rotary_factor"] = 1.0


row("gemma4_text", gemma4(attention_k_eq_v=True, num_global_key_value_heads=1),
    as_held=True,
    note="Gemma 4's text part, dense: two heads of 8 dims in sliding layers, one of 16 in full ones, whose values are what is "
    "projected to keys and of which a quarter turns.",
    ablate={"no window": setter(sliding_window=4096), "whole heads turn": full_heads_turn})

GEMMA4_E = gemma4(
    num_hidden_layers=6, num_kv_shared_layers=3, hidden_size_per_layer_input=6, use_double_wide_mlp=True,
    layer_types=["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "sliding_attention",
                 "full_attention"])
row("gemma4_e", GEMMA4_E,
    as_held=True,
    use_cache=True,
    note="The same as its small models have it: embeddings of every layer, and three layers of twice the MLP that read the "
    "caches of earlier ones of their kind.",
    ablate={"no window": setter(sliding_window=4096), "whole heads turn": full_heads_turn})

row("gemma4_moe",
    gemma4(attention_k_eq_v=True, num_global_key_value_heads=1, enable_moe_block=True, num_experts=4, top_k_experts=2,
           moe_intermediate_size=12),
    as_held=True,
    router_gap=0.02,
    expert_gain=0.6,
    note="The same with two of four experts beside each dense MLP.",
    ablate={"no window": setter(sliding_window=4096), "one expert": setter(top_k_experts=1)})

row("gemma4",
    dict(architectures=["Gemma4ForConditionalGeneration"], model_type="gemma4", audio_token_id=98, boa_token_id=93,
         boi_token_id=95, eoa_token_index=94, eoi_token_id=96, image_token_id=97, video_token_id=92,
         audio_config=dict(model_type="gemma4_audio", hidden_size=16),
         text_config={k: v for k, v in GEMMA4_E.items() if k != "architectures"},
         vision_config=dict(model_type="gemma4_vision", hidden_size=16),
         torch_dtype="bfloat16", tie_word_embeddings=False, transformers_version="5.5.0"),
    as_hf=(GEMMA4_E, lambda weights, c: {k.replace("model.", "model.language_model.", 1): v for k, v in weights.items()}),
    use_cache=True,
    as_held=True,
    strays={"model.vision_tower.patch_embedder.input_proj.weight": torch.zeros(4, 4),
            "model.audio_tower.output_proj.bias": torch.ones(4),
            "model.embed_vision.embedding_projection.weight": torch.ones(4, 4),
            "model.embed_audio.embedding_projection.weight": torch.ones(4, 4)},
    note="gemma4_e within a checkpoint that also sees and hears, whose towers are left alone.")

QWEN_STATES = dict(linear_conv_kernel_dim=4, linear_key_head_dim=8, linear_value_head_dim=6, linear_num_key_heads=2,
                   linear_num_value_heads=4)
row("qwen3_next",
    base("Qwen3NextForCausalLM", "qwen3_next", num_hidden_layers=4, head_dim=16, partial_rotary_factor=0.25,
         full_attention_interval=4, attention_bias=True, num_experts=4, shared_expert_intermediate_size=10,
         norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[1], rms_norm_eps=1e-6, rope_theta=10000000,
         rope_scaling=None, attention_dropout=0.0, intermediate_size=24, **QWEN_STATES, **MOE),
    norms_from_one=True,
    expert_gain=0.6,
    router_gap=0.03,
    note="Three layers of constant state (gated delta rule) and one with a cache, whose output is gated and which has "
    "biases; layer 1 dense.",
    ablate={"all dims turn": setter(partial_rotary_factor=1.0)})
QWEN35 = base("Qwen3_5ForCausalLM", "qwen3_5_text", num_hidden_layers=4, head_dim=16, full_attention_interval=4,
              attention_bias=False, attn_output_gate=True, mamba_ssm_dtype="float32", rms_norm_eps=1e-6, rope_theta=...,
              mtp_num_hidden_layers=1, attention_dropout=0.0, intermediate_size=24,
              rope_parameters=dict(mrope_interleaved=True, mrope_section=[2, 1, 1], partial_rotary_factor=0.5,
                                   rope_theta=10000000, rope_type="default"), **QWEN_STATES)
row("qwen3_5_text", QWEN35,
    norms_from_one=True,
    strays={"mtp.fc.weight": torch.ones(4, 4)},
    note="Qwen3.5's text part: projections of the gated delta rule in four matrices; what predicts further tokens is "
    "left alone.",
    ablate={"a quarter turns": lambda c: c["rope_parameters"].update(partial_rotary_factor=0.25, mrope_section=[1, 1, 0])})
row("qwen3_5",
    dict(architectures=["Qwen3_5ForConditionalGeneration"], model_type="qwen3_5", image_token_id=97, video_token_id=98,
         vision_start_token_id=95, vision_end_token_id=96,
         text_config={k: v for k, v in QWEN35.items() if k != "architectures"},
         vision_config=dict(model_type="qwen3_5", hidden_size=16), torch_dtype="bfloat16", tie_word_embeddings=False,
         transformers_version="5.2.0"),
    as_hf=(QWEN35, lambda weights, c: weights),
    strays={"model.visual.pos_embed.weight": torch.zeros(4, 4), "mtp.fc.weight": torch.ones(4, 4)},
    norms_from_one=True,
    note="The same within a checkpoint that also sees, whose tower is left alone.")
MAMBA = dict(mamba_n_heads=4, mamba_d_head=16, mamba_n_groups=2, mamba_d_state=8, mamba_d_conv=4, mamba_expand=2,
             mamba_chunk_size=16, mamba_conv_bias=True, mamba_proj_bias=False)
row("bamba",
    base("BambaForCausalLM", "bamba", num_hidden_layers=3, attn_layer_indices=[1], partial_rotary_factor=0.5,
         num_logits_to_keep=1, z_loss_coefficient=0.0, attention_dropout=0.0, **MAMBA),
    turning_dims=4,
    norm_groups=2,
    note="Mamba-2 layers around one that attends; two groups of B and C, by which gated rows are normed, as in the "
    "authors' code and in transformers 5.24; half of each head turns, as there and in transformers 4. 5.2 norms all of "
    "a row at once and turns all of a head, so the oracle has both patched.",
    ablate={"all layers turn slower": setter(rope_theta=1000000.0)})
GRANITE4 = dict(num_hidden_layers=3, attention_bias=False, layer_types=["mamba", "attention", "mamba"],
                position_embedding_type="nope", embedding_multiplier=12.0, residual_multiplier=0.22,
                attention_multiplier=0.2, logits_scaling=8.0, output_router_logits=False, router_aux_loss_coef=0.01,
                normalization_function="rmsnorm", init_method="mup")
row("granitemoehybrid",
    base("GraniteMoeHybridForCausalLM", "granitemoehybrid", num_hidden_layers=3, attention_bias=False,
         layer_types=["mamba", "attention", "mamba"], position_embedding_type="nope", num_local_experts=0,
         num_experts_per_tok=0, shared_intermediate_size=36, embedding_multiplier=12.0, residual_multiplier=0.22,
         attention_multiplier=0.2, logits_scaling=8.0, output_router_logits=False, router_aux_loss_coef=0.01,
         normalization_function="rmsnorm", init_method="mup", **(MAMBA | dict(mamba_n_groups=1, mamba_d_head="auto"))),
    embed_gain=0.05,
    note="Granite 4.0 without experts: Mamba-2 layers around one that attends and does not turn; multipliers.",
    ablate={"the layer turns": setter(position_embedding_type="rope")})
row("granitemoehybrid_moe",
    base("GraniteMoeHybridForCausalLM", "granitemoehybrid", num_local_experts=4, num_experts_per_tok=2,
         intermediate_size=12, shared_intermediate_size=20, **GRANITE4,
         **(MAMBA | dict(mamba_n_groups=1, mamba_d_head="auto"))),
    embed_gain=0.05,
    router_gap=0.03,
    note="Granite 4.0 with experts beside an MLP that all tokens share; the experts of a layer lie in one tensor, "
    "[experts, out, in].",
    ablate={"one expert more": setter(num_experts_per_tok=3)})


def stacked_experts(weights, c):
    """Experts as published files of Qwen3.5 have them: all of a layer in one tensor, gates above what they open."""
    out, groups = {}, {}
    for name, weight in weights.items():
        scope, at, rest = name.partition(".experts.")
        if not at:
            out[name] = weight
            continue
        number, part = rest.split(".")[:2]
        groups.setdefault((scope, part), {})[int(number)] = weight
    for (scope, part), of in groups.items():
        together = torch.stack([of[i] for i in range(len(of))])
        if part == "down_proj":
            out[scope + ".experts.down_proj"] = together
        elif part == "gate_proj":
            ups = groups[scope, "up_proj"]
            out[scope + ".experts.gate_up_proj"] = torch.cat([together, torch.stack([ups[i] for i in range(len(ups))])], 1)
    return out


QWEN35_MOE = {k: v for k, v in QWEN35.items() if k not in ("intermediate_size", "architectures", "model_type")}
QWEN35_MOE = dict(architectures=["Qwen3_5MoeForCausalLM"], model_type="qwen3_5_moe_text", num_experts=4,
                  shared_expert_intermediate_size=10, **QWEN35_MOE, **MOE)
row("qwen3_5_moe_text", QWEN35_MOE,
    norms_from_one=True,
    expert_gain=0.6,
    router_gap=0.03,
    strays={"mtp.fc.weight": torch.ones(4, 4)},
    note="Qwen3.5's text part with experts in every layer beside one that all tokens share, each stored by itself.")
row("qwen3_5_moe",
    dict(architectures=["Qwen3_5MoeForConditionalGeneration"], model_type="qwen3_5_moe", image_token_id=97,
         video_token_id=98, vision_start_token_id=95, vision_end_token_id=96,
         text_config={k: v for k, v in QWEN35_MOE.items() if k != "architectures"},
         vision_config=dict(model_type="qwen3_5_moe", hidden_size=16), torch_dtype="bfloat16", tie_word_embeddings=False,
         transformers_version="5.2.0"),
    as_hf=(QWEN35_MOE, stacked_experts),
    strays={"model.visual.pos_embed.weight": torch.zeros(4, 4), "mtp.fc.weight": torch.ones(4, 4)},
    norms_from_one=True,
    expert_gain=0.6,
    router_gap=0.03,
    note="The same within a checkpoint that also sees, whose tower is left alone; the experts of a layer lie in one "
    "tensor, [experts, out, in].")
