"""Sample: a long text that belongs to everybody, for looking at models with real words."""

from importlib import resources


def sample() -> str:
    """The Constitution of the United States with its amendments: 7,670 words, 9,944 tokens of SmolLM2."""
    return (resources.files("regard.models") / "texts" / "constitution.txt").read_text(encoding="utf-8")
