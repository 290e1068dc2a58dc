"""The repeated blocks of public models: name -> (block, args, kwargs), tiny, in train mode, all dropouts on.

A model of the `transformers` package is made from a small configuration, with random weights; nothing is loaded. One
forward is run, and the block's arguments are recorded as the model passes them.
"""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import transformers
from huggingface_hub.errors import StrictDataclassFieldValidationError
from torch import nn
from torch.utils._pytree import tree_map

transformers.logging.set_verbosity_error()

Built = tuple[nn.Module, tuple, dict]
BLOCKS: dict[str, Callable[[], Built]] = {}
MODELS: dict[str, Public] = {}
WIDTH, LAYERS, HEADS, WORDS = 16, 2, 2, 50
TEXT = {
    "vocab_size": WORDS, "hidden_size": WIDTH, "intermediate_size": 32, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "max_position_embeddings": 64, "pad_token_id": 0, "use_cache": False,
}  # fmt: skip
GROUPED = TEXT | {"num_key_value_heads": 1, "head_dim": 8}
SEEN = TEXT | {"image_size": 8, "patch_size": 4, "num_channels": 3}


def words(rows: int = 2, length: int = 6) -> dict:
    """Token numbers, with padding at the end of the last row."""
    ids, mask = torch.randint(3, WORDS, (rows, length)), torch.ones(rows, length, dtype=torch.long)
    ids[-1, -2:], mask[-1, -2:] = 0, 0
    return {"input_ids": ids, "attention_mask": mask}


def unmasked(length: int = 6) -> dict:
    return {"input_ids": torch.randint(3, WORDS, (2, length))}


def pairs(length: int = 6) -> dict:
    return words(length=length) | {"decoder_input_ids": torch.randint(3, WORDS, (2, 4))}


def picture(size: int = 8) -> dict:
    return {"pixel_values": torch.randn(2, 3, size, size)}


def sound(length: int = 400) -> dict:
    return {"input_values": torch.randn(2, length)}


def seeded(make: Callable) -> Callable:
    """Made anew, it is the same again. Seeds of NumPy and Python too, whose streams some models draw from."""

    @functools.wraps(make)
    def same(*args, **kwargs):
        numpy, python = np.random.get_state(), random.getstate()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0), np.random.seed(0), random.seed(0)
            try:
                return make(*args, **kwargs)
            finally:
                np.random.set_state(numpy), random.setstate(python)

    return same


def model_of(family: str, head: str = "Model", **options) -> nn.Module:
    """A model in train mode; what is called a dropout in its configuration is at least 0.1."""
    config = getattr(transformers, family + "Config")(**options)
    parts = [config, *(c for c in vars(config).values() if isinstance(c, transformers.PreTrainedConfig))]
    for part in parts:
        for name, value in vars(part).items():
            if "drop" in name and "layerdrop" not in name and type(value) in (int, float) and value == 0:
                with contextlib.suppress(StrictDataclassFieldValidationError):  # a rate that is declared as an integer
                    setattr(part, name, 0.1)
    model = getattr(transformers, head[1:] if head.startswith(":") else family + head)(config)
    return model.train()


def recorded(model: nn.Module, part: str, inputs: dict) -> Built:
    """The part and what it is called with, in the model's last call of it."""
    block = model.get_submodule(part) if part else model
    calls: list[tuple[tuple, dict]] = []
    handle = block.register_forward_pre_hook(lambda _, args, kwargs: calls.append((args, kwargs)), with_kwargs=True)
    model(**inputs)
    handle.remove()
    args, kwargs = tree_map(_leaf, calls[-1])
    return block, args, kwargs


def _leaf(value):
    return value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value


@dataclass(frozen=True)
class Public:
    """A model of the package, small, and what it is called with. `part` names its block, "" the model itself."""

    family: str
    part: str
    inputs: Callable[[], dict]
    head: str
    options: dict

    def model(self) -> tuple[nn.Module, dict]:
        return model_of(self.family, self.head, **self.options), self.inputs()

    def block(self) -> Built:
        model, inputs = self.model()
        return recorded(model, self.part, inputs)


def block(name: str, family: str, part: str, inputs: Callable[[], dict] = words, head: str = "Model", **options):
    public = MODELS["transformers/" + name] = Public(family, part, inputs, head, options)
    BLOCKS["transformers/" + name] = seeded(public.block)


# Decoders

block("llama", "Llama", "layers.1", **GROUPED)
block("mistral", "Mistral", "layers.1", sliding_window=4, **GROUPED)
block("qwen2", "Qwen2", "layers.1", **GROUPED)
block("qwen3", "Qwen3", "layers.1", **GROUPED)
block("gemma", "Gemma", "layers.1", **GROUPED)
block("gemma2", "Gemma2", "layers.1", **GROUPED)
block("gemma3", "Gemma3Text", "layers.1", **GROUPED)
block("phi", "Phi", "layers.1", **TEXT)
block("phi3", "Phi3", "layers.1", **GROUPED)
block("olmo2", "Olmo2", "layers.1", **GROUPED)
block("starcoder2", "Starcoder2", "layers.1", **GROUPED)
block("stablelm", "StableLm", "layers.1", **GROUPED)
block("granite", "Granite", "layers.1", **GROUPED)
block("cohere", "Cohere", "layers.1", **GROUPED)
block("smollm3", "SmolLM3", "layers.1", **GROUPED)
block("gpt2", "GPT2", "h.1", vocab_size=WORDS, n_embd=WIDTH, n_layer=2, n_head=2, n_positions=64, use_cache=False)
block("gpt_neo", "GPTNeo", "h.1", vocab_size=WORDS, hidden_size=WIDTH, num_layers=2, num_heads=2,
      attention_types=[[["global", "local"], 1]], window_size=4, use_cache=False)  # fmt: skip
block("gpt_neox", "GPTNeoX", "layers.1", **TEXT)
block("gptj", "GPTJ", "h.1", vocab_size=WORDS, n_embd=WIDTH, n_layer=2, n_head=2, n_positions=64, rotary_dim=4,
      use_cache=False)  # fmt: skip
block("opt", "OPT", "decoder.layers.1", word_embed_proj_dim=WIDTH, ffn_dim=32, **TEXT)
block("bloom", "Bloom", "h.1", vocab_size=WORDS, hidden_size=WIDTH, n_layer=2, n_head=2, use_cache=False)
block("falcon", "Falcon", "h.1", **TEXT)
block("mpt", "Mpt", "blocks.1", vocab_size=WORDS, d_model=WIDTH, n_layers=2, n_heads=2, max_seq_len=64, use_cache=False)
block("deepseek_v3", "DeepseekV3", "layers.1", first_k_dense_replace=2, q_lora_rank=8, kv_lora_rank=8,
      qk_rope_head_dim=4, qk_nope_head_dim=4, v_head_dim=8, **TEXT)  # fmt: skip

block("xglm", "XGLM", "layers.1", d_model=WIDTH, ffn_dim=32, num_layers=2, attention_heads=2, vocab_size=WORDS,
      max_position_embeddings=64, use_cache=False)  # fmt: skip
block("biogpt", "BioGpt", "layers.1", **TEXT)
block("persimmon", "Persimmon", "layers.1", **TEXT)
block("nemotron", "Nemotron", "layers.1", **GROUPED)
block("glm", "Glm", "layers.1", **GROUPED)
block("glm4", "Glm4", "layers.1", **GROUPED)
block("ernie4_5", "Ernie4_5", "layers.1", **GROUPED)
block("exaone4", "Exaone4", "layers.1", **GROUPED)
block("apertus", "Apertus", "layers.1", **GROUPED)
block("seed_oss", "SeedOss", "layers.1", **GROUPED)
block("helium", "Helium", "layers.1", **GROUPED)
block("nanochat", "NanoChat", "layers.1", **GROUPED)
block("codegen", "CodeGen", "h.1", vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=64, rotary_dim=4,
      use_cache=False)  # fmt: skip
block("gpt_bigcode", "GPTBigCode", "h.1", vocab_size=WORDS, n_embd=WIDTH, n_layer=2, n_head=2, n_positions=64,
      use_cache=False)  # fmt: skip
block("opt_decoder_with_layer_drop", "OPT", "decoder", word_embed_proj_dim=WIDTH, ffn_dim=32, layerdrop=0.3, **TEXT)
block("gpt2_whole", "GPT2", "", vocab_size=WORDS, n_embd=WIDTH, n_layer=2, n_head=2, n_positions=64, use_cache=False)

# Encoders

block("bert", "Bert", "encoder.layer.1", **TEXT)
block("roberta", "Roberta", "encoder.layer.1", **TEXT)
block("electra", "Electra", "encoder.layer.1", embedding_size=WIDTH, **TEXT)
block("albert", "Albert", "encoder.albert_layer_groups.0", embedding_size=8, **TEXT)
block("distilbert", "DistilBert", "transformer.layer.1", vocab_size=WORDS, dim=WIDTH, n_layers=2, n_heads=2,
      hidden_dim=32)  # fmt: skip
block("mpnet", "MPNet", "encoder.layer.1", **TEXT)
block("deberta", "Deberta", "encoder.layer.1", relative_attention=True, pos_att_type=["p2c", "c2p"], **TEXT)
block("deberta_v2", "DebertaV2", "encoder.layer.1", relative_attention=True, pos_att_type=["p2c", "c2p"], **TEXT)
block("modernbert", "ModernBert", "layers.1", **TEXT)
block("xlnet", "XLNet", "layer.1", vocab_size=WORDS, d_model=WIDTH, n_layer=2, n_head=2, d_inner=32)
block("funnel", "Funnel", "encoder.blocks.0.1", vocab_size=WORDS, block_sizes=[2, 1], d_model=WIDTH, n_head=2, d_head=8,
      d_inner=32)  # fmt: skip
block("longformer", "Longformer", "encoder.layer.1", lambda: words(length=8), attention_window=4, **TEXT)
block("big_bird", "BigBird", "encoder.layer.1", lambda: words(length=64), attention_type="block_sparse", block_size=4,
      num_random_blocks=2, **(TEXT | {"max_position_embeddings": 128}))  # fmt: skip
block("squeezebert_encoder", "SqueezeBert", "encoder", embedding_size=WIDTH, **TEXT)
block("convbert", "ConvBert", "encoder.layer.1", embedding_size=WIDTH, **(TEXT | {"num_attention_heads": 4}))
block("mobilebert", "MobileBert", "encoder.layer.1", embedding_size=8, intra_bottleneck_size=8, true_hidden_size=8,
      **TEXT)  # fmt: skip
block("nystromformer", "Nystromformer", "encoder.layer.1", lambda: unmasked(8), num_landmarks=4,
      segment_means_seq_len=8, **TEXT)  # fmt: skip
block("yoso", "Yoso", "encoder.layer.1", use_expectation=True, **TEXT)
block("ibert", "IBert", "encoder.layer.1", quant_mode=True, **TEXT)
block("ibert_not_quantised", "IBert", "encoder.layer.1", quant_mode=False, **TEXT)
block("fnet", "FNet", "encoder.layer.1", unmasked, **TEXT)
block("reformer_encoder", "Reformer", "encoder", lambda: unmasked(16), vocab_size=WORDS, hidden_size=WIDTH,
      num_attention_heads=2, attention_head_size=8, attn_layers=["local", "local"], feed_forward_size=32,
      axial_pos_embds=False, max_position_embeddings=64, local_attn_chunk_length=4, is_decoder=False,
      use_cache=False)  # fmt: skip
block("roformer", "RoFormer", "encoder.layer.1", embedding_size=WIDTH, **TEXT)
block("rembert", "RemBert", "encoder.layer.1", input_embedding_size=8, **TEXT)
block("esm", "Esm", "encoder.layer.1", position_embedding_type="rotary", **TEXT)
block("ernie", "Ernie", "encoder.layer.1", **TEXT)
block("nomic_bert", "NomicBert", "layers.1", **TEXT)
block("splinter", "Splinter", "encoder.layer.1", **TEXT)
block("layoutlm", "LayoutLM", "encoder.layer.1", **TEXT)
block("roberta_prelayernorm", "RobertaPreLayerNorm", "encoder.layer.1", **TEXT)
block("megatron_bert", "MegatronBert", "encoder.layer.1", **TEXT)
block("canine", "Canine", "encoder.layer.1", lambda: words(length=8), num_hash_buckets=16, downsampling_rate=2,
      local_transformer_stride=4, **TEXT)  # fmt: skip
block("clip_text", "CLIPText", "encoder.layers.1", **TEXT)

# Encoders with decoders

S2S = {"vocab_size": WORDS, "d_model": WIDTH, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
       "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 64,
       "use_cache": False, "pad_token_id": 0}  # fmt: skip
T5 = {"vocab_size": WORDS, "d_model": WIDTH, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "use_cache": False}
block("t5_encoder_first", "T5", "encoder.block.0", pairs, **T5)
block("t5_encoder", "T5", "encoder.block.1", pairs, **T5)
block("t5_decoder", "T5", "decoder.block.1", pairs, feed_forward_proj="gated-gelu", **T5)
block("mt5_decoder", "MT5", "decoder.block.1", pairs, **T5)
block("longt5_encoder", "LongT5", "encoder.block.1", pairs, encoder_attention_type="transient-global", local_radius=3,
      global_block_size=2, **T5)  # fmt: skip
block("switch_encoder", "SwitchTransformers", "encoder.block.1", pairs, num_experts=4, num_sparse_encoder_layers=1,
      num_sparse_decoder_layers=1, router_jitter_noise=0.1, **T5)  # fmt: skip
block("bart_encoder", "Bart", "encoder.layers.1", pairs, **S2S)
block("bart_decoder", "Bart", "decoder.layers.1", pairs, **S2S)
block("pegasus_decoder", "Pegasus", "decoder.layers.1", pairs, **S2S)
block("marian_encoder", "Marian", "encoder.layers.1", pairs, **(S2S | {"decoder_start_token_id": 1}))
block("m2m100_decoder", "M2M100", "decoder.layers.1", pairs, **S2S)
block("nllb_moe_encoder", "NllbMoe", "encoder.layers.1", pairs, num_experts=4, expert_capacity=8, encoder_sparse_step=2,
      decoder_sparse_step=2, **S2S)  # fmt: skip

block("bart_encoder_with_layer_drop", "Bart", "encoder", pairs, encoder_layerdrop=0.3, **S2S)
block("mbart_decoder", "MBart", "decoder.layers.1", pairs, **S2S)
block("blenderbot_decoder", "Blenderbot", "decoder.layers.1", pairs, **S2S)
block("led_encoder", "LED", "encoder.layers.1", lambda: pairs(8), attention_window=[4, 4],
      max_encoder_position_embeddings=64, max_decoder_position_embeddings=64,
      **{k: v for k, v in S2S.items() if k != "max_position_embeddings"})  # fmt: skip
block("fsmt_decoder", "FSMT", "decoder.layers.1", pairs, src_vocab_size=WORDS, tgt_vocab_size=WORDS, langs=["a", "b"],
      **{k: v for k, v in S2S.items() if k != "vocab_size"})  # fmt: skip
block("prophetnet_decoder", "ProphetNet", "decoder.layers.1", pairs, vocab_size=WORDS, hidden_size=WIDTH,
      num_encoder_layers=2, num_decoder_layers=2, num_encoder_attention_heads=2, num_decoder_attention_heads=2,
      encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=64, use_cache=False)  # fmt: skip


def layout() -> dict:
    return pairs() | {"bbox": torch.rand(2, 6, 4)}


block("udop_relative_bias", "Udop", "encoder.relative_bias", layout, **(T5 | {"num_decoder_layers": 2}))
block("udop_encoder", "Udop", "encoder", layout, **(T5 | {"num_decoder_layers": 2}))


def melody() -> dict:
    return {"input_ids": torch.randint(3, WORDS, (4, 5))}


block("musicgen_decoder_with_layer_drop", "MusicgenDecoder", "decoder", melody, head=":MusicgenModel", num_codebooks=2,
      ffn_dim=32, layerdrop=0.3, **TEXT)  # fmt: skip

# Mixtures of experts

EXPERTS = GROUPED | {"moe_intermediate_size": 8, "num_experts": 4, "num_experts_per_tok": 2}
block("mixtral", "Mixtral", "layers.1", num_local_experts=4, num_experts_per_tok=2, router_jitter_noise=0.1, **GROUPED)
block("qwen2_moe", "Qwen2Moe", "layers.1", shared_expert_intermediate_size=8, **EXPERTS)
block("qwen3_moe", "Qwen3Moe", "layers.1", **EXPERTS)
block("olmoe", "Olmoe", "layers.1", **EXPERTS)
block("gpt_oss", "GptOss", "layers.1", num_local_experts=4, num_experts_per_tok=2, **GROUPED)
block("phimoe", "Phimoe", "layers.1", num_local_experts=4, **(GROUPED | {"max_position_embeddings": 64}))
block("granitemoe", "GraniteMoe", "layers.1", num_local_experts=4, **GROUPED)
block("deepseek_v3_experts", "DeepseekV3", "layers.1", first_k_dense_replace=0, n_routed_experts=4, n_group=2,
      topk_group=1, num_experts_per_tok=2, moe_intermediate_size=8, q_lora_rank=8, kv_lora_rank=8, qk_rope_head_dim=4,
      qk_nope_head_dim=4, v_head_dim=8, **TEXT)  # fmt: skip

block("glm4_moe", "Glm4Moe", "layers.1", n_routed_experts=4, first_k_dense_replace=0, **EXPERTS)
block("dots1", "Dots1", "layers.1", n_routed_experts=4, n_shared_experts=1, n_group=1, topk_group=1,
      first_k_dense_replace=0, **EXPERTS)  # fmt: skip
block("ernie4_5_moe", "Ernie4_5_Moe", "layers.1", moe_num_experts=4, moe_k=2, moe_layer_start_index=0, **EXPERTS)
block("minimax", "MiniMax", "layers.1", num_local_experts=4, num_experts_per_tok=2,
      layer_types=["full_attention", "linear_attention"], block_size=4, **GROUPED)  # fmt: skip
block("jetmoe", "JetMoe", "layers.1", num_local_experts=4, num_experts_per_tok=1, kv_channels=8, num_key_value_heads=2,
      **TEXT)  # fmt: skip
block("dbrx", "Dbrx", "blocks.1", vocab_size=WORDS, d_model=WIDTH, n_heads=2, n_layers=2, max_seq_len=64,
      use_cache=False, attn_config={"kv_n_heads": 1, "attn_pdrop": 0.1, "rope_theta": 1e4, "clip_qkv": 8.0},
      ffn_config={"ffn_hidden_size": 16, "moe_num_experts": 4, "moe_top_k": 2, "moe_jitter_eps": 0.1})  # fmt: skip
block("flex_olmo", "FlexOlmo", "layers.1", **EXPERTS)
block("llama4_experts", "Llama4Text", "layers.1", num_local_experts=4, num_experts_per_tok=1,
      interleave_moe_layer_step=1, intermediate_size_mlp=32, attention_chunk_size=4, **GROUPED)  # fmt: skip

# State spaces and other recurrences

block("mamba", "Mamba", "layers.1", vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=2, state_size=4,
      use_cache=False)  # fmt: skip
block("mamba2", "Mamba2", "layers.1", vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=2, state_size=4,
      num_heads=4, head_dim=8, n_groups=2, chunk_size=4, use_cache=False)  # fmt: skip
block("rwkv", "Rwkv", "blocks.1", vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=2, use_cache=False)
block("recurrent_gemma", "RecurrentGemma", "layers.1", lru_width=WIDTH, attention_window_size=4,
      **(GROUPED | {"num_hidden_layers": 3}))  # fmt: skip
block("lfm2", "Lfm2", "layers.0", layer_types=["conv", "full_attention"], **GROUPED)
block("qwen3_next", "Qwen3Next", "layers.0", linear_num_value_heads=2, linear_num_key_heads=2, linear_key_head_dim=8,
      linear_value_head_dim=8, layer_types=["linear_attention", "full_attention"], shared_expert_intermediate_size=8,
      **EXPERTS)  # fmt: skip

block("jamba", "Jamba", "layers.0", attn_layer_period=2, attn_layer_offset=1, expert_layer_period=1,
      expert_layer_offset=0, num_experts=4, num_experts_per_tok=2, use_mamba_kernels=False, mamba_d_state=4,
      mamba_dt_rank=4, **GROUPED)  # fmt: skip
block("bamba", "Bamba", "layers.0", attn_layer_indices=[1], mamba_n_heads=4, mamba_d_head=8, mamba_n_groups=1,
      mamba_d_state=4, mamba_chunk_size=4, **GROUPED)  # fmt: skip
block("falcon_mamba", "FalconMamba", "layers.1", vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=2, state_size=4,
      use_cache=False)  # fmt: skip

# Vision

block("vit", "ViT", "layers.1", picture, **SEEN)
block("deit", "DeiT", "layers.1", picture, **SEEN)
block("beit", "Beit", "layers.1", picture, use_relative_position_bias=True, layer_scale_init_value=0.1,
      drop_path_rate=0.3, **SEEN)  # fmt: skip
block("dinov2", "Dinov2", "encoder.layer.1", picture, drop_path_rate=0.3, **SEEN)
block("clip_vision", "CLIPVision", "encoder.layers.1", picture, **SEEN)
block("siglip_vision", "SiglipVision", "encoder.layers.1", picture, **SEEN)
block("swin", "Swin", "encoder.layers.0.blocks.1", lambda: picture(16), image_size=16, patch_size=2, embed_dim=8,
      depths=[2, 1], num_heads=[2, 2], window_size=4, drop_path_rate=0.3)  # fmt: skip
block("swinv2", "Swinv2", "encoder.layers.0.blocks.1", lambda: picture(16), image_size=16, patch_size=2, embed_dim=8,
      depths=[2, 1], num_heads=[2, 2], window_size=4, drop_path_rate=0.3)  # fmt: skip
block("convnext", "ConvNext", "encoder.stages.0.layers.1", lambda: picture(16), depths=[2, 1], hidden_sizes=[8, 16],
      num_stages=2, drop_path_rate=0.3)  # fmt: skip
block("convnextv2", "ConvNextV2", "encoder.stages.0.layers.1", lambda: picture(16), depths=[2, 1], hidden_sizes=[8, 16],
      num_stages=2, drop_path_rate=0.3)  # fmt: skip
block("pvt_v2", "PvtV2", "encoder.layers.0.blocks.1", lambda: picture(32), image_size=32, depths=[2, 1, 1, 1],
      hidden_sizes=[8, 8, 8, 8], num_attention_heads=[1, 2, 2, 2], mlp_ratios=[2, 2, 2, 2],
      drop_path_rate=0.3)  # fmt: skip
block("segformer", "Segformer", "stages.0.blocks.1", lambda: picture(32), depths=[2, 1, 1, 1],
      hidden_sizes=[8, 8, 8, 8], num_attention_heads=[1, 2, 2, 2], mlp_ratios=[2, 2, 2, 2],
      drop_path_rate=0.3)  # fmt: skip
block("mobilevit", "MobileViT", "encoder.layer.2", lambda: picture(32), image_size=32, hidden_sizes=[8, 8, 8],
      neck_hidden_sizes=[4, 4, 4, 4, 8, 8, 16], num_attention_heads=2)  # fmt: skip
block("resnet", "ResNet", "encoder.stages.0.layers.1", lambda: picture(16), embedding_size=8, hidden_sizes=[8, 16],
      depths=[2, 1], layer_type="basic")  # fmt: skip
block("efficientnet", "EfficientNet", "encoder.blocks.1", lambda: picture(32), image_size=32, in_channels=[8, 8],
      out_channels=[8, 8], kernel_sizes=[3, 3], strides=[1, 1], num_block_repeats=[1, 1], expand_ratios=[2, 2],
      width_coefficient=0.25, depth_coefficient=1.0, depthwise_padding=[], hidden_dim=320)  # fmt: skip
block("regnet", "RegNet", "encoder.stages.0.layers.1", lambda: picture(16), embedding_size=8, hidden_sizes=[8, 16],
      depths=[2, 1], groups_width=4)  # fmt: skip
block("poolformer", "PoolFormer", "encoder.block.0.1", lambda: picture(32), depths=[2, 1, 1, 1],
      hidden_sizes=[8, 8, 8, 8], drop_path_rate=0.3)  # fmt: skip
block("bit", "Bit", "encoder.stages.0.layers.1", lambda: picture(32), embedding_size=32, hidden_sizes=[32, 32],
      depths=[2, 1], num_groups=4, drop_path_rate=0.3)  # fmt: skip

block("mobilenet_v2", "MobileNetV2", "layer.3", lambda: picture(32), image_size=32, depth_multiplier=0.25)
block("mobilenet_v1", "MobileNetV1", "layer.2", lambda: picture(32), image_size=32, depth_multiplier=0.25)
block("mobilevit_v2", "MobileViTV2", "encoder.layer.2", lambda: picture(64), image_size=64, width_multiplier=0.25)
block("levit", "Levit", "encoder.stages.0.layers.0", lambda: picture(32), image_size=32, hidden_sizes=[16, 24],
      num_attention_heads=[2, 2], depths=[2, 1], key_dim=[4, 4], mlp_ratio=[2, 2],
      attention_ratio=[2, 2], down_ops=[["Subsample", 4, 4, 4, 2, 2], [""]])  # fmt: skip
block("swiftformer", "SwiftFormer", "encoder.network.0.blocks.1", lambda: picture(32), image_size=32, depths=[2, 1],
      embed_dims=[8, 16], downsamples=[True, True], drop_path_rate=0.3, mlp_ratio=2)  # fmt: skip
block("hiera", "Hiera", "encoder.stages.0.layers.0", lambda: picture(32), image_size=[32, 32], embed_dim=8,
      depths=[1, 1], num_heads=[1, 2], query_stride=[2, 2], num_query_pool=1, masked_unit_size=[4, 4],
      drop_path_rate=0.3)  # fmt: skip
block("focalnet", "FocalNet", "encoder.stages.0.layers.1", lambda: picture(16), image_size=16, patch_size=2,
      embed_dim=8, depths=[2, 1], hidden_sizes=[8, 16], focal_levels=[2, 2], focal_windows=[3, 3],
      drop_path_rate=0.3)  # fmt: skip
block("vit_mae_whole", "ViTMAE", "", picture, head="ForPreTraining", decoder_hidden_size=WIDTH,
      decoder_num_hidden_layers=1, decoder_num_attention_heads=2, decoder_intermediate_size=32, **SEEN)  # fmt: skip
block("ijepa", "IJepa", "layers.1", picture, **SEEN)
block("dinov3_vit", "DINOv3ViT", "model.layer.1", picture, drop_path_rate=0.3, num_register_tokens=1, **SEEN)
block("timesformer", "Timesformer", "encoder.layer.1", lambda: {"pixel_values": torch.randn(1, 2, 3, 8, 8)},
      num_frames=2, **SEEN)  # fmt: skip
block("vivit", "Vivit", "layers.1", lambda: {"pixel_values": torch.randn(1, 2, 3, 8, 8)}, num_frames=2,
      tubelet_size=[1, 4, 4], **SEEN)  # fmt: skip
block("perceiver", "Perceiver", "encoder.self_attends.1", lambda: {"inputs": torch.randn(2, 6, 8)}, num_latents=4,
      d_latents=WIDTH, d_model=8, num_blocks=1, num_self_attends_per_block=2, num_self_attention_heads=2,
      num_cross_attention_heads=1)  # fmt: skip

# Speech

WAVES = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
         "conv_dim": (8, 8), "conv_stride": (5, 2), "conv_kernel": (10, 3), "num_feat_extract_layers": 2,
         "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "vocab_size": WORDS,
         "mask_time_prob": 0.3, "mask_time_length": 2, "layerdrop": 0.3}  # fmt: skip
block("wav2vec2", "Wav2Vec2", "encoder.layers.1", sound, **(WAVES | {"layerdrop": 0.0}))
block("wav2vec2_encoder_with_layer_drop", "Wav2Vec2", "encoder", sound, **WAVES)
block("wav2vec2_adapter_with_layer_drop", "Wav2Vec2", "adapter", sound, add_adapter=True, num_adapter_layers=2, **WAVES)
block("wav2vec2_whole", "Wav2Vec2", "", sound, **WAVES)
block("hubert", "Hubert", "encoder.layers.1", sound, **(WAVES | {"layerdrop": 0.0}))
block("wavlm", "WavLM", "encoder.layers.1", sound, **(WAVES | {"layerdrop": 0.0}))
block("wav2vec2_conformer", "Wav2Vec2Conformer", "encoder.layers.1", sound, **(WAVES | {"layerdrop": 0.0}))


def spectrogram() -> dict:
    return {"input_features": torch.randn(2, 8, 32), "decoder_input_ids": torch.randint(3, WORDS, (2, 4))}


WHISPER = S2S | {"num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 16, "apply_spec_augment": True,
                 "mask_time_prob": 0.3, "mask_time_length": 2, "decoder_start_token_id": 1, "bos_token_id": 1,
                 "eos_token_id": 2, "suppress_tokens": None, "begin_suppress_tokens": None}  # fmt: skip
block("whisper_encoder", "Whisper", "encoder.layers.1", spectrogram, **WHISPER)
block("whisper_decoder", "Whisper", "decoder.layers.1", spectrogram, **WHISPER)
block("whisper_whole", "Whisper", "", spectrogram, **WHISPER)
block("data2vec_audio", "Data2VecAudio", "encoder.layers.1", sound, **(WAVES | {"layerdrop": 0.0}))
block("sew", "SEW", "encoder.layers.1", sound, squeeze_factor=2, **(WAVES | {"layerdrop": 0.0}))
block("unispeech_quantiser", "UniSpeech", "quantizer", sound, head="ForPreTraining", num_codevectors_per_group=4,
      codevector_dim=8, **WAVES)  # fmt: skip
block("wav2vec2_quantiser", "Wav2Vec2", "quantizer", lambda: sound() | {"mask_time_indices": torch.rand(2, 39) < 0.4},
      head="ForPreTraining", num_codevectors_per_group=4, codevector_dim=8, proj_codevector_dim=8, **WAVES)  # fmt: skip
block("speech_to_text_encoder", "Speech2Text", "encoder.layers.1",
      lambda: {"input_features": torch.randn(2, 32, 8), "decoder_input_ids": torch.randint(3, WORDS, (2, 4))},
      input_feat_per_channel=8, conv_channels=16, max_source_positions=64, max_target_positions=64,
      **{k: v for k, v in S2S.items() if k != "max_position_embeddings"})  # fmt: skip
block("encodec_encoder", "Encodec", "encoder", lambda: {"input_values": torch.randn(2, 1, 160)}, hidden_size=8,
      num_filters=4, upsampling_ratios=[4, 2], codebook_size=16, codebook_dim=8, num_lstm_layers=1)  # fmt: skip
block("audio_spectrogram", "AST", "layers.1", lambda: {"input_values": torch.randn(2, 16, 8)},
      max_length=16, num_mel_bins=8, patch_size=4, time_stride=4, frequency_stride=4,
      **{k: v for k, v in TEXT.items() if k not in ("vocab_size", "max_position_embeddings")})  # fmt: skip

# Series


def series() -> dict:
    return {"past_values": torch.randn(2, 16, 3)}


block("patchtst", "PatchTST", "encoder.layers.1", series, num_input_channels=3, context_length=16, patch_length=4,
      patch_stride=4, d_model=WIDTH, num_hidden_layers=2, num_attention_heads=2, ffn_dim=32,
      norm_type="batchnorm")  # fmt: skip
block("patchtst_whole_pretraining", "PatchTST", "", series, head="ForPretraining", num_input_channels=3,
      context_length=16, patch_length=4, patch_stride=4, d_model=WIDTH, num_hidden_layers=1, num_attention_heads=2,
      ffn_dim=32, random_mask_ratio=0.5)  # fmt: skip
block("patchtsmixer", "PatchTSMixer", "encoder.mlp_mixer_encoder.mixers.1", series, num_input_channels=3,
      context_length=16, patch_length=4, patch_stride=4, d_model=8, num_layers=2, norm_mlp="BatchNorm")  # fmt: skip
