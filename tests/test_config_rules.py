"""Rules of the settings: engines, what must differ, and what this release refuses instead of ignoring."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.config import Address, Config, ConfigError, check, from_args, load, redacted

ONE_ENGINE = "engines: [{url: http://10.0.0.1:8000}]\n"
DIGEST = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "gateway.yaml"


def problems(file: Path, text: str, env: Mapping[str, str] | None = None) -> list[str]:
    """What `check` says, without the file's path."""
    file.write_text(text)
    return [line.removeprefix(str(file)) for line in check(file, env or {})]


def loaded(file: Path, text: str, env: Mapping[str, str] | None = None) -> Config:
    file.write_text(text)
    return load(file, env or {})


def flag_problems(*engines: str, **options: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        from_args(engines, **options)  # type: ignore[arg-type]
    return [str(problem) for problem in raised.value.problems]


# --- engines


@pytest.mark.parametrize(
    ("written", "url", "name", "base_path"),
    [
        ("http://h", "http://h", "h:80", ""),
        ("http://h:1/", "http://h:1", "h:1", ""),
        ("http://h:1/v1", "http://h:1", "h:1", ""),
        ("http://h:1/v1/", "http://h:1", "h:1", ""),
        ("http://h:1/a/v1/", "http://h:1/a", "h:1", "/a"),
        ("http://[::1]:1/v1", "http://[::1]:1", "[::1]:1", ""),
        ("http://[::1]", "http://[::1]", "[::1]:80", ""),
        ("https://h/v1", "https://h", "h:443", ""),
        ("https://h:1/a", "https://h:1/a", "h:1", "/a"),
    ],
)
def test_an_engine_url_is_written_in_any_way(written: str, url: str, name: str, base_path: str) -> None:
    (engine,) = from_args([written]).engines
    assert (engine.url, engine.name, engine.base_path) == (url, name, base_path)


def test_an_engine_knows_where_to_connect() -> None:
    v6, named = from_args(["http://[::1]:81/v1", "http://h"]).engines
    assert ((v6.host, v6.port), (named.host, named.port)) == (("::1", 81), ("h", 80))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("h:1", "use a full URL such as http://10.0.0.1:8000"),
        ("ftp://h:1", "use a full URL"),
        ("http://u:p@h:1", "put the engine's key in api_key"),
        ("http://h:1?a=b", "takes no query"),
        ("http://:1", "the URL has no host"),
        ("http://h:x", "the URL's port must be a number from 1 to 65535"),
        ("http://h:0", "the URL's port must be a number from 1 to 65535"),
        ("http://[::1", "Invalid IPv6 URL"),
    ],
)
def test_a_url_that_cannot_work_is_refused(url: str, message: str) -> None:
    (problem,) = flag_problems(url)
    assert message in problem


def test_engine_names_must_differ_even_where_they_are_defaults() -> None:
    assert flag_problems("http://h:1/a", "http://h:1/b") == [
        "--engine: engines[1].name: must differ from the name of engines[0]"
    ]


def test_one_engine_listed_twice_is_refused() -> None:
    assert flag_problems("http://H:1/v1,name=a", "http://h:1,name=b") == [
        "--engine: engines[1].url: must differ from the url of engines[0]"
    ]


@pytest.mark.parametrize("name", ["none", "other", "a b", "a/b", "''", "x" * 129])
def test_an_engine_name_that_headers_or_metrics_cannot_carry_is_refused(file: Path, name: str) -> None:
    (problem,) = problems(file, f"engines: [{{url: http://h:1, name: {name}}}]\n")
    assert problem.startswith(":1: engines[0].name: ")


# --- rules between keys


@pytest.mark.parametrize("admin", ["0.0.0.0:8901", "10.0.0.1:1", "'[::]:1'", "example.org:1"])
def test_an_open_admin_port_needs_a_token(file: Path, admin: str) -> None:
    text = f"{ONE_ENGINE}admin: {admin}\n"

    (problem,) = problems(file, text)

    assert problem.startswith(":2: admin_token: is required when admin (")
    assert problems(file, f"{text}admin_token: x\n") == []
    assert problems(file, text, {"ADMIN_TOKEN": "x"}) == []


def test_an_admin_port_opened_by_a_flag_needs_a_token_too() -> None:
    (problem,) = flag_problems("http://h:1", admin="0.0.0.0:8901")
    assert problem.startswith("--admin: admin_token: is required")

    config = from_args(["http://h:1"], admin="0.0.0.0:8901", env={"ADMIN_TOKEN": "t"})
    assert config.admin_token is not None
    assert config.admin_token.get_secret_value() == "t"


@pytest.mark.parametrize("admin", ["127.0.0.2:1", "'[::1]:1'", "localhost:0"])
def test_a_loopback_admin_port_needs_none(file: Path, admin: str) -> None:
    assert loaded(file, f"{ONE_ENGINE}admin: {admin}\nadmin_token: ''\n").admin_token is None


def test_both_ports_must_differ() -> None:
    assert flag_problems("http://h:1", listen="127.0.0.1:8901") == [
        "admin: must differ from listen (both are 127.0.0.1:8901)"
    ]
    config = from_args(["http://h:1"], listen="127.0.0.1:0", admin="127.0.0.1:0")
    assert config.listen.port == config.admin.port == 0


def test_client_keys_differ_in_name_and_digest(file: Path) -> None:
    upper = DIGEST.upper()
    text = (
        f"{ONE_ENGINE}auth:\n  keys:\n  - {{name: a, sha256: {DIGEST}}}\n  - {{name: a, sha256: {upper}}}\n"
    )

    assert problems(file, text) == [
        ":5: auth.keys[1].name: must differ from the name of auth.keys[0]",
        ":5: auth.keys[1].sha256: must differ from the sha256 of auth.keys[0]",
    ]


# --- aliases


def test_an_exact_alias_goes_before_the_most_literal_pattern(file: Path) -> None:
    text = (
        ONE_ENGINE
        + "models: {aliases: {fast: a, '*': b, 'claude-*': c, 'claude-*-mini': d, 'claude-x': e}}\n"
    )
    models = loaded(file, text).models

    asked = ["fast", "claude-x", "claude-3", "claude-3-mini", "gpt"]
    assert [models.alias_of(name) for name in asked] == [("a",), ("e",), ("c",), ("d",), ("b",)]


def test_no_alias_applies_without_a_pattern_that_fits(file: Path) -> None:
    models = loaded(file, ONE_ENGINE + "models: {aliases: {'a.c*': m}}\n").models
    assert [models.alias_of(name) for name in ("abc", "a.cd", "xa.c")] == [None, ("m",), None]


def test_an_alias_of_an_alias_is_refused(file: Path) -> None:
    assert problems(file, ONE_ENGINE + "models: {aliases: {a: b, b: m, m: m}}\n") == [
        ":2: models.aliases.a: points at another alias, and aliases are followed once; name the model"
    ]


POOLS = "models: {aliases: {pool: [a, {model: b, classes: [json]}], one: [c], 'p-*': [d, e]}}\n"


def test_an_alias_may_name_several_models(file: Path) -> None:
    models = loaded(file, ONE_ENGINE + POOLS).models
    assert [models.alias_of(name) for name in ("pool", "one", "p-x")] == [("a", "b"), ("c",), ("d", "e")]
    assert [it.classes for it in models.aliases["pool"]] == [(), ("json",)]


def test_a_pool_is_shown_as_it_was_written(file: Path) -> None:
    assert redacted(loaded(file, ONE_ENGINE + POOLS))["models"]["aliases"] == {
        "pool": ["a", {"model": "b", "classes": ["json"]}],
        "one": "c",
        "p-*": ["d", "e"],
    }


@pytest.mark.parametrize(
    ("aliases", "problem"),
    [
        ("pool: []", "pool: give a model's name, or a list of them (got [])"),
        ("pool: ''", "pool: give a model's name, or a list of them (got '')"),
        ("pool: {model: a}", "pool: give a model's name, or a list of them"),
        ("pool: [a, '']", "pool[1]: must be a model's name (got '')"),
        ("pool: [a, [b]]", "pool[1]: must hold keys and values (got [b])"),
        ("pool: [a, {classes: [json]}]", "pool[1].model: is required"),
        ("pool: [a, {model: b, clases: [json]}]", "pool[1].clases: unknown key; did you mean classes?"),
        (
            "pool: [{model: b, classes: json}]",
            "pool[0].classes: must be a list (each item starts with '- ') (got 'json')",
        ),
        ("pool: [a, b, {model: a}]", "pool[2]: must differ from models.aliases.pool[0]"),
        (
            "pool: [a, pool]",
            "pool[1]: a served model goes before an alias of its name; give the pool another name",
        ),
        (
            "pool: [a, {model: fast}], fast: b",
            "pool[1]: points at another alias, and aliases are followed once; name the model",
        ),
        (
            "fast: pool, pool: [a, b]",
            "fast: points at another alias, and aliases are followed once; name the model",
        ),
    ],
)
def test_what_an_alias_cannot_stand_for_is_told_with_its_place(
    file: Path, aliases: str, problem: str
) -> None:
    assert problems(file, f"{ONE_ENGINE}models: {{aliases: {{{aliases}}}}}\n") == [
        f":2: models.aliases.{problem}"
    ]


# --- refused instead of ignored


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("store: redis://h:6379/0", "store: a shared store is not available"),
        ("store: disk", "store: use store: memory"),
        ("admission: {keepalive: 999ms}", "admission.keepalive: use at least 1s, or off"),
        ("admission: {keepalive: 0}", "admission.keepalive: use at least 1s, or off"),
        ("admission: {keepalive: often}", "admission.keepalive: use a duration such as 120s"),
        (
            f"auth: {{keys: [{{name: a, sha256: {DIGEST}, requests_per_minute: 6}}]}}",
            "auth.keys[0].requests_per_minute: limits per key are not available",
        ),
        (
            f"auth: {{keys: [{{name: a, sha256: {DIGEST}, tokens_per_minute: 6}}]}}",
            "auth.keys[0].tokens_per_minute: limits per key are not available",
        ),
        ("routing: {policy: best}", "routing.policy: should be 'cost', 'round_robin'"),
        (
            "admission: {priority_header: 'a b'}",
            "admission.priority_header: must be the name of an HTTP header",
        ),
        ("models: {aliases: {'a b': []}}", "models.aliases['a b']: give a model's name"),
        ("admin: 8901", "admin: use host:port"),
        ("show_prompt_text: 2", "show_prompt_text: use true or false"),
        ("usage: {inject: always}", "usage.inject: should be 'auto' or 'off'"),
    ],
)
def test_what_this_release_cannot_do_is_refused(file: Path, text: str, problem: str) -> None:
    (found,) = problems(file, f"{ONE_ENGINE}{text}\n")
    assert found.startswith(f":2: {problem}")


@pytest.mark.parametrize(
    ("origins", "message"),
    [
        ("[https://h/]", "use origins as browsers send them"),
        ("[https://h/path]", "use origins as browsers send them"),
        ("[HTTPS://h]", "use origins as browsers send them"),
        ("[chat.example.org]", "use origins as browsers send them"),
        ("['null']", "use origins as browsers send them"),
        ("['*', https://h]", "'*' allows all origins; use it alone"),
        ("'*'", "must be a list"),
    ],
)
def test_an_origin_that_no_browser_sends_is_refused(file: Path, origins: str, message: str) -> None:
    (found,) = problems(file, f"{ONE_ENGINE}cors: {{origins: {origins}}}\n")
    assert found.startswith(f":2: cors.origins: {message}")


def test_origins_are_exact_or_all(file: Path) -> None:
    exact = (
        "https://chat.example.org",
        "http://localhost:3000",
        "http://[::1]:3000",
        "chrome-extension://abc",
    )
    assert (
        loaded(file, f"{ONE_ENGINE}cors: {{origins: [{', '.join(map(repr, exact))}]}}\n").cors.origins
        == exact
    )
    assert loaded(file, f"{ONE_ENGINE}cors: {{origins: ['*']}}\n").cors.origins == ("*",)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (
            "kind: foo",
            "unknown kind foo; one of auto, llamacpp, lmdeploy, ollama, openai, sglang, tgi, trtllm, vllm",
        ),
        ("classes: [json]", "workload classes are not available in this release"),
    ],
)
def test_what_no_engine_can_do_yet_is_refused(file: Path, option: str, message: str) -> None:
    key = option.split(":")[0]
    (found,) = problems(file, f"engines:\n- url: http://h:1\n  {option}\n")
    assert found.startswith(f":3: engines[0].{key}: {message}")


def test_settings_cannot_be_changed_once_read() -> None:
    config = from_args(["http://h:1"])
    with pytest.raises(ValueError, match="frozen"):
        config.listen = Address("h", 1)


# --- normalize


def test_rules_may_be_short_or_limited_to_models(file: Path) -> None:
    config = loaded(
        file,
        ONE_ENGINE + "normalize: [strip_billing_header, {rule: sort_tools, models: [m]}, "
        "{rule: replace, in: system, pattern: '[0-9]{2}:[0-9]{2}', with: '00:00'}]\n",
    )
    strip, sort, replace = (it.as_rule for it in config.normalize)
    assert (strip.kind, sort.kind, replace.kind) == ("strip_billing_header", "sort_tools", "replace")
    assert (strip.models, sort.models) == (frozenset(), frozenset({"m"}))
    assert (replace.place, replace.replacement) == ("system", "00:00")
    assert replace.pattern is not None
    assert replace.pattern.search("at 12:34")
    assert [str(it) for it in config.normalize] == [
        "strip_billing_header",
        "sort_tools for m",
        "replace '[0-9]{2}:[0-9]{2}' in system",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[strip-billing]", "normalize[0].rule: "),
        ("[{rule: replace}]", "normalize[0]: rule: replace needs a pattern"),
        ("[{rule: replace, pattern: '('}]", "normalize[0].pattern: the pattern is no regular expression"),
        ("[{rule: replace, pattern: 'x?'}]", "normalize[0].pattern: the pattern matches the empty string"),
        ("[{rule: replace, pattern: 'x+y'}]", "normalize[0].pattern: the pattern could take too long"),
        ("[{rule: sort_tools, in: tools}]", "normalize[0].in: only rule: replace takes in"),
        ("[{rule: sort_tools, with: x}]", "normalize[0].with: only rule: replace takes in"),
        ("[{rule: sort_tools, pattern: x}]", "normalize[0].pattern: only rule: replace takes in"),
        ("[{rule: sort_tools, where: x}]", "normalize[0].where: "),
    ],
)
def test_a_rule_that_cannot_work_is_refused(file: Path, text: str, problem: str) -> None:
    (found,) = problems(file, f"{ONE_ENGINE}normalize: {text}\n")
    assert found.startswith(f":2: {problem}")
