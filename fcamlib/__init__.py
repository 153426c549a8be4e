"""Models, losses and analysis of "On the Learning Dynamics of Attention Networks" (arXiv 2307.13421)."""

__version__ = "0.1.0"
