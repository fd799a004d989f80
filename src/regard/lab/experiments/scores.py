"""scores: the six score functions side by side, what each costs and what it learns.

Costs and memory are counted, times are measured on the tiled engine, which computes all six. What is learned is a
problem whose best answer is known and bilinear (`regard.lab.matching`): which key is a query a noisy picture of?
"""

from regard.lab import sources
from regard.lab.report import Compared, Report, settings
from regard.lab.scores.advice import advice_table, claims, timeline_table
from regard.lab.scores.cost import clock, cost_table
from regard.lab.scores.learned import KEYS, OTHER, Found, bare_table, learned, learned_picture, learned_table, oddness
from regard.lab.scores.memory import by_length, by_width, memory_picture, memory_table
from regard.lab.setting import Setting


def run(setting: Setting) -> Report:
    """Run the experiment."""
    trainings = setting.choose(full=3, quick=2)
    found = learned(setting, trainings)
    odd = oddness(setting.generator())
    held = by_length(setting.generator()), by_width(setting.generator())
    return Report(
        "scores",
        "What do the six score functions cost, what does each learn, and when is which the right one?",
        (
            cost_table(setting.generator()),
            learned_table(found),
            bare_table(setting),
            advice_table(setting, found),
            timeline_table(),
            memory_table(*held),
        ),
        (learned_picture(found), memory_picture(*held)),
        finding(found, odd),
        (Compared(f"{sources.SCORE_FUNCTIONS}, comparison and recommendations", claims(setting, found, odd)),),
        {**settings(setting, trainings), "steps": found["dot", OTHER].trained[0].task.steps},
        clock(setting),
    )


def finding(found: Found, odd: float) -> str:
    """One sentence, from the numbers."""
    best = found["dot", OTHER].best_right
    right = {score: found[score, problem].right.mean for score, problem in found if problem == OTHER}
    ranked = sorted(right, key=lambda score: -right[score])
    said = ", ".join(f"{score} {right[score]:.0%}" for score in ranked)
    symmetric = "s(−q, −k) = −s(q, k)" if odd < 1e-6 else "its form"
    return (
        f"Queries and keys of different width, matched through a hidden map: the best possible is right {best:.0%} of "
        f"the time (guessing: {1 / KEYS:.0%}), and trained scores reach {said}; without a bias additive attention has "
        f"{symmetric}, while a match does not care for the sign of both."
    )
