"""Two libraries' times on one device, interleaved, and the verdict of ckpm.reports.gates.statistics.

Both are loaded in one process and launched on the same buffers. The emulator has a timer, too, so that the whole path
can be run without a GPU. Its times are the host's, and mostly too noisy for another verdict than inconclusive.
"""

from __future__ import annotations

import dataclasses
import logging
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm.attention.launch.buffers import Prepared, prepare
from ckpm.attention.launch.c_abi import Launch, Library
from ckpm.attention.launch.device import Device
from ckpm.attention.launch.launching import check, plan_of, upload
from ckpm.attention.launch.plan import LaunchPlan
from ckpm.base.errors import GateError, UsageError
from ckpm.base.results import LIBRARY_SHA256
from ckpm.kernels.abi import Status
from ckpm.kernels.library.manifest import identity_facts, keys_of, manifest_of
from ckpm.matrix.keys import V3_PIPELINE, Key, is_v3
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.problems.serving import measured_kernel, serving_kernels
from ckpm.reports.gates.comparing import presence
from ckpm.reports.gates.statistics import ARMS, GATE, Settings, earlier_row, earlier_times, ends_early, order, rows
from ckpm.reports.verdicts import CANDIDATE, COLD, V3_AGAINST_V2, WARM, Gate, Samples

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two libraries, with its kernels in dispatch order.

    If the two sides are V3 and V2 of one library, ``v3`` is True for V3: launches must take its kernels. None: any.
    """

    library: Library
    keys: Sequence[Key]
    file_facts: Mapping[str, str]  # identity_facts of the file
    v3: bool | None = None

    def serves(self, problem: SuiteCase) -> bool:
        return bool(serving_kernels(self.keys, problem))

    def plan(self, device: Device, prepared: Prepared) -> LaunchPlan:
        """Plan a case on the kernel that must be named, or on dispatch's choice. V2 is planned with V3 turned off."""
        if self.v3 is False:
            prepared = dataclasses.replace(prepared, posed=dataclasses.replace(prepared.posed, v3="off"))
        return plan_of(device, self.library, prepared, measured_kernel(self.keys, prepared.problem))


def compare(
    device: Device,
    baseline: Side,
    candidate: Side,
    problems: Sequence[SuiteCase],
    settings: Settings,
    earlier: Gate | None = None,
) -> Gate:
    """Time every problem that both libraries serve. A problem that the candidate no longer serves is a regression.

    ``earlier`` is a comparison with the same baseline, whose times show if the hardware has shifted since.
    """
    served = [problem for problem in problems if baseline.serves(problem)]
    kept = [problem for problem in served if candidate.serves(problem)]
    fact = f"baseline {LIBRARY_SHA256}"
    if earlier and earlier.provenance.get(fact) != baseline.file_facts.get(LIBRARY_SHA256):
        raise UsageError(
            f"the earlier comparison has another baseline: its '{fact}' differs. Give one of this library."
        )
    if earlier and kept and not earlier_times(earlier).keys() & {problem.name for problem in kept}:
        raise UsageError("the earlier comparison has no time of these problems: see --tier and --case.")
    before, sensed = device.context(), device.sensors()
    lost = [
        presence(GATE, problem.name, built=False, note="the candidate has no kernel for it")
        for problem in served
        if problem not in kept
    ]
    samples: list[Samples] = []
    for problem in kept:
        for taken in _take_samples(device, baseline, candidate, problem, settings):
            old, new = map(statistics.median, (taken.baseline, taken.candidate))
            log.info(f"{taken.subject}, {taken.metric}: {old:.5g} -> {new:.5g} us, {len(taken.baseline)} rounds")
            samples.append(taken)
    after = device.context()  # if somebody changed the clocks in between, the times can't be compared
    explanation = "the baseline is the candidate's library with V3 turned off"
    provenance = {
        **before,
        **({V3_AGAINST_V2: explanation} if (baseline.v3, candidate.v3) == (False, True) else {}),
        "baseline": str(baseline.library.path),
        CANDIDATE: str(candidate.library.path),
    }
    for name, side in (("baseline", baseline), (CANDIDATE, candidate)):
        provenance |= {f"{name} {fact}": text for fact, text in side.file_facts.items()}
    for when, texts in (("before", sensed), ("after", device.sensors())):
        provenance |= {f"{name}_{when}": text for name, text in texts.items()}
    judged = rows(samples, before, after, settings) if samples or not lost else ()
    comparable = any(row.baseline for row in judged)
    shifted = (earlier_row(judged, earlier, before, settings),) if earlier and comparable else ()
    return Gate.of((*lost, *judged, *shifted), provenance, samples)


def _take_samples(
    device: Device, baseline: Side, candidate: Side, problem: SuiteCase, settings: Settings
) -> tuple[Samples, Samples]:
    """Take samples with a warm cache, and with a cold cache."""
    prepared = prepare(problem, device.arch)
    check(prepared)
    sides = {"baseline": baseline, "candidate": candidate, "again": baseline}
    plans = {arm: side.plan(device, prepared) for arm, side in sides.items()}
    with upload(device, prepared.buffers) as memory:
        addresses = prepared.addresses(memory)
        filler = device.hip.malloc(settings.cold_bytes)
        try:

            def launches(arm: str, repeats: int) -> float:
                launch = plans[arm].launch(addresses, warmups=1, repeats=repeats)
                return _microseconds(device, sides[arm], problem, launch)

            queued = launches("baseline", settings.launches) >= settings.queued_microseconds

            def warm(arm: str) -> float:
                if queued:
                    return launches(arm, settings.launches)
                return statistics.fmean(launches(arm, 1) for _ in range(settings.launches))

            def cold(arm: str) -> float:
                device.hip.fill(filler, 0)
                device.hip.synchronize()
                return _microseconds(device, sides[arm], problem, plans[arm].launch(addresses, repeats=1))

            return (
                _rounds(problem.name, WARM, warm, settings, queued=queued),
                _rounds(problem.name, COLD, cold, settings),
            )
        finally:
            device.hip.free(filler)


def _rounds(
    subject: str, metric: str, launch: Callable[[str], float], settings: Settings, *, queued: bool = False
) -> Samples:
    """Run rounds until a case is clear: each runs every arm once, in the next order. The first rounds warm up."""
    taken: dict[str, list[float]] = {arm: [] for arm in ARMS}
    for number in range(settings.warm_up + settings.rounds):
        for arm in order(number):
            time = launch(arm)
            if number >= settings.warm_up:
                taken[arm].append(time)
        old, new, again = (tuple(taken[arm]) for arm in ARMS)
        samples = Samples(subject=subject, metric=metric, queued=queued, baseline=old, candidate=new, again=again)
        if ends_early(samples, settings):
            break
    return samples


def _microseconds(device: Device, side: Side, problem: SuiteCase, launch: Launch) -> float:
    """Microseconds of one launch, the mean if it is repeated."""
    fault = device.fault()
    if fault or launch.status != Status.OK:
        raise GateError(f"{problem.name}: {side.library.path}: {fault.message if fault else launch.message}")
    if side.v3 is not None and side.v3 != (f"_{V3_PIPELINE}_" in str(launch.kernel)):
        raise GateError(f"{problem.name}: V3 is turned {'on' if side.v3 else 'off'}, and {launch.kernel} was launched.")
    return launch.milliseconds * 1e3


def side(device: Device, path: Path) -> Side:
    """Load a built library on a device."""
    manifest = manifest_of(path, device.arch)
    file_facts = identity_facts(path, manifest, foreign=True)
    library = device.load(path, sha256=file_facts[LIBRARY_SHA256])
    return Side(library=library, keys=keys_of(manifest, library.kernels, path), file_facts=file_facts)


def versions(device: Device, path: Path) -> tuple[Side, Side]:
    """Load one library as two sides, V2 and V3."""
    whole = side(device, path)
    v2, v3 = ([key for key in whole.keys if is_v3(key.pipeline) == wanted] for wanted in (False, True))
    return dataclasses.replace(whole, keys=v2, v3=False), dataclasses.replace(whole, keys=v3, v3=True)


def problems_of_both(baseline: Side, candidate: Side, problems: Sequence[SuiteCase]) -> list[SuiteCase]:
    """Problems that both sides serve. V3 need not serve others."""
    either = [dataclasses.replace(problem, v3="any") for problem in problems]
    both = [problem for problem in either if baseline.serves(problem) and candidate.serves(problem)]
    if not both:
        raise GateError("none of the problems has a kernel of V3 and one of V2: see --tier and --case.")
    return both
