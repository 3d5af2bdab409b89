// What is told of a mark that the mouse is over: the row of a table, a line a column.

const LONGEST = 90;
const UNSEEN = /[\u0000-\u001f\u007f-\u00a0\u2028-\u202e\u2066-\u2069]/g;

// A name as plotly, which reads tags, shows it as it is: on one line, and not too long.
function lettered(name) {
  const seen = String(name).replace(UNSEEN, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, '0')}`);
  const start = Math.floor(LONGEST / 3);
  const short = seen.length <= LONGEST
    ? seen : `${seen.slice(0, start)}…${seen.slice(seen.length - LONGEST + start + 1)}`;
  return short.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;');
}

// A number with the digits that are told where there is room.
const exact = (value) => (Number.isFinite(value) ? String(Number(value.toPrecision(6))) : figure(value));

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
