// The heatmap of a long run, zoomed in: of the finer columns that the page has, those in view, with
// neighbours together where they are more than can be drawn.

const MOST_COLUMNS = 500;
const [ZERO, BROKEN, MISSING] = [0, 1, 2];
const STATES = 3;

// The numbers and the states of a level's rows, which the page holds as one code a cell.
// Kept, since every zoom asks for them.
const unpacked = new WeakMap();
function cellsOf(level) {
  if (!unpacked.has(level)) {
    unpacked.set(level, {
      z: level.rows.map(({ low, size, codes }) => (
        codes.map((code) => (code === null || code < STATES ? null : low + (code - STATES) * size)))),
      states: level.rows.map(({ codes }) => codes.map((code) => (code < STATES ? code : null))),
    });
  }
  return unpacked.get(level);
}

// The columns between two steps in groups of neighbours: where the groups begin and the last ends,
// and how many columns a group has.
function groupsInView({ edges }, from, to) {
  const start = Math.max(edges.findIndex((edge) => edge > from) - 1, 0);
  const beyond = edges.findIndex((edge) => edge >= to);
  const end = beyond < 0 ? edges.length - 1 : Math.max(beyond, start + 1);
  const size = Math.ceil((end - start) / MOST_COLUMNS);
  const starts = Array.from({ length: Math.ceil((end - start) / size) }, (_, at) => start + at * size);
  return { starts, end, size };
}

// A group's cell of a row: what is broken hides every number, and any number hides 0 and nothing.
function cellOf(numbers, states, start, end) {
  let [number, state] = [null, null];
  for (let at = start; at < end; at += 1) {
    if (states[at] === BROKEN) return { number: null, state: BROKEN };
    if (numbers[at] !== null) number = number === null ? numbers[at] : Math.max(number, numbers[at]);
    else if (states[at] === ZERO || state === null) state = states[at];
  }
  return number === null ? { number, state } : { number, state: null };
}

// The step to select by a click: that of the column with the largest number, or a broken one.
function tellingOf(steps, { z, states }, start, end) {
  let [best, rank] = [start, -Infinity];
  for (let at = start; at < end; at += 1) {
    const own = states.some((row) => row[at] === BROKEN)
      ? Infinity : Math.max(...z.map((row) => row[at] ?? -Infinity));
    if (own > rank) [best, rank] = [at, own];
  }
  return steps[best];
}

// A quantity in view: edges and texts of the columns, and cells by row.
function levelInView(level, { starts, end }) {
  const ends = [...starts.slice(1), end];
  const found = cellsOf(level);
  return {
    x: [...starts, end].map((at) => level.edges[at]),
    steps: starts.map((start, at) => tellingOf(level.steps, found, start, ends[at])),
    columns: starts.map((start, at) => {
      const [first, last] = [level.first[start], level.last[ends[at] - 1]];
      return `${first === last ? '' : 'the largest of '}${steps(first, last)}`;
    }),
    cells: found.z.map((numbers, row) => (
      starts.map((start, at) => cellOf(numbers, found.states[row], start, ends[at])))),
  };
}

function tracedLevel(trace, { x, steps, columns, cells }) {
  const { state } = trace.meta;
  const z = cells.map((row) => row.map((cell) => (
    state === undefined ? cell.number : cell.state === state ? 1 : null)));
  return { ...trace, x, z, meta: { ...trace.meta, steps, columns } };
}

// The figure with finer columns where zooming has made room for them, and how fine they are.
function levelled(figure, finer, layout, tab) {
  if (!finer || !Object.keys(finer).length) return { figure, resolution: '' };
  const range = layout.xaxis.range;
  const found = new Map();
  let widest = 0;
  const data = figure.data.map((trace) => {
    const level = finer[trace.meta?.quantity];
    if (!level || trace.type !== 'heatmap') return trace;
    const isShown = trace.visible !== false;
    const groups = groupsInView(level, ...range);
    // Groups as wide as the columns of the figure would show nothing new.
    const isFiner = groups.size * (trace.x.length - 1) < level.edges.length - 1;
    if (isShown) widest = Math.max(widest, isFiner ? widthOf(level.edges, groups.size) : widthOf(trace.x, 1));
    if (!isFiner) return trace;
    const name = trace.meta.quantity;
    if (!found.has(name)) found.set(name, levelInView(level, groups));
    return told(tracedLevel(trace, found.get(name)), tab);
  });
  return { figure: { ...figure, data }, resolution: columnsText(widest, figure, finer) };
}

const widthOf = (edges, size) => {
  let widest = 0;
  for (let at = size; at < edges.length; at += size) widest = Math.max(widest, edges[at] - edges[at - size]);
  return Math.round(widest);
};

function columnsText(widest, figure, finer) {
  if (widest <= 1) return 'In view, each step has a column.';
  const shown = figure.data.find((trace) => trace.visible !== false && finer[trace.meta?.quantity]);
  const known = shown ? widthOf(finer[shown.meta.quantity].edges, 1) : widest;
  const told = `In view, a column covers up to ${count(widest)} steps.`;
  return known < widest ? `${told} Zoom in for ${known > 1 ? `up to ${count(known)} steps` : 'single steps'}.`
    : `${told} The page has no finer numbers of these steps.`;
}
