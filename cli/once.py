"""Commands of which an option may be given once, unless it is one that can be repeated.

Click takes the last of several and says nothing; a line that names two offsets, or two data directories,
moves or opens what nobody may have meant.
"""

from __future__ import annotations

from collections import Counter

import click


class OnceCommand(click.Command):
    """Refuses an option that stands in the line twice."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As ``click.Command``; raises UsageError for such an option, too."""
        if not ctx.resilient_parsing:  # of a line that is being completed
            _, _, given = self.make_parser(ctx).parse_args(args=list(args))
            for parameter, times in Counter(given).items():
                if times > 1 and _is_single(parameter):
                    raise click.UsageError(f"{max(parameter.opts, key=len)} is given {times} times", ctx)
        return super().parse_args(ctx, args)


class OnceGroup(click.Group):
    """A group of such commands."""

    command_class = OnceCommand
    group_class = type


def _is_single(parameter: click.Parameter) -> bool:
    """Whether a second one would take the place of the first; a flag says the same again."""
    if not isinstance(parameter, click.Option) or parameter.multiple or parameter.count:
        return False
    return not parameter.is_flag or bool(parameter.secondary_opts)
