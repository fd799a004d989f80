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
    """`forms`: masculine and feminine singular, masculine and feminine plural, masculine singular before a vowel."""

    english: str
    forms: tuple[str, str, str, str, str]
    before: bool

    def agree(self, feminine: bool, plural: bool, vowel: bool) -> str:
        """The form beside a noun; `vowel` says that the next word begins with one."""
        if vowel and not feminine and not plural:
            return self.forms[4]
        return self.forms[2 * plural + feminine]


@dataclass(frozen=True)
class Verb:
    """Third person singular and plural, each of one or more words; the second English word (looks *at*) stays.

    `participle` follows être and agrees with the subject: the four forms of an adjective, or one that never changes.
    """

    english: tuple[str, str]
    particle: str
    french: tuple[str, str]
    participle: tuple[str, ...]
    transitive: bool


def _noun(kind: str, line: str) -> Noun:
    gender, singular, plural, french, french_plural = line.split()
    return Noun((singular, plural), (french, french_plural), gender == "f", kind)


ANIMALS = tuple(
    _noun("animal", line)
    for line in (
        "m cat cats chat chats",
        "m dog dogs chien chiens",
        "m bird birds oiseau oiseaux",
        "m horse horses cheval chevaux",
        "f mouse mice souris souris",
        "f cow cows vache vaches",
        "m lamb lambs agneau agneaux",
        "f goat goats chèvre chèvres",
    )
)

PERSONS = tuple(
    _noun("person", line)
    for line in (
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
)

PLACES = tuple(
    _noun("place", line)
    for line in (
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
)


def _adjective(line: str, before: bool) -> Adjective:
    english, *forms = line.split()
    forms = forms if len(forms) == 5 else [*forms, forms[0]]
    masculine, feminine, plural, feminine_plural, vowel = forms
    return Adjective(english, (masculine, feminine, plural, feminine_plural, vowel), before)


BEFORE = tuple(
    _adjective(line, True)
    for line in (
        "small petit petite petits petites",
        "big grand grande grands grandes",
        "old vieux vieille vieux vieilles vieil",
        "beautiful beau belle beaux belles bel",
        "new nouveau nouvelle nouveaux nouvelles nouvel",
        "young jeune jeune jeunes jeunes",
        "pretty joli jolie jolis jolies",
    )
)

COLORS = tuple(
    _adjective(line, False)
    for line in (
        "black noir noire noirs noires",
        "white blanc blanche blancs blanches",
        "red rouge rouge rouges rouges",
        "green vert verte verts vertes",
        "blue bleu bleue bleus bleues",
        "gray gris grise gris grises",
    )
)

MANNERS = tuple(
    _adjective(line, False)
    for line in (
        "quiet calme calme calmes calmes",
        "strange étrange étrange étranges étranges",
        "tired fatigué fatiguée fatigués fatiguées",
        "curious curieux curieuse curieux curieuses",
        "sad triste triste tristes tristes",
    )
)

# adjectives that follow a noun of each kind
AFTER = {"animal": COLORS + MANNERS, "person": MANNERS, "place": COLORS}


def _verb(line: str, participle: str = "", transitive: bool = False) -> Verb:
    english, french = (side.strip().split(",") for side in line.split(":"))
    singular, *particle = english[0].split()
    return Verb(
        (singular, english[1].strip()),
        " ".join(particle),
        (french[0].strip(), french[1].strip()),
        tuple(participle.split()),
        transitive,
    )


BE = "est, sont"
STAYING = (
    _verb("sleeps, sleep: dort, dorment"),
    _verb("runs, run: court, courent"),
    _verb("plays, play: joue, jouent"),
    _verb("sings, sing: chante, chantent"),
    _verb("works, work: travaille, travaillent"),
    _verb("waits, wait: attend, attendent"),
    _verb("hides, hide: se cache, se cachent"),
    _verb("rests, rest: se repose, se reposent"),
    _verb(f"sits, sit: {BE}", "assis assise assis assises"),
    _verb(f"lies, lie: {BE}", "couché couchée couchés couchées"),
    _verb(f"stands, stand: {BE}", "debout"),
)

ACTING_ON = tuple(
    _verb(line, transitive=True)
    for line in (
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
