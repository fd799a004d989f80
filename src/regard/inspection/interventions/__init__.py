"""Interventions: change attention inside a running model, and measure the effect on its output."""

from regard.inspection.interventions.block import Intervention, intervene
from regard.inspection.interventions.change import Change
from regard.inspection.interventions.effect import effect
from regard.inspection.interventions.outputs import Ablate, Average
from regard.inspection.interventions.weights import Forbid, Mask, Pattern, Previous, Temperature, Uniform

__all__ = [
    "Ablate",
    "Average",
    "Change",
    "Forbid",
    "Intervention",
    "Mask",
    "Pattern",
    "Previous",
    "Temperature",
    "Uniform",
    "effect",
    "intervene",
]
