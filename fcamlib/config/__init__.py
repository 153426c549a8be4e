"""Configurations: what defines a result, and the parameters that people set; nothing here imports torch."""

from fcamlib.config.grids import *  # noqa: F403
from fcamlib.config.parameters import *  # noqa: F403
from fcamlib.config.results import *  # noqa: F403
from fcamlib.config.sources import *  # noqa: F403
from fcamlib.config.tasks import *  # noqa: F403
