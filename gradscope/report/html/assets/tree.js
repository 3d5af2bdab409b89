// Trees of modules in plots: what cells are lettered with, and what of a large tree is drawn.

const BORDERED = 400;
const TREES = new Set(['icicle', 'treemap', 'sunburst']);

// A tree is lettered with the numbers that its colours stand for, and patterns are drawn on these.
function inscribed(trace, tab) {
  const { told: own, written: title, links } = trace.meta;
  const columns = resolved(own, links, tab);
  const { values } = columns.find((column) => column.title === title);
  const states = columns.find((column) => column.kind === 'state')?.values;
  const { colors, line } = trace.marker;
  // Between very many cells lines would hide their colours.
  const isThick = trace.ids.length < BORDERED;
  const borders = line.color.map((border, at) => (border === '@paper' && !isThick ? colors[at] : border));
  const marker = { ...trace.marker, line: { ...line, color: borders } };
  return {
    ...trace,
    text: values.map((value, at) => (value === null ? states?.[at] ?? '' : figure(value))),
    marker: { ...marker, pattern: { ...marker.pattern, bgcolor: colors, fgcolor: trace.textfont.color } },
  };
}

// Every entry of a cell, for some of the cells.
function ofCells(value, kept, count) {
  if (Array.isArray(value)) return value.length === count ? kept.map((at) => value[at]) : value;
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, ofCells(inner, kept, count)]));
}

// A tree by the indices of its cells: parents, children, and what each takes with its content.
class Cells {
  constructor({ ids, parents, values }) {
    const indices = new Map(ids.map((id, at) => [id, at]));
    this.parents = parents.map((id) => indices.get(id) ?? -1);
    this.children = ids.map(() => []);
    this.parents.forEach((parent, at) => { if (parent >= 0) this.children[parent].push(at); });
    this.totals = [...values];
    // Parents stand before what they hold.
    for (let at = ids.length - 1; at >= 0; at -= 1) {
      if (this.parents[at] >= 0) this.totals[this.parents[at]] += this.totals[at];
    }
    this.top = this.parents.indexOf(-1);
  }

  // The way from the top to a cell.
  above(at) {
    const found = [];
    for (let index = this.parents[at]; index >= 0; index = this.parents[index]) found.unshift(index);
    return found;
  }

  // A cell and what it holds, as many levels as there is room for; of the first the largest.
  within(open, most) {
    const found = [open];
    let level = this.children[open];
    if (level.length > most) {
      const largest = [...level].sort((one, other) => this.totals[other] - this.totals[one] || one - other);
      return [open, ...largest.slice(0, most).sort((one, other) => one - other)];
    }
    while (level.length && found.length + level.length <= most) {
      found.push(...level);
      level = level.flatMap((at) => this.children[at]);
    }
    return found;
  }
}

// The tree of a plot, if it has one. Of a large one some levels are drawn around the cell that is
// open: plotly takes seconds for thousands of cells, also for those that do not show.
class Tree {
  constructor(tab) {
    this.tab = tab;
    this.opened = null;
    this.drawn = new Set();
    this.links = null;
  }

  // The trace as it is drawn; one that is no tree as it is.
  shown(trace) {
    if (!TREES.has(trace.type)) return trace;
    const full = trace.meta.written ? inscribed(trace, this.tab) : trace;
    this.cells = new Cells(trace);
    this.links = trace.meta.links.module;
    this.opened ??= Math.max(trace.ids.indexOf(trace.level), this.cells.top);
    const open = this.opened;
    const inside = this.cells.within(open, trace.meta.most);
    this.drawn = new Set(inside);
    const kept = [...this.cells.above(open), ...inside];
    // To the value of a cell, plotly adds those of the cells in it that are drawn.
    const values = trace.values.map((value, at) => (
      this.cells.children[at].some((child) => this.drawn.has(child)) ? value : this.cells.totals[at]));
    return { ...ofCells({ ...full, values }, kept, trace.ids.length), level: trace.ids[open] };
  }

  // A click opens a cell, and one on what is open goes back. Plotly would do so slowly.
  click(point, pick, draw) {
    const at = this.links.indexOf(point.data.meta.links.module[point.pointNumber]);
    pick([point]);
    if (at === this.opened) this.opened = Math.max(this.cells.parents[at], this.cells.top);
    else if (this.cells.children[at].length) this.opened = at;
    draw();
    // False keeps plotly from opening the cell in its own way.
    return false;
  }

  // Opens the tree around the selected module where that does not show.
  reveal() {
    const { module } = this.tab.selection;
    const at = this.links && module !== null ? this.links.indexOf(module) : -1;
    if (at >= 0 && !this.drawn.has(at)) this.opened = Math.max(this.cells.parents[at], this.cells.top);
  }
}
