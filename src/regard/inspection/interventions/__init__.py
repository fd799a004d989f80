"""Intervention: attention changed inside a model while it runs, and what that does to the model's output."""

from regard.inspection.interventions.block import Intervention, intervene
from regard.inspection.interventions.change import Change
from regard.inspection.interventions.effect import effect
from regard.inspection.interventions.masking import Forbid, Mask, Previous
from regard.inspection.interventions.outputs import Ablate, Average
from regard.inspection.interventions.weights import Pattern, Temperature, Uniform

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
