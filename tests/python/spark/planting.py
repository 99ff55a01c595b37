"""Kills that are planted before or after a function of another process."""

PLANTING = """
import json, os, pickle, signal, sys
import pyqstore

def kill(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def before(where, name):
    setattr(where, name, kill)

def after(where, name, calls=1):
    wrapped, left = getattr(where, name), [calls]
    def call(*arguments, **keywords):
        result = wrapped(*arguments, **keywords)
        left[0] -= 1
        if not left[0]:
            kill()
        return result
    setattr(where, name, call)
"""
