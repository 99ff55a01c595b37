"""The single node."""

__all__ = ["NODE"]

NODE = "pyqstore@localhost"
"""Its name, as clients of a cluster expect one."""
