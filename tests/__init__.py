"""The tests, and ``tests.gpu``, which users run as well. A package: no other folder named tests is taken for it."""
