"""Attention that is not intercepted, and so not changed, is warned of once."""

import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from regard.inspection.hooks.missed import OWN
from regard.inspection.interventions import Ablate, effect, intervene

X = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(0))


class Attention(nn.Module):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.inputs, self.fused = nn.Linear(8, 24), fused

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.inputs(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        out = scaled_dot_product_attention(q, k, v) if self.fused else (q @ k.mT).softmax(-1) @ v
        return out.transpose(1, 2).flatten(2)


def model(*fused: bool) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*map(Attention, fused)).eval()


def texts(run: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return [str(each.message) for each in caught]


def changed(model: nn.Module, **options: Any) -> None:
    with intervene(model, Ablate(), **options):
        model(X)
        model(X)


def test_intervene_warns_once_of_what_it_does_not_change() -> None:
    (text,) = texts(lambda: changed(model(True, False)))
    assert text == f"Sequential ran attention that is not intercepted, and so not changed: 1 ({OWN})"


def test_the_warning_names_the_line_of_the_caller() -> None:
    with pytest.warns(UserWarning, match="not changed: 1") as caught:
        changed(model(True, False))
    assert caught[0].filename == __file__


def test_nothing_is_said_of_layers_that_were_not_chosen_or_of_models_that_are_changed_throughout() -> None:
    assert texts(lambda: changed(model(True, False), layers="0")) == []
    assert texts(lambda: changed(model(True, True))) == []
    assert texts(lambda: changed(nn.TransformerEncoderLayer(8, 2, batch_first=True).eval())) == []


def test_a_model_of_which_nothing_is_intercepted() -> None:
    with pytest.raises(ValueError, match=r"can be changed: .* attend\. Not intercepted: 0, 1 \(it multiplies"):
        changed(model(False, False))


def test_outputs_are_those_without_a_watch() -> None:
    one = model(True, False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with intervene(one, Ablate(), layers="0"):
            out = one(X)
    assert torch.equal(out, one[1](torch.zeros(2, 6, 8)))  # type: ignore[index]


def test_effect_warns_once() -> None:
    (text,) = texts(lambda: effect(model(True, False), [X, X], Ablate()))
    assert text == f"Sequential ran attention that is not intercepted, and so not changed: 1 ({OWN})"
    assert texts(lambda: effect(model(True, True), [X, X], Ablate())) == []
    with pytest.raises(ValueError, match=r"Not intercepted: 0 \(it multiplies"):
        effect(model(False), [X], Ablate())


def test_another_thread_is_named_as_that_of_the_intervention() -> None:
    two = model(True, True)

    def run() -> None:
        with intervene(two, Ablate()):
            two[0](X)  # type: ignore[index]
            thread = threading.Thread(target=two[1], args=(X,))  # type: ignore[index]
            thread.start()
            thread.join()

    (text,) = texts(run)
    assert text.endswith("1 (it calls attention in another thread than that of the intervention)")
