"""The single node."""

__all__ = ["NODE"]

NODE = "pyqstore@localhost"
"""The node's name; clients expect a cluster's form."""
