"""Tools on a store that another process has open.

The owner listens on a socket that the store's directory names (``hub``).  A tool connects to it, or
opens the store itself where nothing has it open (``reaching``).  Either way the same operations run
(``operations``): in the owner's process, or in the tool's.
"""
