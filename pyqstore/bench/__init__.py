"""Benchmarks: ``pyqstore bench``, with the extra ``pyqstore[bench]``.

Rooms, each using those below it alone: command (the command line), laboratory (where workloads are
that are not installed), the workloads (one module each), report (table, JSON, PNG, HTML), drawing,
floor and machine (the disk, and what it is in), runs (cases, samples, rounds).
"""
