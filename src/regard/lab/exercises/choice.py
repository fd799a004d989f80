"""Checking a choice: one of a few words, with the reason why each of the others is wrong."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from regard.lab.exercises.exercise import Answer, Verdict


@dataclass(frozen=True)
class Choice:
    """`options` maps each word, in the order of the task, to what is to be said of it."""

    name: str
    asks: str
    right: str
    options: Mapping[str, str]

    def __post_init__(self) -> None:
        if self.right not in self.options:
            raise ValueError(f"{self.right!r} must be one of {', '.join(self.options)}")

    @property
    def why(self) -> str:
        """The reason for the right one."""
        return self.options[self.right]

    def check(self, given: object, _: Answer) -> Verdict:
        """The verdict on the word that was given."""
        words = ", ".join(repr(option) for option in self.options)
        if not isinstance(given, str):
            return Verdict(self.name, False, f"give one of {words}, got {given!r}")
        known = {option.casefold(): option for option in self.options}
        word = known.get(given.strip().casefold())
        if word is None:
            near = difflib.get_close_matches(given.strip().casefold(), known, n=1)
            hint = f"did you mean {known[near[0]]!r}?" if near else f"choose from {words}"
            return Verdict(self.name, False, f"{given!r} is no option; {hint}")
        right = word == self.right
        return Verdict(self.name, right, f"right: {self.why}" if right else self.options[word])
