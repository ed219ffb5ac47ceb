"""Settings: default < file (RocketMQ's .properties form, or TOML) < environment < flag.

The names are RocketMQ's own (broker.conf), the values text; `StoreConfig.from_settings` makes values of
them. Each value remembers where it came from. A name that RocketMQ does not know is kept, has no effect and
is warned about: a misspelt setting is the kind that nobody notices.

  file         mappedFileSizeCommitLog=65536            or TOML: mappedFileSizeCommitLog = 65536
  environment  ORBITMQ_MAPPED_FILE_SIZE_COMMIT_LOG=65536
  flag         whatever the command line passes in `flags`
"""

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

from orbitmq.errors import ConfigError
from orbitmq.setting_keys import KNOWN_KEYS

logger = logging.getLogger(__name__)

ENVIRONMENT_PREFIX: Final = "ORBITMQ_"
DEFAULT_SOURCE: Final = "default"
FLAG_SOURCE: Final = "flag"
ENVIRONMENT_SOURCE: Final = "environment"


class Setting(NamedTuple):
    """One value and the place that it was read from, in words."""

    value: str
    source: str


@dataclass(slots=True)
class Settings(Mapping[str, str]):
    """The settings that were given, by RocketMQ's names; what is not here has its default."""

    given: dict[str, Setting] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def __getitem__(self, key: str) -> str:
        return self.given[key].value

    def __iter__(self) -> Iterator[str]:
        return iter(self.given)

    def __len__(self) -> int:
        return len(self.given)

    def source(self, key: str) -> str:
        """Return where a value came from: "broker.conf, line 3", "flag", "default"."""
        return self.given[key].source if key in self.given else DEFAULT_SOURCE

    def add_file(self, file: Path) -> None:
        """Take from a file, if it is there, what was not given otherwise."""
        if file.exists():
            self.given = {**_read_file(file), **self.given}

    def stronger_than_files(self) -> dict[str, str]:
        """Return the keys that no file can change, and where each comes from."""
        sources = {key: setting.source for key, setting in self.given.items()}
        return {
            key: source
            for key, source in sources.items()
            if source == FLAG_SOURCE or source.startswith(ENVIRONMENT_SOURCE)
        }


def load_settings(
    file: Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Settings:
    """Return all settings; later sources win. Without `environment` the process's own is taken.

    A flag whose value is None was not given. ConfigError: a file that cannot be read or understood.
    """
    settings = Settings()
    if file is not None:
        settings.given.update(_read_file(file))
    settings.given.update(_from_environment(os.environ if environment is None else environment))
    for key, value in (flags or {}).items():
        if value is not None:
            settings.given[key] = Setting(_text(key, value), FLAG_SOURCE)
    for key, setting in settings.given.items():
        if key not in KNOWN_KEYS:
            settings.warnings.append(f"{setting.source}: unknown setting {key}{_suggestion(key)}")
    for warning in settings.warnings:
        logger.warning(warning)
    return settings


def read_settings(file: Path) -> Settings:
    """Return the settings of one file, and of the environment."""
    return load_settings(file)


def change_notices(
    changes: Mapping[str, str], live: Set[str], stronger: Mapping[str, str]
) -> list[str]:
    """Return what whoever changes settings of a running server should know, in sentences.

    `live` are the keys that it follows at once, `stronger` those that flags or the environment set.
    """
    notices = []
    if idle := sorted(changes.keys() - live):
        notices.append(f"{', '.join(idle)}: kept, without effect here")
    notices += [
        f"{key}: kept, but at the next start the {stronger[key]} wins"
        for key in sorted(changes.keys() & stronger.keys())
    ]
    return notices


class Key(NamedTuple):
    """What a setting does: the field of a config that it sets, and how its text becomes a value and back."""

    field: str
    read: Callable[[str], Any]
    show: Callable[[Any], str]
    unit: int  # so many of the field's units are one of the setting's
    least: int | None
    live: bool  # a running server follows its changes


def key(
    name: str,
    default: Any = None,
    *,
    factory: Callable[[], Any] | None = None,
    read: Callable[[str], Any] | None = None,
    show: Callable[[Any], str] | None = None,
    unit: int = 1,
    least: int | None = None,
    live: bool = False,
) -> Any:
    """Return the field of a config class that the setting `name` sets.

    Without `read` and `show` its type decides. One `unit` of the setting is so many of the field; no
    value may be below `least`; a running server follows the changes of one that is `live`.
    """
    metadata = {"key": (name, read, show, unit, least, live)}
    if factory is not None:
        return field(default_factory=factory, metadata=metadata)
    return field(default=default, metadata=metadata)


def keys_of(config: type[Any], readers: Mapping[Any, Callable[[str], Any]]) -> dict[str, Key]:
    """Return the settings of a config class in the order of its fields; `readers` are by type."""
    found = {}
    for item in fields(config):
        if "key" not in item.metadata:
            continue
        name, read, show, unit, least, live = item.metadata["key"]
        assert name not in found, f"two fields for {name}"
        read = read or readers.get(item.type, item.type)
        found[name] = Key(item.name, read, show or value_text, unit, least, live)
    return found


def field_values(
    settings: Mapping[str, str],
    keys: Mapping[str, Key],
    rule: str = "cannot be understood ({})",
) -> dict[str, Any]:
    """Return field -> value of the settings in `keys`. ConfigError: a text cannot be understood."""
    values = {}
    for name, text in settings.items():
        if name in keys:
            one = keys[name]
            try:
                value = one.read(text.strip())
            except ValueError as cause:
                raise ConfigError(name, text, rule.format(cause)) from cause
            values[one.field] = value if one.unit == 1 else value * one.unit
    return values


def field_texts(config: object, keys: Mapping[str, Key]) -> dict[str, str]:
    """Return the settings of a config as texts."""
    values = ((name, one, getattr(config, one.field)) for name, one in keys.items())
    return {name: one.show(v if one.unit == 1 else v // one.unit) for name, one, v in values}


def require_least(config: object, keys: Mapping[str, Key]) -> None:
    """ConfigError: a value is below the least that its setting allows."""
    for name, one in keys.items():
        if one.least is not None:
            value = getattr(config, one.field)
            require(name, value, value >= one.least, f"must be at least {one.least}")


def java_boolean(text: str) -> bool:
    """Return what Java reads: everything that is not "true" is false."""
    return text.lower() == "true"


def strict_boolean(text: str) -> bool:
    """Return what a text says that is "true" or "false"."""
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def whole_number(text: str) -> int:
    """Return the number in a text; the error says what it must be."""
    try:
        return int(text)
    except ValueError:
        raise ValueError("must be a whole number") from None


JAVA_READERS: Final = {bool: java_boolean}
STRICT_READERS: Final = {bool: strict_boolean, int: whole_number}
"""How texts become values, by the type of the value; other types are called with the text."""


def value_text(value: object) -> str:
    """Return a value as broker.conf has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value.value) if isinstance(value, Enum) else str(value)


def require(name: str, value: object, holds: bool, rule: str) -> None:
    """ConfigError with the rule unless it holds."""
    if not holds:
        raise ConfigError(name, value, rule)


def parse_properties(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line number, name, value) of a Java .properties text.

    A name ends at the first `=`, `:` or blank; a backslash continues a line or escapes a character.
    """
    for number, line in _logical_lines(text):
        match = _NAME.match(line)
        assert match is not None  # the pattern matches any text
        value = line[match.end() :].strip()
        yield number, _unescape(match.group(1)), _unescape(value)


def _read_file(file: Path) -> dict[str, Setting]:
    try:
        data = file.read_bytes()
    except OSError as cause:
        rule = f"cannot be read: {cause.strerror or cause}"
        raise ConfigError("configuration file", str(file), rule) from cause
    return parse_settings(file, decode_settings(data))


def decode_settings(data: bytes) -> str:
    """Return the text of a configuration file."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")  # what Java takes .properties files to be


def parse_settings(file: Path, text: str) -> dict[str, Setting]:
    """Return the settings in a configuration file's text; its name says which form it has."""
    if file.suffix == ".toml":
        return _from_toml(file, text)
    return {
        key: Setting(value, f"{file.name}, line {number}")
        for number, key, value in parse_properties(text)
    }


def _from_toml(file: Path, text: str) -> dict[str, Setting]:
    import tomllib  # here, as hardly anybody needs it: a store imports this module

    try:
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as cause:
        raise ConfigError("configuration file", str(file), f"is not TOML: {cause}") from cause
    found = {}
    for key, value in tables.items():
        # Tables only group: [store] and [broker] are for the reader's eye.
        pairs = value.items() if isinstance(value, dict) else [(key, value)]
        for name, item in pairs:
            found[name] = Setting(_text(name, item), file.name)
    return found


def _from_environment(environment: Mapping[str, str]) -> dict[str, Setting]:
    found = {}
    for variable, value in sorted(environment.items()):
        name = variable.removeprefix(ENVIRONMENT_PREFIX)
        if name == variable:
            continue
        key = _BY_PLAIN_NAME.get(_plain(name), _camel(name))
        # Other programs may use the prefix too, so only what looks like a setting is one.
        if key in KNOWN_KEYS or close_key(key):
            found[key] = Setting(value.strip(), f"{ENVIRONMENT_SOURCE}, {variable}")
    return found


def _text(key: str, value: Any) -> str:
    """Return a value as broker.conf would write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | str | Path):
        return str(value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)  # several directories, as in storePathCommitLog
    raise ConfigError(key, value, "must be text, a number, true or false, or a list of texts")


def _suggestion(key: str) -> str:
    close = close_key(key)
    return f"; did you mean {close}?" if close else "; it has no effect"


def close_key(key: str) -> str | None:
    """Return the setting that was probably meant; None: none is close."""
    same = _BY_PLAIN_NAME.get(_plain(key))
    if same is not None:
        return same
    import difflib

    close = difflib.get_close_matches(key, sorted(KNOWN_KEYS), n=1, cutoff=0.8)
    return close[0] if close else None


def with_guesses(keys: Iterable[str]) -> str:
    """Return names that nobody knows in one text, each with what was probably meant."""
    guesses = ((key, close_key(key)) for key in sorted(keys))
    return ", ".join(f"{key} (did you mean {close}?)" if close else key for key, close in guesses)


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").replace(".", "").lower()


def _camel(name: str) -> str:
    first, *rest = name.lower().split("_")
    return first + "".join(word.capitalize() for word in rest)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number of its first line, text) of each line that says something, continuations joined."""
    pending, pending_number = "", 0
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.lstrip()
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        joined, first = pending + line, pending_number or number
        if backslashes % 2:
            pending, pending_number = joined[:-1], first
        else:
            pending, pending_number = "", 0
            yield first, joined
    if pending:
        yield pending_number, pending


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_unescape_one, text)


def _unescape_one(match: re.Match[str]) -> str:
    code, character = match.groups()
    if code is not None:
        return chr(int(code, 16))
    return {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(character, character)


_NAME: Final = re.compile(r"((?:[^=:\s\\]|\\.)*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)

_BY_PLAIN_NAME: Final = {_plain(key): key for key in sorted(KNOWN_KEYS)}
assert len(_BY_PLAIN_NAME) == len(KNOWN_KEYS)  # else a variable could mean two settings
