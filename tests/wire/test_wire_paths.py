import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire.paths import APIS, Target, origin_form, target

KNOWN = {
    "chat/completions": ("chat", "/v1/chat/completions"),
    "completions": ("completions", "/v1/completions"),
    "embeddings": ("embeddings", "/v1/embeddings"),
    "responses": ("responses", "/v1/responses"),
    "messages": ("messages", "/v1/messages"),
    "messages/count_tokens": ("count_tokens", "/v1/messages/count_tokens"),
    "rerank": ("rerank", "/v1/rerank"),
    "score": ("score", "/v1/score"),
    "tokenize": ("tokenize", "/tokenize"),
    "detokenize": ("detokenize", "/detokenize"),
    "models": ("models", "/v1/models"),
}


@pytest.mark.parametrize(
    "form", ["/v1/{}", "/{}", "/v1/v1/{}", "//v1//{}", "/v1/{}/", "/v1/{}//", "http://h:1/v1/{}"]
)
@pytest.mark.parametrize("suffix", KNOWN)
def test_a_path_means_the_same_with_v1_missing_or_doubled_and_slashes_added(suffix: str, form: str) -> None:
    # agentskit#1009, aisix#104, litellm#8350
    assert target(form.format(suffix)) == Target(*KNOWN[suffix])


@pytest.mark.parametrize(
    ("path", "api"),
    [
        ("", "root"),
        ("/", "root"),
        ("//", "root"),
        ("http://host", "root"),
        ("/healthz", "healthz"),
        ("/readyz", "readyz"),
    ],
)
def test_probes_have_paths_of_their_own(path: str, api: str) -> None:
    found = target(path)
    assert found is not None
    assert found.api == api


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("/v1/x", "/v1/x"),
        ("/v1/http://u:p@h/x", "/v1/http://u:p@h/x"),
        ("http://h/v1/x", "/v1/x"),
        ("HTTPS://u:p@h:1/v1/x", "/v1/x"),
        ("ftp://u:p@h", ""),
        ("*", "*"),
    ],
)
def test_of_an_absolute_url_only_the_path_is_left(given: str, path: str) -> None:
    assert origin_form(given) == path


def test_a_models_id_may_hold_slashes() -> None:
    assert target("/v1/models/Qwen/Qwen3-8B") == Target("models", "/v1/models/Qwen/Qwen3-8B", "Qwen/Qwen3-8B")


def test_any_other_path_below_v1_is_relayed_and_nothing_else() -> None:
    assert target("/v1/audio/speech") == Target("other", "/v1/audio/speech")
    assert target("/v1/v1/audio/speech/") == Target("other", "/v1/audio/speech")
    assert target("/audio/speech") is None
    assert target("/metrics") is None
    assert target("/wp-login.php") is None


@pytest.mark.parametrize("path", ["/v1/../metrics", "/v1/x/../../slots", "/v1/./x", "/..", "/v1/models/.."])
def test_a_path_with_dot_segments_is_nothing_here(path: str) -> None:
    assert target(path) is None


def test_a_decoded_path_cannot_write_a_head_of_its_own() -> None:
    found = target("/v1/a HTTP/1.1\r\nx: y\r\n\r\n?q#é%41")
    assert found is not None
    assert found.path == "/v1/a%20HTTP/1.1%0D%0Ax:%20y%0D%0A%0D%0A%3Fq%23%C3%A9%2541"


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_path_gives_a_known_api_and_a_target_of_plain_ascii(path: str) -> None:
    found = target("/v1/" + path)
    if found is not None and found.api in APIS:
        assert found.api in ("models", *APIS)
        if found.api != "models":
            assert all("!" <= character <= "~" for character in found.path)
