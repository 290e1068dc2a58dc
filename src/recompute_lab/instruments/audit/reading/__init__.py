"""Read a module without running it: what kind of value each name holds, and where a tensor's value decides.

vocabulary.py   torch's names, as far as they must be known
kinds.py        what a value may be: a tensor, a number that was read from one, a plain value
annotations.py  what an annotation says of it
records.py      what is kept of functions, classes and sites
expressions.py, calls.py, statements.py   one after the other, each built on the one before
module.py       all functions, as often as something more is learned of what they are given
"""
