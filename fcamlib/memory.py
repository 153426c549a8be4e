"""How much memory tensors take, counted and not sampled: the same number in every run, whatever else a machine does."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Call = Callable[..., Any]


class PeakMemory(TorchDispatchMode):
    """Counts the bytes of all tensors that operations make while it is entered, and their peak.

    A storage counts once, whatever views lie in it, from the operation that makes it until nothing refers to it, the
    graph of autograd included. What a kernel takes and gives back within one operation is not seen.

    Example: `with PeakMemory() as memory: loss(model).backward()`, then `memory.peak`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live = 0  # bytes
        self.peak = 0
        self._known: set[int] = set()  # storages that are counted

    def __torch_dispatch__(
        self, func: Call, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = {id(t.untyped_storage()) for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and id(tensor.untyped_storage()) not in given:
                self._count(tensor)
        return result

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = id(storage), storage.nbytes()
        if key in self._known:
            return
        self._known.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.live -= size


def saved_bytes(call: Callable[[], Any], besides: Iterable[Tensor] = ()) -> int:
    """Bytes that autograd keeps for the backward pass of `call`, each storage once, without those of `besides`."""
    left_out = {tensor.untyped_storage().data_ptr() for tensor in besides}
    sizes: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in left_out:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = call()  # is held until all is counted: a freed storage's address may be used again
    total = sum(sizes.values())
    del result
    return total
