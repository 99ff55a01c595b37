"""A workload of everything at once, and the model of what it was promised.

``worker.py`` is a process that runs the actors of ``actors.py`` on a store and tells on a pipe what
it is about to do and what it was promised (``story.py``).  ``model.py`` reads that, and knows what
a store must hold after the process was killed, or its disk cut off, at any moment;
``inspection.py`` looks what it does hold.
"""
