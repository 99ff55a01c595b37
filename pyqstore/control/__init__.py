"""Tools for a store that another process has open.

The owner listens on a socket whose name is derived from the store's directory (``hub``).  A tool
connects to it, or opens the store itself if no process has it open (``reaching``).  In both cases
the same operations run (``operations``), in the owner's process or in the tool's.
"""
