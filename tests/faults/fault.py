"""A fault: a piece of code, and what replaces it."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Fault:
    """One fault; ``old`` occurs exactly once in ``file``."""

    name: str
    file: str
    old: str
    new: str

    @property
    def package(self) -> str:
        """The folder of ``ssm_jax`` that the file is in."""
        return self.file.split("/")[1]

    def applied(self, source: str) -> str:
        """The source with the fault; a ValueError unless ``old`` is in it once."""
        if (found := source.count(self.old)) != 1:
            raise ValueError(f"{self.name}: {found} places in {self.file}, not 1")
        return source.replace(self.old, self.new)
