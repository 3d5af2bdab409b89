// How numbers are written, here as in the sentences of a report: `0.0123`, `1,170`, `4.56e-7`.

function figure(value, digits = 3) {
  if (value === null || value === undefined) return '—';
  if (Number.isNaN(value)) return 'NaN';
  if (!Number.isFinite(value)) return value > 0 ? 'inf' : '-inf';
  const rounded = Number(value.toExponential(digits - 1));
  if (isPower(rounded, digits)) return rounded.toExponential().replace('e+', 'e');
  return Math.abs(rounded) < 1000 ? String(rounded) : COUNTS.format(rounded);
}

const isPower = (rounded, digits) => {
  const size = Math.abs(rounded);
  return size >= 10 ** Math.max(5, digits) || (size < 1e-4 && size > 0);
};

// As a column of a table has it, with the zeros at the end: `0.120` below `0.0123`.
function aligned(value) {
  if (!value || !Number.isFinite(value)) return figure(value);
  const rounded = Number(value.toExponential(2));
  if (isPower(rounded, 3)) return rounded.toExponential(2).replace('e+', 'e');
  return Math.abs(rounded) < 1000 ? rounded.toPrecision(3) : COUNTS.format(rounded);
}

// With the digits that are told where there is room.
const exact = (value) => figure(value, 6);

// Close to 1 it is the distance from there that tells.
function cosine(value) {
  const distance = 1 - Math.abs(value);
  if (!(distance > 1e-8 && distance < 5e-3)) return figure(value);
  return value.toFixed(Math.ceil(-Math.log10(distance)));
}

// Made once: a number's own `toLocaleString` makes one at every call.
const COUNTS = new Intl.NumberFormat('en-US', { maximumFractionDigits: 3 });

const count = (value) => (value === null ? '—' : COUNTS.format(value));
