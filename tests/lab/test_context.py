"""context: sentences as marked, neighbors by hand-made vectors, changes that do what they say, and a clear error."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from regard import lab, models
from regard.inspection.interventions import Ablate, Forbid, intervene
from regard.inspection.records import Estimate
from regard.lab import context
from regard.lab.context.reading import Reading, minilm, parsed, read, sentences, words
from regard.lab.report import Report
from regard.spec.masks import Lengths

Quick = Callable[[str], Report]


@pytest.fixture(scope="module")
def reading(get_model: Callable[[str], Path]) -> Reading:
    get_model("minilm")
    chosen = tuple(each for each in sentences() if each.word in ("bank", "seal"))
    return read(minilm(), chosen)


def test_a_line_is_a_sentence_with_places() -> None:
    found = parsed("bat | sport | His [bat] broke in the *third* *inning*.")
    assert found.text == "His bat broke in the third inning."
    assert found.text[slice(*found.at)] == "bat"
    assert [found.text[slice(*span)] for span in found.cues] == ["third", "inning"]
    with pytest.raises(ValueError, match=r"a line is 'word \| sense \| text', got 'bat'"):
        parsed("bat")
    for wrong in ("A bat in a *cave*.", "A [bat] in a cave.", "A [cat] in a *cave*."):
        with pytest.raises(ValueError, match=r"a text has \[bat\] once, and at least one \*cue\*"):
            parsed(f"bat | animal | {wrong}")


def test_every_word_has_two_senses_in_as_many_sentences() -> None:
    counted = Counter((each.word, each.sense) for each in sentences())
    assert len(words(sentences())) == 12
    assert len(counted) == 24
    assert set(counted.values()) == {8}
    assert len({each.text for each in sentences()}) == 192


def test_tokens_are_where_the_marks_are(reading: Reading) -> None:
    for row, each in enumerate(reading.sentences):
        tokens = reading.tokens[row]
        assert tokens[int(reading.at[row])] == each.word
        read_cues = "".join(tokens[place] for place in reading.cues[row].nonzero().flatten().tolist())
        marked = "".join(each.text[slice(*span)] for span in each.cues)
        assert read_cues.replace("##", "") == marked.lower()
    assert not bool((reading.cues & reading.others).any())
    assert not bool(reading.others[torch.arange(len(reading.ids)), reading.at].any())


def test_states_are_the_models(reading: Reading) -> None:
    with torch.no_grad():
        whole = reading.encoder.model(reading.ids, mask=Lengths(reading.lengths))
    assert torch.equal(reading.states[-1], whole)
    assert reading.states.shape[:2] == (7, len(reading.ids))
    assert torch.allclose(reading.weights.sum(-1), torch.ones(reading.weights.shape[:-1]), atol=1e-5)


def test_neighbors_of_vectors_made_by_hand(reading: Reading) -> None:
    named = [each.sense for each in reading.sentences]
    names = sorted(set(named))
    right = torch.nn.functional.one_hot(torch.tensor([names.index(each) for each in named])).double()
    found = reading.senses(right)
    assert found.accuracy.tolist() == [1.0, 1.0]
    assert found.separation.tolist() == [1.0, 1.0]
    alike = reading.senses(torch.ones(len(named), 3))
    assert alike.accuracy.tolist() == pytest.approx([7 / 15, 7 / 15])
    assert alike.separation.tolist() == [0.0, 0.0]
    assert reading.chance == pytest.approx(7 / 15)


def test_the_embedding_knows_no_sense_and_attention_brings_it(reading: Reading) -> None:
    assert reading.senses(reading.vectors(reading.embeddings())).accuracy.tolist() == pytest.approx([7 / 15, 7 / 15])
    last = reading.senses(reading.vectors(reading.states[-1]))
    assert float(last.accuracy.min()) > 0.8


def test_without_attention_a_word_knows_nothing_but_its_place(reading: Reading) -> None:
    deaf = reading.changed(Ablate())
    places: dict[tuple[str, int], torch.Tensor] = {}
    for vector, each, at in zip(deaf, reading.sentences, reading.at.tolist(), strict=True):
        assert torch.allclose(vector, places.setdefault((each.word, at), vector), atol=1e-5)
    assert len(places) < len(deaf)


def test_what_is_not_changed_is_not_computed_again_and_stays(reading: Reading) -> None:
    nothing = Forbid(torch.zeros_like(reading.cues))
    for heads in (None, {5: [3]}, {2: [0, 1], 4: [7]}):
        assert torch.allclose(reading.changed(nothing, heads), reading.vectors(reading.states[-1]), atol=1e-5)
    with torch.no_grad(), intervene(reading.encoder, Ablate(), layers=3, heads=[2]):
        whole = reading.encoder.model(reading.ids, mask=Lengths(reading.lengths))
    rest = reading.changed(Ablate(), {3: [2]})
    assert torch.allclose(rest, reading.vectors(whole), atol=1e-5)
    assert not torch.allclose(rest, reading.vectors(reading.states[-1]), atol=1e-3)


def test_controls_are_like_what_they_control(reading: Reading) -> None:
    generator = torch.Generator().manual_seed(0)
    best = reading.readers(6)
    other = reading.other_heads(best, generator)
    assert {layer: len(heads) for layer, heads in best.items()} == {layer: len(heads) for layer, heads in other.items()}
    assert all(not set(best[layer]) & set(other[layer]) for layer in best)
    weight = reading.cue_weight
    least = min(float(weight[layer, head]) for layer, heads in best.items() for head in heads)
    assert int((weight >= least).sum()) == 6
    drawn = reading.other_words(generator)
    assert torch.equal(drawn.sum(1), reading.cues.sum(1).minimum(reading.others.sum(1)))
    assert not bool((drawn & ~reading.others).any())


def test_the_report_follows_from_the_model(quick: Quick) -> None:
    report = quick("context")
    first, *_, last, _ = report.tables[0].rows
    assert isinstance(first[1], Estimate)
    assert isinstance(last[1], Estimate)
    assert first[1].mean == pytest.approx(3 / 7)
    assert last[1].mean > 0.7
    changed = {str(row[0]): row[3] for row in report.tables[1].rows}
    blind, other = changed[context.BLIND], changed[context.CONTROL_BLIND]
    assert isinstance(blind, Estimate)
    assert isinstance(other, Estimate)
    assert blind.mean > other.mean + 0.2


def test_verdicts_follow_the_numbers(reading: Reading) -> None:
    right = reading.senses(reading.vectors(reading.states[-1]))
    wrong = replace(right, accuracy=torch.tensor([0.4, 0.5]), separation=torch.tensor([0.01, 0.02]))
    names = (
        context.AS_IS,
        context.LESS,
        context.CONTROL,
        context.BLIND,
        context.CONTROL_BLIND,
        context.DEAF,
    )
    nothing = context.ContextResults(reading, {}, dict.fromkeys(names, wrong), reading.cue_weight)
    said = [claim.verdict for claim in context.claims(nothing)[1:]]
    assert said == ["not shown", "corrected", "corrected", "confirmed"]
    against = replace(nothing, lost=-reading.cue_weight)
    assert context.claims(against)[-1].verdict == "corrected"
    assert "that attention is needed is not shown" in context.finding(nothing)


def test_without_the_model_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="the model minilm is not here; run: regard models get minilm"):
        lab.run("context", quick=True)
    assert not list(tmp_path.iterdir())
    assert models.known()[0].name == "minilm"
