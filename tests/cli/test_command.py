"""The command itself: version, help, and what it says where its packages are missing."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest
from click.testing import CliRunner

from splashdam.cli.commands import COMMANDS, splashdam


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
    assert "..." not in output.partition("Commands:")[2]  # none is cut


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
