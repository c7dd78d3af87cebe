// Fits a straight line around every point with Gaussian weights: a moving average would be biased at both ends.
// The line breaks at missing values (null), and no fit crosses them.

function smooth(xs, ys, bandwidth) {
  const smoothed = new Array(ys.length).fill(null);
  let start = 0;
  for (let end = 0; end <= ys.length; end++) {
    if (end < ys.length && ys[end] !== null) continue;
    for (let i = start; i < end; i++) smoothed[i] = fitted(xs, ys, start, end, i, bandwidth);
    start = end + 1;
  }
  return smoothed;
}

function fitted(xs, ys, start, end, at, bandwidth) {
  let s0 = 0, s1 = 0, s2 = 0, t0 = 0, t1 = 0;
  for (let i = start; i < end; i++) {
    const distance = (xs[i] - xs[at]) / bandwidth;
    if (Math.abs(distance) > 6) continue;
    const weight = Math.exp(-0.5 * distance * distance);
    s0 += weight; s1 += weight * distance; s2 += weight * distance * distance;
    t0 += weight * ys[i]; t1 += weight * distance * ys[i];
  }
  const determinant = s0 * s2 - s1 * s1;
  return determinant > 1e-9 * s0 * Math.max(s2, 1e-12) ? (s2 * t0 - s1 * t1) / determinant : t0 / s0;
}
