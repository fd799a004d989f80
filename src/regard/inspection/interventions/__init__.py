"""Interventions: change attention inside a running model, and measure the effect on its output."""

from regard.inspection.interventions.base import Change
from regard.inspection.interventions.block import Intervention, intervene
from regard.inspection.interventions.changes import (
    Ablate,
    Average,
    Forbid,
    Mask,
    Pattern,
    Previous,
    Temperature,
    Uniform,
)
from regard.inspection.interventions.effect import effect

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
