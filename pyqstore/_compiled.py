"""Where the compiled modules are, when a clone on the path hides the installed package.

Python puts the current folder first for ``python -c`` and ``python -m``, so inside a clone it finds
the sources, which have no compiled modules beside them.  The ones that were installed serve then.
"""

import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path

_HERE = Path(__file__).parent


def extend(path: list[str]) -> None:
    """Append the installed package's folder to a package's ``__path__`` if it needs it.

    Raises ImportError, saying what to do, when there is none.
    """
    if importlib.util.find_spec("pyqstore._core") is not None:
        return
    for entry in sys.path:
        folder = Path(entry) / "pyqstore"
        if folder.resolve() != _HERE.resolve() and PathFinder.find_spec("_core", [str(folder)]):
            path.append(str(folder))
            return
    raise ImportError(
        f"pyqstore is imported from its sources in {_HERE} and was not built:"
        " run ./dev build, or pip install . in the clone"
    )
