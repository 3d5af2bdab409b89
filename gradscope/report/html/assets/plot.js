// Draws a figure by plotly, and links its marks with the tab's selection.

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// The figure with the names of colours replaced by the colours of the theme.
function coloured(value) {
  if (typeof value === 'string' && value.startsWith('@')) return colour(value.slice(1)) || '#888';
  if (Array.isArray(value)) {
    // A list of numbers has no colours, but a stop of a colour scale has.
    const isOfNumbers = value[0] === null || (typeof value[0] === 'number' && typeof value[1] !== 'string');
    return isOfNumbers ? value : value.map(coloured);
  }
  if (value === null || typeof value !== 'object') return value;
  // Names and numbers are nobody's colours.
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => (
    UNCOLOURED.has(key) ? [key, inner] : [key, coloured(inner)])));
}
const UNCOLOURED = new Set(['x', 'y', 'z', 'text', 'hovertext', 'labels', 'ids', 'parents', 'values', 'meta', 'customdata', 'ticktext', 'name']);

function themedLayout(given, height) {
  const layout = coloured(given);
  const axis = {
    gridcolor: colour('line'), zerolinecolor: colour('line'), linecolor: colour('line'),
    tickcolor: colour('line'), automargin: true, exponentformat: 'e',
  };
  for (const key of Object.keys(layout)) {
    if (!isAxis(key)) continue;
    const own = layout[key];
    // Plotly letters powers a quarter larger than other numbers, and titles close to them.
    const isPowers = own.type === 'log' && own.exponentformat === 'power';
    layout[key] = { ...axis, ...(isPowers && { tickfont: { size: 10 } }), ...layout[key] };
    if (own.title?.text) layout[key].title = { standoff: 8, ...own.title };
  }
  return {
    height,
    margin: { l: 60, r: 16, t: 12, b: 40 },
    showlegend: false,
    hovermode: 'closest',
    dragmode: 'zoom',
    paper_bgcolor: 'rgba(0,0,0,0)',
    plot_bgcolor: 'rgba(0,0,0,0)',
    ...layout,
    font: { family: colour('sans'), size: 12, color: colour('ink'), ...layout.font },
    modebar: { bgcolor: 'rgba(0,0,0,0)', color: colour('ink-soft'), activecolor: colour('accent'), ...layout.modebar },
    hoverlabel: { font: { family: colour('mono'), size: 12 }, align: 'left', ...layout.hoverlabel },
    legend: { orientation: 'h', y: 1.02, yanchor: 'bottom', x: 0, ...layout.legend },
  };
}

const NARROW_CHART = 520;
const SHORT_LABEL = 16;
const ROW_PITCH = 18;

// On a narrow page, names of rows lose their start, and colour bars their title: both would take
// the room of the chart. So would annotations by the name `wide`.
function narrowed(layout, data, width) {
  if (!width || width > NARROW_CHART) return data;
  for (const key of Object.keys(layout)) {
    const { categoryarray: names, ticktext } = isAxis(key) ? layout[key] : {};
    if (ticktext && key.startsWith('x')) layout[key].ticktext = ticktext.map(shortName);
    if (!names?.some((name) => plain(name).length > SHORT_LABEL)) continue;
    const each = Math.ceil((names.length * ROW_PITCH) / layout.height);
    layout[key].tickvals = names.map((_, at) => at).filter((at) => at % each === 0);
    layout[key].ticktext = layout[key].tickvals.map((at) => shortName(names[at]));
  }
  layout.annotations = layout.annotations?.filter(({ name }) => name !== 'wide');
  return data.map((trace) => (trace.colorbar
    ? { ...trace, colorbar: { ...trace.colorbar, thickness: 8, title: { text: '' } } } : trace));
}

function shortName(name) {
  const text = plain(name);
  if (text.length <= SHORT_LABEL) return name;
  return `…${text.slice(1 - SHORT_LABEL)}`.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
}

// Without a button that would send a chart to plotly's servers; a `$` in a name is no mathematics.
const SETTINGS = {
  displaylogo: false, responsive: true, showTips: false,
  showSendToCloud: false, plotlyServerURL: '', typesetMath: false,
  modeBarButtonsToRemove: ['select2d', 'lasso2d', 'autoScale2d', 'toImage'],
};

// What a clicked mark stands for.
function linked(point) {
  const meta = point.data.meta ?? {};
  const change = {};
  for (const [name, column] of Object.entries(meta.links ?? {})) {
    const value = column[point.pointNumber];
    if (value !== null && value !== undefined) change[name] = value;
  }
  // Plotly tells a cell of a heatmap by its row and its column.
  if (Array.isArray(point.pointNumber)) {
    const [row, column] = point.pointNumber;
    for (const [name, column] of Object.entries(meta.rows ?? {})) {
      if (column[row] !== null && column[row] !== undefined) change[name] = column[row];
    }
    if (meta.steps && meta.steps[column] !== undefined) change.step = meta.steps[column];
  }
  return change;
}

const FEW_RINGS = 60;

// Marks and shapes that show the selection on top of a figure.
class Selection {
  constructor(figure, tab) {
    this.figure = figure;
    this.tab = tab;
  }

  isMarked(trace, index) {
    const { links = {} } = trace.meta;
    const { parameter, tensor } = this.tab.selection;
    if (parameter !== null && links.parameter) return links.parameter[index] === parameter;
    if (tensor !== null && links.tensor) return links.tensor[index] === tensor;
    return Boolean(links.module) && this.tab.isInside(links.module[index]);
  }

  traces() {
    const marked = this.figure.data
      .filter((trace) => trace.type === 'scatter' && trace.meta?.links && !trace.meta.under)
      .map((trace) => [trace, trace.x.map((_, index) => index).filter((index) => this.isMarked(trace, index))]);
    const ringed = marked.reduce((sum, [, indices]) => sum + indices.length, 0);
    const every = marked.reduce((sum, [trace]) => sum + trace.x.length, 0);
    // Rings around nearly all of many marks hide them, and tell nothing.
    if (ringed > FEW_RINGS && ringed > 0.9 * every) return [];
    return marked
      .map(([trace, indices]) => {
        return {
          type: 'scatter', mode: 'markers', hoverinfo: 'skip', showlegend: false,
          x: indices.map((index) => trace.x[index]), y: indices.map((index) => trace.y[index]),
          xaxis: trace.xaxis, yaxis: trace.yaxis, visible: trace.visible,
          marker: {
            color: 'rgba(0,0,0,0)', size: 11, symbol: 'circle',
            line: { color: colour('select'), width: 2 },
          },
        };
      })
      .filter((trace) => trace.x.length);
  }

  shapes() {
    const bands = this.figure.data
      .filter((trace) => trace.meta?.rows?.module && !trace.meta.under && trace.visible !== false)
      .flatMap((trace) => this.bands(trace));
    return [...bands, ...this.stepLines()];
  }

  // Around the rows of a heatmap that lie in the selected module, neighbours together.
  bands(trace) {
    const { rows } = trace.meta;
    const { parameter } = this.tab.selection;
    const found = [];
    rows.module.forEach((module, row) => {
      const isIn = parameter !== null && rows.parameter
        ? rows.parameter[row] === parameter : this.tab.isInside(module);
      if (!isIn) return;
      const last = found[found.length - 1];
      if (last && last.y1 === row - 0.5) last.y1 = row + 0.5;
      else found.push(this.band(trace, row));
    });
    return found;
  }

  band(trace, row) {
    return {
      type: 'rect', xref: `${trace.xaxis ?? 'x'} domain`, yref: trace.yaxis ?? 'y', x0: 0, x1: 1,
      y0: row - 0.5, y1: row + 0.5, line: { color: colour('select'), width: 1.5 }, layer: 'above',
    };
  }

  stepLines() {
    const { step, base } = this.tab.selection;
    const axes = this.figure.layout.meta?.stepAxes ?? [];
    return [step, base].filter((one) => one !== null).flatMap((one) => axes.map((xref) => ({
      type: 'line', xref, yref: 'paper', x0: one, x1: one, y0: 0, y1: 1,
      line: { color: colour('select'), width: 1.5, dash: 'dot' }, layer: 'above',
    })));
  }
}

// In a module tree the selected module is outlined; of bars those that lie in it.
function outlined(trace, tab) {
  const { module, parameter } = trace.meta.links;
  const { selection } = tab;
  const isTree = TREES.has(trace.type);
  const isSelected = module.map((at, index) => {
    if (isTree) return at !== null && at === selection.module;
    return selection.parameter !== null && parameter ? parameter[index] === selection.parameter : tab.isInside(at);
  });
  const { color = colour('paper'), width = 1 } = trace.marker?.line ?? {};
  const given = (value, at) => (Array.isArray(value) ? value[at] : value);
  return {
    ...trace,
    marker: {
      ...trace.marker,
      line: {
        color: isSelected.map((is, at) => (is ? colour('select') : given(color, at))),
        // The way to the top of a tree is drawn with lines of one width.
        width: isTree ? Math.max(width, isSelected.includes(true) ? 2 : 0) : isSelected.map((is, at) => (is ? 3 : given(width, at))),
      },
    },
  };
}

// A heatmap of logarithms tells the numbers themselves, and each cell what its column stands for.
function told(trace, tab) {
  const { isLogarithm, columns } = trace.meta ?? {};
  const found = { ...trace };
  const texts = hovers(trace, tab);
  if (texts) Object.assign(found, { hovertext: texts, hoverinfo: 'text' });
  if (isLogarithm) found.customdata = trace.z.map((row) => row.map((value) => (value === null ? null : 10 ** value)));
  if (columns) found.text = trace.z.map(() => columns);
  return found;
}

const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);

// The given value with a patch laid over it: objects are merged, all else is replaced.
function patched(given, patch) {
  if (patch === undefined || patch === null) return given;
  if (!isObject(given) || !isObject(patch)) return patch;
  const found = { ...given };
  for (const key of Object.keys(patch)) found[key] = patched(given[key], patch[key]);
  return found;
}

// Rows of buttons over a figure, each of which shows it another way.
class Switches {
  constructor(switches, name, draw) {
    Object.assign(this, { switches, name, draw });
    this.controls = element('div', { className: 'controls' });
    this.build();
  }

  build() {
    const { name, draw } = this;
    this.chosen = this.switches.map(() => 0);
    this.controls.replaceChildren();
    this.switches.forEach((one, index) => {
      const group = element('fieldset', { className: 'switch' }, element('legend', { textContent: one.label }));
      one.choices.forEach((choice, at) => {
        const button = element('input', { type: 'radio', name: `${name}-${index}`, checked: at === 0 });
        button.addEventListener('change', () => {
          this.chosen[index] = at;
          draw();
        });
        group.append(element('label', {}, button, element('span', { textContent: choice.label })));
      });
      this.controls.append(group);
    });
  }

  // Takes the rows of a newer figure, and keeps what is chosen in them.
  take(switches) {
    const isAlike = JSON.stringify(this.titles(switches)) === JSON.stringify(this.titles(this.switches));
    this.switches = switches;
    if (!isAlike) this.build();
  }

  titles(switches) {
    return switches.map(({ label, choices }) => [label, choices.map((choice) => choice.label)]);
  }

  shown(figure) {
    const choices = this.switches.map((one, index) => one.choices[this.chosen[index]]);
    return choices.reduce((given, { data = [], layout }) => ({
      data: given.data.map((trace, at) => patched(trace, data[at])),
      layout: patched(given.layout, layout),
    }), figure);
  }
}

const isAxis = (key) => /^[xy]axis\d*$/.test(key);

// The ranges that a reader has zoomed to. Plotly forgets them where a newer figure has other ones.
class Zoom {
  constructor() {
    this.ranges = new Map();
    this.first = new Map();
  }

  name(key, axis) {
    return `${key} ${axis.uirevision ?? ''}`;
  }

  // Lays the ranges over those of a figure.
  apply(layout) {
    for (const [key, axis] of Object.entries(layout)) {
      if (!isAxis(key) || !axis.range) continue;
      const name = this.name(key, axis);
      if (!this.first.has(name)) this.first.set(name, [...axis.range]);
      // Plotly writes into the array.
      axis.range = [...(this.ranges.get(name) ?? axis.range)];
    }
  }

  // Takes what plotly tells of a change.
  note(event, layout) {
    for (const [key, axis] of Object.entries(layout)) {
      if (!isAxis(key) || !axis.range) continue;
      const name = this.name(key, axis);
      const ends = event[`${key}.range`] ?? [event[`${key}.range[0]`], event[`${key}.range[1]`]];
      // A double click goes back to the range at first, also after the figure has grown.
      const isWhole = ends.every((end, at) => end === this.first.get(name)[at]);
      if (event[`${key}.autorange`] || isWhole) this.ranges.delete(name);
      else if (ends[0] !== undefined) this.ranges.set(name, [...ends]);
    }
  }
}

const OUTLINED = new Set([...TREES, 'bar']);

painter('plot', (canvas, content, tab) => {
  const height = Number(canvas.dataset.height);
  const plot = element('div');
  const figureOf = ({ figure }) => ({ ...figure, data: figure.data.map((trace) => told(trace, tab)) });
  let given = figureOf(content);
  const switches = new Switches(content.switches ?? [], canvas.parentElement.id, () => draw());
  if (content.switches) canvas.append(switches.controls);
  const remark = element('p', { className: 'caption resolution', 'aria-live': 'polite' });
  const hasLevels = () => given.data.some((trace) => trace.meta?.envelope) || Object.keys(finer ?? {}).length > 0;
  let { finer } = content;
  if (hasLevels()) canvas.append(remark);
  canvas.append(plot);
  const tree = new Tree(tab);
  const zoom = new Zoom();
  let shown = given;
  const draw = () => {
    const whole = switches.shown(given);
    const layout = themedLayout(whole.layout, height);
    zoom.apply(layout);
    const level = levelled(whole, finer, layout, tab);
    const { figure, bands, resolution } = enveloped(level.figure, given, layout);
    remark.textContent = resolution || level.resolution;
    remark.hidden = !remark.textContent;
    const marks = new Selection(figure, tab);
    const data = narrowed(layout, coloured(figure.data.map((trace) => tree.shown(trace))).map((trace) => (
      OUTLINED.has(trace.type) && trace.meta?.links?.module ? outlined(trace, tab) : trace)), canvas.clientWidth);
    layout.shapes = [...(layout.shapes ?? []), ...marks.shapes()];
    // Plotly measures its width later, when the page is already printed.
    if (document.documentElement.classList.contains('printing')) layout.width = canvas.clientWidth;
    // With a revision that stays, plotly keeps what a reader has hidden or moved.
    layout.uirevision = 'kept';
    const histories = historyTraces(figure, tab);
    if (histories.length) layout.showlegend = true;
    shown = { ...figure, data: [...figure.data, ...histories] };
    const drawn = [...data, ...coloured(bands), ...histories, ...marks.traces()];
    // `react` keeps the listeners of the plot that is there.
    return Plotly.react(plot, drawn.map(spelledOut), layout, { ...SETTINGS, ...content.settings });
  };
  // A tree that was clicked has opened the cell already.
  let isOwn = false;
  const pick = (points) => {
    const change = points.map(linked).find((found) => Object.keys(found).length);
    isOwn = true;
    if (change) tab.select(change);
    isOwn = false;
  };
  draw();
  plot.on('plotly_click', (event) => pick(event.points));
  plot.on('plotly_relayout', (event) => {
    zoom.note(event, switches.shown(given).layout);
    // Only what has levels of resolution depends on what is in view.
    if (remark.textContent) draw();
  });
  // Plotly gives the levels their width again with each drawing, also after a resize.
  plot.on('plotly_afterplot', () => layOutIcicle(plot));
  layOutIcicle(plot);
  for (const type of TREES) plot.on(`plotly_${type}click`, (event) => tree.click(event.points[0], pick, draw));
  const show = () => {
    if (!isOwn) tree.reveal();
    draw();
  };
  if (tab.selection.module !== null) show();
  return {
    show,
    update: (next) => {
      given = figureOf(next);
      ({ finer } = next);
      switches.take(next.switches ?? []);
      if (hasLevels()) plot.before(remark);
      if (next.switches && !canvas.contains(switches.controls)) canvas.prepend(switches.controls);
      draw();
    },
    theme: () => {
      draw();
      // The chart may have another width than before, as after printing.
      if (plot.clientWidth !== plot._fullLayout.width) Plotly.Plots.resize(plot);
    },
    table: () => tableOfPlot(shown, tab),
    image: (format) => imageOfPlot(plot, format),
  };
});
