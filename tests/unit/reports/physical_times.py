"""Comparisons of a physical GPU with known slowdowns, and verdicts of several rules on them.

tests/data/gpu-times has 1,140 comparisons, each warm and cold, of a paged attention kernel in Triton 3.6. An NVIDIA
H200 ran them in three processes in November 2026, one beside copies on another stream. In a comparison of level N, the
candidate reads N percent more keys. `python -m tests.unit.reports.physical_times` prints docs/reference/gpu-gate.md's
table.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ckpm.reports.gates.mann_whitney import p_value
from ckpm.reports.gates.statistics import ARMS, ends_early, judge, read_settings
from ckpm.reports.verdicts import COLD, WARM, Samples

FOLDER = Path(__file__).parents[2] / "data" / "gpu-times"
SETTINGS = read_settings()
Rule = Callable[[Samples], str]
Place = tuple[str, str, int]  # problem (tiny, or others), metric, level


def comparisons(*, file: str = "*", queued: bool = True) -> Iterator[tuple[Place, Samples]]:
    """Yield all comparisons, or those of a file. ``queued`` is False to hide that warm launches were queued."""
    for path in sorted(FOLDER.glob(f"{file}.jsonl.gz")):
        head, *lines = map(json.loads, gzip.decompress(path.read_bytes()).decode().splitlines())
        assert (head["rounds"], head["launches"]) == (SETTINGS.rounds, SETTINGS.launches)
        for row in lines:
            group = "tiny" if row["problem"] == "tiny" else "others"
            for metric, times in ((WARM, row["warm"]), (COLD, row["cold"])):
                arms = {arm: tuple(values[head["warm_up"] :]) for arm, values in times.items()}
                samples = Samples(subject=row["problem"], metric=metric, queued=queued and metric == WARM, **arms)
                yield (group, metric, row["level"]), samples


def verdicts(rule: Rule, *, queued: bool = True) -> Mapping[Place, Counter[str]]:
    """The number of comparisons of each verdict."""
    counts: defaultdict[Place, Counter[str]] = defaultdict(Counter)
    for row, samples in comparisons(queued=queued):
        counts[row][rule(samples)] += 1
    return counts


def end_early(samples: Samples) -> Samples:
    """The rounds that `ckpm compare` runs of a comparison."""
    for look in SETTINGS.looks[:-1]:
        part = dataclasses.replace(samples, **{arm: getattr(samples, arm)[: look.rounds] for arm in ARMS})
        if ends_early(part, SETTINGS):
            return part
    return samples


def _judge_ratio(ratio: float, limit: float) -> str:
    return "regressed" if ratio > limit else "improved" if ratio < 1 / limit else "unchanged"


def first_time(samples: Samples) -> str:
    """CK's check of performance: one time of each side, 1 %."""
    return _judge_ratio(samples.candidate[0] / samples.baseline[0], 1.01)


def asv(samples: Samples) -> str:
    """asv's continuous: a factor of 1.1 between medians, and Mann-Whitney at p < 0.002."""
    ratio = statistics.median(samples.candidate) / statistics.median(samples.baseline)
    significant = p_value(samples.baseline, samples.candidate) < 0.002
    return _judge_ratio(ratio, 1.1) if significant else "unchanged"


def nvbench(samples: Samples) -> str:
    """nvbench_compare: means that differ by more than the smaller relative standard deviation."""
    means = [statistics.fmean(times) for times in (samples.baseline, samples.candidate)]
    noise = min(
        statistics.stdev(times) / mean for times, mean in zip((samples.baseline, samples.candidate), means, strict=True)
    )
    return _judge_ratio(means[1] / means[0], 1 + noise)


RULES: Mapping[str, Rule] = {
    "`ckpm compare`": lambda samples: judge(end_early(samples), SETTINGS).verdict,
    "one time, 1 %": first_time,
    "asv": asv,
    "nvbench": nvbench,
}


def table() -> str:
    """A row for each problem, metric and level: percent regressed, and percent of other verdicts, by rule."""
    counts = {name: verdicts(rule) for name, rule in RULES.items()}
    rows = [f"| kernel | metric | slowdown, % | comparisons | {' | '.join(RULES)} |", "|" + " --- |" * (4 + len(RULES))]
    names = {"tiny": "18 us", "others": "131 us to 2 ms"}
    for group, metric, level in sorted(counts["asv"], key=lambda row: (row[0] == "tiny", row[1], row[2])):
        cells = [_percents(of_rule[group, metric, level]) for of_rule in counts.values()]
        total = counts["asv"][group, metric, level].total()
        rows.append(f"| {names[group]} | {metric} | {level} | {total} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _percents(counts: Counter[str]) -> str:
    order = ("regressed", "inconclusive", "host-bound", "unchanged", "improved")
    return ", ".join(f"{_percent(counts[word], counts.total())} {word}" for word in order if counts[word])


def _percent(part: int, total: int) -> str:
    share = 100 * part / total
    return f"{math.floor(share) if share > 50 else math.ceil(share)}"


if __name__ == "__main__":
    print(table(), end="")
