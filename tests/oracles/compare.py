"""An engine against `formula` on one generated call, and the bound on what may lie between them.

`python -m tests.oracles.compare 0 1000` runs the calls of these seeds and prints the largest errors by engine.
"""

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import torch
from torch import Tensor

import regard
from regard.testing import error, small_tiles
from tests.oracles import formula
from tests.oracles.rounding import Rounded, budget, scatter
from tests.oracles.specs import STATISTICS, Specimen, make

ENGINES = ("reference", "tiled", "native")
Call = Callable[[Specimen, tuple[str, ...]], tuple[Tensor, dict[str, Tensor]]]
Results = dict[str, Tensor]
Ratios = dict[tuple[str, str], tuple[float, str]]


def asked(specimen: Specimen) -> tuple[str, ...]:
    """The statistics that this normalizer has, and that the positions allow."""
    softmax = type(specimen.spec["normalizer"]).__name__ == "Softmax"
    left_out = ("" if softmax else "lse", "" if specimen.placed else "distance")
    return tuple(name for name in STATISTICS if name not in left_out)


def engine_call(engine: str) -> Call:
    def call(specimen: Specimen, aux: tuple[str, ...]) -> tuple[Tensor, dict[str, Tensor]]:
        if not aux:
            return regard.attend(*specimen.inputs, **specimen.spec, engine=engine), {}
        out, found = regard.attend(*specimen.inputs, **specimen.spec, aux=aux, engine=engine)
        return out, {name: getattr(found, name) for name in aux}

    return call


def formula_call(rounded: Rounded | None = None) -> Call:
    def call(specimen: Specimen, aux: tuple[str, ...]) -> tuple[Tensor, dict[str, Tensor]]:
        pause = rounded.pause if rounded is not None and specimen.exact else nullcontext
        answer = formula.evaluate(*specimen.inputs, **specimen.spec, pause=pause)
        return answer.out, {name: answer.aux[name] for name in aux} | {"weights": answer.weights.detach()}

    return call


def results(call: Call, specimen: Specimen, exactly: bool = False) -> Results:
    """The output, all statistics, the gradients by every leaf, and second derivatives along a random direction.

    `exactly`: the output without a graph and with all statistics must be the same, bit for bit.
    """
    generator = torch.Generator().manual_seed(specimen.seed)

    def direction(of: Tensor) -> Tensor:
        return torch.randn(of.shape, generator=generator, dtype=torch.float64).float().to(of.dtype)

    leaves = list(specimen.leaves.values())
    if exactly:
        with torch.no_grad():
            still, statistics = call(specimen, asked(specimen))
        out, through = call(specimen, specimen.through)
        assert torch.equal(out, still), "asking for statistics, or for gradients, changes the output"
    else:
        out, statistics = call(specimen, asked(specimen))
        through = {name: statistics[name] for name in specimen.through}
    found = {"out": out, **statistics}
    ends = [out, *through.values()]
    along = [direction(end) for end in ends]
    first = gradients(ends, leaves, along)
    found |= {f"gradient by {name}": tensor for name, tensor in zip(specimen.leaves, first, strict=True)}
    if specimen.second:
        out, statistics = call(specimen, specimen.through)
        along = [tensor.requires_grad_() for tensor in along]
        ends = [out, *(statistics[name] for name in specimen.through)]
        first = gradients(ends, leaves, along, create_graph=True)
        second = gradients(first, [*leaves, *along], [direction(tensor) for tensor in first])
        found |= {f"gradient by {name}, again": tensor for name, tensor in zip(specimen.leaves, first, strict=True)}
        names = [*specimen.leaves, *(f"direction {number}" for number in range(len(along)))]
        found |= {f"second derivative by {name}": tensor for name, tensor in zip(names, second, strict=True)}
    return {name: tensor.detach() for name, tensor in found.items()}


def gradients(
    ends: list[Tensor], leaves: list[Tensor], along: list[Tensor], create_graph: bool = False
) -> list[Tensor]:
    """Zeros where nothing depends on a leaf."""
    kept = [(end, by) for end, by in zip(ends, along, strict=True) if end.requires_grad]
    if not kept:
        return [torch.zeros_like(leaf) for leaf in leaves]
    starts, by = zip(*kept, strict=True)
    found = torch.autograd.grad(
        starts, leaves, by, create_graph=create_graph, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return list(found)


class Truth:
    """What the formula says about one call, and how far rounding alone takes it from that."""

    def __init__(self, seed: int) -> None:
        self.seed, self.specimen = seed, make(seed)
        self.right = results(formula_call(), self.specimen)
        self.scatter = scatter(lambda rounded: results(formula_call(rounded), self.specimen), self.right)
        self.single = make(seed, torch.float32)
        self.plain = results(formula_call(), self.single)
        self.decided = self.specimen.exact or not self._turned()

    def _turned(self) -> bool:
        """Whether roundings of float32 (32 of them) turn a decision: the largest key, the support, the sign in relu."""

        def choices(specimen: Specimen) -> list[Tensor]:
            return formula.evaluate(*specimen.inputs, **specimen.spec).choices

        right = choices(self.specimen)
        if not right:
            return False
        with Rounded(32 * torch.finfo(torch.float32).eps, 0):
            other = choices(self.specimen)
        return not all(map(torch.equal, right, other))

    def allowed(self, name: str, dtype: torch.dtype) -> tuple[float, float]:
        """The root mean square error that `name` may have, and what the plain formula's own rule would allow.

        The formula's error is the largest of some draws.
        """
        right = self.right[name]
        finite = right[right.isfinite()].double()
        if not finite.numel():
            return 0.0, 0.0
        eps = torch.finfo(dtype).eps
        unit = eps / torch.finfo(torch.float32).eps
        formulas = self.scatter[name] * unit
        strict = 2 * formulas
        if dtype == torch.float32:
            plain = error(self.plain[name], right)
            formulas, strict = max(plain, formulas), 2 * plain
        return budget(formulas, right, dtype), max(strict, eps * float(finite.abs().max()))


def check(truth: Truth, engine: str, dtype: torch.dtype) -> Iterator[tuple[str, float, float]]:
    """Compare all results of an engine; yields names with their errors over what is allowed and over the plain rule."""
    specimen = truth.specimen if dtype == torch.float64 else truth.single
    with small_tiles(*specimen.tiles) if specimen.tiles else nullcontext():
        found = results(engine_call(engine), specimen, exactly=True)
    assert found.keys() == truth.right.keys() - {"weights"}, "not the same results"
    for name, tensor in found.items():
        expected = dtype if tensor.is_floating_point() else torch.int64
        assert tensor.dtype == expected, f"{name} is {tensor.dtype}"
        if name == "peak_at":
            same_peaks(tensor, truth, dtype)
            continue
        off = error(tensor, truth.right[name])
        allowed, strict = truth.allowed(name, dtype)
        assert off <= allowed, f"{name}: error {off:.3g}, allowed {allowed:.3g}"
        yield name, off / allowed if allowed else 0.0, off / strict if strict else 0.0


def same_peaks(found: Tensor, truth: Truth, dtype: torch.dtype) -> None:
    """The first of the largest; another only if rounding cannot tell them apart."""
    right, weights = truth.right["peak_at"], truth.right["weights"]
    assert found.shape == right.shape
    differ = found != right
    if not bool(differ.any()):
        return
    assert not truth.specimen.exact, "peak_at differs, and all logits are exact"
    assert bool((found[differ] >= 0).all()), "peak_at: no key"
    assert bool((right[differ] >= 0).all()), "peak_at: a key where none is seen"
    taken = weights.gather(-1, found.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    gap = (truth.right["peak"] - taken)[differ].abs().max()
    assert gap <= 64 * torch.finfo(dtype).eps, f"peak_at: a weight that is {gap:.3g} below the largest"


def check_matrix(truth: Truth, dtype: torch.dtype) -> Iterator[tuple[str, float, float]]:
    """The weights of `regard.matrix`, cell by cell."""
    specimen = truth.specimen if dtype == torch.float64 else truth.single
    query, key, _ = specimen.inputs
    spec = {name: value for name, value in specimen.spec.items() if name != "dropout"}
    n, m = specimen.sizes.queries, specimen.sizes.keys
    found = regard.matrix(query, key, **spec)[..., 0:n, 0:m].detach()
    off = error(found, truth.right["weights"])
    allowed, strict = truth.allowed("weights", dtype)
    assert off <= allowed, f"weights: error {off:.3g}, allowed {allowed:.3g}"
    yield "weights", off / allowed if allowed else 0.0, off / strict if strict else 0.0


def runs(truth: Truth) -> Iterator[tuple[str, torch.dtype, Iterator[tuple[str, float, float]]]]:
    """Every engine that takes the call, in both precisions."""
    specimen, leading = truth.specimen, truth.specimen.sizes.leading
    for dtype in (torch.float64, torch.float32):
        if dtype == torch.float32 and not truth.decided:
            continue
        for engine in ENGINES:
            if engine != "native" or native_takes(specimen):
                yield engine, dtype, check(truth, engine, dtype)
        query, key, value = specimen.inputs
        same_rank = max(query.ndim, key.ndim) == max(query.ndim, key.ndim, value.ndim)
        if same_rank and torch.broadcast_shapes(query.shape[:-3], key.shape[:-3]) == leading:
            yield "matrix", dtype, check_matrix(truth, dtype)


def native_takes(specimen: Specimen) -> bool:
    """Whether the native engine documents this score and normalizer as its own."""
    score = specimen.spec["score"]
    while hasattr(score, "score") and type(score).__name__ == "SoftCapped":
        score = score.score
    product = ("Dot", "ScaledDot", "General", "Cosine", "Additive", "ConcatMLP")
    return type(score).__name__ in product and type(specimen.spec["normalizer"]).__name__ == "Softmax"


def agree(seed: int) -> Ratios:
    """Compare all engines on the call of that seed; returns the largest error of each over what is allowed, and by
    the plain rule. Whatever fails is raised with the call that failed."""
    truth, worst = Truth(seed), Ratios()
    for engine, dtype, comparison in runs(truth):
        kind = str(dtype).removeprefix("torch.")
        try:
            for name, ratio, strict in comparison:
                for rule, found in (("", ratio), (" plain", strict)):
                    worst[engine, kind + rule] = max(worst.get((engine, kind + rule), (0.0, "")), (found, name))
        except Exception as problem:
            raise AssertionError(f"{engine} in {dtype}: {problem}\nrepeat with {truth.specimen}") from problem
    return worst


def main(first: int, last: int) -> None:
    """All seeds from first to before last."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    begun, failed, counts = time.perf_counter(), [], dict[tuple[str, str], int]()
    worst: dict[tuple[str, str], tuple[float, str, int]] = {}
    for seed in range(first, last):
        try:
            found = agree(seed)
        except Exception as problem:
            failed.append(seed)
            print(f"{type(problem).__name__} at seed {seed}: {problem}\n", flush=True)
            continue
        for place, (ratio, name) in found.items():
            counts[place] = counts.get(place, 0) + 1
            worst[place] = max(worst.get(place, (0.0, "", 0)), (ratio, name, seed))
    for place in sorted(worst):
        ratio, name, seed = worst[place]
        print(*place, counts[place], f"calls, worst {ratio:.3f} ({name}, seed {seed})")
    print(f"{last - first} calls in {time.perf_counter() - begun:.0f} s, failed: {failed}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
