"""What Spark is started from in tests."""

from pathlib import Path

import pyspark


def light_home(home: Path) -> str:
    """The installation without its archives of Python modules, as links in a folder.

    Spark puts those before what is installed, which is the same: no compiled module is in them,
    and each of its Python processes, ten or more in a test, would compile them again.  What
    executors of ``local-cluster`` leave comes into the folder, too.
    """
    installed = Path(pyspark.__file__).parent
    for part in ("bin", "sbin", "jars"):
        (home / part).symlink_to(installed / part)
    return str(home)
