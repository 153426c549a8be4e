"""Training steps recorded once as a CUDA graph and replayed.

A step of a small model launches some two hundred kernels of a few microseconds each, and launching them from Python
takes longer than running them. A graph launches them all at once. The kernels, their order and so the numbers are
those of the plain step.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

WARM_UP = 3  # plain steps before the capture, as CUDA asks for: they make the optimiser's state and cuDNN's plans


class GraphedStep:
    """A step (n,) -> () on a CUDA device: plain at first and for batches of another size, else a replayed graph.

    Parameters
    ----------
    step : callable
        Maps the rows of a batch, int64 on the device, to its loss. It may change models, optimisers and running sums
        in place, always the same ones, and must not wait for the device.
    zero_grad : callable
        Sets all gradients to None; called before the capture.
    size : int
        Rows of a full batch.
    """

    def __init__(self, step: Callable[[Tensor], Tensor], zero_grad: Callable[[], None], size: int) -> None:
        self.step, self.zero_grad, self.size = step, zero_grad, size
        self.warm = 0
        self.stream = torch.cuda.Stream()
        self.graph: torch.cuda.CUDAGraph | None = None
        self.index = self.loss = torch.empty(0)

    def __call__(self, index: Tensor) -> Tensor:
        """Do one step; the loss stays on the device."""
        if len(index) != self.size:
            return self.step(index)
        if self.warm < WARM_UP:
            self.warm += 1
            return self._aside(index)
        if self.graph is None:
            self._capture(index)
        assert self.graph is not None
        self.index.copy_(index)
        self.graph.replay()
        return self.loss.clone()

    def _aside(self, index: Tensor) -> Tensor:
        """A plain step on the stream that the capture will use."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            loss = self.step(index)
        torch.cuda.current_stream().wait_stream(self.stream)
        return loss

    def _capture(self, index: Tensor) -> None:
        """Record the step without doing it; gradients then lie in the graph's own memory."""
        self.index = index.clone()
        self.zero_grad()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=self.stream):
            self.loss = self.step(self.index)
