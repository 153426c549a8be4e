"""Aliases of the store, to be removed."""

from fcamlib import store
from fcamlib.config import CaptionRunConfig
from fcamlib.store import Result

CaptionRun = Result[CaptionRunConfig]
caption_run = store.get
caption_runs = store.get_all
