// Curves over more steps than can be drawn: the mean of neighbours, and a band from the lowest to
// the highest number. How many are neighbours depends on what is in view.

const MOST_BINS = 700;

// Entries of a curve, each with its own lowest and highest number.
function entriesOf({ first, count, mean, low, high }) {
  let wide = -1;
  const found = first.map((start, at) => {
    const size = count[at];
    if (size > 1) wide += 1;
    return {
      start, end: start + size, size, mean: mean[at], widest: size, isInside: false,
      low: size > 1 ? low[wide] : mean[at], high: size > 1 ? high[wide] : mean[at],
    };
  });
  markInside(found);
  return found;
}

// A single step that a summary holds too is told twice.
function markInside(entries) {
  const wide = entries.filter(({ size }) => size > 1);
  let at = 0;
  for (const one of entries.filter(({ size }) => size === 1).sort((a, b) => a.start - b.start)) {
    while (at < wide.length && wide[at].end <= one.start) at += 1;
    one.isInside = at < wide.length && wide[at].start <= one.start;
  }
}

const lowest = (one, other) => (one === null ? other : other === null ? one : Math.min(one, other));
const highest = (one, other) => (one === null ? other : other === null ? one : Math.max(one, other));

// The entries between two steps, and those next to them, in at most so many bins.
function binned(entries, from, to) {
  const width = Math.max(1, (to - from) / MOST_BINS);
  const bins = [];
  let last = null;
  const before = entries.findIndex(({ end }) => end >= from) - 1;
  const after = entries.findLastIndex(({ start }) => start <= to) + 1;
  for (const one of entries.slice(Math.max(before, 0), after + 1)) {
    if (one.isInside && width > 1) continue;
    const place = Math.floor((one.start + (one.size - 1) / 2 - from) / width);
    // A missing number has a bin of its own, where the line breaks.
    if (last?.place !== place || one.mean === null || last.mean === null) {
      last = { ...one, place };
      bins.push(last);
      continue;
    }
    last.mean = (last.mean * last.size + one.mean * one.size) / (last.size + one.size);
    last.size += one.size;
    last.start = Math.min(last.start, one.start);
    last.end = Math.max(last.end, one.end);
    last.low = lowest(last.low, one.low);
    last.high = highest(last.high, one.high);
    last.widest = Math.max(last.widest, one.widest);
  }
  return bins;
}

// Positions on an axis of seconds by those on one of steps, or the other way round.
function interpolated(from, to, value) {
  let low = 0;
  let high = from.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (from[middle] <= value) low = middle;
    else high = middle;
  }
  const share = from[high] > from[low] ? (value - from[low]) / (from[high] - from[low]) : 0;
  return to[low] + share * (to[high] - to[low]);
}

const steps = (from, to) => (from === to ? `step ${count(from)}` : `steps ${count(from)} to ${count(to)}`);

function textOf({ start, end, low, high }) {
  return end - start > 1 && low !== null
    ? ` · ${figure(low)} to ${figure(high)} in ${steps(start, end - 1)}` : '';
}

// Around the bins, a piece for each row of them without a gap.
function bandOf(trace, bins, place, isLog) {
  const found = { x: [], y: [] };
  let row = [];
  let before = -Infinity;
  const close = () => {
    if (row.length > 1) {
      const back = [...row].reverse();
      found.x.push(...row.map(({ x }) => x), ...back.map(({ x }) => x), null);
      found.y.push(...row.map(({ high }) => high), ...back.map(({ low }) => low), null);
    }
    row = [];
  };
  for (const { start, end, mean, low, high } of bins.filter(({ isInside }) => !isInside)) {
    // A logarithmic axis has no place for zero.
    const ends = { low: isLog && low <= 0 ? mean : low, high };
    // Between bins far apart nothing was measured.
    if (mean === null || low === null || start - before > end - start) close();
    before = end;
    if (mean !== null && low !== null) row.push({ x: place(start - 0.5), ...ends }, { x: place(end - 0.5), ...ends });
  }
  close();
  return {
    type: 'scatter', mode: 'lines', ...found, xaxis: trace.xaxis, yaxis: trace.yaxis, fill: 'toself',
    fillcolor: trace.line.color, line: { width: 0, color: trace.line.color }, opacity: 0.25, hoverinfo: 'skip',
    showlegend: false, legendgroup: trace.legendgroup, visible: trace.visible,
  };
}

// A figure whose long curves are drawn for what is in view, their bands, and its resolution.
function enveloped(figure, given, layout) {
  const bands = [];
  let [widest, known] = [1, 1];
  const isOverSteps = Boolean(figure.layout.meta?.stepAxes?.length);
  const data = figure.data.map((trace, at) => {
    if (!trace.meta?.envelope) return trace;
    // The time of summarized steps is not known.
    const timed = given.data[at].x.map((step, turn) => [step, trace.x[turn]]).filter(([, time]) => time !== null);
    const [plain, shown] = [timed.map(([step]) => step), timed.map(([, time]) => time)];
    const range = layout.xaxis.range.map((end) => (isOverSteps ? end : interpolated(shown, plain, end)));
    // Kept, since every zoom asks for them.
    trace.meta.entries ??= entriesOf(trace.meta.envelope);
    const bins = binned(trace.meta.entries, ...range);
    const place = isOverSteps ? (step) => step : (step) => interpolated(plain, shown, step);
    const xs = bins.map(({ start, end }) => place((start + end - 1) / 2));
    for (const bin of bins) {
      widest = Math.max(widest, bin.end - bin.start);
      known = Math.max(known, bin.widest);
    }
    if (bins.some(({ start, end }) => end - start > 1)) {
      bands.push(bandOf(trace, bins, place, layout[`yaxis${(trace.yaxis ?? 'y').slice(1)}`]?.type === 'log'));
    }
    const marked = bins.map(({ start, end }) => Math.floor((start + end - 1) / 2));
    return {
      ...trace,
      x: xs, y: bins.map(({ mean }) => mean), text: bins.map(textOf), customdata: marked,
      hovertemplate: trace.hovertemplate.replace('<extra>', '%{text}<extra>'),
      mode: bins.length <= 120 ? 'lines+markers' : 'lines',
      marker: { ...trace.marker, size: 4 },
      meta: { ...trace.meta, links: { step: marked } },
    };
  });
  const isLong = data.some((trace) => trace.meta?.envelope);
  return { figure: { ...figure, data }, bands, resolution: isLong ? resolutionText(widest, known) : '' };
}

function resolutionText(widest, known) {
  if (widest <= 1) return 'In view, every step is drawn.';
  const told = `In view, a point is the mean of up to ${count(widest)} steps; the band reaches from the lowest to the highest.`;
  return known < widest ? `${told} Zoom in for ${known > 1 ? `up to ${count(known)} steps` : 'single steps'}.`
    : `${told} The page has no finer numbers of these steps.`;
}
