"""The tests, and ``ckpm.suites``, which users run as well. A package: no other folder named tests is taken for it."""
