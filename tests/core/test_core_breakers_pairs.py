"""Every change that breaks a prefix is found with its part and kind, and no other is reported."""

import pytest
from breaker_bodies import BODIES
from breaker_seeing import BREAKS, HARMLESS, NEEDS_SESSION, found


@pytest.mark.parametrize("named", [True, False], ids=["session", "no session"])
@pytest.mark.parametrize("api", BODIES)
@pytest.mark.parametrize("change", BREAKS, ids=lambda it: it(BODIES["chat"]).name)
def test_what_breaks_a_prefix_is_found_with_its_part_and_kind(change, api, named):
    if not named and change in NEEDS_SESSION:
        pytest.skip("the conversation begins with another text, so nothing tells that it is the same")
    pair = change(BODIES[api].copy())
    broken = found(pair, (7, 8 if pair.other_session else 7) if named else (0, 0))
    assert broken is not None
    assert (broken.kind, broken.part) == (pair.kind, pair.part)
    assert broken.lost_bytes > 0


@pytest.mark.parametrize("named", [True, False], ids=["session", "no session"])
@pytest.mark.parametrize("api", BODIES)
@pytest.mark.parametrize("change", HARMLESS, ids=lambda it: it(BODIES["chat"]).name)
def test_what_harms_no_prefix_is_not_reported(change, api, named):
    pair = change(BODIES[api].copy())
    assert found(pair, (7, 8 if pair.other_session else 7) if named else (0, 0)) is None
