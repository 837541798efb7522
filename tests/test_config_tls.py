"""`tls` and `engines[].ca`: files that would not work keep the gateway from starting."""

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme
from certificates import ca_file, server_files
from cryptography.hazmat.primitives import serialization

from gateway.config import ConfigError, check, engine_context, from_args, load, redacted

PLAIN = "engines: [{url: http://h:1}]\n"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    return server_files(tmp_path)


def problems(tmp_path: Path, text: str, env: dict[str, str] | None = None) -> list[str]:
    file = tmp_path / "gateway.yaml"
    file.write_text(text)
    found = check(file, env or {})
    if found:
        with pytest.raises(ConfigError):
            load(file, env or {})
    return [line.removeprefix(str(file)) for line in found]


def tls(cert: str, key: str) -> str:
    return f"{PLAIN}tls:\n  cert: {cert}\n  key: {key}\n"


def test_a_certificate_and_its_key_are_taken(tmp_path: Path, files: dict[str, str]) -> None:
    (tmp_path / "gateway.yaml").write_text(tls(**files))
    config = load(tmp_path / "gateway.yaml", {})
    assert config.tls.context is not None
    assert config.tls.context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert redacted(config)["tls"] == files


def test_without_them_there_is_no_tls() -> None:
    assert from_args(["http://h:1"]).tls.context is None


def test_an_empty_variable_is_none(tmp_path: Path) -> None:
    assert problems(tmp_path, tls("${CERT:-}", "${KEY:-}")) == []


@pytest.mark.parametrize(("given", "missing"), [("cert", "key"), ("key", "cert")])
def test_one_without_the_other_is_refused(
    tmp_path: Path, files: dict[str, str], given: str, missing: str
) -> None:
    (problem,) = problems(tmp_path, f"{PLAIN}tls:\n  {given}: {files[given]}\n")
    assert problem == f":2: tls.{missing}: is required with tls.{given}"


def gone(path: Path) -> None:
    path.unlink()


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def garbage(path: Path) -> None:
    path.write_bytes(b"\x00\xffnot PEM")


def another(path: Path) -> None:
    """The key of somebody else's certificate."""
    path.write_bytes(trustme.CA().issue_cert("h").private_key_pem.bytes())


def encrypted(path: Path) -> None:
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )


@pytest.mark.parametrize(
    ("name", "line", "spoil", "message"),
    [
        ("cert", 3, gone, "cannot be read: No such file or directory"),
        ("cert", 3, a_directory, "cannot be read: Is a directory"),
        ("cert", 3, garbage, "the file holds no certificate in PEM form"),
        ("key", 4, gone, "cannot be read: No such file or directory"),
        ("key", 4, garbage, "the file holds no private key in PEM form"),
        ("key", 4, another, "the private key does not belong to the certificate in tls.cert"),
        ("key", 4, encrypted, "the private key is encrypted; give one without a passphrase"),
    ],
)
def test_files_that_cannot_work_are_named(
    tmp_path: Path,
    files: dict[str, str],
    name: str,
    line: int,
    spoil: Callable[[Path], None],
    message: str,
) -> None:
    spoil(Path(files[name]))
    (problem,) = problems(tmp_path, tls(**files))
    assert problem.startswith(f":{line}: tls.{name}: {message}")
    assert (files[name] in problem) is (name == "cert")


def test_a_path_from_the_environment_is_not_shown(tmp_path: Path, files: dict[str, str]) -> None:
    (problem,) = problems(tmp_path, tls("${CERT}", files["key"]), {"CERT": "/no/such/file"})
    assert problem == ":3: tls.cert: cannot be read: No such file or directory (got the value of ${CERT})"


def test_an_https_engine_is_verified_by_the_system_or_by_its_ca(tmp_path: Path) -> None:
    ca = ca_file(tmp_path)
    by_system, by_ca, plain = from_args(["https://a", f"https://b:8443,ca={ca}", "http://c"]).engines
    assert (by_system.port, by_ca.port, plain.port) == (443, 8443, 80)
    assert (by_system.is_https, by_ca.is_https, plain.is_https) == (True, True, False)
    assert (by_system.ca, by_ca.ca) == (None, ca)


@pytest.mark.parametrize("own", [True, False])
def test_certificates_and_names_are_always_verified(tmp_path: Path, own: bool) -> None:
    context = engine_context(ca_file(tmp_path) if own else None)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert len(context.get_ca_certs()) == 1 or not own


@pytest.mark.parametrize(
    ("url", "content", "message"),
    [
        ("https://h", None, "cannot be read: No such file or directory"),
        ("https://h", b"none", "the file holds no certificate in PEM form"),
        ("http://h", b"none", "is for https engines only; the url of this one begins with http"),
    ],
)
def test_a_ca_that_cannot_work_is_named(
    tmp_path: Path, url: str, content: bytes | None, message: str
) -> None:
    ca = tmp_path / "ca.pem"
    if content is not None:
        ca.write_bytes(content)
    (problem,) = problems(tmp_path, f"engines:\n  - url: {url}\n    ca: {ca}\n")
    assert problem.startswith(f":3: engines[0].ca: {message}")
