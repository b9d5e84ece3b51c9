"""The GPU gate's decision, from interleaved samples of baseline and candidate on one GPU.

Each round runs the baseline, the candidate and the baseline again (A/A), in another order each time (:func:`order`).
For each problem (:func:`judge`):

- ``ratio`` is Hodges' and Lehmann's estimate of candidate over baseline, with an interval. ``noise`` is the largest
  distance from 1 in the interval of baseline against itself.
- regressed, improved: Mann-Whitney excludes chance, and the ratio is beyond the effect floor and the noise.
- unchanged: the whole interval is within the effect floor (a ratio, or microseconds if that is more). The floor grows
  with the noise.
- inconclusive: anything else. More samples or a quieter machine are needed; it is never a pass. So are short launches
  that were queued, which are as slow as the host that queues them.

Times of another GPU, ROCm or clock policy are not comparable (:func:`differences`), nor are times with an unknown GPU,
ROCm or clock policy.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from ckpm.base.errors import GateError
from ckpm.base.paths import data
from ckpm.base.tablefile import Positive, Record, read_table
from ckpm.reports.gates.mann_whitney import Shift, least_p_value, p_value, shift
from ckpm.reports.verdicts import VerdictRow

GATE = "gpu"
WARM, COLD = "time", "time, cold cache"  # its metrics: seconds of a launch with a warm and with a cold cache
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


class Settings(Record, frozen=True):
    """The record of gpu_gate.yaml, which describes the fields."""

    rounds: Positive
    warm_up: Positive
    launches: Positive
    cold_bytes: Positive
    significance: _Share
    confidence: _Share
    warm: EffectFloor
    cold: EffectFloor
    largest_ratio: _Share
    noise_factor: Annotated[float, Meta(gt=0)]
    queued_microseconds: Annotated[float, Meta(gt=0)]
    mean_ratio: _Share
    noise: _Share


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Microseconds of each round for one problem (or for one problem with a cold cache); equally many of each arm.

    ``queued`` is True if a time is the mean of launches that were queued one after the other.
    """

    subject: str
    baseline: tuple[float, ...]
    candidate: tuple[float, ...]
    again: tuple[float, ...]
    metric: str = WARM
    queued: bool = False


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
    """The geometric mean over problems, round by round: a sample like any other."""
    arms = {
        arm: tuple(math.exp(math.fsum(map(math.log, times)) / len(times)) for times in zip(*columns, strict=True))
        for arm in ARMS
        for columns in [[getattr(sample, arm) for sample in samples]]
    }
    baseline, candidate, again = (arms[arm] for arm in ARMS)
    return Samples(subject=MEAN, metric=samples[0].metric, baseline=baseline, candidate=candidate, again=again)


def judge(samples: Samples, settings: Settings, floor: float | None = None) -> VerdictRow:
    """Judge one problem. ``floor`` replaces both effect floors, for the mean, which is not the time of a launch."""
    old, new, again = ([math.log(time) for time in getattr(samples, arm)] for arm in ARMS)
    middle = math.exp(sum(old) / len(old))
    change, itself = shift(old, new, settings.confidence), shift(old, again, settings.confidence)
    noise = max(abs(math.expm1(itself.low)), abs(math.expm1(itself.high)))
    wanted = _effect_floor(samples.metric, middle, noise, settings) if floor is None else floor
    p = p_value(old, new)
    verdict, note = _verdict(change, p, wanted, noise, len(old), settings)
    if samples.queued and middle < settings.queued_microseconds and verdict != "regressed":
        verdict = "inconclusive"
        note = "host-bound: queued launches this short are as slow as the host that queues them"
    times = (
        f"ratio {math.exp(change.estimate):.4f} ({math.exp(change.low):.4f} to {math.exp(change.high):.4f}), "
        f"p {p:.2g}, A/A {math.expm1(itself.estimate):+.2%}"
    )
    return VerdictRow(
        gate=GATE,
        subject=samples.subject,
        metric=samples.metric,
        unit="us",
        baseline=middle,
        candidate=middle * math.exp(change.estimate),
        threshold=f"{wanted:.2%}",
        verdict=verdict,
        note="; ".join(part for part in (note, times) if part),
    )


def _effect_floor(metric: str, middle: float, noise: float, settings: Settings) -> float:
    """The smallest ratio that matters for a time of ``middle`` microseconds on a machine with this noise."""
    floor = settings.cold if metric == COLD else settings.warm
    noisy = min(settings.largest_ratio, settings.noise_factor * noise)
    return max(floor.ratio, noisy, floor.microseconds / middle)


def _verdict(change: Shift, p: float, wanted: float, noise: float, count: int, settings: Settings) -> tuple[str, str]:
    """Verdict and reason. Floors are symmetric in ratios: 1 + x and 1 / (1 + x)."""
    if least_p_value(count, count) >= settings.significance:
        return "inconclusive", f"{count} samples can't show a difference"
    if noise > settings.noise:
        return "inconclusive", f"the baseline differs from itself by up to {noise:.2%}"
    allowed, needed = math.log1p(wanted), math.log1p(max(wanted, noise))
    if p < settings.significance and abs(change.estimate) > needed:
        return ("regressed" if change.estimate > 0 else "improved"), ""
    if -allowed <= change.low and change.high <= allowed:
        return "unchanged", ""
    return "inconclusive", f"the interval reaches beyond the threshold{_rounds_needed(change, allowed, count)}"


def _rounds_needed(change: Shift, allowed: float, count: int) -> str:
    """The number of rounds after which the interval is on one side of the threshold; its width falls with the root."""
    distance = abs(abs(change.estimate) - allowed)
    needed = count * ((change.high - change.low) / 2 / distance) ** 2 if distance else math.inf
    return f"; about {math.ceil(needed)} rounds would decide" if count < needed < _MOST_ROUNDS else ""


def _demand_sound(samples: Samples, settings: Settings) -> None:
    """Raise InconclusiveError unless every arm has the expected number of positive times."""
    for arm in ARMS:
        times = getattr(samples, arm)
        if len(times) != settings.rounds:
            raise GateError(
                f"{samples.subject}: {len(times)} times of the {arm}, expected {settings.rounds}: a run ended early?"
            )
        for at, time in enumerate(times):
            if not math.isfinite(time) or time <= 0:
                raise GateError(f"{samples.subject}: {arm}[{at}]: {time} is not a time. The timer failed; run again.")


def _not_comparable(samples: Samples, why: str) -> VerdictRow:
    return VerdictRow(
        gate=GATE, subject=samples.subject, metric=samples.metric, unit="us", verdict="not comparable", note=why
    )
