// What is told of a mark that the mouse is over: the row of a table, a line a column.

const LONGEST = 90;
// Control signs, and those that turn the direction of text: a name could pass for another.
const UNSEEN = /[\u0000-\u001f\u007f-\u00a0\u2028-\u202e\u2066-\u2069]/g;

// A name as plotly, which reads tags, shows it as it is: on one line, and not too long.
function lettered(name) {
  const seen = String(name).replace(UNSEEN, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, '0')}`);
  const start = Math.floor(LONGEST / 3);
  const short = seen.length <= LONGEST
    ? seen : `${seen.slice(0, start)}…${seen.slice(seen.length - LONGEST + start + 1)}`;
  return short.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;');
}

const TOLD = {
  number: exact, count, share: (value) => `${exact(100 * value)} %`, findings: KINDS.findings.format,
};

function toldOfRow(columns, row, unnamed = '') {
  const [first, ...others] = columns;
  const module = first.kind === 'name' ? null : others.find((column) => column.kind === 'name');
  const name = lettered(first.values[row] || module?.values[row] || unnamed);
  const inside = module?.values[row] ? ` in ${lettered(module.values[row])}` : '';
  const lines = others.filter((column) => column !== module).flatMap(({ title, kind, values }) => {
    const value = values[row];
    if (value === null || value === undefined || value === '') return [];
    return [`${title}  ${lettered((TOLD[kind] ?? String)(value))}`];
  });
  return [`<b>${name}${inside}</b>`, ...lines].join('<br>');
}

// By mark: what its row tells, of a table of the tab or of the columns that the trace has itself.
function hovers({ meta, labels }, tab) {
  if (!meta?.told) return null;
  if (Array.isArray(meta.told)) {
    const columns = resolved(meta.told, meta.links, tab);
    return columns[0].values.map((_, row) => toldOfRow(columns, row, labels?.[row]));
  }
  const table = tab.content(meta.told);
  if (!table) return null;
  const columns = resolved(table.columns, table.links, tab);
  return Object.values(meta.links).at(-1).map((row) => toldOfRow(columns, row));
}

const WRITTEN = { figure, exact, count, cosine, share: KINDS.share.format };
const OWN_FORMAT = /%\{(x|y|z|customdata):(figure|exact|count|cosine|share)\}/g;
// Texts of the cells of heatmaps, which are many, by their numbers.
const CELLS = new WeakMap();

// The trace with what its hover template writes by one of the formats of this page, as `%{y:exact}`:
// plotly knows those of d3 alone.
function spelledOut(trace) {
  const template = trace.hovertemplate;
  if (trace.visible === false || typeof template !== 'string' || !template.match(OWN_FORMAT)) return trace;
  if (!trace.z) {
    const texts = Array.from(trace.x, (_, at) => (
      template.replace(OWN_FORMAT, (_token, key, format) => WRITTEN[format](trace[key][at]))));
    return { ...trace, hovertemplate: texts };
  }
  const [[, key, format]] = template.matchAll(OWN_FORMAT);
  const cells = trace[key];
  if (!CELLS.has(cells)) CELLS.set(cells, cells.map((row) => row.map((value) => (value === null ? '' : WRITTEN[format](value)))));
  return { ...trace, customdata: CELLS.get(cells), hovertemplate: template.replace(OWN_FORMAT, '%{customdata}') };
}
