"""`callsheet render`: what the chosen backend would make of the files, for reading, diffing and piping."""

from __future__ import annotations

import click

from callsheet.cli import options, output


@click.command()
@options.files
@options.on
def command(files: tuple[str, ...], sets: tuple[str, ...], on: str) -> None:
    """Print what a backend would make of the files, as YAML: on this machine, the plan; on Kubernetes, the manifests.

    Nothing is started and no cluster is asked. `callsheet render --on kubernetes -f x.yaml | kubectl apply -f -` works. Several experiments come as several YAML documents.
    """
    backend = options.backend(on)
    texts = []
    for item in options.load(files, sets):
        with item.placing():
            texts.append(backend.render(item.experiment, base=item.base))
    output.answer("---\n".join(text if text.endswith("\n") else text + "\n" for text in texts))
