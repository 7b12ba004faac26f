"""`callsheet render`: print the manifests or the plan, to read, compare or pipe."""

from __future__ import annotations

import click

from callsheet.cli import options, output


@click.command()
@options.files
@options.on
def command(files: tuple[str, ...], sets: tuple[str, ...], on: str) -> None:
    """Print what a backend would run, as YAML.

    On Kubernetes that is the manifests; locally, the plan. Nothing is started, and no cluster is contacted. Several
    experiments become several YAML documents.

    \b
    callsheet render --on kubernetes -f x.yaml | kubectl apply -f -
    """
    backend = options.backend(on)
    texts = []
    for item in options.load(files, sets):
        with item.placing():
            texts.append(backend.render(item.experiment, base=item.base))
    output.answer("---\n".join(text if text.endswith("\n") else text + "\n" for text in texts))
