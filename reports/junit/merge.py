"""Merge JUnit of several shards: suites of the same name are joined, and each case counts once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.parsers.expat import ExpatError

from junitparser import JUnitXml, TestSuite
from junitparser.junitparser import JUnitXmlError

from ckpm.base.bounded import BoundsError, check_xml, read_text
from ckpm.base.display import one_line
from ckpm.base.errors import CheckFailedError, InputError
from ckpm.base.outputs import write_output

_LONGEST = 200  # characters of a name or a complaint
_REMEDY = "Run that shard again; without it the others are not a pass."


def read_shard(file: Path) -> JUnitXml:
    """Read a shard's JUnit.

    Raises:
        InputError: the file is missing, truncated, not JUnit, or has another number of cases than its header.
    """
    try:
        data = read_text(file).encode()
        check_xml(data)
        # a file of one suite is a testsuite without testsuites around it
        document = JUnitXml.fromstring(data)
        whole = JUnitXml()
        for suite in [document] if isinstance(document, TestSuite) else document:
            if suite.tests and suite.tests != len(list(suite)):
                raise InputError(
                    f"{file}: suite {one_line(str(suite.name), _LONGEST)}: its header counts {suite.tests} cases, "
                    f"the file has {len(list(suite))}. {_REMEDY}",
                    kind="shard",
                )
            whole.add_testsuite(suite)
    except OSError as error:
        raise InputError(f"{file}: can't be read: {error.strerror or error}. {_REMEDY}", kind="shard") from error
    except BoundsError as error:
        raise InputError(f"{file}: line {error.line}: no JUnit: {error}. {_REMEDY}", kind="shard") from error
    except (ExpatError, ValueError) as error:
        raise InputError(
            f"{file}: no whole XML, was it cut short? {one_line(str(error), _LONGEST)}. {_REMEDY}", kind="shard"
        ) from error
    except JUnitXmlError as error:
        raise InputError(f"{file}: no JUnit: {error}. {_REMEDY}", kind="shard") from error
    if not any(len(list(suite)) for suite in whole):
        raise InputError(f"{file}: no case in it. {_REMEDY}", kind="shard")
    return whole


def merge(shards: Sequence[Path], output: Path) -> JUnitXml:
    """Join shards and write them; the file is replaced in one step, and not at all if a shard is damaged.

    Raises:
        InputError: as :func:`read_shard`; or a case is in two shards.
        DiskFullError, OutputError.
    """
    suites: dict[str, TestSuite] = {}
    origin: dict[tuple[str, str, str], int] = {}
    for at, file in enumerate(shards):
        for suite in read_shard(file):
            joined = suites.setdefault(suite.name or "", TestSuite(suite.name))
            for case in suite:
                name = (suite.name or "", case.classname or "", case.name or "")
                if (first := origin.setdefault(name, at)) != at:
                    raise InputError(
                        f"{file}: {one_line(name[2], _LONGEST)} is in {shards[first]}, too. "
                        "Was a shard given twice, or are they of two runs?",
                        kind="shard",
                    )
                joined.add_testcase(case)
    whole = JUnitXml()
    for suite in suites.values():
        suite.update_statistics()
        whole.add_testsuite(suite)
    whole.update_statistics()
    write_output(output, whole.tostring())
    return whole


def demand_passed(whole: JUnitXml, output: Path) -> None:
    """Raises CheckFailedError: a case of a shard failed or could not be checked."""
    bad = [case for suite in whole for case in suite if case.is_failure or case.is_error]
    if bad:
        total = sum(len(list(suite)) for suite in whole)
        raise CheckFailedError(
            f"{len(bad)} of {total} cases failed, the first is {one_line(str(bad[0].name), _LONGEST)}; see {output}",
            kind="cases",
        )
