"""Ask: the body of a question, read with care: every number is in range or the question is refused."""

from typing import Any


class Refused(Exception):
    """A question that cannot be answered as it was put; the text says why, the status is that of HTTP."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


class Ask:
    """The members of a JSON object by name and kind."""

    def __init__(self, body: object) -> None:
        if not isinstance(body, dict):
            raise Refused(f"the body must be a JSON object, got {_kind(body)}")
        self._body: dict[str, Any] = body

    def number(self, name: str, low: int, high: int, default: int | None = None) -> int:
        """A whole number from `low` to `high`."""
        value = self._body.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise Refused(f"{name} must be a whole number, got {_kind(value)}")
        if not low <= value <= high:
            raise Refused(f"{name} must be from {low} to {high}, got {_short(value)}")
        return value

    def word(self, name: str, known: tuple[str, ...]) -> str:
        """One of some words."""
        value = self._body.get(name)
        if not isinstance(value, str) or value not in known:
            raise Refused(f"{name} must be one of {', '.join(known)}")
        return value

    def text(self, name: str, longest: int) -> str:
        """A text that is not empty and not too long."""
        value = self._body.get(name)
        if not isinstance(value, str) or not 1 <= len(value) <= longest:
            raise Refused(f"{name} must be a text of 1 to {longest} characters")
        return value

    def triples(self, name: str, most: int) -> list[tuple[int, int, int]]:
        """A list of three whole numbers each."""
        value = self._body.get(name)
        if not isinstance(value, list) or len(value) > most:
            raise Refused(f"{name} must be a list of at most {most}, each [z, y, x]")
        for part in value:
            if not isinstance(part, list) or len(part) != 3 or not all(type(number) is int for number in part):
                raise Refused(f"{name} must hold [z, y, x], three whole numbers each")
        return [tuple(part) for part in value]


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), "a number that is not whole" if isinstance(value, float) else "something else")


def _short(value: int) -> str:
    return str(value) if abs(value) < 10**20 else "a number far outside"
