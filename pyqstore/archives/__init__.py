"""Archives of stores in a directory or an object store: continuous, while the store is at work.

A target holds *bases*, each a snapshot's files as backups have them, and *parts* of the journal
behind each other, with the bodies that it names.  A base and the parts from it on make a store as
it was at any moment since.  A base's document is written last, and a part when the one before it
is there.
"""

from ..archive_reports import Archived
from .choices import Choices
from .keeping import Base, bases, prune
from .restoring import Restored, restore
from .running import archive

__all__ = ["Archived", "Base", "Choices", "Restored", "archive", "bases", "prune", "restore"]
