"""language: sentences with known subjects, pairs with controls, and heads judged on cases they were not chosen on."""

from collections.abc import Callable

import pytest
import torch

from regard.lab import language
from regard.lab.language import Linked, folds, judged
from regard.lab.language.sentences import CONDITIONS, VerbSentence, spans, synonyms, verb_sentences
from regard.lab.report import Report
from regard.lab.translation.lexicon import ANIMALS, PERSONS, PLACES, STAYING

Quick = Callable[[str], Report]
NOUNS = {form: number for noun in ANIMALS + PERSONS + PLACES for number, form in enumerate(noun.english)}
VERBS = {form: number for verb in STAYING for number, form in enumerate(verb.english)}


def test_the_verb_agrees_with_its_subject_and_not_with_the_other_noun() -> None:
    for sentence in verb_sentences(200, 0):
        subject, other = (NOUNS[sentence.words[place]] for place in (sentence.subject, sentence.other))
        verb = sentence.words[sentence.verb]
        assert verb in VERBS
        assert sentence.verb == len(sentence.words) - 1
        assert {subject, other} == {0, 1}, sentence  # one is singular, the other plural
        # "sleeps" is the form of one, "sleep" that of several
        assert VERBS[verb] == subject, sentence


def test_neither_the_first_nor_the_nearest_noun_is_a_good_guess() -> None:
    sentences = verb_sentences(400, 3)
    assert sum(each.first_noun == each.subject for each in sentences) == 200
    assert sum(each.nearest_noun == each.subject for each in sentences) == 200
    assert len({each.text for each in sentences}) > 390


def test_every_half_has_every_form() -> None:
    one, other = folds(16)
    assert sorted([*one.tolist(), *other.tolist()]) == list(range(16))
    assert (
        sorted(row % 4 for row in one.tolist()) == sorted(row % 4 for row in other.tolist()) == sorted([0, 1, 2, 3] * 2)
    )


def test_a_head_is_judged_on_cases_it_was_not_chosen_on() -> None:
    """The best of many random heads looks good on the cases it was chosen on, and is chance on the others."""
    values = torch.rand(400, 300, generator=torch.Generator().manual_seed(0)) < 0.5
    result, chosen = judged(values)
    assert float(values.double().mean(0).max()) > 0.56
    assert abs(float(result.double().mean()) - 0.5) < 0.05
    one, other = folds(400)
    for test, choose, head in ((one, other, chosen[0]), (other, one, chosen[1])):
        assert head == int(values[choose].double().mean(0).argmax())
        assert torch.equal(result[test], values[test, head])


def test_hits_are_largest_weights_on_the_subject() -> None:
    sentence = VerbSentence(("the", "king", "near", "the", "doors", "sleeps"), verb=5, subject=1, other=4)
    weights = torch.tensor([0.5, 0.2, 0.05, 0.0, 0.1, 0.15], dtype=torch.float64)
    swapped = weights[[0, 4, 2, 3, 1, 5]]
    verbs = torch.stack([weights, swapped]).view(1, 1, 2, 6)
    linked = Linked("a model", (sentence,), verbs, {})
    assert linked.hits().tolist() == [[[True, False]]]
    assert linked.hits("other").tolist() == [[[False, True]]]
    assert linked.by_offset()[0].tolist() == [False, False, False, True, False]


def test_the_list_of_synonyms() -> None:
    pairs = synonyms()
    assert len(pairs) == 48
    for pair in pairs:
        assert len(pair.frames) == 2
        assert all(frame.count("{}") == 2 for frame in pair.frames)
        texts = {condition: pair.texts(condition) for condition in CONDITIONS}
        assert len({text for each in texts.values() for text in each}) == 8
        for condition, each in texts.items():
            for text in each:
                first, second = spans(text, (pair.first_word(condition), pair.synonym))
                assert text[slice(*first)] == pair.first_word(condition)
                assert text[slice(*second)] == pair.synonym
    assert len({pair.synonym for pair in pairs} | {pair.word for pair in pairs}) >= 90


def test_spans_are_whole_words_in_order() -> None:
    assert spans("They then saw the end.", ("the", "end")) == [(14, 17), (18, 21)]
    with pytest.raises(ValueError, match="has no 'cat'"):
        spans("The dog.", ("cat",))


def test_the_report(quick: Quick) -> None:
    report = quick("language")
    claims = [claim for compared in report.compared for claim in compared.claims]
    synonym = next(claim for claim in claims if claim.quote.text.startswith("Head 2") and "unrelated" in claim.measured)
    assert synonym.measured.startswith("MiniLM")
    assert synonym.verdict == "confirmed"
    assert report.takeaway is not None
    rules = {row[0]: row[1] for row in report.tables[0].rows if str(row[0]).startswith("rule")}
    assert {"rule: the first noun", "rule: the nearest noun"} <= set(rules)
    first = rules["rule: the first noun"]
    assert getattr(first, "mean", None) == 0.5
    assert language.MODELS["minilm"] in report.finding
