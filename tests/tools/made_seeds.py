"""Numbers per seed whose intervals are known."""

import numpy as np

SEEDS = 5


def seeds(value: float, spread: float = 0.01, number: int = SEEDS) -> np.ndarray:
    """Equally spaced seeds around a value; of five the t-interval has half-width 1.963 spreads."""
    return value + spread * np.linspace(-2, 2, number)
