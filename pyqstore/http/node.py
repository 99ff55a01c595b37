"""The one node that there is."""

__all__ = ["NODE"]

NODE = "pyqstore@localhost"
"""Its name, as clients of a cluster expect one."""
