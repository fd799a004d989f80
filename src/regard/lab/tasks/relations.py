"""Relations: items with a type and a payload, each wanting the payload of another; an attention layer fetches it."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch import nn as torch_nn
from torch.nn.functional import cross_entropy

from regard import nn
from regard.cached import cached_property
from regard.lab.setting import Setting
from regard.lab.training import Task

NOWHERE = -100  # what `cross_entropy` leaves out
READINGS = ("linear", "each", "mixed")
WATCHED = 256  # texts that are watched during training
QUESTIONS = ("previous", "first", "twin")


@dataclass(frozen=True, eq=False)
class ItemTexts:
    """Types and payloads, (row, place) each: every type comes equally often, in random order."""

    types: Tensor
    payloads: Tensor

    @property
    def inputs(self) -> tuple[Tensor, Tensor]:
        """What a model is called with."""
        return self.types, self.payloads


def draw_texts(rows: int, types: int, copies: int, payloads: int, generator: torch.Generator) -> ItemTexts:
    """Texts of `types` · `copies` items with payloads below `payloads`."""
    length = types * copies
    order = torch.rand(rows, length, generator=generator).argsort(1)
    return ItemTexts(order % types, torch.randint(payloads, (rows, length), generator=generator))


def places(texts: ItemTexts, relation: str) -> Tensor:
    """The place of the item that a relation leads to, (row, place); −1 where there is none, or more than one."""
    types = texts.types
    if relation == "previous":
        return torch.arange(-1, types.shape[1] - 1).expand_as(types)
    if relation == "first":
        first = torch.zeros_like(types)
        first[:, 0] = -1
        return first
    # the other relations lead to the one other item of a type
    targets = {"twin": types, "next": (types + 1) % (int(types.max()) + 1), "partner": types ^ 1}[relation]
    same = (targets.unsqueeze(-1) == types.unsqueeze(-2)) & ~torch.eye(types.shape[1], dtype=torch.bool)
    return torch.where(same.sum(-1) == 1, same.int().argmax(-1), -1)


def right_answers(texts: ItemTexts, question: str, payloads: int) -> Tensor:
    """The right answers, (row, place): the payload of a relation, or of `this+that` the sum modulo `payloads`."""
    sources = [places(texts, relation) for relation in question.split("+")]
    total = sum(texts.payloads.gather(1, each.clamp(min=0)) for each in sources)
    known = torch.stack(sources).amin(0) >= 0
    return torch.where(known, torch.as_tensor(total) % payloads, NOWHERE)


class Relater(torch_nn.Module):
    """Embeddings of type, payload and, if `placed`, place; x + attention(norm(x)); an answer to each question.

    `shared` gives queries and keys one projection. Without `joined` there is no W_O: heads stand side by side. What
    reads the sum is a linear map of it ("linear"), of the positive part of every single number ("each"), or of a hidden
    layer that mixes all numbers first ("mixed").
    """

    def __init__(self, task: "Relating") -> None:
        super().__init__()
        width, questions = task.width, len(task.questions)
        self.types, self.payloads = nn.Embedding(task.types, width), nn.Embedding(task.payloads, width)
        self.places = nn.Embedding(task.types * task.copies, width) if task.placed else None
        self.norm = torch_nn.LayerNorm(width)
        self.attention = nn.MultiHeadAttention(width, task.heads, projection_bias=False)
        if task.shared:
            self.attention.k_proj = self.attention.q_proj
        if not task.joined:
            self.attention.out_proj = torch_nn.Identity()  # type: ignore[assignment]
        middle: dict[str, list[torch_nn.Module]] = {
            "linear": [],
            "each": [torch_nn.ReLU()],
            "mixed": [torch_nn.Linear(width, width), torch_nn.ReLU()],
        }
        self.reading = torch_nn.Sequential(*middle[task.reading], torch_nn.Linear(width, questions * task.payloads))
        self.shape = (questions, task.payloads)

    def forward(self, types: Tensor, payloads: Tensor) -> Tensor:
        """(row, place) twice, to logits (row, place, question, payload)."""
        x = self.types(types) + self.payloads(payloads)
        if self.places is not None:
            x = x + self.places(torch.arange(types.shape[1]).expand_as(types))
        x = self.norm(x)
        answers: Tensor = self.reading(x + self.attention(x)).unflatten(-1, self.shape)
        return answers


@dataclass(frozen=True)
class Relating(Task):
    """Texts that never come again; the loss is the mean over the questions, of all places that want something."""

    questions: tuple[str, ...]
    types: int
    copies: int
    payloads: int
    placed: bool
    width: int
    heads: int
    shared: bool
    joined: bool
    reading: str
    batch: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reading not in READINGS:
            raise ValueError(f"reading must be one of {', '.join(READINGS)}, got {self.reading!r}")

    @property
    def name(self) -> str:
        """Name with the questions, the model and the seed."""
        parts = [*self.questions, f"{self.heads} heads", *(["shared"] if self.shared else [])]
        parts += [] if self.joined else ["side by side"]
        return f"relations {' '.join(parts)} {self.seed}"

    def model(self) -> torch_nn.Module:
        """One layer of attention."""
        return Relater(self)

    def texts(self, rows: int, generator: torch.Generator) -> ItemTexts:
        """New texts."""
        return draw_texts(rows, self.types, self.copies, self.payloads, generator)

    def answers(self, texts: ItemTexts) -> Tensor:
        """What is right, (row, place, question)."""
        return torch.stack([right_answers(texts, question, self.payloads) for question in self.questions], -1)

    def loss(self, model: torch_nn.Module, generator: torch.Generator) -> Tensor:
        """Cross-entropy on new texts."""
        texts = self.texts(self.batch, generator)
        return cross_entropy(model(*texts.inputs).flatten(0, 2), self.answers(texts).flatten(), ignore_index=NOWHERE)

    def look(self, model: torch_nn.Module) -> dict[str, float]:
        """The share of right answers to each question."""
        return right(self, model, self._watched)

    @cached_property
    def _watched(self) -> ItemTexts:
        return self.texts(WATCHED, torch.Generator().manual_seed(self.seed + 1))


def three_questions(setting: Setting, seed: int, heads: int, joined: bool = True) -> Relating:
    """Eight items, two of each type, that want the payload of the item before, of the first, and of their twin."""
    return Relating(
        seed=seed,
        steps=setting.choose(full=200, quick=80),
        rate=1e-2,
        rise=0.1,
        looks=5,
        questions=QUESTIONS,
        types=4,
        copies=2,
        payloads=8,
        placed=True,
        width=64,
        heads=heads,
        shared=False,
        joined=joined,
        reading="linear",
        batch=setting.choose(full=64, quick=24),
    )


def right(task: Relating, model: torch_nn.Module, texts: ItemTexts) -> dict[str, float]:
    """The share of right answers to each question, over all places that want one."""
    with torch.no_grad():
        predicted = model(*texts.inputs).argmax(-1)
    answers = task.answers(texts)
    known = answers != NOWHERE
    hits = ((predicted == answers) & known).double().sum((0, 1)) / known.sum((0, 1))
    return dict(zip(task.questions, hits.tolist(), strict=True))
