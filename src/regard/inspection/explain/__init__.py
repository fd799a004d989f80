"""Explain: every step of a small attention with its numbers, for any spec.

steps = explain([[1, 0]], [[1, 0], [0, 1]], [[1], [2]], mask=masks.Causal(), query_start=1)
print(steps)                      # for a terminal; steps.markdown(), steps.latex(), steps.to_dict()
"""

from regard.inspection.explain.main import explain
from regard.inspection.explain.project import Projected, project
from regard.inspection.explain.record import Explanation, Matrix, Step, Worked

__all__ = ["Explanation", "Matrix", "Projected", "Step", "Worked", "explain", "project"]
