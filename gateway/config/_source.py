"""A configuration as written: plain text values, each with the place it came from.

All scalars stay text and the models decide what they mean. YAML 1.1 would turn `off` into a boolean
and a digest of digits into a number.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path as FilePath
from typing import Any

import yaml

from gateway.config._problems import Path, Problem, key_of

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}$]*))?\}")
# Far above any real configuration: stops aliases that contain themselves or multiply.
_MAX_DEPTH = 16
_MAX_NODES = 20_000
_MAX_SHOWN = 100
_SECRET_KEYS = frozenset({"api_key", "admin_token", "sha256", "key"})


def expand(text: str, env: Mapping[str, str]) -> str:
    """`text` with `${NAME}` and `${NAME:-default}` replaced; the default also stands in for an empty value.

    Values are not expanded again. Raises `ValueError` for an unset name and for any other `${`.
    """

    def value(found: re.Match[str]) -> str:
        name, default = found[1], found[2]
        if env.get(name) or (name in env and default is None):
            return env[name]
        if default is None:
            raise ValueError(
                f"the environment has no {name}: set it, or give a default with ${{{name}:-...}}"
            )
        return str(default)

    if "${" in _VARIABLE.sub("", text):
        raise ValueError("a ${ that is neither ${NAME} nor ${NAME:-default}; defaults hold no {, } or $")
    return _VARIABLE.sub(value, text)


@dataclass(slots=True)
class Source:
    """`data` for the models; `places` and `written` by path; `problems` found on the way.

    `written` holds the text of values that came through the environment, to be shown instead of them.
    """

    env: Mapping[str, str]
    name: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    places: dict[Path, tuple[str, int | None]] = field(default_factory=dict)
    written: dict[Path, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    reported: set[Path] = field(default_factory=set)

    def report(self, path: Path, message: str, line: int | None = None) -> None:
        """Adds a problem at `path`, or at the closest place above it that the source has. Once per path."""
        if path in self.reported:
            return
        self.reported.add(path)
        place = next(
            (self.places[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self.places), None
        )
        source, found_line = place or (self.name, None)
        self.problems.append(Problem(key_of(path), message, source, line or found_line))

    def shown(self, path: Path, value: object) -> str | None:
        """`value` as a message may show it: never a credential, nor what the environment holds."""
        if _SECRET_KEYS.intersection(path):
            return None
        if path in self.written:
            return f"the value of {self.written[path]}"
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            below = [(*path, index) for index in range(len(value))]
            return None if self.written.keys() & below else f"[{', '.join(value)}]"[:_MAX_SHOWN]
        if not isinstance(value, str | int | float):
            return None
        return repr(re.sub(r"//.*@", "//...@", str(value)))[:_MAX_SHOWN]

    def text(self, path: Path, text: str) -> str | None:
        """`text` expanded; None, and a problem, where that fails."""
        try:
            value = expand(text, self.env)
        except ValueError as error:
            self.report(path, str(error))
            return None
        if value != text:
            self.written[path] = text
        return value

    def put(self, path: Path, value: str, flag: str) -> None:
        """Sets a value from the command line; lists grow as needed."""
        self.places[path] = (flag, None)
        expanded = self.text(path, value)
        at: Any = self.data
        for part, following in pairwise(path):
            if isinstance(part, int):
                while len(at) <= part:
                    at.append({})
                at = at[part]
            else:
                at = at.setdefault(part, [] if isinstance(following, int) else {})
        if expanded is not None:
            at[path[-1]] = expanded

    def drop(self, key: str) -> None:
        """Forgets a top-level key of the file with everything that was found wrong below it."""
        self.data.pop(key, None)
        for path in [path for path in self.places if path[:1] == (key,)]:
            del self.places[path]
        for path in [path for path in self.written if path[:1] == (key,)]:
            del self.written[path]
        dropped = {key_of(path) for path in self.reported if path[:1] == (key,)}
        self.problems = [problem for problem in self.problems if problem.key not in dropped]
        self.reported = {path for path in self.reported if path[:1] != (key,)}


def read(path: FilePath, env: Mapping[str, str]) -> Source:
    """The YAML file at `path`. What cannot be read is in the `problems` of the result."""
    source = Source(env=env, name=str(path))
    source.places[()] = (source.name, 1)
    try:
        content = path.read_bytes()
    except OSError as error:
        source.places[()] = (source.name, None)
        source.report((), f"cannot be read: {error.strerror or error}")
        return source
    try:
        node = yaml.compose(content, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        source.report((), _syntax_message(error), _syntax_line(error, content))
        return source
    if isinstance(node, yaml.MappingNode):
        source.data = _Reader(source).mapping(node, ())
    elif node is not None and not _is_null(node):
        source.report((), "the file must hold keys and values at its top level, such as 'engines:'")
    return source


def _syntax_line(error: yaml.YAMLError, content: bytes) -> int | None:
    if isinstance(error, yaml.reader.ReaderError):
        return content.count(b"\n", 0, error.position) + 1
    mark = getattr(error, "problem_mark", None)
    return mark.line + 1 if mark is not None else None


def _syntax_message(error: yaml.YAMLError) -> str:
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable"
    return f"not valid YAML: {problem} (values that contain ': ' or start with [ {{ * & ! % @ need quotes)"


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null" and node.style is None


class _Reader:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._nodes = 0

    def mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        first: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self._source.report(path, "a key must be plain text", line)
                continue
            key = key_node.value
            if key in first:
                self._source.report(
                    (*path, key), f"duplicate key; it is already set on line {first[key]}", line
                )
                continue
            first[key] = line
            self._source.places[*path, key] = (self._source.name, line)
            # A key without a value stands for its default, as it would commented out.
            if not _is_null(value_node):
                value = self._value(value_node, (*path, key))
                if value is not None:
                    values[key] = value
        return values

    def _value(self, node: yaml.Node, path: Path) -> Any:
        self._nodes += 1
        if len(path) > _MAX_DEPTH or self._nodes > _MAX_NODES:
            self._source.report(path[:1], "nested too deep or too large; check the YAML aliases in it")
            return None
        if not node.tag.startswith("tag:yaml.org,2002:"):
            self._source.report(
                path, f"the tag {node.tag} is not supported; use ${{NAME}} for the environment"
            )
            return None
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._item(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._source.text(path, node.value)

    def _item(self, node: yaml.Node, path: Path) -> Any:
        self._source.places[path] = (self._source.name, node.start_mark.line + 1)
        return None if _is_null(node) else self._value(node, path)
