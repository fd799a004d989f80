"""The grammar against sentences that were translated and aligned by hand."""

import random

import pytest

from regard.lab.translation import grammar
from regard.lab.translation.grammar import Mood, NounPhrase, Pair, Sentence
from regard.lab.translation.lexicon import (
    ACTING_ON,
    AFTER,
    ANIMALS,
    BEFORE,
    DETERMINERS,
    PERSONS,
    PLACES,
    STAYING,
    WHERE,
    Adjective,
    Verb,
    elides,
)

NOUNS = {noun.english[plural]: (noun, bool(plural)) for noun in ANIMALS + PERSONS + PLACES for plural in (0, 1)}
ADJECTIVES: dict[str, Adjective] = {each.english: each for each in (*BEFORE, *AFTER["animal"], *AFTER["place"])}
VERBS: dict[str, Verb] = {f"{verb.english[0]} {verb.particle}".strip(): verb for verb in STAYING + ACTING_ON}
PREPOSITIONS = {english: (english, french) for english, french in WHERE}


def phrase(words: str) -> NounPhrase:
    """A noun phrase from its English words."""
    determiner, *described, noun = words.split()
    adjectives = [ADJECTIVES[each] for each in described]
    before = next((each for each in adjectives if each in BEFORE), None)
    after = next((each for each in adjectives if each not in BEFORE), None)
    article = [forms[0] for forms in DETERMINERS].index("a" if determiner == "an" else determiner)
    return NounPhrase(*NOUNS[noun], article, before, after)


def pair(subject: str, verb: str, other: str, where: str | None = None, mood: Mood = Mood.PLAIN) -> Pair:
    """The pair of a sentence given in parts."""
    place = None if where is None else PREPOSITIONS[where]
    return Sentence(phrase(subject), VERBS[verb], mood, place, phrase(other)).pair()


# English, French, and for each French word the place of its English word (then, in brackets, others that are possible)
BY_HAND = [
    (pair("the cat", "sits", "the mat", "on"), "the cat sits on the mat", "le chat est assis sur le tapis", "0122345"),
    (
        pair("the small black cats", "sits", "an old tree", "under"),
        "the small black cats sit under an old tree",
        "les petits chats noirs sont assis sous un vieil arbre",
        "0132445678",
    ),
    (
        pair("the white cow", "lies", "the red house", "in front of", mood=Mood.DENIED),
        "the white cow does not lie in front of the red house",
        "la vache blanche n' est pas couchée devant la maison rouge",
        "0 2 1 4 5 4 5 7 9 11 10",
    ),
    (
        pair("my sad friend", "hides", "this island", "behind", mood=Mood.DENIED),
        "my sad friend does not hide behind this island",
        "mon ami triste ne se cache pas derrière cette île",
        "0214554678",
    ),
    (
        pair("the nurse", "looks for", "these beautiful birds"),
        "the nurse looks for these beautiful birds",
        "l' infirmière cherche ces beaux oiseaux",
        "012456",
    ),
    (
        pair("two queens", "waits for", "my new school", mood=Mood.DENIED),
        "two queens do not wait for my new school",
        "deux reines n' attendent pas ma nouvelle école",
        "01343678",
    ),
    (
        pair("the girl", "sits", "a bed", "on", mood=Mood.STRESSED),
        "the girl does sit on a bed",
        "la fille est bien assise sur un lit",
        "01323456",
    ),
    (
        pair("two queens", "waits for", "my new school", mood=Mood.STRESSED),
        "two queens do wait for my new school",
        "deux reines attendent bien ma nouvelle école",
        "0132567",
    ),
]


@pytest.mark.parametrize("found, english, french, sources", BY_HAND, ids=lambda each: each if " " in str(each) else "")
def test_translations_and_alignments_by_hand(found: Pair, english: str, french: str, sources: str) -> None:
    assert " ".join(found.english) == english
    assert " ".join(found.french) == french
    places = [int(place) for place in (sources.split() if " " in sources else sources)]
    assert found.sure == set(enumerate(places))


def test_other_words_of_an_expression_are_possible() -> None:
    found = pair("the nurse", "looks for", "a table")
    assert found.possible - found.sure == {(2, 3)}  # cherche, for
    found = pair("the dog", "sleeps", "a table", "in front of")
    assert found.sure >= {(3, 4)}  # devant, front
    assert found.possible - found.sure == {(3, 3), (3, 5)}  # devant, in; devant, of
    found = pair("the dog", "sleeps", "a table", "on", mood=Mood.DENIED)
    assert found.possible == found.sure  # ne and pas are "not", not "does"


@pytest.mark.parametrize(
    "english, french",
    [
        ("the tree", "l' arbre"),
        ("the old tree", "le vieil arbre"),
        ("the black tree", "l' arbre noir"),
        ("the trees", "les arbres"),
        ("the man", "l' homme"),
        ("this man", "cet homme"),
        ("this small man", "ce petit homme"),
        ("this church", "cette église"),
        ("my church", "mon église"),
        ("my beautiful church", "ma belle église"),
        ("my car", "ma voiture"),
        ("a strange lamb", "un agneau étrange"),
        ("a new hotel", "un nouvel hôtel"),
        ("a beautiful bird", "un bel oiseau"),
        ("an old island", "une vieille île"),
        ("these gray mice", "ces souris grises"),
        ("two old horses", "deux vieux chevaux"),
        ("my curious queen", "ma reine curieuse"),
        ("the young tired girls", "les jeunes filles fatiguées"),
    ],
)
def test_elision_agreement_and_order(english: str, french: str) -> None:
    found = phrase(english)
    assert " ".join(found.english()) == english
    assert " ".join(word for word, _ in found.french()) == french


@pytest.mark.parametrize(
    "subject, ends", [("the king", "assis"), ("the queen", "assise"), ("the kings", "assis"), ("the queens", "assises")]
)
def test_participles_agree(subject: str, ends: str) -> None:
    assert pair(subject, "sits", "the bed", "on").french[3] == ends


def test_alignments_hold_for_every_sentence() -> None:
    """Each French word has one sure source, links stay inside, and what elides is never written in full."""
    chance = random.Random(5)
    for _ in range(500):
        sentence = grammar.draw(chance)
        found = sentence.pair()
        assert [french for french, _ in sorted(found.sure)] == list(range(len(found.french)))
        assert found.sure <= found.possible
        assert max(english for _, english in found.possible) < len(found.english)
        for word, following in zip(found.french, found.french[1:], strict=False):
            assert not (word in ("le", "la", "ne", "ma", "ce") and elides(following))
            assert not (word in ("l'", "n'", "cet") and not elides(following))


def test_word_by_word_fails() -> None:
    from regard.lab.translation import task

    seen, unseen = (grammar.sentences(400, 0, unseen=each) for each in (False, True))
    said = task.word_by_word(seen, unseen)
    assert task.sentences_right(unseen, said) < 0.1
    assert task.error_rate(unseen, task.diagonal_maps(unseen)) > 0.3


def test_test_sentences_are_held_out() -> None:
    chance = random.Random(1)
    drawn = [grammar.draw(chance) for _ in range(3000)]
    held = {sentence.content() for sentence in drawn if grammar.held_out(sentence)}
    assert {sentence.content() for sentence in drawn if not grammar.held_out(sentence)}.isdisjoint(held)
    assert 0.05 < sum(grammar.held_out(sentence) for sentence in drawn) / len(drawn) < 0.2
    seen, unseen = (grammar.sentences(1000, 0, unseen=each) for each in (False, True))
    assert {each.english for each in seen}.isdisjoint(each.english for each in unseen)


def test_the_shown_sentences_are_held_out() -> None:
    subject, mat = phrase("the cat"), phrase("the mat")
    for mood in Mood:
        assert grammar.held_out(Sentence(subject, VERBS["sits"], mood, PREPOSITIONS["on"], mat))
    assert " ".join(grammar.cat().english) == "the cat sits on the mat"
    seen = {each.english for each in grammar.sentences(2000, 0, unseen=False)}
    assert grammar.cat().english not in seen
    assert grammar.held_out(grammar.friends())
    french = "les jeunes amis curieux ne sont pas couchés devant l' arbre"
    assert " ".join(grammar.friends().pair().french) == french


def test_sentences_of_a_seed() -> None:
    first = grammar.sentences(20, 1, unseen=False)
    assert first == grammar.sentences(20, 1, unseen=False)
    assert first != grammar.sentences(20, 2, unseen=False)
    assert grammar.possible() > 10**9


def test_labels_are_written_as_a_sentence() -> None:
    english, french = grammar.labels(grammar.cat())
    assert " ".join(english) == "The cat sits on the mat"
    assert " ".join(french) == "Le chat est assis sur le tapis"
