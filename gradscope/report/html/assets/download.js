// Files of a chart: its numbers as CSV, its drawing as SVG and PNG.

const spelledCell = (value) => {
  if (value === null || value === undefined) return '';
  const text = String(value);
  return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
};

// The standard of CSV, RFC 4180, ends lines so on every system.
const csvText = ({ header, rows }) => [header, ...rows].map((row) => row.map(spelledCell).join(',')).join('\r\n');

function save(blob, name) {
  const link = element('a', { href: URL.createObjectURL(blob), download: name });
  link.click();
  // The browser reads the address only after the click.
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// What is told of each mark of a trace beside its position: columns, and the row of each mark.
function toldColumns(trace, tab) {
  const { told: wanted, links } = trace.meta ?? {};
  if (Array.isArray(wanted)) return { columns: resolved(wanted, links, tab), rows: null };
  const table = wanted ? tab.content(wanted) : null;
  return table
    ? { columns: resolved(table.columns, table.links, tab), rows: Object.values(links).at(-1) }
    : { columns: [], rows: null };
}

// A strip holds what an axis cannot show: its name says more than the height of a mark.
const isStrip = (axis) => axis?.tickvals?.length === 1 && axis.ticktext?.length === 1;

// Texts of a figure as they were before they were written for plotly, which reads tags.
const plain = (value) => (typeof value === 'string'
  ? value.replace(/&lt;/g, '<').replace(/&gt;/g, '>').replace(/&quot;/g, '"').replace(/&#x27;/g, "'").replace(/&amp;/g, '&') : value);

function marksOf(trace, layout, tab) {
  const axis = layout[`yaxis${(trace.yaxis ?? 'y').slice(1)}`];
  const series = plain(trace.name ?? axis?.title?.text ?? '');
  if (trace.z) {
    const values = trace.customdata ?? trace.z;
    return values.flatMap((row, at) => row.map((value, index) => (
      { series, x: plain(trace.x?.[index] ?? index), y: plain(trace.y?.[at] ?? at), value })));
  }
  const { columns, rows } = toldColumns(trace, tab);
  const names = new Map(trace.ids?.map((id, at) => [id, plain(trace.labels[at])]));
  const length = (trace.ids ?? trace.x ?? trace.y ?? []).length;
  return Array.from({ length }, (_, at) => {
    const mark = trace.ids
      ? { series: 'module', name: names.get(trace.ids[at]), parent: names.get(trace.parents[at]), value: trace.values[at] }
      : { series, x: plain(trace.x?.[at] ?? at), y: isStrip(axis) ? axis.ticktext[0] : plain(trace.y[at]) };
    for (const { title, values } of columns) mark[title] = values[rows ? rows[at] : at];
    return mark;
  });
}

// The marks of a figure, a row a mark; without those that only draw a scale.
function tableOfPlot(figure, tab) {
  const marks = figure.data
    .filter((trace) => trace.visible !== false && trace.hoverinfo !== 'skip')
    .flatMap((trace) => marksOf(trace, figure.layout, tab));
  const header = [...new Set(marks.flatMap(Object.keys))];
  return { header, rows: marks.map((mark) => header.map((key) => mark[key])) };
}

const DRAWN_STYLES = [
  'fill', 'stroke', 'stroke-width', 'stroke-dasharray', 'opacity', 'font-family', 'font-size', 'font-weight', 'text-anchor',
];

// A drawing with the styles that it has on this page, and the paper below it.
function standalone(svg) {
  const copy = svg.cloneNode(true);
  const originals = [...svg.querySelectorAll('*')];
  [...copy.querySelectorAll('*')].forEach((made, at) => {
    const style = getComputedStyle(originals[at]);
    for (const name of DRAWN_STYLES) made.style.setProperty(name, style.getPropertyValue(name));
  });
  const [x, y, width, height] = svg.getAttribute('viewBox').split(' ').map(Number);
  copy.prepend(drawn('rect', { x, y, width, height, style: `fill: ${colour('paper')}; stroke: none` }));
  copy.setAttribute('width', svg.clientWidth);
  copy.setAttribute('height', svg.clientHeight);
  return new Blob([new XMLSerializer().serializeToString(copy)], { type: 'image/svg+xml' });
}

async function rastered(svg, width, height) {
  const image = new Image();
  image.src = URL.createObjectURL(svg);
  await image.decode();
  // Twice as many pixels as on the page remain sharp on fine screens and in print.
  const canvas = element('canvas', { width: 2 * width, height: 2 * height });
  canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(image.src);
  return new Promise((done) => canvas.toBlob(done, 'image/png'));
}

async function imageOfPlot(plot, format) {
  // The layout as given may lack a width, which plotly has measured.
  const { width, height } = plot._fullLayout;
  const layout = { ...plot.layout, paper_bgcolor: colour('paper') };
  const svg = await Plotly.toImage({ data: plot.data, layout }, { format: 'svg', width, height, imageDataOnly: true });
  const blob = new Blob([svg], { type: 'image/svg+xml' });
  return format === 'svg' ? blob : rastered(blob, width, height);
}

function imageOfGraph(svg, format) {
  const blob = standalone(svg);
  return format === 'svg' ? blob : rastered(blob, svg.clientWidth, svg.clientHeight);
}

// `painted` returns the chart of a section, drawn first where it is not yet.
async function download(section, format, title, painted) {
  const chart = painted(section);
  // The end of a long name says which chart it is.
  const name = `${title} ${section.dataset.chart}`.replace(/[^\p{L}\p{N}.]+/gu, '-').slice(-80);
  const blob = format === 'csv'
    ? new Blob([csvText(chart.table())], { type: 'text/csv;charset=utf-8' }) : await chart.image(format);
  save(blob, `${name.replace(/^-+/, '')}.${format}`);
}
