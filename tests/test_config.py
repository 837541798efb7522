"""Settings from files, flags and the environment: what is accepted, and what each refusal says."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.config import Address, Config, ConfigError, check, from_args, load, redacted

ONE_ENGINE = "engines: [{url: http://10.0.0.1:8000}]\n"
DIGEST = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
PASSWORD = "hunter2"


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


# --- a gateway from flags alone


def test_one_engine_url_is_enough() -> None:
    config = from_args(["http://10.0.0.1:8000"])

    (engine,) = config.engines
    assert (engine.name, engine.url, engine.kind) == ("10.0.0.1:8000", "http://10.0.0.1:8000", "auto")
    assert (engine.slots, engine.kv_tokens, engine.api_key) == (None, None, None)
    assert (str(config.listen), str(config.admin), config.store) == (
        "127.0.0.1:8900",
        "127.0.0.1:8901",
        "memory",
    )


def test_engine_flag_takes_options_after_the_url() -> None:
    config = from_args(["http://h:1,slots=16,kind=vllm,name=a,kv_tokens=4096,api_key=sk-1,2"])

    (engine,) = config.engines
    assert (engine.name, engine.kind, engine.slots, engine.kv_tokens) == ("a", "vllm", 16, 4096)
    assert engine.api_key is not None
    assert engine.api_key.get_secret_value() == "sk-1,2"


def test_engine_flag_takes_its_key_from_the_environment() -> None:
    config = from_args(["http://h:1,api_key=${KEY}"], env={"KEY": "sk-1"})

    assert config.engines[0].api_key is not None
    assert config.engines[0].api_key.get_secret_value() == "sk-1"


def test_engine_flag_with_unknown_repeated_or_valueless_option_is_refused() -> None:
    assert flag_problems("http://h:1,apikey=hunter2,slots=1,slots=2") == [
        "--engine: engines[0].apikey: unknown option; use name=, kind=, slots=, kv_tokens=, api_key=, ca=",
        "--engine: engines[0].slots: given twice",
    ]
    assert flag_problems("http://h:1,slots") == [
        "--engine: engines[0].url: takes no query, fragment, comma or blank (got 'http://h:1,slots')"
    ]


def test_no_engine_at_all_says_how_to_name_one() -> None:
    assert flag_problems() == [
        "engines: no engine; add one under engines:, or pass --engine http://HOST:PORT"
    ]


def test_flags_replace_what_the_file_says(file: Path) -> None:
    file.write_text(ONE_ENGINE + "listen: nonsense\nstore: redis://h\nrouting: {policy: session}\n")

    config = from_args(["http://h:1", "http://h:2"], listen="[::1]:0", store="memory", path=file)

    assert [engine.name for engine in config.engines] == ["h:1", "h:2"]
    assert config.listen == Address("::1", 0)
    assert config.routing.policy == "session"


def test_errors_of_replaced_engines_are_not_reported(file: Path) -> None:
    file.write_text("engines:\n  - url: http://h:1\n    url: http://h:2\n    api_key: ${UNSET}\n")

    assert [engine.name for engine in from_args(["http://h:3"], path=file).engines] == ["h:3"]


def test_more_than_one_worker_is_refused() -> None:
    with pytest.raises(ConfigError) as raised:
        from_args(["http://h:1"], workers=4)
    assert str(raised.value) == "--workers: one process per gateway in this release; use --workers 1 (got 4)"


# --- places and messages


def test_every_error_is_reported_with_its_key_and_line(file: Path) -> None:
    text = """\
listen: 8900
engines:
  - url: http://h:1
    slots: sixteen
  - url: http://h:2
    enigne: x
limits:
  max_body: 3Mi
  idle_timeout: 0
"""
    assert problems(file, text) == [
        ":1: listen: use host:port, such as 127.0.0.1:8900, 0.0.0.0:8900 or '[::1]:8900' (got '8900')",
        ":4: engines[0].slots: use a whole number of at least 1, or auto (got 'sixteen')",
        ":6: engines[1].enigne: unknown key; known here: "
        "name, url, kind, slots, kv_tokens, kv_events, api_key, ca, classes",
        ":8: limits.max_body: use a size such as 256MiB "
        "(B, KB, MB, GB, KiB, MiB, GiB; a plain number is bytes) (got '3Mi')",
        ":9: limits.idle_timeout: must be greater than zero (got '0')",
    ]


def test_an_unknown_key_suggests_the_close_one(file: Path) -> None:
    assert problems(file, ONE_ENGINE + "admission: {max_wai: 1s}\n") == [
        ":2: admission.max_wai: unknown key; did you mean max_wait?"
    ]


def test_a_duplicate_key_is_an_error(file: Path) -> None:
    assert problems(file, ONE_ENGINE + "routing: {policy: cost}\nrouting: {policy: prefix}\n") == [
        ":3: routing: duplicate key; it is already set on line 2"
    ]


def test_a_section_of_the_wrong_shape_is_an_error(file: Path) -> None:
    assert problems(file, "engines: {url: http://h:1}\nlimits: [1]\nstore: {a: b}\n") == [
        ":1: engines: must be a list (each item starts with '- ')",
        ":2: limits: must hold keys and values (got [1])",
        ":3: store: must be text, not a list or keys and values",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("engines: [\n", ":2: not valid YAML: "),
        ("listen: [::1]:8900\n", ":1: not valid YAML: "),
        ("- a\n- b\n", ":1: the file must hold keys and values at its top level"),
        ("a: 1\n---\nb: 2\n", ":2: not valid YAML: "),
        ("engines: !!python/object:os.system []\n", ":1: engines: "),
        ("engines: !env X\n", ":1: engines: the tag !env is not supported"),
        ("engines: &a [*a]\n", ":1: engines: nested too deep or too large"),
        ("? [a]\n: b\n", ":1: a key must be plain text"),
        ("listen: a\nadmin: \x00", ":2: not valid YAML: "),
    ],
)
def test_what_cannot_be_read_is_an_error_with_its_line(file: Path, text: str, problem: str) -> None:
    assert problems(file, text)[0].startswith(problem)


def test_a_missing_file_is_an_error(file: Path) -> None:
    assert check(file, {}) == [f"{file}: cannot be read: No such file or directory"]


def test_a_section_left_empty_means_its_defaults(file: Path) -> None:
    config = loaded(file, ONE_ENGINE + "limits:\nauth:\nadmin_token:\n")

    assert config == from_args(["http://10.0.0.1:8000"])


# --- the environment


def test_variables_are_expanded_in_values(file: Path) -> None:
    text = 'engines: [{url: "http://${HOST}:${PORT:-8000}", slots: "${SLOTS:-4}", api_key: "${KEY:-}"}]\n'

    (engine,) = loaded(file, text, {"HOST": "h", "SLOTS": ""}).engines

    assert (engine.url, engine.slots, engine.api_key) == ("http://h:8000", 4, None)


def test_a_variable_cannot_add_keys_and_is_not_expanded_again(file: Path) -> None:
    text = "engines: [{url: http://h:1, api_key: '${KEY}'}]\n"
    value = "x, slots: 9}] # ${HOME}"

    (engine,) = loaded(file, text, {"KEY": value}).engines

    assert engine.slots is None
    assert engine.api_key is not None
    assert engine.api_key.get_secret_value() == value


def test_an_unset_variable_names_its_key(file: Path) -> None:
    assert problems(file, "engines:\n  - url: ${URL}\n") == [
        ":2: engines[0].url: the environment has no URL: set it, or give a default with ${URL:-...}"
    ]


@pytest.mark.parametrize("text", ["${1}", "${A:-${B}}", "${A", "${A-b}"])
def test_a_malformed_variable_is_an_error(file: Path, text: str) -> None:
    (problem,) = problems(file, f"{ONE_ENGINE}store: '{text}'\n", {"A": "a"})
    assert "neither ${NAME} nor ${NAME:-default}" in problem


def test_values_from_the_environment_are_not_shown(file: Path) -> None:
    (problem,) = problems(file, "engines: [{url: http://h:1, slots: '${SLOTS}'}]\n", {"SLOTS": PASSWORD})
    assert (
        problem
        == ":1: engines[0].slots: use a whole number of at least 1, or auto (got the value of ${SLOTS})"
    )


# --- credentials


@pytest.mark.parametrize(
    "text",
    [
        f"engines: [{{url: 'http://me:{PASSWORD}@h:1'}}]\n",
        f"engines: [{{url: 'http://me:a/{PASSWORD}@h:1'}}]\n",
        f"engines: [{{url: http://h:1, api_key: [{PASSWORD}]}}]\n",
        f"engines: [{{url: http://h:1, apikey: {PASSWORD}}}]\n",
        f"{ONE_ENGINE}admin_token: {{a: {PASSWORD}}}\n",
        f"{ONE_ENGINE}store: redis://:{PASSWORD}@h:6379/0\n",
        f"{ONE_ENGINE}auth: {{keys: [{{name: a, sha256: {PASSWORD}}}]}}\n",
        f"{ONE_ENGINE}tls: {{key: {PASSWORD}}}\n",
    ],
)
def test_no_error_shows_a_credential(file: Path, text: str) -> None:
    found = problems(file, text)
    assert found
    assert PASSWORD not in "".join(found)


def test_neither_repr_nor_redacted_shows_a_credential(file: Path) -> None:
    text = (
        f"engines: [{{url: http://h:1, api_key: {PASSWORD}}}]\nadmin_token: {PASSWORD}\n"
        f"auth: {{keys: [{{name: a, sha256: {DIGEST}}}]}}\n"
    )
    config = loaded(file, text)

    assert PASSWORD not in repr(config)
    shown = json.dumps(redacted(config))
    assert PASSWORD not in shown
    assert DIGEST not in shown


def test_redacted_speaks_the_language_of_the_file(file: Path) -> None:
    config = loaded(
        file,
        ONE_ENGINE
        + "limits: {max_body: 1MiB, idle_timeout: 250ms}\nadmission: {max_queue_bytes: 7}\n"
        + "listen: '[::1]:1'\n",
    )

    shown = redacted(config)

    assert (shown["limits"]["max_body"], shown["limits"]["idle_timeout"]) == ("1MiB", "250ms")
    assert shown["admission"]["max_queue_bytes"] == "7B"
    assert (shown["listen"], shown["engines"][0]["slots"]) == ("[::1]:1", "auto")
    file.write_text(json.dumps(shown))
    assert load(file, {}) == config


# --- values


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("256MiB", 268435456), ("1.5 KiB", 1536), ("10kb", 10000), ("7", 7), ("1GB", 10**9), ("3B", 3)],
)
def test_sizes(file: Path, text: str, size_bytes: int) -> None:
    assert loaded(file, f"{ONE_ENGINE}limits: {{max_body: {text}}}\n").limits.max_body_bytes == size_bytes


@pytest.mark.parametrize(
    ("text", "duration_s"), [("120s", 120.0), ("5m", 300.0), ("250ms", 0.25), ("1.5", 1.5), ("1h", 3600.0)]
)
def test_durations(file: Path, text: str, duration_s: float) -> None:
    assert loaded(file, f"{ONE_ENGINE}admission: {{max_wait: {text}}}\n").admission.max_wait_s == duration_s


@pytest.mark.parametrize(
    ("text", "interval_s"),
    [("15s", 15.0), ("1", 1.0), ("2m", 120.0), ("off", None), ("no", None), ("", None)],
)
def test_the_interval_of_signs_of_life(file: Path, text: str, interval_s: float | None) -> None:
    config = loaded(file, f"{ONE_ENGINE}admission: {{keepalive: {text}}}\n")
    assert config.admission.keepalive_s == interval_s
    file.write_text(json.dumps(redacted(config)))
    assert load(file, {}).admission.keepalive_s == interval_s


@pytest.mark.parametrize("text", ["-1s", "1d", "abc", "''", "1e3", "9" * 400, "[]"])
def test_what_is_no_duration_is_refused(file: Path, text: str) -> None:
    (problem,) = problems(file, f"{ONE_ENGINE}limits: {{idle_timeout: {text}}}\n")
    assert "use a duration such as 120s" in problem


@pytest.mark.parametrize(
    "text", ["h", ":8900", "h:", "h:65536", "http://h:1", "::1:8900", "'[h]:1'", "a b:1"]
)
def test_what_is_no_address_is_refused(file: Path, text: str) -> None:
    assert len(problems(file, f"{ONE_ENGINE}listen: {text}\n")) == 1


def test_unquoted_words_and_digits_stay_what_was_written(file: Path) -> None:
    digits = "1" * 64
    text = (
        "engines: [{url: http://h:1, name: 12, kv_events: off}]\nmodels: {echo_alias: yes}\n"
        f"admission: {{keepalive: off}}\nauth: {{keys: [{{name: no, sha256: {digits}}}]}}\n"
    )
    config = loaded(file, text)

    assert (config.engines[0].name, config.engines[0].kv_events) == ("12", "off")
    assert config.models.echo_alias is True
    assert (config.auth.keys[0].name, config.auth.keys[0].sha256) == ("no", digits)


def test_the_header_name_of_priorities_is_lower_case(file: Path) -> None:
    assert (
        loaded(file, ONE_ENGINE + "admission: {priority_header: X-Prio}\n").admission.priority_header
        == "x-prio"
    )
