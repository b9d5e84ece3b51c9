"""The kernel that would serve a problem for which no kernel is registered, and the command that compiles it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from ckpm.attention.jit.orders import Place, order_for
from ckpm.attention.registry import Instance
from ckpm.attention.selection import find_serving, known_defect, reach_every_pool
from ckpm.base.errors import CkPrefillError
from ckpm.matrix.dialects import dialect, upstreams
from ckpm.matrix.enumeration import enumerate_keys
from ckpm.matrix.problems.problem import Problem


def find_missing(problem: Problem, preferred: Iterable[str] = ()) -> Instance | str:
    """The first kernel of a packaged CK that serves and can be compiled; ``preferred`` upstreams are searched first.

    If there is none, return the known defect of the first that serves, or "" if none serves.
    """
    packages, against = upstreams(), ""
    for upstream in dict.fromkeys((*(name for name in preferred if name in packages), *packages)):
        of = dialect(packages[upstream].dialect)
        with contextlib.suppress(CkPrefillError):  # the dialect has no such family, or the arch no such kernel
            keys = enumerate_keys(of.family(problem.family), arch=problem.arch)
            declared = [Instance(key=key, arch=problem.arch, upstream=upstream, dialect=of.name) for key in keys]
            for instance in reach_every_pool(find_serving(problem.family, declared, problem).instances, problem):
                order_for(instance.key, Place(upstream=upstream), instance.arch, instance.dialect)
                if not (defect := known_defect(instance, problem)):
                    return instance
                against = against or defect
    return against


def compile_command(instance: Instance) -> str:
    """The command that compiles a kernel alone, into the cache."""
    return f"ckpm jit {instance.name} --arch {instance.arch} --upstream {instance.upstream}"
