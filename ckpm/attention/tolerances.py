"""Tolerances of a kernel's O and LSE against the float64 reference, derived from the formats, for each element.

Sources of errors (qr_async pipeline; u = 2^-24, half an ulp of float32):

* scores: products of two 16- or 8-bit numbers are exact in float32. MFMA adds hdim of them, then the sum is scaled. The
  error is at most (hdim + 8) u times the sum of their sizes, ``score``. Rounding exp2's argument at twice that size
  adds 4 u.
* the bias of a scaled score enters once, after the dot product (qr_async, stage 2, block_position_encoding.hpp).
  It is float32 log2e * bias, log2e * slope * distance, or the soft cap's outer product. Four roundings count u each:
  the constant log2e, the slope's product with it, the product itself, and the sum. Rounding exp2's argument at twice
  the size counts 2 u. Together: 6 u times ``added``. tanh by exp2 and a reciprocal is good to 2^-21 of the cap besides.
* v_exp_f32 is good to 1 ulp. The relative error of a weight follows from these: ``weight_error``.
* weights are stored as P. The row sum is made of the unrounded weights, but in fp8's V3 of P. Errors of P in both
  cancel in O, and stay in LSE as in an O whose V is one.
  - bf16 is *truncated* (CK's default conversion, error 0 to 2^-7 of P, always downward). A weight below 2^-126
    becomes 0: CK is compiled with -fgpu-flush-denormals-to-zero.
  - fp16 is rounded to zero on gfx942 (v_cvt_pkrtz, 2^-10) with steps of 2^-24 below 2^-14.
  - fp8 is rounded to nearest even (2^-4) with steps of 2^-9 below 2^-6 after scaling P to its largest number.
* a truncation of each P by its own fraction d_i in [0, h) moves O by sum w_i d_i v_i. Its mean part is at most h |O|.
  The rest is a sum of independent terms of width h w_i |v_i|, which Hoeffding's inequality bounds by
  t h/2 sqrt(sum (w_i v_i)^2) but for 2 exp(-t^2/2). With t = 7 that is 5e-11 an element. The rigorous bound
  h sum w_i |v_i| is taken where it is smaller. Nearest rounding has no mean part and width 2 h.
* O is accumulated in float32 over the keys (n u sum w|v|), rescaled once a tile of 128 keys, and divided by the row sum
  (n u). It is stored in bf16 truncated (2^-7 |O|), in fp16 with at most one step (2^-10 |O| + 2^-24).

aiter takes 1e-3 + 1e-3 |O| for fp16, 1e-2 + 2e-2 |O| for bf16, 0.055 for fp8 and 1e-3 for LSE. For |v| <= 1 and a few
hundred keys, the bounds here are about 1e-4, 1e-3, 0.015 and 1e-4, plus 2^-9, 2^-6 and 2^-7 |O|.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.reference import Expected
from ckpm.matrix.problems.case import SuiteCase

Floats = NDArray[np.float64]
U = 2.0**-24
HOEFFDING = 7.0
_SMALLEST, _ENOUGH = 2.0**-12, 2000  # of mean_shift: numbers that fp16 holds in full, elements for a mean within 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounding:
    """Rounding errors of a format.

    ``p_step``: largest relative error of a stored P; ``p_mean``: True if errors of P have one sign. ``p_floor``:
    largest absolute error of a small P; ``o_step``, ``o_floor``: the same of a stored O.
    """

    p_step: float
    p_mean: bool
    p_floor: float
    o_step: float
    o_floor: float


ROUNDING = {
    "bf16": Rounding(p_step=2.0**-7, p_mean=True, p_floor=2.0**-126, o_step=2.0**-7, o_floor=0.0),
    "fp16": Rounding(p_step=2.0**-10, p_mean=True, p_floor=2.0**-24, o_step=2.0**-10, o_floor=2.0**-24),
    # P times at least 2^7 (240 or 448 per tensor, 2^7 or 2^8 with block scales) before rounding; O in bf16
    "fp8bf16": Rounding(p_step=2.0**-4, p_mean=False, p_floor=2.0**-17, o_step=2.0**-7, o_floor=0.0),
}


def weight_error(problem: SuiteCase, expected: Expected) -> Floats:
    """The largest relative error of a row's weights before they are stored, as [head, token]."""
    terms = max(problem.hdim_q, 128) + 8
    argument = (terms + 4) * U * expected.score + 6 * U * expected.added + 2.0**-21 * problem.logits_soft_cap
    error: Floats = np.expm1(argument) + 4 * U
    return error


def o_tolerance(problem: SuiteCase, expected: Expected) -> Floats:
    """The largest acceptable |kernel - reference|, as [token, head, dim]."""
    form = ROUNDING[problem.q_dtype]
    row = (2 * weight_error(problem, expected) + 2 * (expected.keys + 128) * U).T[:, :, None]
    size = np.abs(expected.o)
    if form.p_mean:
        likely = form.p_step * size + HOEFFDING * form.p_step / 2 * expected.energy
    else:
        likely = HOEFFDING * form.p_step * expected.energy
    stored_p = np.minimum(form.p_step * expected.magnitude, likely) + form.p_floor * expected.floor
    stored_o = form.o_step * (size + stored_p) + form.o_floor
    tolerance: Floats = stored_p + stored_o + row * expected.magnitude
    return tolerance


def lse_tolerance(problem: SuiteCase, expected: Expected) -> Floats:
    """The tolerance of LSE as [head, token]. LSE is m / log2e + ln(row sum).

    The quotient rounds at m's size: LSE's, but for the logarithm of at most all keys. v_log_f32 (1 ulp) and its factor
    round at the logarithm's size, the sum at LSE's.
    """
    size = np.where(np.isfinite(expected.lse), np.abs(expected.lse), 0.0) + np.log1p(expected.keys)
    tolerance: Floats = weight_error(problem, expected) + (expected.keys + 128) * U + 8 * U * (size + 1)
    if problem.q_dtype != "fp8bf16":
        return tolerance
    form = ROUNDING[problem.q_dtype]
    likely = form.p_step * np.minimum(1.0, HOEFFDING * expected.sum_energy)
    return tolerance - np.log1p(-likely - form.p_floor * np.minimum(expected.sum_floor, expected.keys))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayComparison:
    """The result of a comparison. ``worst`` is the largest error in units of its tolerance, at ``where``."""

    name: str
    elements: int
    mismatches: int
    nans: int
    max_abs: float
    max_rel: float
    worst: float
    where: tuple[int, ...]

    @property
    def passed(self) -> bool:
        return self.mismatches == 0

    def __str__(self) -> str:
        verdict = "agrees" if self.passed else f"{self.mismatches} of {self.elements} elements differ"
        nans = f", {self.nans} NaN" if self.nans else ""
        return (
            f"{self.name} {verdict}{nans}; largest error {self.max_abs:.3g} ({self.max_rel:.3g} relative), "
            f"{self.worst:.2f} of its tolerance at {list(self.where)}"
        )


def compare(name: str, got: Floats, want: Floats, tolerance: Floats) -> ArrayComparison:
    """Compare element by element. NaN never agrees, an infinity agrees with itself alone, tolerance 0 is exact."""
    if not got.shape == want.shape == tolerance.shape:
        raise ValueError(f"{name}: shapes {got.shape}, {want.shape} and {tolerance.shape} differ")
    if not got.size:
        return ArrayComparison(name=name, elements=0, mismatches=0, nans=0, max_abs=0, max_rel=0, worst=0, where=())
    same = got == want
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.where(same, 0.0, np.abs(got - want))
        error = np.where(np.isnan(error), np.inf, error)
        units = np.where(same, 0.0, np.where(tolerance > 0, error / tolerance, np.inf))
        relative = np.where(same, 0.0, error / np.abs(want))
    position = np.unravel_index(int(np.argmax(units)), units.shape)
    return ArrayComparison(
        name=name,
        elements=got.size,
        mismatches=int((units > 1).sum()),
        nans=int(np.isnan(got).sum()),
        max_abs=float(error.max()),
        max_rel=float(relative.max()),
        worst=float(units[position]),
        where=tuple(int(index) for index in position),
    )


def compare_o(problem: SuiteCase, got: Floats, expected: Expected) -> ArrayComparison:
    return compare("O", got, expected.o, o_tolerance(problem, expected))


def mean_shift(problem: SuiteCase, got: Floats, expected: Expected) -> float | None:
    """The mean error of O away from 0, in steps of O's format; None for too few elements.

    Rounding to nearest has a mean near 0. Truncation of O or of P shifts it by about half a step towards 0, which every
    single element's tolerance allows.
    """
    want = np.abs(expected.o)
    seen = np.isfinite(got) & (want > _SMALLEST)
    if seen.sum() < _ENOUGH:
        return None
    step = np.exp2(np.floor(np.log2(want[seen]))) * ROUNDING[problem.q_dtype].o_step
    return float(((np.abs(got[seen]) - want[seen]) / step).mean())


def compare_lse(problem: SuiteCase, got: Floats, expected: Expected) -> ArrayComparison:
    return compare("LSE", got, expected.lse, lse_tolerance(problem, expected))


def all_zero_rows(got: Floats, expected: Expected) -> int:
    """The number of rows of O that are all zero where the reference's are not, as if a page was not read."""
    zero: NDArray[np.bool_] = (got == 0).all(axis=-1) & (expected.o != 0).any(axis=-1)
    return int(zero.sum())
