"""One function per figure: each takes arrays or tables and returns a figure that notebooks display.

The functions read no files and train nothing, so a change of style needs no new run. Every figure is drawn on a
white card of fixed size, with a fixed colour, marker and line style per paradigm (`fcamlib.paradigms`).
`show` saves a figure and displays it with a note on how it was made.
"""

from fcamlib.plots.curves import (
    caption_curves,
    cost_over_segments,
    curvature,
    fixed_focus_curves,
    flow_curves,
    gain_over_switch,
    incentive_over_alpha,
    learning_curves,
    measures_over,
    phase_portrait,
    saif_over_tau,
    speed_ratios,
)
from fcamlib.plots.estimates import accuracy_saif_summary, crossval_accuracy
from fcamlib.plots.heatmaps import caption_heatmaps, focus_prediction_heatmaps, gain_heatmap
from fcamlib.plots.look import PageFigure, how_made, save, show, style
from fcamlib.plots.pictures import attention_gallery, sample_mosaics
from fcamlib.plots.sequences import CaptionExample, series_attention, word_attention
