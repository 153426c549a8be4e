"""One-dimensional convolutional networks for windows of time series: (N, channels, length)."""

from __future__ import annotations

from torch import Tensor, nn

from fcamlib.errors import UserError

Shape = tuple[int, ...]
KERNEL = 7  # samples that one filter of the first layer sees
FILTERS = 8  # of both layers
SHORTEST = 11  # samples of a window that the two layers need


class _MaxOverTime(nn.Module):
    """Largest value of each filter over the window: (N, C, T) -> (N, C). A motif counts wherever it lies."""

    def forward(self, values: Tensor) -> Tensor:
        return values.amax(dim=2)


def conv1d_trunk(shape: Shape, filters: int = FILTERS) -> list[nn.Module]:
    """Two convolutions along time, the first with stride 2, then the maximum: (N, channels, length) -> (N, filters).

    Raises `UserError` where a segment is no window of at least `SHORTEST` samples.
    """
    if len(shape) != 2 or shape[1] < SHORTEST:
        raise UserError(
            f"segments of shape {shape} do not fit the conv1d networks, which take (channels, samples) with at least "
            f"{SHORTEST} samples: set window_length, or choose the network 'mlp' or 'linear'."
        )
    return [
        nn.Conv1d(shape[0], filters, KERNEL, stride=2),
        nn.ReLU(),
        nn.Conv1d(filters, filters, 3),
        nn.ReLU(),
        _MaxOverTime(),
    ]
