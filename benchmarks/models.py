"""The models that are measured: the real architectures, by config with random weights, small enough for two cores.

``BUILDERS`` maps a name to a function that makes a `Workload`; everything in it is determined by the seed, so two
workloads of one name are equal but share nothing. Transformers is imported only by the models that come from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from examples.resnet50 import resnet50

SEED = 0


@dataclass(slots=True)
class Workload:
    """A module and the arguments of one call. ``loss`` makes a scalar of the call's result, for a backward pass."""

    name: str
    model: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    def double(self) -> Workload:
        """Convert to float64 in place, to compare results closely."""
        self.model.double()
        self.args = tuple(to_double(a) for a in self.args)
        self.kwargs = {k: to_double(v) for k, v in self.kwargs.items()}
        return self

    def loss(self, result: Any) -> torch.Tensor:
        """A scalar that depends on every floating point tensor of the result that requires grad."""
        tensors = [t for t in tensors_in(result) if t.requires_grad]
        total = torch.zeros((), dtype=tensors[0].dtype)
        for tensor in tensors:
            # Weighted: normalised outputs sum to a constant, and the gradients of a plain sum would vanish.
            weights = torch.linspace(0.5, 1.5, tensor.numel(), dtype=tensor.dtype)
            total = total + (tensor * weights.view_as(tensor)).mean()
        return total


def to_double(value: Any) -> Any:
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def tensors_in(result: Any) -> list[torch.Tensor]:
    """The tensors of a model's output, in order: of ModelOutput, dict, tuple, list and cache objects."""
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, dict):
        return [t for value in result.values() for t in tensors_in(value)]
    if isinstance(result, (tuple, list)):
        return [t for value in result for t in tensors_in(value)]
    if hasattr(result, "layers") or hasattr(result, "self_attention_cache"):  # transformers' key/value caches
        return [t for value in vars(result).values() for t in tensors_in(value)]
    if hasattr(result, "keys") and hasattr(result, "values"):  # one layer of such a cache
        return [t for t in (result.keys, result.values) if isinstance(t, torch.Tensor)]
    return []


def token_ids(vocabulary: int, batch: int = 2, length: int = 32) -> torch.Tensor:
    return torch.randint(1, vocabulary, (batch, length), generator=torch.Generator().manual_seed(SEED + 1))


def image_batch(size: int, batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(SEED + 1))


def build_resnet50() -> Workload:
    return Workload("resnet50", resnet50(num_classes=100, width=16), (image_batch(64),))


def build_bert() -> Workload:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=500, hidden_size=64, num_hidden_layers=4, num_attention_heads=4, intermediate_size=128
    )
    ids = token_ids(500)
    return Workload("bert", BertModel(config), (), {"input_ids": ids, "attention_mask": torch.ones_like(ids)})


def build_gpt2() -> Workload:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=500, n_positions=128, n_embd=64, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0
    )
    return Workload("gpt2", GPT2LMHeadModel(config), (), {"input_ids": token_ids(500)})


def build_llama() -> Workload:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=500, hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128,
    )  # fmt: skip
    return Workload("llama", LlamaForCausalLM(config), (), {"input_ids": token_ids(500)})


def build_t5() -> Workload:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=500, d_model=64, d_kv=16, d_ff=128, num_layers=3, num_heads=4, decoder_start_token_id=0
    )
    kwargs = {"input_ids": token_ids(500), "labels": token_ids(500, length=16)}
    return Workload("t5", T5ForConditionalGeneration(config), (), kwargs)


def build_vit() -> Workload:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=64, num_hidden_layers=4, num_attention_heads=4, intermediate_size=128, image_size=32,
        patch_size=8, num_labels=10,
    )  # fmt: skip
    return Workload("vit", ViTForImageClassification(config), (image_batch(32),))


BUILDERS: dict[str, Callable[[], Workload]] = {
    "resnet50": build_resnet50,
    "bert": build_bert,
    "gpt2": build_gpt2,
    "llama": build_llama,
    "t5": build_t5,
    "vit": build_vit,
}


def build(name: str, *, train: bool = False) -> Workload:
    """A fresh workload in eval or train mode. Leaves torch's global random state as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        workload = BUILDERS[name]()
    workload.model.train(train)
    return workload
