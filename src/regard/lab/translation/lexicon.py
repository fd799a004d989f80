"""The words of the grammar: English, French, and what French needs to know of each."""

from dataclasses import dataclass

VOWELS = frozenset("aeiouéèêîôh")  # every h of these words is mute: l'homme


def elides(word: str) -> bool:
    """Whether le, la, ne, ma and their like change before this French word."""
    return word[0] in VOWELS


@dataclass(frozen=True)
class Noun:
    """Singular and plural in both languages. `kind` is "animal", "person" or "place"."""

    english: tuple[str, str]
    french: tuple[str, str]
    feminine: bool
    kind: str


@dataclass(frozen=True)
class Adjective:
    """`forms`: masculine and feminine singular, then plural; a fifth is the masculine singular before a vowel."""

    english: str
    forms: tuple[str, ...]

    def agree(self, feminine: bool, plural: bool, vowel: bool) -> str:
        """The form beside a noun; `vowel` says that the next word begins with one."""
        irregular = len(self.forms) == 5 and vowel and not feminine and not plural
        return self.forms[4 if irregular else 2 * plural + feminine]


@dataclass(frozen=True)
class Verb:
    """Third person singular and plural, each of one or more words; the second English word (looks *at*) stays.

    `participle` follows être and agrees with the subject: the four forms of an adjective, or one that never changes.
    """

    english: tuple[str, str]
    particle: str
    french: tuple[str, str]
    participle: tuple[str, ...]


def _nouns(kind: str, *lines: str) -> tuple[Noun, ...]:
    """Nouns from lines of gender, English singular and plural, French singular and plural."""
    words = (line.split() for line in lines)
    return tuple(Noun((en, en_many), (fr, fr_many), gender == "f", kind) for gender, en, en_many, fr, fr_many in words)


ANIMALS = _nouns(
    "animal",
    "m cat cats chat chats",
    "m dog dogs chien chiens",
    "m bird birds oiseau oiseaux",
    "m horse horses cheval chevaux",
    "f mouse mice souris souris",
    "f cow cows vache vaches",
    "m lamb lambs agneau agneaux",
    "f goat goats chèvre chèvres",
)

PERSONS = _nouns(
    "person",
    "m child children enfant enfants",
    "m boy boys garçon garçons",
    "f girl girls fille filles",
    "m man men homme hommes",
    "f woman women femme femmes",
    "m friend friends ami amis",
    "f nurse nurses infirmière infirmières",
    "m king kings roi rois",
    "f queen queens reine reines",
)

PLACES = _nouns(
    "place",
    "m mat mats tapis tapis",
    "f table tables table tables",
    "f chair chairs chaise chaises",
    "m bed beds lit lits",
    "f house houses maison maisons",
    "m tree trees arbre arbres",
    "f school schools école écoles",
    "f church churches église églises",
    "m bridge bridges pont ponts",
    "f car cars voiture voitures",
    "m boat boats bateau bateaux",
    "f island islands île îles",
    "m hotel hotels hôtel hôtels",
    "f door doors porte portes",
    "m wall walls mur murs",
)


def _adjectives(*lines: str) -> tuple[Adjective, ...]:
    """Adjectives from lines of English and the French forms."""
    return tuple(Adjective(english, tuple(forms)) for english, *forms in (line.split() for line in lines))


BEFORE = _adjectives(
    "small petit petite petits petites",
    "big grand grande grands grandes",
    "old vieux vieille vieux vieilles vieil",
    "beautiful beau belle beaux belles bel",
    "new nouveau nouvelle nouveaux nouvelles nouvel",
    "young jeune jeune jeunes jeunes",
    "pretty joli jolie jolis jolies",
)

COLORS = _adjectives(
    "black noir noire noirs noires",
    "white blanc blanche blancs blanches",
    "red rouge rouge rouges rouges",
    "green vert verte verts vertes",
    "blue bleu bleue bleus bleues",
    "gray gris grise gris grises",
)

MANNERS = _adjectives(
    "quiet calme calme calmes calmes",
    "strange étrange étrange étranges étranges",
    "tired fatigué fatiguée fatigués fatiguées",
    "curious curieux curieuse curieux curieuses",
    "sad triste triste tristes tristes",
)

# adjectives that follow a noun of each kind
AFTER = {"animal": COLORS + MANNERS, "person": MANNERS, "place": COLORS}


def _verbs(*lines: str) -> tuple[Verb, ...]:
    """Verbs from lines `singular particle, plural: French singular, plural: participle`."""
    verbs = []
    for line in lines:
        english, french, participle = (side.strip() for side in f"{line}:".split(":")[:3])
        english_singular, english_plural = english.split(", ")
        verb, _, particle = english_singular.partition(" ")
        singular, plural = french.split(", ")
        verbs.append(Verb((verb, english_plural), particle, (singular, plural), tuple(participle.split())))
    return tuple(verbs)


STAYING = _verbs(
    "sleeps, sleep: dort, dorment",
    "runs, run: court, courent",
    "plays, play: joue, jouent",
    "sings, sing: chante, chantent",
    "works, work: travaille, travaillent",
    "waits, wait: attend, attendent",
    "hides, hide: se cache, se cachent",
    "rests, rest: se repose, se reposent",
    "sits, sit: est, sont: assis assise assis assises",
    "lies, lie: est, sont: couché couchée couchés couchées",
    "stands, stand: est, sont: debout",
)

ACTING_ON = _verbs(
    "sees, see: voit, voient",
    "likes, like: aime, aiment",
    "hears, hear: entend, entendent",
    "follows, follow: suit, suivent",
    "finds, find: trouve, trouvent",
    "draws, draw: dessine, dessinent",
    "looks at, look: regarde, regardent",
    "looks for, look: cherche, cherchent",
    "waits for, wait: attend, attendent",
)

WHERE = (("on", "sur"), ("under", "sous"), ("behind", "derrière"), ("in", "dans"), ("in front of", "devant"))

# English, then masculine, feminine, before a vowel (masculine and feminine), plural; "" where there is none
DETERMINERS = (
    ("the", "le", "la", "l'", "l'", "les"),
    ("a", "un", "une", "un", "une", ""),
    ("this", "ce", "cette", "cet", "cette", ""),
    ("my", "mon", "ma", "mon", "mon", "mes"),
    ("these", "", "", "", "", "ces"),
    ("two", "", "", "", "", "deux"),
)
