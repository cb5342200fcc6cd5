"""Sets up a BlueField, and the host it is in, for offload: what `xts-bluefield` is made of.

Theory of operation. A machine is a set of *settings*: a firmware parameter, a scalable function, a bridge's flows, the
queues of an interface, a file. Each has a kind, a place, and a value that JSON can hold; None is "there is none". A
kind (one module for each subject) knows three things: which values the wanted state asks for, how a value is read, and
which actions lead from one value to another. All else follows from these:

- plan: the settings whose value differs, in the order of the kinds, each with its actions (planning.py; pure).
- apply: for each step, read the setting again, write the value into the journal as the original, act, and read once
  more. A value that is neither the one of the plan nor the wanted one ends it: somebody else is at work.
- check: plan, and an exit status.
- undo: the journal backwards, with the actions from the present value to the original.

So undoing needs no code of its own, a second apply finds nothing to do, and an apply that was interrupted goes on from
whatever it left. What only a person can do (the power cycle after a change of the card's mode, a reboot) is a setting,
too, whose action is to say so: there apply stops, and the next one goes on behind it. Most settings do not survive a
boot, so a unit applies the file at each one; the journal keeps the original of the first time.

A function's interfaces have no names before they exist. Until then they are written `<sf:DEVICE:PFNUM:SFNUM>` (its own
interface), `<rep:...>` (its representor) and `<port:...>` (its devlink port); look.py finds the names when an action
runs.
"""

from xts_messages.version import __version__ as __version__
