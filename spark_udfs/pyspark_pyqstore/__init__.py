"""Where Spark finds the format "pyqstore" by itself.

Spark imports every top-level package named ``pyspark_*`` and takes its ``DefaultSource``; the wheel
therefore installs this folder at the top.  An import that fails here would break every other such
package too: this one imports neither the engine nor pyarrow.
"""

from spark_udfs.source import QStoreDataSource as DefaultSource

__all__ = ["DefaultSource"]
