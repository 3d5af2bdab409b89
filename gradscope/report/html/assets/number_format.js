// How numbers are written: three significant digits, and four ways to have none.

function figure(value) {
  if (value === null || value === undefined) return '—';
  if (Number.isNaN(value)) return 'NaN';
  if (!Number.isFinite(value)) return value > 0 ? 'inf' : '-inf';
  if (value === 0) return '0';
  const exponent = Number(value.toExponential(2).split('e')[1]);
  if (exponent > -4 && exponent < 4) {
    return Number(value.toExponential(2)).toFixed(Math.max(0, 2 - exponent));
  }
  return value.toExponential(2).replace('e+', 'e');
}

// Close to 1 it is the distance from there that tells.
function cosine(value) {
  const distance = 1 - Math.abs(value);
  if (!(distance > 1e-8 && distance < 5e-3)) return figure(value);
  return value.toFixed(Math.ceil(-Math.log10(distance)));
}

// Made once: a number's own `toLocaleString` makes one at every call.
const COUNTS = new Intl.NumberFormat('en-US');

const count = (value) => (value === null ? '—' : COUNTS.format(value));
