"""Backups of stores in a directory or an object store, incremental by file.

A target holds the content of each file once, compressed, under the name of its checksum, and one
document for each backup that names its files.  The document is written last: a backup is whole, or
is not there.
"""

from .keeping import Backup, backups, prune
from .making import Made, back_up
from .restoring import Restored, restore
from .target import Target

__all__ = ["Backup", "Made", "Restored", "Target", "back_up", "backups", "prune", "restore"]
