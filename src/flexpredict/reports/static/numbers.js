// Formats numbers like the rest of the page.

const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

function superscript(exponent) {
  return String(exponent).replace(/[-0-9]/g, c => c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]);
}

function plain(value, digits, whole) {
  const text = value.toPrecision(digits);
  return (whole ? String(Number(text)) : text).replace("-", "−");
}

function formatNumber(value, digits = 3, unit = "") {
  if (!Number.isFinite(value)) return "not finite";
  const whole = value === 0 || (Number.isInteger(value) && !unit);  // others keep trailing zeros, to look alike
  value = Number(value.toPrecision(digits));
  const size = Math.abs(value);
  if (size && (size < 1e-3 || size >= 1e15)) {
    const exponent = Math.floor(Math.log10(size));
    return `${plain(value / 10 ** exponent, digits, whole)}×10${superscript(exponent)}${unit}`;
  }
  const [scale, prefix] = PREFIXES.find(([least]) => size >= least) ?? [1, ""];
  return plain(value / scale, digits, whole) + prefix + unit;
}

// One prefix or power of ten, and one number of decimals, for all ticks of an axis.
function tickLabels(ticks, spacing, unit = "") {
  const largest = Math.max(...ticks.map(tick => Math.abs(tick ?? 0)));
  let [scale, suffix] = PREFIXES.find(([least]) => largest >= least) ?? [1, ""];
  if (largest && (largest < 1e-3 || largest >= 1e15)) {
    const exponent = Math.floor(Math.log10(largest) + 1e-6);
    [scale, suffix] = [10 ** exponent, `×10${superscript(exponent)}`];
  }
  const isWhole = value => Math.abs(value - Math.round(value)) < 1e-6 * Math.max(1, value);
  let decimals = Math.min(12, Math.max(0, -Math.floor(Math.log10(spacing / scale) + 1e-6)));
  if (!isWhole(spacing / scale * 10 ** decimals)) decimals += 1;  // 0.25 needs two
  return ticks.map(tick => tick === null ? "" : tick === 0 ? `0${unit}`
    : (tick / scale).toFixed(decimals).replace("-", "−") + suffix + unit);
}
