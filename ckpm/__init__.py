"""``ckpm COMMAND``: the rooms of this project under one name, from a clone or from an installed wheel.

In a clone the rooms lie at the top: ``matrix``, ``kernels``, ``reports``, ``emulator``, ``tests``. As top-level
packages of a Python environment those names would collide with other people's (``kernels`` is Hugging Face's, ``tests``
anybody's), so a wheel installs this one package and has the rooms in ``ckpm/rooms/``. ``ckpm/__main__.py`` puts that
folder first on the search path of its own process and of those it starts; nobody else's imports change.
"""

__version__ = "0.1.0"
