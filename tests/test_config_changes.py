"""A configuration that replaces another: what differs, and what must not."""

import pytest
import yaml

from gateway.config import ConfigError, changes, from_args

A, B = {"name": "a", "url": "http://a:1"}, {"name": "b", "url": "http://b:1"}
BASE = {"engines": [A]}


def config(tmp_path, data, instead_of=None, **flags):
    path = tmp_path / "gateway.yaml"
    path.write_text(data if isinstance(data, str) else yaml.safe_dump(data, sort_keys=False))
    return from_args(path=path, env={}, instead_of=instead_of, **flags)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (BASE, BASE, []),
        (BASE, {"engines": [A, B]}, ["engines.b: added"]),
        ({"engines": [A, B]}, {"engines": [B]}, ["engines.a: removed"]),
        ({"engines": [A, B]}, {"engines": [B, A]}, []),
        (BASE, {"engines": [A | {"url": "http://c:1"}]}, ["engines.a.url: http://a:1 -> http://c:1"]),
        (BASE, {"engines": [A | {"slots": 4}]}, ["engines.a.slots: auto -> 4"]),
        (
            BASE,
            {"engines": [A | {"kv_tokens": 9, "kind": "vllm"}]},
            ["engines.a.kind: auto -> vllm", "engines.a.kv_tokens: auto -> 9"],
        ),
        (BASE, {"engines": [A | {"api_key": "s3cret"}]}, ["engines.a.api_key: none -> **********"]),
        (
            {"engines": [A | {"api_key": "one"}]},
            {"engines": [A | {"api_key": "two"}]},
            ["engines.a.api_key: changed"],
        ),
        (
            BASE | {"models": {"aliases": {"x": "m", "y": "m", "same": "m"}}},
            BASE | {"models": {"aliases": {"y": ["m", "n"], "z": "m", "same": "m"}, "echo_alias": False}},
            [
                "models.aliases.x: removed",
                "models.aliases.y: changed",
                "models.aliases.z: added",
                "models.echo_alias: True -> False",
            ],
        ),
        (
            BASE,
            BASE | {"admission": {"max_wait": "5s"}, "limits": {"max_body": "1MiB"}},
            ["admission.max_wait: 120s -> 5s", "limits.max_body: 32MiB -> 1MiB"],
        ),
        (
            BASE | {"auth": {"keys": [{"name": "k", "sha256": "0" * 64}]}},
            BASE | {"auth": {"keys": [{"name": "k", "sha256": "1" * 64, "priority": "low"}]}},
            ["auth.keys.k.sha256: changed", "auth.keys.k.priority: normal -> low"],
        ),
    ],
)
def test_what_differs_is_told_without_secrets(tmp_path, old, new, expected):
    assert changes(config(tmp_path, old), config(tmp_path, new)) == expected


@pytest.mark.parametrize(
    "change",
    [{"listen": "127.0.0.1:1"}, {"admin": "127.0.0.1:1"}, {"admin_token": "t"}],
)
def test_what_is_used_at_the_start_only_cannot_change(tmp_path, change):
    old = config(tmp_path, BASE)
    with pytest.raises(ConfigError) as caught:
        config(tmp_path, BASE | change, old)
    [problem] = caught.value.problems
    assert str(problem) == (
        f"{tmp_path}/gateway.yaml:4: {next(iter(change))}: cannot change while running; restart"
    )
    assert config(tmp_path, BASE | change).engines == old.engines


def test_what_is_left_out_of_the_file_is_a_change_too(tmp_path):
    old = config(tmp_path, BASE | {"listen": "127.0.0.1:1"})
    with pytest.raises(ConfigError, match=r"gateway\.yaml:1: listen: cannot change while running; restart"):
        config(tmp_path, BASE, old)


def test_a_flag_goes_before_what_the_file_says_of_it(tmp_path):
    old = config(tmp_path, BASE, listen="127.0.0.1:5")
    new = config(tmp_path, BASE | {"listen": "127.0.0.1:6"}, old, listen="127.0.0.1:5")
    assert changes(old, new) == []


def test_a_file_is_refused_for_all_that_is_wrong_with_it(tmp_path):
    old = config(tmp_path, BASE)
    with pytest.raises(ConfigError) as caught:
        config(tmp_path, "listen: nowhere\nengines:\n- url: http://a:1\n  slots: 0\n", old)
    assert [(it.key, it.line) for it in caught.value.problems] == [("listen", 1), ("engines[0].slots", 4)]
