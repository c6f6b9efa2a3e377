"""Completion of names in the shell: asks the server, and stays silent if there is none."""

from __future__ import annotations

import os

import rich_click as click
from click.shell_completion import CompletionItem


def complete_topic(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _complete(ctx, incomplete, None)


def complete_group(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    topic = ctx.params.get("topic")
    return _complete(ctx, incomplete, topic) if isinstance(topic, str) else []


def _complete(ctx: click.Context, incomplete: str, topic: str | None) -> list[CompletionItem]:
    from slipstream.client import Client, SlipstreamError  # noqa: PLC0415

    url = ctx.params.get("server") or os.environ.get("SLIPSTREAM_URL")
    try:
        with Client(url, timeout_ms=1_000, retry_for_ms=0) as client:
            if topic is None:
                names = [each.name for each in client.topics()]
            else:
                names = [each.group for each in client.groups(topic)]
    except SlipstreamError:
        return []  # nothing to offer, and no place to say why
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that teaches a shell to complete slipstream's commands.

    \b
    [bold]bash[/]  echo 'eval "$(slipstream completion bash)"' >> ~/.bashrc
    [bold]zsh[/]   echo 'eval "$(slipstream completion zsh)"' >> ~/.zshrc
    [bold]fish[/]  slipstream completion fish > ~/.config/fish/completions/slipstream.fish
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415

    from slipstream.cli.main import main  # noqa: PLC0415

    kind = get_completion_class(shell)
    assert kind is not None, "click knows these three"
    click.echo(kind(main, {}, "slipstream", "_SLIPSTREAM_COMPLETE").source())
