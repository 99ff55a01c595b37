"""Archives of stores in a directory or an object store: continuous, while the store is open.

A target has *bases*, each with a snapshot's files like a backup, and consecutive *parts* of the
journal, with the bodies that they name.  A base and the parts after it make the store of any moment
since.  A base's document is written after its files, and a part after the part before it.
"""

from ..archive_reports import Archived
from .choices import Choices
from .keeping import Base, bases, prune
from .restoring import Restored, restore
from .running import archive

__all__ = ["Archived", "Base", "Choices", "Restored", "archive", "bases", "prune", "restore"]
