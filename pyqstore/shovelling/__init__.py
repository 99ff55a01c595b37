"""Shovels: messages on their way from one end, a store's or a broker's, to another.

``addresses`` says what an end is, ``ends`` what a source and a target owe the loop, ``loop`` moves.
Each kind of end has a module of its own; ``notes`` is what a store remembers of a shovel.
"""
