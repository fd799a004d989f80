"""explain: the reference engine's own result, the known numbers of the smallest exercise, and clear refusals."""

import itertools
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from regard import Dropout, attend, biases, masks, normalizers, scores
from regard.inspection.explain import Explanation, explain, project

BATCH, HEADS, KV_HEADS, QUERIES, KEYS, WIDTH, D_VALUE = 2, 2, 1, 3, 5, 2, 7


def numbers(*size: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*size, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(size))).to(dtype)


def inputs(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    return (
        numbers(BATCH, HEADS, QUERIES, WIDTH, dtype=dtype),
        numbers(BATCH, KV_HEADS, KEYS, WIDTH, dtype=dtype),
        numbers(BATCH, KV_HEADS, KEYS, D_VALUE, dtype=dtype),
    )


@dataclass(frozen=True, eq=False, repr=False)
class Halved(scores.Dot):
    """A score of the user's own, which inherits from one that has steps of its own."""

    def formula(self, query: Tensor, key: Tensor, pairs: Any) -> Tensor:
        return super().formula(query, key, pairs) / 2


@dataclass(frozen=True, eq=False, repr=False)
class Far(masks.Causal):
    """A mask of the user's own."""

    def visible(self, pairs: Any) -> Tensor:
        return pairs.i - pairs.j >= 1  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False, repr=False)
class Constant(biases.Bias):
    """A bias of the user's own."""

    def values(self, pairs: Any) -> Tensor:
        return torch.full((1, 1), 0.25)


@dataclass(frozen=True, eq=False, repr=False)
class Uniform(normalizers.Normalizer):
    """A normalizer of the user's own."""

    def weights(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        seen = (logits != -torch.inf).to(logits.dtype)
        return seen / seen.sum(-1, keepdim=True).clamp(min=1), logits.amax(-1)


def far_is_less(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return torch.where((i - j).abs() > 3, -torch.inf, score - 0.1 * (i - j).abs() * (h + 1))


SCORES = [
    scores.Dot(),
    scores.ScaledDot(),
    scores.ScaledDot(0.3),
    scores.General(numbers(WIDTH, WIDTH)),
    scores.General(numbers(HEADS, WIDTH, WIDTH)),
    scores.Cosine(3.0),
    scores.Additive(numbers(4, WIDTH), numbers(4, WIDTH), numbers(4)),
    scores.Additive(numbers(HEADS, 4, WIDTH), numbers(KV_HEADS, 4, WIDTH), numbers(HEADS, 4)),
    scores.ConcatMLP(numbers(4, WIDTH), numbers(4, WIDTH), numbers(HEADS, 4), numbers(4), "gelu"),
    scores.Relative(numbers(5, WIDTH)),
    scores.Relative(numbers(HEADS, 3, WIDTH), numbers(WIDTH), numbers(HEADS, WIDTH), None),
    scores.SoftCapped(scores.ScaledDot(), 0.7),
    scores.Modified(scores.SoftCapped(scores.Cosine(), 2.0), far_is_less),
    Halved(),
]
MASKS = [
    None,
    "causal",
    masks.Full(),
    masks.Window(1, 0),
    masks.Window(-1, None),
    masks.Dilated(3, 2),
    masks.Global(torch.tensor([0, 3])),
    masks.Causal() & (masks.Prefix(torch.tensor([1, 2])) | masks.Global(torch.tensor([4]))),
    ~masks.Causal() | masks.Prefix(1),
    masks.Lengths(torch.tensor([3, 0])),
    masks.Documents(torch.tensor([0, 0, 1, 1, 1])),
    masks.Blocks(2, torch.tensor([[True, False, True], [False, True, False], [True, True, True]])),
    masks.Dense(numbers(QUERIES, KEYS) > 0),
    masks.Where(lambda b, h, i, j: (i + j + h) % 2 == b),
    Far(),
    numbers(BATCH, HEADS, QUERIES, KEYS) > 0,
]
BIASES = [
    None,
    biases.ALiBi(HEADS),
    biases.T5(numbers(8, HEADS)),
    biases.Distance(numbers(HEADS, 5)),
    biases.Dense(torch.where(numbers(QUERIES, KEYS) > 1, -torch.inf, numbers(QUERIES, KEYS))),
    biases.ALiBi(HEADS) + biases.Distance(numbers(3)),
    Constant(),
]
NORMALIZERS = [
    normalizers.Softmax(),
    normalizers.Softmax(0.5),
    normalizers.Softmax(numbers(HEADS)),
    normalizers.Sparsemax(),
    normalizers.Hard(),
    Uniform(),
]
TEMPERATURES: list[float | Tensor] = [1.0, 0.5, torch.tensor([2.0, 0.3], dtype=torch.float64)]
DROPOUTS: list[float | Dropout] = [0.0, Dropout(0.5, 7), Dropout(0.25, -1)]


def rotation() -> list[dict[str, Any]]:
    """Every kind of every part several times, each time with other companions."""
    cycles = [itertools.cycle(kinds) for kinds in (SCORES, MASKS, BIASES, NORMALIZERS, TEMPERATURES, DROPOUTS)]
    names = ("score", "mask", "bias", "normalizer", "temperature", "dropout")
    return [dict(zip(names, map(next, cycles), strict=True)) for _ in range(96)]


def values(explanation: Explanation) -> list[list[float | None]]:
    return [list(row) for row in explanation.output.values]


@pytest.mark.parametrize("spec", rotation(), ids=lambda spec: f"{spec['score']!r:.20}, {spec['mask']!r:.12}")
def test_the_output_is_the_reference_engine_s_bit_for_bit(spec: dict[str, Any]) -> None:
    query, key, value = inputs()
    expected = attend(query, key, value, **spec, query_start=2, engine="reference")
    identity = torch.eye(KEYS, dtype=torch.float64)
    weights = attend(query, key, identity[None, None], **{**spec, "dropout": 0.0}, query_start=2, engine="reference")
    assert isinstance(expected, Tensor)
    assert isinstance(weights, Tensor)
    for batch, head in itertools.product(range(BATCH), range(HEADS)):
        explanation = explain(query, key, value, **spec, query_start=2, batch=batch, head=head, row=head)
        assert values(explanation) == expected[batch, head].tolist()
        shown = [[entry or 0.0 for entry in row] for row in explanation.weights.values]
        assert shown == weights[batch, head].tolist()
        assert explanation.text()
        assert explanation.markdown()
        assert explanation.latex().isascii()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("normalizer", [normalizers.Softmax(), normalizers.Sparsemax()], ids=repr)
def test_any_precision(dtype: torch.dtype, normalizer: normalizers.Normalizer) -> None:
    query, key, value = inputs(dtype)
    expected = attend(query, key, value, mask="causal", normalizer=normalizer, engine="reference")
    explanation = explain(query, key, value, mask="causal", normalizer=normalizer, batch=1, head=1)
    assert isinstance(expected, Tensor)
    assert values(explanation) == expected[1, 1].tolist()
    assert (explanation.steps[-1].title == "Rounding") == (dtype != torch.float32)


@pytest.mark.parametrize("seed", range(8))
def test_a_temperature_for_each_head(seed: int) -> None:
    temperature = 0.3 + torch.rand(HEADS, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    expected = attend(*inputs(), temperature=temperature, engine="reference")
    assert isinstance(expected, Tensor)
    for head in range(HEADS):
        assert values(explain(*inputs(), temperature=temperature, head=head)) == expected[0, head].tolist()


def test_batch_rows_may_start_at_different_places() -> None:
    starts = torch.tensor([1, -2])
    spec: dict[str, Any] = {"mask": "causal", "score": scores.Relative(numbers(3, WIDTH)), "query_start": starts}
    expected = attend(*inputs(), **spec, engine="reference")
    explanation = explain(*inputs(), **spec, batch=1, row=0)
    assert isinstance(expected, Tensor)
    assert values(explanation) == expected[1, 0].tolist()
    assert "The first query stands at position −2, the first key at 0." in explanation.notes
    assert "A query that sees no key has weights 0 and output 0." in explanation.text(width=10_000)


IDENTITY = [[1, 0], [0, 1]]
WORDS = ["Word 1", "Word 2", "Word 3"]


def exercise(**more: Any) -> Explanation:
    return explain(project([[1, 0], [0, 1], [1, 1]], IDENTITY, IDENTITY, IDENTITY), query_tokens=WORDS, **more)


def test_the_exercise_has_its_known_numbers() -> None:
    explanation = exercise()
    by_title = {step.title: step for step in explanation.steps}
    assert [list(row) for row in by_title["Dot products"].tables[0].values] == [[1, 0, 1], [0, 1, 1], [1, 1, 2]]
    r = 0.5**0.5
    scaled = [entry for row in by_title["Scores: scaling"].tables[0].values for entry in row]
    assert scaled == pytest.approx([r, 0, r, 0, r, r, r, r, 2 * r], abs=1e-15)
    text = explanation.text()
    for line in (
        "Word 1  0.4011  0.1978  0.4011",
        "Word 2  0.1978  0.4011  0.4011",
        "Word 3  0.2483  0.2483  0.5035",
        "Word 1 → Word 1  q·k = 1·1 + 0·0 = 1",
        "Word 1 → Word 1  1/√2 = 0.7071",
        "sum  e^0.7071 + e^0 + e^0.7071 = 2.0281 + 1 + 2.0281 = 5.0562",
        "Word 1 → Word 2  e^0/5.0562 = 1/5.0562 = 0.1978",
        "Word 1, column 1 of 2  0.4011·1 + 0.1978·0 + 0.4011·1 = 0.8022",
    ):
        assert line in text


def test_any_row_can_be_worked_out() -> None:
    worked = {each.label: each.math.text for step in exercise(row=2).steps for each in step.worked}
    assert worked["Word 3 → Word 3"] == "e^1.4142/8.1695 = 4.1133/8.1695 = 0.5035"


def test_steps_follow_the_order_of_the_formula() -> None:
    explanation = exercise(
        mask="causal", bias=biases.ALiBi(1), temperature=2.0, dropout=Dropout(0.5, 3), score=scores.Cosine()
    )
    assert [step.title for step in explanation.steps] == [
        "Embeddings",
        "Queries",
        "Keys",
        "Values",
        "Lengths and directions",
        "Scores: cosines",
        "Bias: ALiBi",
        "Logits: scores and bias",
        "Mask",
        "Temperature",
        "Exponentials",
        "Weights: softmax",
        "Dropout",
        "Output",
    ]
    assert explanation.weights.values[0][1:] == (None, None)


def test_a_drawn_dropout_shows_its_seed() -> None:
    torch.manual_seed(3)
    explanation = exercise(dropout=0.5)
    torch.manual_seed(3)
    expected = attend(*(torch.tensor([[1.0, 0], [0, 1], [1, 1]]).double(),) * 3, dropout=0.5, engine="reference")
    assert isinstance(expected, Tensor)
    assert values(explanation) == expected.tolist()
    assert "dropout Dropout(0.5, " in explanation.notes[0]


def test_what_is_not_shown_is_said() -> None:
    assert (
        "Shown are batch row 1 of 2 and head 0 of 2, counted from 0; 2 query heads share each key head."
        in explain(*inputs(), batch=1).notes
    )
    long = explain(numbers(2, 9), numbers(20, 9), numbers(20, 2))
    assert "The first 8 of 20 keys are worked out." in long.text()
    assert " + … + " in long.text()


def test_gradients_are_neither_needed_nor_kept() -> None:
    query, key, value = (each.requires_grad_() for each in inputs())
    assert explain(query, key, value).output.values


def test_large_logits_are_shifted_before_the_exponential() -> None:
    text = explain([[1000.0]], [[1.0], [0.999]], [[1.0], [2.0]], score=scores.Dot()).text()
    assert "e^(1000 − 1000) + e^(999 − 1000) = 1 + 0.3679 = 1.3679" in text
    assert "1000 + ln(1.3679) = 1000.3133" in text


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        (((33, 2), (3, 2), (3, 2)), ValueError, r"explain shows every number, for 1 to 32 queries; got 33\. Cut"),
        (((3, 2), (0, 2), (0, 2)), ValueError, "for 1 to 32 keys; got 0"),
        (((3, 17), (3, 17), (3, 2)), ValueError, "vectors up to width 16; query has 17"),
        (((3, 2), (3, 2), (3, 17)), ValueError, "vectors up to width 16; value has 17"),
        (((3, 2), (3, 3), (3, 2)), ValueError, "ScaledDot multiplies query and key"),
    ],
)
def test_sizes_that_are_refused(arguments: tuple[tuple[int, ...], ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        explain(*(numbers(*size) for size in arguments))


def test_hidden_layers_that_are_refused() -> None:
    score = scores.Additive(numbers(17, 2), numbers(17, 2), numbers(17))
    with pytest.raises(ValueError, match="vectors up to width 16; the score's v has 17"):
        explain(numbers(3, 2), numbers(3, 2), numbers(3, 2), score=score)


@pytest.mark.parametrize(
    "more, error, message",
    [
        ({"row": 3}, ValueError, "row must be 0 to 2, got 3"),
        ({"row": -1}, ValueError, "row must be 0 to 2, got -1"),
        ({"head": 2}, ValueError, "head must be 0 to 1, got 2"),
        ({"batch": 2}, ValueError, "batch must be 0 to 1, got 2"),
        ({"row": 1.0}, TypeError, "row must be an int, got float"),
        ({"digits": 0}, ValueError, "digits must be at least 1, got 0"),
        ({"digits": 11}, ValueError, "digits must be at most 10, got 11"),
        ({"query_tokens": ["a"]}, ValueError, "query_tokens must name each of the 3 rows, got 1"),
        ({"key_tokens": "abcde"}, TypeError, "key_tokens must be a list of strings"),
    ],
)
def test_choices_that_are_refused(more: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        explain(*inputs(), **more)


def test_missing_and_superfluous_inputs() -> None:
    with pytest.raises(TypeError, match=r"or project.* in their place; key is missing"):
        explain([[1.0]])
    with pytest.raises(TypeError, match="makes key and value itself"):
        explain(project([[1, 0]], IDENTITY, IDENTITY, IDENTITY), [[1.0]], [[1.0]])


def test_numbers_that_are_not_finite_are_named() -> None:
    with pytest.raises(ValueError, match="got nan in key at row 1, column 0"):
        explain([[1.0]], [[1.0], ["nan"]], [[1.0], [1.0]])
    with pytest.raises(ValueError, match="the logit of query 0 and key 0 is inf; scale the inputs down"):
        explain([[1e200]], [[1e200]], [[1.0]])
