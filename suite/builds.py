"""The kernels that a run has compiled, with the fingerprints of their source and of their machine code."""

from __future__ import annotations

from collections.abc import Sequence

from kernels import recurrence
from kernels.compile import built
from suite.facts import Build


def builds(names: Sequence[str]) -> tuple[Build, ...]:
    """What this process has compiled so far, by file.

    Args:
        names: the run's recurrences.
    """
    compiled = built()
    if not compiled:  # the host: no recurrence needs to be asked
        return ()
    users = {name: recurrence(name).sources() for name in names}
    found = [
        Build(
            kernel=source.entry,
            file=source.file,
            arch=f"sm_{arch}{source.suffix}",
            shape=str(shape),
            head_map=shape.head_map,
            recurrences=tuple(name for name, sources in users.items() if source in sources),
            source_sha256=source.sha256(shape),
            code_sha256=cubin.sha256,
        )
        for (source, shape, arch), cubin in compiled.items()
    ]
    return tuple(sorted(found, key=lambda one: (one.file, one.arch, one.shape, one.head_map)))
