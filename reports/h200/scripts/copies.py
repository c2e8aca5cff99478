"""What 16-bit copies of weights do to the first steps of Adam: a small Llama on a CPU, no strategy, no kernel of ours.

    python copies.py

Each line is the distance of ten losses from fp32's in %. `copies`: fp32 arithmetic on bf16 copies of the weights that
are trained; `bf16`: bf16 arithmetic on them. Weights begin as bf16 ones, as in a checkpoint in bf16, or anywhere.
"""

from __future__ import annotations

import copy

import torch
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY, POSITIONS, STEPS, LEARNING_RATE = 4096, 192, 10, 1e-4


def first_model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=256, intermediate_size=704, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=2,
        vocab_size=VOCABULARY, rope_theta=5e5, use_cache=False, attn_implementation="sdpa",
    )  # fmt: skip
    return LlamaForCausalLM(config).float()


def batches() -> list[torch.Tensor]:
    """Rows of tokens drawn by Zipf's law."""
    torch.manual_seed(1)
    likely = 1 / torch.arange(1, VOCABULARY + 1).float()
    return [torch.multinomial(likely, 2 * POSITIONS, replacement=True).view(2, -1) for _ in range(STEPS)]


@torch.no_grad()
def copy_weights(target: torch.nn.Module, source: torch.nn.Module) -> None:
    for low, high in zip(target.parameters(), source.parameters(), strict=True):
        low.copy_(high.bfloat16())
        low.grad = None


def losses(start: LlamaForCausalLM, copies: bool, low: bool) -> list[float]:
    trained = copy.deepcopy(start)
    computed = copy.deepcopy(start) if copies or low else trained
    if low:
        for parameter in computed.parameters():  # not the buffers: rotary frequencies stay in fp32
            parameter.data = parameter.data.bfloat16()
    optimizer = torch.optim.AdamW(trained.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.0)
    found = []
    for tokens in batches():
        if computed is not trained:
            copy_weights(computed, trained)
        logits = computed(input_ids=tokens).logits[:, :-1].float()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        found.append(loss.item())
        for high, used in zip(trained.parameters(), computed.parameters(), strict=True):
            high.grad = used.grad.float() if used.grad is not None else None
        torch.nn.utils.clip_grad_norm_(trained.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return found


def main() -> None:
    torch.set_num_threads(1)
    anywhere = first_model()
    begun = copy.deepcopy(anywhere)
    copy_weights(begun, anywhere)
    exact = losses(begun, copies=False, low=False)
    for name, start in (("as bf16 ones", begun), ("anywhere", anywhere)):
        for kind, copies, low in (("fp32", False, False), ("copies", True, False), ("bf16", False, True)):
            away = [round(100 * (a / b - 1), 3) for a, b in zip(losses(start, copies, low), exact, strict=True)]
            print(f"{kind:7} begun {name:13}", *(f"{value:7.3f}" for value in away), flush=True)


if __name__ == "__main__":
    main()
