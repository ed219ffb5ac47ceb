"""Settings of running servers, printed: secret values are hidden."""

from collections.abc import Mapping

from orbitmq.cli.output import Output, note, print_json, print_table
from orbitmq.logs.secrets import masked


def print_settings(servers: Mapping[str, Mapping[str, str]], output: Output) -> None:
    """Print all settings of each server; as JSON one line for each."""
    for server, settings in servers.items():
        shown = masked(dict(sorted(settings.items())))
        if output is Output.JSON:
            print_json({"server": server, "settings": shown})
        else:
            print_table(["setting", "value"], list(shown.items()), title=server)


def print_changed(notices: Mapping[str, str | None], output: Output) -> None:
    """Say that settings of each server were changed, and what it had to say to that."""
    for server, notice in notices.items():
        if output is Output.JSON:
            print_json({"server": server, "notice": notice})
        else:
            note(f"{server}: changed" + (f"; {notice}" if notice else ""))
