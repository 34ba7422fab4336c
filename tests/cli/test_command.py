"""The command itself: version, help, and what it says where its packages are missing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version

import click
import pytest
from click.testing import CliRunner
from support.running.process_kit import run_script

from splashdam.cli.commands import COMMANDS, OnceCommand, splashdam


def test_version() -> None:
    """`--version` names the version and the twin in use."""
    result = CliRunner().invoke(splashdam, ["--version"])
    assert result.exit_code == 0
    assert result.output.startswith(f"splashdam {version('splashdam')}, ")
    assert "compiled" in result.output or "pure Python" in result.output


def test_help_lists_every_command() -> None:
    """`--help` shows each command with a line of its own."""
    output = CliRunner().invoke(splashdam, ["--help"]).output
    for command in COMMANDS:
        assert f"\n  {command} " in output
    assert "..." not in output.partition("Options:")[2]  # none is cut


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_explained(command: str) -> None:
    """Each option of each command has a help text."""
    found = splashdam.get_command(splashdam.make_context("splashdam", [command]), command)
    assert found is not None
    assert found.help
    for parameter in found.params:
        if parameter.param_type_name == "option":
            assert getattr(parameter, "help", None), parameter.name


def test_unknown_command() -> None:
    """A typing error is wrong usage."""
    result = CliRunner().invoke(splashdam, ["prodcue"])
    assert result.exit_code == 2
    assert "No such command 'prodcue'" in result.output


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_its_packages(missing: str) -> None:
    """Installed without the extra, the command says how to install it and exits with 2."""
    code = f"import sys; sys.modules[{missing!r}] = None; from splashdam.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        f"splashdam: the command needs {missing}. Install with: pip install 'splashdam[cli]'\n"
    )


@pytest.mark.parametrize("text", ["linger.ms", "=5"])
def test_property_needs_name_and_value(text: str) -> None:
    """`-X` takes NAME=VALUE and says so."""
    result = CliRunner().invoke(splashdam, ["produce", "t", "-X", text], input="")
    assert result.exit_code == 2
    assert "is not NAME=VALUE" in result.output


def leaves(command: click.Command, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands that do something, with their names."""
    if not isinstance(command, click.Group):
        yield names, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from leaves(found, *names, name)


def test_a_help_text_showed_the_braces_of_its_template() -> None:
    """``acls add --transactional-id`` said "{every}"."""
    for names, command in leaves(splashdam):
        for parameter in command.params:
            assert "{" not in (getattr(parameter, "help", None) or ""), (*names, parameter.name)


@pytest.mark.parametrize(
    ("names", "command"), [pytest.param(*each, id=" ".join(each[0])) for each in leaves(splashdam)]
)
def test_every_help_text_ends_with_an_example(names: tuple[str, ...], command: click.Command) -> None:
    """It begins with this command, and its options exist."""
    assert isinstance(command, OnceCommand)
    assert command.example
    shown = [each.strip() for each in command.get_help(click.Context(command)).splitlines()]
    for line in command.example.splitlines():
        assert line.strip() in shown
        assert len(line) <= 78, "fits into 80 columns with its indent"
    for line in command.example.replace("\\\n", "").splitlines():
        (*before, words) = [part.split() for part in line.replace(" > ", " | ").split(" | ")]
        if words[0] != "splashdam":
            words = before[-1]
        assert tuple(words[: len(names) + 1]) == ("splashdam", *names)
        command.make_parser(click.Context(command)).parse_args(words[len(names) + 1 :])


def test_the_list_of_commands_imports_none_of_them() -> None:
    """It took over a second, for the modules of all commands."""
    done = run_script(
        """
        import sys
        from click.testing import CliRunner
        from splashdam.cli.commands import COMMANDS, splashdam

        assert CliRunner().invoke(splashdam, ["--help"]).exit_code == 0
        loaded = {name for name in ("trio", "rich", "attrs") if name in sys.modules}
        loaded |= {name for name, entry in COMMANDS.items() if f"splashdam.cli.{entry.module}" in sys.modules}
        assert not loaded, loaded
        """
    )
    assert done.returncode == 0, done.stderr
