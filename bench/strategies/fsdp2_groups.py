"""How a model is cut into FSDP2's groups: what one gathers and reduces at once, and what it needs not copy."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from bench.measure.model import Actor, layers_of


class InPlaceReduction:
    """The reduce-scatter of a group of one rank, whose result is its input: no second buffer and no copy.

    FSDP2 asks for the input's memory first and for the output's next, on the stream that reduces, once per group and
    backward pass. In between `_chunk_cat` fills the input, on a GPU beside the computation.
    """

    being_filled: ClassVar[set[int]] = set()
    """Addresses of inputs whose reduction has not begun."""

    def __init__(self) -> None:
        self._input: torch.Tensor | None = None

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """The input's memory; when asked again for as much, the same tensor, once it is filled."""
        asked, self._input = self._input, None
        if asked is not None:
            self.being_filled.discard(asked.data_ptr())
            if (tuple(asked.shape), asked.dtype) == (tuple(size), dtype):
                if asked.is_cuda:
                    torch.cuda.current_stream(asked.device).wait_stream(_beside(asked.device))
                return asked
        self._input = torch.empty(*size, dtype=dtype, device=device)
        self.being_filled.add(self._input.data_ptr())
        return self._input

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, op: Any, async_op: bool = False
    ) -> None:
        if output_tensor is not input_tensor:
            output_tensor.copy_(input_tensor)


_operators = torch.library.Library("fsdp", "IMPL")
"""Holds what `cast_at_once` registers, which lasts as long as this does."""


@cache
def cast_at_once(device_type: str) -> None:
    """Let FSDP2 put a group's gradients into its buffer for the reduction by `_foreach_copy_`.

    Its own operator casts 16-bit gradients to fp32 at 1.9 TB/s on an H200, this at 3.2; what it writes is the same.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that there was another one
        _operators.impl("chunk_cat", _chunk_cat, device_type.upper(), allow_override=True)


def _chunk_cat(tensors: list[torch.Tensor], dim: int, num_chunks: int, out: torch.Tensor) -> None:
    """Row r of `out` (chunks, elements): chunk r of each tensor, one after the other."""
    even = all(t.shape[:1].numel() % num_chunks == 0 and t.is_contiguous() for t in tensors)
    if dim != 0 or not even:
        torch._chunk_cat(tensors, dim, num_chunks, out=out)
        return
    if out.is_cuda and out.data_ptr() in InPlaceReduction.being_filled:
        with torch.cuda.stream(_waiting(tensors)):
            _copy(tensors, num_chunks, out)
    else:
        _copy(tensors, num_chunks, out)


def _copy(tensors: list[torch.Tensor], num_chunks: int, out: torch.Tensor) -> None:
    sizes = [tensor.numel() // num_chunks for tensor in tensors]
    chunks = zip(*(tensor.view(num_chunks, -1).unbind() for tensor in tensors), strict=True)
    places = [place for row in out.view(num_chunks, -1).unbind() for place in row.split(sizes)]
    torch._foreach_copy_(places, [chunk for row in chunks for chunk in row])


@cache
def _beside(device: torch.device) -> torch.cuda.Stream:
    """The stream on which gradients are cast while the backward pass goes on."""
    return torch.cuda.Stream(device)


def _waiting(gradients: list[torch.Tensor]) -> torch.cuda.Stream:
    """That stream, which begins when the gradients are there, and holds their memory until it has read them."""
    device = gradients[0].device
    stream = _beside(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    for gradient in gradients:
        gradient.record_stream(stream)
    return stream


def gather(model: nn.Module) -> None:
    """Gather each group's parameters now, not when the forward pass comes to it."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.unshard()


def shard(model: nn.Module, network: nn.Module, reshard_after_forward: bool, **options: Any) -> None:
    """`fully_shard` the decoder layers, the embedding, where it can be the head, and what remains.

    One group for embedding and head would be gathered before the first layer and reduced after the last one, with
    no computation beside it: apart, half of that runs while layers compute. `options` go to `fully_shard`.
    """
    for layer in layers_of(network):
        fully_shard(layer, reshard_after_forward=reshard_after_forward, **options)
    embedding = network.get_input_embeddings()
    head = network.get_output_embeddings()
    tied = head is None or any(p is q for p in embedding.parameters() for q in head.parameters())
    if not tied:
        fully_shard(embedding, reshard_after_forward=reshard_after_forward, **options)
        # Its gradient needs the token ids only.
        embedding.set_unshard_in_backward(False)
        norm = getattr(network.base_model, "norm", None)
        if isinstance(norm, nn.Module) and _calls_head_once(model):
            # The backward pass begins with these, so they stay gathered.
            fully_shard([norm, head], reshard_after_forward=False, **options)
    fully_shard(model, reshard_after_forward=False, **options)
    mesh: DeviceMesh = options["mesh"]
    cast_at_once(mesh.device_type)
    if mesh.size() == 1:
        _reduce_in_place(model)


def _calls_head_once(model: nn.Module) -> bool:
    """Whether the head is one call of a module. FSDP2 would reduce after each call, and ranks with more tokens
    make more calls of a chunked head; Liger's kernel takes the weight and makes none."""
    return not isinstance(model, Actor) or model.head in ("full", "compiled")


def _reduce_in_place(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_custom_reduce_scatter(InPlaceReduction())
