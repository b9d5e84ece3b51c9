"""The templates beside this file: rendered whole, or as a pattern into which each kernel's values are substituted."""

from __future__ import annotations

import functools
from pathlib import Path

import jinja2


@functools.cache
def environment() -> jinja2.Environment:
    """The template engine; a name without a value is an error."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - C++ is written, not HTML
    )


class _Slot(jinja2.Undefined):
    """A value that is not known yet: the template contains a slot for it."""

    def __str__(self) -> str:
        return f"%({self._undefined_name})s"


@functools.cache
def pattern(template: str, **known: object) -> str:
    """A template with a slot for each value that is not ``known``, to be substituted with ``%``.

    So the engine runs once for thousands of kernels. Such a template writes C++'s ``%`` as ``%%``.
    """
    return environment().overlay(undefined=_Slot).get_template(template).render(**known)
