from breaker_values import OTHER_RULES, RULES, system, tool

from gateway.core.blocks import chain
from gateway.core.families import MAX_VARIANTS, Families
from gateway.core.shapes import Shapes, outline

SHAPES = Shapes()
TOOLS = [*tool(0, "read"), *tool(1, "write")]


def a_form(text, families, *, tools=(), compare=True, blocks=()):
    segments = [*system(text), *tools]
    form = outline(segments)
    for key, segment in zip(form.digests, segments, strict=True):
        SHAPES.put(key, segment)
    return families.add("m", form, lambda: segments, blocks, SHAPES.get, compare=compare), form


def some_lines(word):
    return "\n".join(f"{word} is the {other} of all things" for other in "abcdefghijklmnopqrst")


def test_what_is_shared_must_be_more_than_a_block():
    families = Families()
    assert a_form("Be kind.", families)[0] is None
    assert len(families) == 0


def test_forms_that_are_not_compared_join_the_family_that_is_near():
    families = Families()
    a_form(f"{RULES}\nat 10:15", families)
    assert a_form(f"{RULES}\nat 10:16", families, compare=False)[0] is None
    assert len(families) == 1
    a_form(OTHER_RULES, families, compare=False)
    assert len(families) == 2


def test_a_family_has_so_many_forms():
    families = Families()
    forms = [a_form(f"{RULES}\nat 10:{at}\n{RULES}", families)[1] for at in range(10, 12 + MAX_VARIANTS)]
    assert len(families) == 1
    assert families.known("m", forms[0], ()) is None
    assert families.known("m", forms[-1], ()) is not None


def test_families_are_bounded_in_number_and_bytes():
    families = Families(max_families=2)
    forms = [a_form(RULES.replace("rule", f"{word} law"), families)[1] for word in ("old", "new", "odd")]
    texts = [OTHER_RULES.replace("check", word) for word in ("open", "shut", "skip", "keep")]
    forms += [a_form(text, families)[1] for text in texts]
    assert len(families) <= 2
    assert families.known("m", forms[0], ()) is None
    assert Families(max_bytes=10).add("m", forms[0], lambda: system(RULES), (), SHAPES.get) is None
    small = Families(max_bytes=10)
    a_form(RULES, small)
    assert len(small) == 0
    assert small.kept_bytes == 0


def test_a_family_of_too_many_texts_is_begun_anew():
    families = Families()
    for at in range(40):
        text = some_lines(f"{'abcdefghij'[at % 10]}{'klmnopqrst'[at // 10]}")
        a_form(text, families, tools=TOOLS, compare=False)
    assert len(families) <= 1


def test_what_another_family_has_since_is_left_to_it():
    families = Families(max_families=1)
    a_form(some_lines("one"), families, tools=TOOLS)
    _, form = a_form(some_lines("two"), families, tools=TOOLS)
    assert len(families) == 1
    assert families.known("m", form, ()) is not None


def test_what_has_been_forgotten_has_no_family():
    families, form = Families(), outline(system(some_lines("gone")))
    assert families.add("m", form, list, (), Shapes().get) is None
    assert len(families) == 1


def test_a_form_is_known_by_blocks_that_other_prompts_of_it_share():
    families = Families()
    shared, more = b"s" * 1000, [b"a" * 600, b"b" * 600, b"c" * 600]
    chains = [chain(shared + it, "m") for it in more]
    _, form = a_form(RULES, families, blocks=chains[0])
    assert families.known_by(chains[1]) is None
    assert families.known("m", form, chains[1]) is not None
    assert families.known_by(chains[2]) is not None
    assert families.known_by(chain(b"x" * 2000, "m")) is None
    assert families.known_by(chains[2][:1]) is None
    shorter = chain(shared[:600] + b"d" * 900, "m")
    assert families.known("m", form, shorter) is not None
    assert families.known_by(shorter) is not None
    assert families.known("m", form, chain(b"y" * 900, "m")) is not None


def test_depths_that_are_looked_for_are_few():
    families = Families()
    for at in range(70):
        text = RULES.replace("rule", f"law {'abcdefghij'[at % 10]}{'klmnopqrst'[at // 10]} of")
        base = b"s" * (256 * (at + 1))
        _, form = a_form(text, families, blocks=chain(bytes([at]) + base + b"a" * 600, "m"), compare=False)
        families.known("m", form, chain(bytes([at]) + base + b"b" * 600, "m"))
    assert families.known_by(chain(bytes([0]) + b"s" * 256 + b"c" * 600, "m")) is not None


def test_forms_of_one_depth_are_forgotten_one_by_one():
    families = Families(max_families=1)
    for word in ("one", "two"):
        start, more = word.encode() * 200, f"{RULES}\nin /{word}\n{RULES}"
        _, form = a_form(more, families, blocks=chain(start + b"a" * 600, "m"), compare=False)
        families.known("m", form, chain(start + b"b" * 600, "m"))
    assert len(families) == 1
    assert families.known_by(chain(b"one" * 200 + b"c" * 600, "m")) is not None
    assert families.known_by(chain(b"two" * 200 + b"c" * 600, "m")) is not None
    a_form(some_lines("last"), families)
    assert families.known_by(chain(b"one" * 200 + b"c" * 600, "m")) is None
