"""Intervention: attention changed inside a model while it runs, and what that does to the model's output."""

from regard.inspection.intervention.block import Intervention, intervene
from regard.inspection.intervention.change import Change
from regard.inspection.intervention.effect import effect
from regard.inspection.intervention.masking import Forbid, Mask, Previous
from regard.inspection.intervention.outputs import Ablate, Average
from regard.inspection.intervention.weights import Pattern, Temperature, Uniform

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
