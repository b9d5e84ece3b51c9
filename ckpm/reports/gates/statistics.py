"""The GPU gate's decision, from interleaved samples of baseline and candidate on one GPU.

Each round runs the baseline, the candidate and the baseline again (A/A), in another order each time (:func:`order`).
For each problem (:func:`judge`):

- ``ratio`` is Hodges' and Lehmann's estimate of candidate over baseline, with an interval. ``noise`` is the largest
  distance from 1 in the interval of baseline against itself.
- regressed, improved: Mann-Whitney excludes chance, and the ratio is beyond the effect floor and the noise.
- unchanged: the whole interval is within the effect floor (a ratio, or microseconds if that is more). At the last look
  the floor grows with the noise.
- inconclusive: anything else. More samples or a quieter machine are needed; it is never a pass.
- host-bound: short launches that were queued are as slow as the host that queues them. Only regressed is believed.
- hardware shift: :func:`earlier_row`.

A clear case ends at an early look, whose levels are so strict that they add little to the error of the last look:
J. L. Haybittle, British Journal of Radiology 44 (1971); R. Peto et al., British Journal of Cancer 34 (1976). The errors
of all looks add up to at most 0.24 % for a change where there is none, and 2.7 % for missing a change of the floor's
size.

Times of another GPU, ROCm or clock policy are not comparable (:func:`differences`), nor are times with an unknown GPU,
ROCm or clock policy.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from ckpm.base.errors import GateError
from ckpm.base.paths import data
from ckpm.base.tablefile import Positive, Record, read_table
from ckpm.reports.gates.mann_whitney import Shift, least_p_value, p_value, shift
from ckpm.reports.verdicts import COLD, WARM, Gate, Samples, VerdictRow

GATE = "gpu"
SETTINGS = data("reports", "gates", "gpu_gate.yaml")
ARMS = ("baseline", "candidate", "again")
MEAN = "geometric mean"
_MOST_ROUNDS = 1000  # of an advice
# facts of both sides that must be equal; clock_policy: the driver's performance level, limits of clock and power
CONTEXT = ("gpu", "arch", "compute_units", "rocm", "driver", "clock_policy", "compute_partition", "memory_partition")
_Share = Annotated[float, Meta(gt=0, lt=1)]


class EffectFloor(Record, frozen=True):
    """The smallest change that matters: a share of the time, and microseconds."""

    ratio: _Share
    microseconds: Annotated[float, Meta(gt=0)]


class Look(Record, frozen=True):
    """A decision after so many rounds."""

    rounds: Positive
    significance: _Share
    confidence: _Share


class Settings(Record, frozen=True):
    """The record of gpu_gate.yaml, which describes the fields."""

    looks: Annotated[tuple[Look, ...], Meta(min_length=1)]
    warm_up: Positive
    launches: Positive
    cold_bytes: Positive
    warm: EffectFloor
    cold: EffectFloor
    largest_ratio: _Share
    noise_factor: Annotated[float, Meta(gt=0)]
    queued_microseconds: Annotated[float, Meta(gt=0)]
    mean_ratio: _Share
    noise: _Share

    @property
    def rounds(self) -> int:
        """The largest number of rounds."""
        return self.looks[-1].rounds

    def look(self, rounds: int) -> Look:
        """The look after so many rounds, or the next one."""
        return next(look for look in self.looks if look.rounds >= rounds)


def read_settings(file: Path = SETTINGS) -> Settings:
    """Read the settings of the GPU gate."""
    return read_table(file, Settings).record


def order(number: int) -> tuple[str, ...]:
    """Order of the arms in a round. Two successive rounds have opposite orders; six rounds have every order once."""
    one_way = [order for order in itertools.permutations(ARMS) if order < order[::-1]]
    chosen = one_way[number // 2 % len(one_way)]
    return chosen if number % 2 == 0 else chosen[::-1]


def differences(baseline: Mapping[str, str], candidate: Mapping[str, str]) -> tuple[str, ...]:
    """Reasons why times of two contexts can't be compared; empty if they can."""
    changes = []
    for name in CONTEXT:
        old, new = baseline.get(name), candidate.get(name)
        if not old or not new:
            changes.append(f"{name} is not known of the {'baseline' if not old else 'candidate'}")
        elif old != new:
            changes.append(f"{name}: {old} / {new}")
    return tuple(changes)


def rows(
    samples: Sequence[Samples], baseline: Mapping[str, str], candidate: Mapping[str, str], settings: Settings
) -> tuple[VerdictRow, ...]:
    """A row for each problem, then the geometric mean of each metric. All are not comparable if the contexts differ."""
    if not samples:
        raise GateError("no times were taken: no problem was run.")
    for sample in samples:
        _demand_sound(sample, settings)
    if reasons := differences(baseline, candidate):
        return tuple(_not_comparable(sample, "; ".join(reasons)) for sample in samples)
    judged = [judge(sample, settings) for sample in samples]
    for metric in dict.fromkeys(sample.metric for sample in samples):
        of_metric = [sample for sample in samples if sample.metric == metric]
        if len(of_metric) > 1:
            judged.append(judge(mean_of(of_metric), settings, floor=settings.mean_ratio))
    return tuple(judged)


def mean_of(samples: Sequence[Samples]) -> Samples:
    """The geometric mean over problems, round by round: a sample like any other, of the rounds that all have."""
    arms = {
        arm: tuple(math.exp(math.fsum(map(math.log, times)) / len(times)) for times in zip(*columns, strict=False))
        for arm in ARMS
        for columns in [[getattr(sample, arm) for sample in samples]]
    }
    baseline, candidate, again = (arms[arm] for arm in ARMS)
    return Samples(subject=MEAN, metric=samples[0].metric, baseline=baseline, candidate=candidate, again=again)


def judge(samples: Samples, settings: Settings, floor: float | None = None) -> VerdictRow:
    """Judge one problem. ``floor`` replaces both effect floors, for the mean, which is not the time of a launch."""
    old, new, again = ([math.log(time) for time in getattr(samples, arm)] for arm in ARMS)
    look = settings.look(len(old))
    middle = math.exp(sum(old) / len(old))
    change, itself = shift(old, new, look.confidence), shift(old, again, look.confidence)
    noise = max(abs(math.expm1(itself.low)), abs(math.expm1(itself.high)))
    grown = _effect_floor(samples.metric, middle, noise, settings) if floor is None else floor
    last = floor is not None or look is settings.looks[-1]
    allowed = grown if last else _effect_floor(samples.metric, middle, 0, settings)
    p = p_value(old, new)
    if least_p_value(len(old), len(new)) >= look.significance:
        verdict, note = "inconclusive", f"{len(old)} samples can't show a difference"
    elif noise > settings.noise:
        needed = _rounds_needed(itself, math.log1p(settings.noise), len(old), inside=True)
        verdict, note = "inconclusive", f"the baseline differs from itself by up to {noise:.2%}{needed}"
    elif p < look.significance and abs(change.estimate) > math.log1p(max(grown, noise)):
        verdict, note = ("regressed" if change.estimate > 0 else "improved"), ""
    elif max(-change.low, change.high) <= math.log1p(allowed):  # floors are symmetric in ratios: 1 + x and 1 / (1 + x)
        verdict, note = "unchanged", ""
    else:
        needed = _rounds_needed(change, math.log1p(allowed), len(old))
        verdict, note = "inconclusive", f"the interval reaches beyond the threshold{needed}"
    if samples.queued and middle < settings.queued_microseconds and verdict != "regressed":
        verdict, note = "host-bound", "queued launches this short are as slow as the host that queues them"
    times = (
        f"ratio {math.exp(change.estimate):.4f} ({math.exp(change.low):.4f} to {math.exp(change.high):.4f}), "
        f"p {p:.2g}, A/A {math.expm1(itself.estimate):+.2%}, {len(old)} rounds"
    )
    return VerdictRow(
        gate=GATE,
        subject=samples.subject,
        metric=samples.metric,
        unit="us",
        baseline=middle,
        candidate=middle * math.exp(change.estimate),
        threshold=f"{grown:.2%}",
        verdict=verdict,
        note="; ".join(part for part in (note, times) if part),
    )


def ends_early(samples: Samples, settings: Settings) -> bool:
    """True after the rounds of a look whose verdict is clear."""
    rounds = len(samples.baseline)
    if settings.look(rounds).rounds != rounds:
        return False
    return judge(samples, settings).verdict in ("regressed", "improved", "unchanged")


def _effect_floor(metric: str, middle: float, noise: float, settings: Settings) -> float:
    """The smallest ratio that matters for a time of ``middle`` microseconds on a machine with this noise."""
    floor = settings.cold if metric == COLD else settings.warm
    noisy = min(settings.largest_ratio, settings.noise_factor * noise)
    return max(floor.ratio, noisy, floor.microseconds / middle)


def _rounds_needed(change: Shift, allowed: float, count: int, *, inside: bool = False) -> str:
    """The number of rounds after which the interval is on one side of the threshold; its width falls with the root.

    ``inside``: a shift beyond the threshold is none that more rounds decide.
    """
    distance = allowed - abs(change.estimate)
    if not distance or (inside and distance < 0):
        return ""
    needed = count * ((change.high - change.low) / 2 / distance) ** 2
    return f"; about {math.ceil(needed)} rounds would decide" if count < needed < _MOST_ROUNDS else ""


def earlier_times(earlier: Gate) -> dict[str, float]:
    """The baseline's warm times in an earlier comparison, by problem."""
    return {row.subject: row.baseline for row in earlier.rows if row.metric == WARM and row.baseline}


def earlier_row(
    rows: Sequence[VerdictRow], earlier: Gate, context: Mapping[str, str], settings: Settings
) -> VerdictRow:
    """Compare the baseline's warm times in a context with its times of an earlier comparison.

    If all kernels moved alike, the hardware did, or its clock. The verdicts of this comparison stand. If some kernels
    moved and others did not, the cause is unknown.
    """
    before = earlier_times(earlier)
    times = {row.subject: row.baseline for row in rows if row.metric == WARM and row.baseline and row.subject != MEAN}
    moves = {name: math.log(time / before[name]) for name, time in times.items() if name in before}
    floors = {name: math.log1p(max(settings.largest_ratio, settings.warm.microseconds / times[name])) for name in moves}
    middle = statistics.median(moves.values())
    apart = max(moves, key=lambda name: abs(moves[name] - middle) / floors[name])
    if all(abs(moves[name]) <= floors[name] for name in moves):
        verdict, note = "unchanged", f"{len(moves)} of {len(moves)} times as before"
    elif len(moves) > 1 and abs(moves[apart] - middle) <= floors[apart]:
        verdict, note = (
            "hardware shift",
            f"{len(moves)} of {len(moves)} times moved alike: the hardware or its clock did",
        )
    else:
        why = f"not all of {len(moves)} times moved alike" if len(moves) > 1 else "only one time to compare"
        verdict, note = "inconclusive", f"{why}: {apart} {math.expm1(moves[apart]):+.2%}"
    return VerdictRow(
        gate=GATE,
        subject="the baseline's earlier times",
        metric="ratio",
        baseline=1.0,
        candidate=math.exp(middle),
        threshold=f"{settings.largest_ratio:.2%}",
        verdict=verdict,
        note="; ".join((note, *differences(earlier.provenance, context))),
    )


def _demand_sound(samples: Samples, settings: Settings) -> None:
    """Raise InconclusiveError unless every arm has the positive times of a look."""
    looks = [look.rounds for look in settings.looks]
    for arm in ARMS:
        times = getattr(samples, arm)
        if len(times) not in looks or len(times) != len(samples.baseline):
            raise GateError(
                f"{samples.subject}: {len(times)} times of the {arm}, expected {', '.join(map(str, looks))}: "
                "a run ended early?"
            )
        for at, time in enumerate(times):
            if not math.isfinite(time) or time <= 0:
                raise GateError(f"{samples.subject}: {arm}[{at}]: {time} is not a time. The timer failed; run again.")


def _not_comparable(samples: Samples, why: str) -> VerdictRow:
    return VerdictRow(
        gate=GATE, subject=samples.subject, metric=samples.metric, unit="us", verdict="not comparable", note=why
    )
