import base64
import hashlib
import re
from importlib import resources

import pytest

from gateway.edge.page import dashboard


@pytest.fixture
def text():
    return dashboard().body.decode()


def test_everything_is_in_the_one_file(text):
    for outside in ("http://", "https://", "src=", "@import", "url(", "{{", "innerHTML", "insertAdjacentHTML",
                    "document.write", "outerHTML", "setAttribute('style", "eval("):  # fmt: skip
        assert outside not in text
    assert re.findall(r'href="([^"]*)"', text) == ["data:,", "#main"]
    assert not re.search(r"<[^>]* (?:style|on\w+)=", text)


def test_every_source_is_in_it(text):
    names = [it.name for it in resources.files("gateway.edge").joinpath("dashboard").iterdir()]
    assert len(names) > 10
    for name in names:
        source = resources.files("gateway.edge").joinpath("dashboard", name).read_text(encoding="utf-8")
        if name != "index.html":
            assert source.strip() in text


@pytest.mark.parametrize("kind", ["style", "script"])
def test_the_policy_names_what_is_in_the_file_and_nothing_else(text, kind):
    (source,) = re.findall(rf"<{kind}>(.*?)</{kind}>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
    policy = dashboard().policy
    assert f"{kind}-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "connect-src 'self'" in policy
    assert "unsafe" not in policy


def test_whatever_the_script_fills_is_in_the_page(text):
    markup, script = text.split("<script>")
    ids = set(re.findall(r'id="([\w-]+)"', markup))
    wanted = set(re.findall(r'\$\("([\w-]+)"\)', script))
    assert wanted
    assert wanted <= ids


def test_each_section_has_a_heading_or_a_name(text):
    ids = set(re.findall(r'id="([\w-]+)"', text))
    for attributes in re.findall(r"<section([^>]*)>", text):
        named = re.search(r'aria-labelledby="([\w-]+)"', attributes)
        assert named[1] in ids if named else "aria-label=" in attributes
