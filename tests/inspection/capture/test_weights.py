"""Captures that hold weights, of attention that a model writes out: options, files, tables, pictures, generation."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from regard import load
from regard.inspection.capture import Capture, capture
from regard.inspection.matrix import AttentionMatrix
from regard.inspection.matrix.source import Stored

HEADS, SIZE, LENGTH, BATCH, WORDS = 3, 4, 7, 2, 13
WIDTH = HEADS * SIZE


class Attention(nn.Module):
    """Causal, with a cache of keys and values; by itself or by torch's function."""

    def __init__(self, written: bool, groups: int = HEADS, room: int = 0) -> None:
        super().__init__()
        self.written, self.groups, self.room = written, groups, room
        self.query, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.keys, self.values = nn.Linear(WIDTH, groups * SIZE), nn.Linear(WIDTH, groups * SIZE)
        self.cache: tuple[Tensor, Tensor] | None = None
        self.filled = 0

    def forward(self, x: Tensor, cached: bool = False) -> Tensor:
        q, k, v = (y.unflatten(-1, (-1, SIZE)).transpose(1, 2) for y in (self.query(x), self.keys(x), self.values(x)))
        if cached and self.room:
            k, v = self._placed(k, v)
        elif cached:
            if self.cache is not None:
                k, v = torch.cat([self.cache[0], k], 2), torch.cat([self.cache[1], v], 2)
            self.cache = (k, v)
        k, v = (y.repeat_interleave(HEADS // self.groups, 1) for y in (k, v))
        end = self.filled if cached and self.room else k.shape[2]
        seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(end - q.shape[2])
        if self.written:
            scores = (q @ k.mT * SIZE**-0.5).masked_fill(~seen, -torch.inf)
            out = scores.softmax(-1) @ v
        else:
            out = scaled_dot_product_attention(q, k, v, attn_mask=seen)
        result: Tensor = self.out(out.transpose(1, 2).flatten(2))
        return result

    def _placed(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """A cache of fixed size, whose free slots are hidden."""
        if self.cache is None:
            self.cache = (k.new_zeros(*k.shape[:2], self.room, SIZE), v.new_zeros(*v.shape[:2], self.room, SIZE))
            self.filled = 0
        for slots, new in zip(self.cache, (k, v), strict=True):
            slots[:, :, self.filled : self.filled + new.shape[2]] = new
        self.filled += k.shape[2]
        return self.cache

    def reorder(self, rows: list[int]) -> None:
        assert self.cache is not None
        self.cache = (self.cache[0][rows], self.cache[1][rows])


class Model(nn.Module):
    def __init__(self, written: bool = True, layers: int = 2, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.blocks = nn.ModuleList(Attention(written, **options) for _ in range(layers))

    def forward(self, ids: Tensor, cached: bool = False) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = x + block(x, cached)
        logits: Tensor = self.head(x)
        return logits

    @torch.no_grad()
    def generate(self, ids: Tensor, steps: int, rows: list[int] | None = None) -> Tensor:
        for block in self.blocks:
            assert isinstance(block, Attention)
            block.cache = None
        new = ids
        for step in range(steps):
            logits = self(new, cached=True)[:, -1]
            if rows is not None and step == 1:
                for block in self.blocks:
                    block.reorder(rows)  # type: ignore[operator]
                ids, logits = ids[rows], logits[rows]
            new = logits.argmax(-1, keepdim=True)
            ids = torch.cat([ids, new], 1)
        return ids


@pytest.fixture
def ids() -> Tensor:
    return torch.randint(WORDS, (BATCH, LENGTH), generator=torch.Generator().manual_seed(1))


# roundings in which a weight of a softmax and one of our kernels may differ: SIZE of a logit, all below 1, LENGTH of
# the sum of a row, and a few of exp and the quotient, in each of the two
ROUNDINGS = 2 * (SIZE + LENGTH + 4) * torch.finfo(torch.float32).eps


def close(one: AttentionMatrix, other: AttentionMatrix) -> bool:
    ours, theirs = one.dense().double(), other.dense().double()
    return ours.shape == theirs.shape and bool(((ours - theirs).abs() <= ROUNDINGS).all())


def test_a_layer_that_writes_attention_out_has_the_weights_of_the_fused_one(ids: Tensor) -> None:
    c, known = capture(Model(), ids), capture(Model(written=False), ids)
    assert c.layers == known.layers == ("blocks.0", "blocks.1")
    assert c.missed == ()
    assert isinstance(c[0]._source, Stored)
    assert all(close(one, other) for one, other in zip(c, known, strict=True))
    assert len(c.decoder) == 2


@pytest.mark.parametrize("options", [{}, {"groups": 1}, {"room": 16}, {"groups": 1, "room": 12}], ids=str)
def test_steps_of_a_generation_are_one_matrix(options: Any, ids: Tensor) -> None:
    found = []
    for written in (True, False):
        model = Model(written, **options)
        with capture(model) as c:
            text = model.generate(ids, 4)
        assert c.layers == ("blocks.0", "blocks.1")
        assert c[0].shape == (BATCH, HEADS, LENGTH + 3, LENGTH + 3)
        c.tokens = [[str(word) for word in row[:-1]] for row in text.tolist()]
        found.append(c)
    assert all(close(one, other) for one, other in zip(*found, strict=True))
    assert not bool(found[0][1].dense().triu(1).any())


def test_a_loop_outside_of_generate_is_joined_too(ids: Tensor) -> None:
    model = Model()
    with capture(model) as c, torch.no_grad():
        for part in ids.split([4, 1, 2], 1):
            model(part, cached=True)
    assert c.layers == ("blocks.0", "blocks.1")
    assert close(c[1], capture(Model(), ids)[1])


def test_beams_are_followed(ids: Tensor) -> None:
    found = []
    for written in (True, False):
        model = Model(written)
        with capture(model) as c:
            model.generate(ids, 4, rows=[1, 1])
        found.append(c)
    assert found[0].layers == found[1].layers == ("blocks.0", "blocks.1")
    assert all(close(one, other) for one, other in zip(*found, strict=True))


def test_further_calls_have_numbers(ids: Tensor) -> None:
    model = Model(layers=1)
    with capture(model) as c:
        model(ids)
        model(ids[:, :5])
        model(ids)
    assert c.layers == ("blocks.0", "blocks.0#2", "blocks.0#3")
    assert torch.equal(c[0].dense(), c[2].dense())


def test_layers_heads_and_types(ids: Tensor) -> None:
    whole = capture(Model(), ids)
    some = capture(Model(), ids, layers=[1], heads=[0, 2])
    assert some.layers == ("blocks.1",)
    assert some.numbers(0) == (0, 2)
    assert torch.equal(some[0, 2].dense(), whole[1, 2].dense())
    rounded = capture(Model(), ids, dtype=torch.bfloat16)
    assert torch.equal(rounded[0].dense(), whole[0].dense().bfloat16().float())
    moved = float((rounded[0].dense() - whole[0].dense()).abs().max())
    assert f"{moved:.1e}" in repr(rounded)
    assert "weights rounded to bfloat16" in repr(rounded)


@pytest.mark.parametrize("spill", [0, 3000, "file"])
def test_weights_are_spilled(spill: Any, ids: Tensor, tmp_path: Path) -> None:
    whole = []
    for limit in (None, tmp_path / "run.safetensors" if spill == "file" else spill):
        model = Model()
        with capture(model, spill=limit) as c:
            model.generate(ids, 5)
        whole.append(c)
    assert len(whole[1]) == 2
    for one, other in zip(*whole, strict=True):
        assert torch.equal(one.dense(), other.dense())


def test_files(ids: Tensor, tmp_path: Path) -> None:
    tokens = [[f"{row}.{column}" for column in range(LENGTH)] for row in range(BATCH)]
    c = capture(Model(), ids, tokens=tokens, heads=[1, 2])
    c.save(tmp_path / "run.safetensors")
    again = load(tmp_path / "run.safetensors")
    assert isinstance(again, Capture)
    assert repr(again) == repr(c)
    assert again.tokens == tokens
    assert torch.equal(again[1, 2].dense(), c[1, 2].dense())
    assert again[0][1].query_tokens == tuple(tokens[1])
    again.save(tmp_path / "again.safetensors")
    assert repr(load(tmp_path / "again.safetensors")) == repr(c)
    c[0, 1].save(tmp_path / "head.safetensors")
    head = load(tmp_path / "head.safetensors")
    assert isinstance(head, AttentionMatrix)
    assert torch.equal(head.dense(), c[0, 1].dense())


def test_the_table_of_heads_is_that_of_the_fused_layers(ids: Tensor) -> None:
    tables = [capture(Model(written), ids).heads(ids=ids) for written in (True, False)]
    assert tables[0].columns == tables[1].columns
    for one, other in zip(*tables, strict=True):
        for name in tables[0].columns:
            if isinstance(one[name], float):
                assert one[name] == pytest.approx(other[name], abs=LENGTH * ROUNDINGS, nan_ok=True), name
            else:
                assert one[name] == other[name], name


def test_pictures(ids: Tensor, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    c = capture(Model(), ids[:1], tokens=[str(word) for word in ids[0].tolist()])
    c.show(color="plain")
    assert "7 x 7" in capsys.readouterr().out
    c[0, 1].show(color="plain")
    for suffix in ("png", "svg", "html"):
        c.save(tmp_path / f"run.{suffix}")
        c[0, 1].save(tmp_path / f"head.{suffix}")
        assert (tmp_path / f"run.{suffix}").stat().st_size


class Channels(nn.Module):
    """As in XCiT, and as many channels in a head as there are tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, SIZE)).permute(2, 0, 3, 4, 1)
        out: Tensor = ((q @ k.mT).softmax(-1) @ v).permute(0, 3, 1, 2).flatten(2)
        return out


def test_channels_are_no_tokens(tmp_path: Path) -> None:
    x = torch.randn(BATCH, SIZE, WIDTH, generator=torch.Generator().manual_seed(1))
    words = ["a", "b", "c", "d"]
    model = nn.Sequential(Channels(), Attention(True))
    c = capture(model, x, tokens=words)
    assert c[0].shape == (BATCH, HEADS, SIZE, SIZE) == c[1].shape
    assert c[0].query_tokens is None
    assert c[0].key_tokens is None
    assert c[1].query_tokens == tuple(words)
    assert "its own softmax, over channels" in repr(c)
    assert c.decoder.layers == ("1",)
    assert c.channels == ("0",)
    with pytest.raises(ValueError, match="self-attention of an encoder"):
        c.encoder  # noqa: B018
    with pytest.raises(ValueError, match="tokens has 4 entries, the layers have no queries or keys"):
        capture(Channels(), x, tokens=words)
    c.save(tmp_path / "run.safetensors")
    again = load(tmp_path / "run.safetensors")
    assert isinstance(again, Capture)
    assert (again[0].key_tokens, again[1].key_tokens) == (None, tuple(words))
    rows = {row["layer"]: row for row in c.heads()}
    assert rows[0]["distance"] != rows[0]["distance"]  # NaN: channels have no order
    assert rows[1]["distance"] == rows[1]["distance"]
