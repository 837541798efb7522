from breaker_values import OTHER_RULES, RULES, system, tool

from gateway.core.families import MAX_VARIANTS, Families
from gateway.core.shapes import Shapes, outline

SHAPES = Shapes()
TOOLS = [*tool(0, "read"), *tool(1, "write")]


def a_form(text, families, *, tools=(), compare=True):
    segments = [*system(text), *tools]
    form = outline(segments)
    for key, segment in zip(form.digests, segments, strict=True):
        SHAPES.put(key, segment)
    return families.add("m", form, lambda: segments, SHAPES.get, compare=compare), form


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
    assert families.known("m", forms[0]) is None
    assert families.known("m", forms[-1]) is forms[-1]


def test_families_are_bounded_in_number_and_bytes():
    families = Families(max_families=2)
    forms = [a_form(RULES.replace("rule", f"{word} law"), families)[1] for word in ("old", "new", "odd")]
    texts = [OTHER_RULES.replace("check", word) for word in ("open", "shut", "skip", "keep")]
    forms += [a_form(text, families)[1] for text in texts]
    assert len(families) <= 2
    assert families.known("m", forms[0]) is None
    assert Families(max_bytes=10).add("m", forms[0], lambda: system(RULES), SHAPES.get) is None
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
    assert families.known("m", form) is form


def test_what_has_been_forgotten_has_no_family():
    families, form = Families(), outline(system(some_lines("gone")))
    assert families.add("m", form, list, Shapes().get) is None
    assert len(families) == 1
