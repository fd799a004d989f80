"""The block: what it leaves behind, and how blocks compose."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import multi_head_attention_forward
from torch.nn.functional import scaled_dot_product_attention as fused
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import regard
from regard import masks
from regard.inspection.capture import capture
from regard.inspection.interventions import (
    Ablate,
    Average,
    Forbid,
    Mask,
    Pattern,
    Previous,
    Temperature,
    Uniform,
    intervene,
)


class Heads(nn.Module):
    """Four heads over two of keys, causal."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = {"is_causal": True, **options}
        self.inputs, self.outputs = nn.Linear(12, 64), nn.Linear(32, 12)

    def projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.inputs(x).unflatten(-1, (8, 8)).transpose(-3, -2).split([4, 2, 2], -3)
        return q, k, v

    def forward(self, x: Tensor) -> Tensor:
        out = fused(*self.projected(x), enable_gqa=True, **self.options)
        mixed: Tensor = self.outputs(out.transpose(-3, -2).flatten(-2))
        return mixed


def model(layers: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Heads() for _ in range(layers)))


X = torch.randn(2, 9, 12, generator=torch.Generator().manual_seed(1))


def test_ablating_all_heads_leaves_the_bias_of_the_output() -> None:
    one = model(1)
    with intervene(one, Ablate()):
        out = one(X)
    layer: Any = one[0]
    assert torch.equal(out, layer.outputs(torch.zeros(2, 9, 32)))


def test_layers_by_number_name_and_pattern() -> None:
    three = model()
    cases: list[tuple[Any, tuple[str, ...]]] = [
        (0, ("0",)),
        ([0, 2], ("0", "2")),
        ("1", ("1",)),
        ("[12]", ("1", "2")),
        (None, ("0", "1", "2")),
        (["0", 1], ("0", "1")),
    ]
    for layers, want in cases:
        with intervene(three, Ablate(), layers=layers) as changed:
            three(X)
        assert changed.layers == want
    assert repr(changed) == "<Intervention in Sequential: Ablate(); 2 calls changed>"


def test_changes_of_a_block_and_of_nested_blocks_compose() -> None:
    one = model(1)
    with intervene(one, Temperature(2.0), Temperature(1.5)):
        both = one(X)
    with intervene(one, Temperature(2.0)), intervene(one, Temperature(1.5)):
        nested = one(X)
    with intervene(one, Temperature(3.0)):
        want = one(X)
    assert_close(both, want)
    assert_close(nested, want)
    with intervene(one, Temperature(2.0), heads=0), intervene(one, Uniform(), heads=1), capture(one) as c:
        one(X)
    with intervene(one, Temperature(2.0)), capture(one) as warm:
        one(X)
    plain = capture(one, X)
    assert_close(c[0, 0].dense(), warm[0, 0].dense())
    assert_close(c[0, 1].dense()[0, 4], torch.tensor([0.2] * 5 + [0.0] * 4))
    assert_close(c[0].dense()[:, 2:], plain[0].dense()[:, 2:])


def test_capture_may_be_around_the_block_or_inside() -> None:
    one = model(1)
    with capture(one) as outer, intervene(one, Uniform()), capture(one) as inner:
        one(X)
    assert_close(outer[0].dense(), inner[0].dense())
    assert_close(inner[0].dense()[0, 3, 1], torch.tensor([0.5, 0.5, *[0.0] * 7]))


def test_a_changed_query_head_leaves_its_group_alone() -> None:
    one = model(1)
    one[0].outputs = nn.Identity()
    before = one(X)
    with intervene(one, Uniform(), heads=2):
        out = one(X)
    assert torch.equal(out[..., :16], before[..., :16])
    assert torch.equal(out[..., 24:], before[..., 24:])
    assert not torch.allclose(out[..., 16:24], before[..., 16:24])


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_nothing_is_left_behind(mode: Callable[[], Any]) -> None:
    three, functional = model(), torch.nn.functional
    mark = vars(regard.nn.attention)["attend_chunks"]
    with mode():
        before = three(X)
        with intervene(three, Uniform()):
            assert not torch.equal(three(X), before)
        assert torch.equal(three(X), before)
        with pytest.raises(ZeroDivisionError), intervene(three, Uniform()):
            raise ZeroDivisionError
        assert torch.equal(three(X), before)
    assert functional.multi_head_attention_forward is multi_head_attention_forward
    assert vars(regard.nn.attention)["attend_chunks"] is mark


def test_an_error_in_the_model_ends_the_block() -> None:
    class Broken(Heads):
        def forward(self, x: Tensor) -> Tensor:
            super().forward(x)
            raise KeyboardInterrupt

    broken, fine = Broken(), model()
    before = fine(X)
    with pytest.raises(KeyboardInterrupt), intervene(broken, Ablate()):
        broken(X)
    assert torch.equal(fine(X), before)


def test_other_threads_and_other_models_are_not_changed() -> None:
    three, other = model(), model()
    before, found = three(X), []

    def changed() -> None:
        with intervene(three, Uniform()):
            assert torch.equal(other(X), before)
            thread = threading.Thread(target=lambda: found.append(three(X)))
            thread.start()
            thread.join()
            three(X)

    with pytest.warns(UserWarning, match="in another thread than that of the intervention"):
        changed()
    assert torch.equal(found[0], before)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_layers_are_changed_again_in_backward(reentrant: bool) -> None:
    class Saving(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = checkpoint(self.inner, x, use_reentrant=reentrant)
            return out

    x = X.clone().requires_grad_()
    one = model(1)
    with intervene(one, Temperature(3.0)):
        one(x).square().sum().backward()
    want, x.grad = x.grad, None
    saving = Saving(one)
    with intervene(saving, Temperature(3.0)):
        saving(x).square().sum().backward()
    assert_close(x.grad, want)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_types_are_kept(dtype: torch.dtype) -> None:
    one, x = model(1).to(dtype), X.to(dtype)
    before = one(x)
    for change in (Temperature(1.0), Uniform(), Previous(), Average(), Pattern(torch.eye(9))):
        with intervene(one, change):
            out = one(x)
        assert out.dtype == dtype
        if change == Temperature(1.0):
            eps = torch.finfo(dtype).eps
            assert (out - before).abs().max() <= 8 * eps * before.abs().max()


def test_autocast() -> None:
    one = model(1)
    with torch.autocast("cpu", torch.bfloat16):
        before = one(X)
        with intervene(one, Temperature(1.0)):
            out = one(X)
    assert out.dtype == before.dtype == torch.bfloat16
    assert_close(out, before, atol=2e-2, rtol=2e-2)


def test_dropout_of_changed_heads() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 40, 8)

    class Model(nn.Module):
        def forward(self, rate: float) -> Tensor:
            return fused(q, k, v, dropout_p=rate)

    one = Model()
    with intervene(one, Temperature(1.0), heads=1):
        runs = torch.stack([one(0.5) for _ in range(400)])
        assert (one(1.0) == 0).all()
    assert_close(runs.mean(0), one(0.0), atol=0.12, rtol=0.0)
    assert runs[:, :, 1].std(0).mean() > 0.05


def test_memory_order_of_the_output_is_kept() -> None:
    class Merged(Heads):
        def forward(self, x: Tensor) -> Tensor:
            q, _, _ = self.projected(x)
            out = fused(q, q, q, is_causal=True)
            return out.transpose(1, 2).view(2, 9, 32)  # works only in that order

    merged = Merged()
    merged(X)
    for change in (Uniform(), Ablate(), Average()):
        with intervene(merged, change, heads=1):
            merged(X)


@pytest.mark.parametrize("shape", [(9, 8), (4, 9, 8), (2, 3, 4, 9, 8)])
def test_any_number_of_axes(shape: tuple[int, ...]) -> None:
    q, k, v = torch.randn(3, *shape)

    class Model(nn.Module):
        def forward(self) -> Tensor:
            return fused(q, k, v)

    one = Model()
    with intervene(one, Uniform()):
        out = one()
    assert_close(out, v.mean(-2, keepdim=True).expand_as(v))
    with intervene(one, Ablate()):
        assert (one() == 0).all()


def test_caches_of_regard() -> None:
    torch.manual_seed(0)
    language = regard.nn.LanguageModel(31, layers=2, d_model=24, heads=4, kv_heads=2).eval()
    ids = torch.randint(31, (2, 12))
    for change in (Uniform(), Previous(), Forbid(2), Mask(masks.Window(3, 0)), Temperature(2.0)):
        with torch.no_grad(), intervene(language, change, heads=[0, 3]) as changed:
            want = language(ids)
            cache = regard.nn.KVCache()
            steps = [
                language(ids[:, :5], cache=cache),
                *(language(ids[:, i : i + 1], cache=cache) for i in range(5, 12)),
            ]
        assert len(changed.layers) == 2
        assert_close(torch.cat(steps, 1), want, atol=1e-5, rtol=1e-5)


def test_a_cache_of_regard_that_forgets_is_refused() -> None:
    torch.manual_seed(0)
    language = regard.nn.LanguageModel(31, layers=2, d_model=24, heads=4).eval()
    cache = regard.nn.KVCache(window=4)
    language(torch.randint(31, (1, 6)), cache=cache)
    text = "cannot be changed: its cache has let go of keys"
    with pytest.raises(ValueError, match=text), intervene(language, Uniform()):
        language(torch.randint(31, (1, 1)), cache=cache)


def test_first_of_a_padded_row_reads_itself() -> None:
    q, k, v = torch.randn(3, 2, 1, 5, 4)
    seen = torch.ones(5, 5, dtype=torch.bool).tril().expand(2, 1, 5, 5).clone()
    seen[1, ..., :2] = False

    class Model(nn.Module):
        def forward(self) -> Tensor:
            return fused(q, k, v, seen)

    one = Model()
    with intervene(one, Previous()):
        out = one()
    assert torch.equal(out[0, 0], v[0, 0, [0, 0, 1, 2, 3]])
    assert torch.equal(out[1, 0, 2:], v[1, 0, [2, 2, 3]])
    assert (out[1, 0, :2] == 0).all()


def test_a_cache_of_fixed_size_tells_its_positions_by_its_mask() -> None:
    q, k, v = torch.randn(1, 1, 1, 4), torch.randn(1, 1, 10, 4), torch.randn(1, 1, 10, 4)
    seen = (torch.arange(10) < 6).view(1, 1, 1, 10)

    class Model(nn.Module):
        def forward(self) -> Tensor:
            return fused(q, k, v, seen)

    one = Model()
    with intervene(one, Previous()):
        assert torch.equal(one()[0, 0, 0], v[0, 0, 4])
    with intervene(one, Mask(masks.Window(1, 0))), capture(one) as c:
        one()
    assert (c[0].dense()[0, 0, 0] > 0).nonzero().flatten().tolist() == [4, 5]


def test_forbidden_tokens() -> None:
    one, ids = model(1), torch.tensor([[1, 5, 3, 5, 2, 2, 5, 1, 1], [5, 1, 1, 1, 1, 1, 1, 1, 1]])
    with intervene(one, Forbid(ids == 5)), capture(one) as c:
        one(X)
    weights = c[0].dense()
    assert (weights[0, :, :, [1, 3, 6]] == 0).all()
    assert (weights[1, :, :, 0] == 0).all()
    assert (weights[1, :, 0] == 0).all()  # it sees nothing else
    assert_close(weights[1, :, 1:].sum(-1), torch.ones(4, 8))
