// Draws the inside of a module as a graph: the forward from top to bottom, and on its links the
// gradients that backward brings back. What is drawn where is told by `drawing_columns`.

const SVG = 'http://www.w3.org/2000/svg';
const LEVELS = 7;
const NAME_SIZE = 12;
const DETAIL_SIZE = 10.5;

function drawn(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function written(text, x, y, size, attributes = {}) {
  const made = drawn('text', { x, y, 'font-size': size, ...attributes });
  made.textContent = text;
  return made;
}

function titled(text) {
  const made = drawn('title');
  made.textContent = text;
  return made;
}

const spelled = (norm) => (norm === null ? 'not measured' : Number.isFinite(norm) ? String(norm) : figure(norm));

// Where a norm lies between the least and the greatest one of all drawings, by powers of ten.
class NormScale {
  constructor(norms) {
    const known = norms.filter((norm) => Number.isFinite(norm) && norm > 0);
    // Math.min with all of them as arguments could overflow the stack.
    this.low = known.reduce((one, other) => Math.min(one, other), Infinity);
    this.high = known.reduce((one, other) => Math.max(one, other), 0);
    const [first, last] = [Math.log10(this.low), Math.log10(this.high)];
    // Norms of one size are not told apart by colours.
    const room = Math.max(0, 1 - (last - first)) / 2;
    this.first = first - room;
    this.width = last - first + 2 * room;
  }

  level(norm) {
    const share = (Math.log10(norm) - this.first) / this.width;
    return Math.min(LEVELS - 1, Math.max(0, Math.floor(share * LEVELS)));
  }
}

// A curve through points: straight down through layers, aside between them.
function curve(points, isBeside) {
  return points.map(([x, y], index) => {
    if (!index) return `M${x} ${y}`;
    const [fromX, fromY] = points[index - 1];
    if (fromX === x || fromY === y) return `L${x} ${y}`;
    if (isBeside) return `C${(fromX + x) / 2} ${fromY} ${(fromX + x) / 2} ${y} ${x} ${y}`;
    return `C${fromX} ${(fromY + y) / 2} ${x} ${(fromY + y) / 2} ${x} ${y}`;
  }).join('');
}

function arrowhead([x, y], direction, size) {
  const [across, along] = [size * 0.6, size];
  if (direction === 'right') return `M${x} ${y}l${-along} ${-across}v${2 * across}z`;
  const sign = direction === 'up' ? 1 : -1;
  return `M${x} ${y}l${-across} ${sign * along}h${2 * across}z`;
}

class Plan {
  constructor(canvas, content, tab) {
    Object.assign(this, { canvas, tables: content, tab });
    this.index = new Map(content.drawings.module.slice(0, -1).map((module, at) => [module, at]));
    this.scale = new NormScale([...content.links.norm, ...content.vertices.norm]);
    this.module = undefined;
    this.start = this.innermost(content.start ?? 0);
    this.build();
  }

  build() {
    const button = (text, title, act) => {
      const made = element('button', { type: 'button', textContent: text, title });
      made.addEventListener('click', act);
      return made;
    };
    this.up = button('up', 'To the module around this one', () => this.leave());
    this.told = element('span', { className: 'shown', 'aria-live': 'polite' });
    this.canvas.append(element('div', { className: 'bench' },
      this.up, this.told, this.legend(),
      button('−', 'Smaller ( - )', () => this.zoom(1.25)),
      button('+', 'Larger ( + )', () => this.zoom(0.8)),
      button('fit', 'All of it ( 0 )', () => this.fit())));
    this.svg = drawn('svg', { class: 'plan', tabindex: 0, role: 'group', height: this.canvas.dataset.height ?? 420 });
    this.canvas.append(this.svg);
    this.listen();
  }

  legend() {
    const scale = element('span', { className: 'scale' });
    if (this.scale.high > 0) {
      scale.append(element('span', { textContent: `gradient norm ${figure(this.scale.low)}` }));
      for (let level = 0; level < LEVELS; level += 1) {
        const box = element('i');
        box.style.background = `var(--g${level})`;
        scale.append(box);
      }
      scale.append(element('span', { textContent: figure(this.scale.high) }));
    }
    return scale;
  }

  listen() {
    const { svg } = this;
    svg.addEventListener('wheel', (event) => {
      // Whoever scrolls down the page is not to be caught here.
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== svg) return;
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.12 : 1 / 1.12, this.at(event));
    }, { passive: false });
    svg.addEventListener('pointerdown', (event) => {
      this.drag = { x: event.clientX, y: event.clientY, view: { ...this.view }, isMoved: false };
    });
    svg.addEventListener('pointermove', (event) => this.move(event));
    for (const name of ['pointerup', 'pointercancel']) svg.addEventListener(name, () => this.drop());
    svg.addEventListener('keydown', (event) => this.press(event));
    svg.addEventListener('click', (event) => {
      const vertex = event.target.closest('.vertex');
      if (vertex && !this.wasMoved) this.pick(Number(vertex.dataset.row));
    });
    for (const name of ['pointerover', 'focusin']) svg.addEventListener(name, (event) => this.light(event));
    svg.addEventListener('pointerleave', () => this.dim(null));
  }

  move(event) {
    if (!this.drag) return;
    const [dx, dy] = [event.clientX - this.drag.x, event.clientY - this.drag.y];
    if (!this.drag.isMoved && Math.hypot(dx, dy) < 4) return;
    // Captured from the start, a click would go to the drawing and not to the vertex.
    if (!this.drag.isMoved) this.svg.setPointerCapture(event.pointerId);
    this.drag.isMoved = true;
    this.svg.classList.add('dragged');
    const unit = this.view.width / this.svg.clientWidth;
    this.look({ ...this.view, x: this.drag.view.x - dx * unit, y: this.drag.view.y - dy * unit });
  }

  drop() {
    // The click that ends a drag picks nothing.
    this.wasMoved = this.drag?.isMoved ?? false;
    this.drag = null;
    this.svg.classList.remove('dragged');
  }

  press(event) {
    const { view } = this;
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const keys = { '+': () => this.zoom(0.8), '=': () => this.zoom(0.8), '-': () => this.zoom(1.25), 0: () => this.fit(), Backspace: () => this.leave() };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (moves[event.key]) {
      const [x, y] = moves[event.key];
      this.look({ ...view, x: view.x + x * view.width * 0.1, y: view.y + y * view.height * 0.1 });
    } else if (keys[event.key]) {
      keys[event.key]();
    } else if (event.key === 'Enter' || event.key === ' ') {
      const vertex = document.activeElement.closest?.('.vertex');
      if (!vertex) return;
      this.pick(Number(vertex.dataset.row));
    } else return;
    event.preventDefault();
  }

  at(event) {
    const box = this.svg.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  }

  look(view) {
    this.view = view;
    this.svg.setAttribute('viewBox', `${view.x} ${view.y} ${view.width} ${view.height}`);
  }

  zoom(factor, [x, y] = [0.5, 0.5]) {
    const { view } = this;
    const least = Math.max(40 / view.width, Math.min(factor, 40000 / view.width));
    this.look({
      x: view.x + view.width * x * (1 - least),
      y: view.y + view.height * y * (1 - least),
      width: view.width * least,
      height: view.height * least,
    });
  }

  // All of the drawing; what is too large to be read begins at its top.
  fit(isStart = false) {
    const [across, down] = [this.svg.clientWidth || 800, this.svg.clientHeight || 420];
    const { width, height } = this.size;
    const least = isStart ? 0.8 : 0;
    const scale = Math.max(least, Math.min(across / width, down / height, 1.4));
    const [w, h] = [across / scale, down / scale];
    const isTall = height > h;
    this.look({ x: (width - w) / 2, y: isTall ? 0 : (height - h) / 2, width: w, height: h });
  }

  // To the outermost module in whose drawing this one stands: lists of modules are passed over.
  leave() {
    if (this.module === null) return;
    const around = this.tab.above(this.module).slice(0, -1);
    const parent = around.find((module) => this.holds(module, this.module)) ?? around.at(-1);
    if (parent !== undefined) {
      this.tab.select({ module: parent });
    } else {
      this.tab.select({ module: null });
      if (this.index.has(null)) this.open(null);
    }
  }

  // A module that holds one other and nothing else shows little: that one is the better start.
  innermost(module) {
    if (!this.index.has(module)) return module;
    const at = this.index.get(module);
    const { drawings, vertices } = this.tables;
    const [first, last] = [drawings.vertex[at], drawings.vertex[at + 1]];
    const rows = Array.from({ length: last - first }, (_, index) => first + index)
      .filter((row) => vertices.kind[row] !== 'outside');
    const only = rows.length === 1 ? vertices.module[rows[0]] : null;
    return only !== null && only !== module && this.index.has(only) ? this.innermost(only) : module;
  }

  holds(module, inner) {
    if (!this.index.has(module)) return false;
    const at = this.index.get(module);
    const { drawings, vertices } = this.tables;
    return vertices.module.slice(drawings.vertex[at], drawings.vertex[at + 1]).includes(inner);
  }

  // Select what a vertex stands for: of a module, that opens its inside.
  pick(row) {
    const { vertices } = this.tables;
    if (vertices.kind[row] === 'outside') return this.leave();
    if (vertices.module[row] !== null) return this.tab.select({ module: vertices.module[row] });
    const [parameter, tensor] = [vertices.parameter[row], vertices.tensor[row]];
    if (parameter === null && tensor === null) return undefined;
    return this.tab.select({ module: this.module, parameter, tensor });
  }

  show(selection) {
    let module = selection.module;
    if (module === null) {
      // The whole is the model and its loss: the model itself is the better start.
      module = this.module === null ? null : this.index.has(this.start) ? this.start : null;
    }
    while (module !== null && !this.index.has(module)) module = this.tab.modules.parent[module];
    this.open(module ?? null);
    const { vertices } = this.tables;
    for (const vertex of this.svg.querySelectorAll('.vertex')) {
      const row = Number(vertex.dataset.row);
      const isChosen = (selection.parameter !== null && vertices.parameter[row] === selection.parameter)
        || (selection.tensor !== null && vertices.tensor[row] === selection.tensor)
        || (selection.module !== null && vertices.module[row] === selection.module);
      vertex.classList.toggle('chosen', isChosen);
    }
  }

  open(module) {
    if (module === this.module || !this.index.has(module)) return;
    this.module = module;
    const at = this.index.get(module);
    const { drawings, layouts, frames, ways } = this.tables;
    const layout = drawings.layout[at];
    this.size = { width: layouts.width[layout], height: layouts.height[layout] };
    const [frame, way] = [layouts.frame[layout], layouts.way[layout]];
    const [firstLink, lastLink] = [drawings.link[at], drawings.link[at + 1]];
    const [first, last] = [drawings.vertex[at], drawings.vertex[at + 1]];
    const links = drawn('g');
    for (let row = firstLink; row < lastLink; row += 1) {
      links.append(this.link(row, way + row - firstLink, ways.point, first));
    }
    const vertices = drawn('g');
    for (let row = first; row < last; row += 1) {
      const index = frame + row - first;
      vertices.append(this.vertex(row, frames.x[index], frames.y[index], frames.width[index], frames.height[index]));
    }
    this.svg.replaceChildren(links, vertices);
    const { path, class: classes } = this.tab.modules;
    const name = module === null ? 'the whole graph' : `${path[module]} ${classes[module] ?? ''}`.trim();
    this.told.textContent = name;
    this.svg.setAttribute('aria-label', `The inside of ${name}: arrows move, plus and minus zoom, Tab goes from part to part`);
    this.up.disabled = module === null;
    this.fit(true);
  }

  link(row, way, starts, first) {
    const { links, points, ways, vertices } = this.tables;
    const [start, end] = [starts[way], starts[way + 1]];
    const line = [];
    for (let at = start; at < end; at += 1) line.push([points.x[at], points.y[at]]);
    const [norm, state] = [links.norm[row], links.kind[row] === 'cut' ? 'cutoff' : links.state[row]];
    const aside = ways.aside[way];
    const level = state === 'gradient' ? this.scale.level(norm) : 0;
    const size = 5 + level * 0.5;
    const path = drawn('path', { class: 'line', d: curve(line, aside === 1) });
    const [last, before] = [line[line.length - 1], line[line.length - 2] ?? line[0]];
    const direction = aside === 1 ? 'right' : last[1] < before[1] ? 'up' : 'down';
    const head = drawn('path', { class: 'head', d: arrowhead(last, direction, size) });
    if (state === 'gradient') {
      path.setAttribute('style', `stroke: var(--g${level}); stroke-width: ${1.2 + 0.4 * level}`);
      head.setAttribute('style', `fill: var(--g${level})`);
    }
    const [source, target] = [first + links.source[row], first + links.target[row]];
    const tensors = links.tensors[row] > 1 ? ` over ${links.tensors[row]} tensors` : '';
    const told = state === 'cutoff' ? 'cut off: no gradient flows here' : `gradient norm ${spelled(norm)}${tensors}`;
    const made = drawn('g', { class: `edge ${state}` },
      titled(`${vertices.label[source]} → ${vertices.label[target]}\n${told}`), path, head);
    made.dataset.ends = `${source} ${target}`;
    if (ways.figure_x[way] !== null) {
      const anchor = ways.figure_ends[way] ? 'end' : 'start';
      made.append(written(figure(norm), ways.figure_x[way], ways.figure_y[way], 9.5, { class: 'norm', 'text-anchor': anchor }));
    }
    return made;
  }

  vertex(row, x, y, width, height) {
    const { vertices } = this.tables;
    const [kind, state, name] = [vertices.kind[row], vertices.state[row], vertices.name[row]];
    const isPicked = kind === 'outside' || ['module', 'parameter', 'tensor'].some((what) => vertices[what][row] !== null);
    const made = drawn('g', {
      class: `vertex ${kind} ${state ?? ''}${vertices.cut[row] ? ' behind' : ''}`,
      ...(isPicked ? { tabindex: 0, role: 'button' } : {}),
    }, titled(this.tooltip(row)), drawn('rect', { x, y, width, height, rx: kind === 'operation' ? 4 : height / 2 > 12 ? 6 : height / 2 }));
    made.dataset.row = row;
    const [detail, number] = [vertices.detail[row], vertices.figure[row]];
    if (kind === 'parameter') {
      const base = y + height / 2 + 4;
      made.append(written(name, x + 9, base, NAME_SIZE));
      made.append(written(number, x + width - 9, base, DETAIL_SIZE, { 'text-anchor': 'end', class: 'soft' }));
      const gap = this.width(name, NAME_SIZE) + 16;
      made.append(written(detail, x + gap, base, DETAIL_SIZE, { class: 'soft' }));
    } else {
      const [middle, center] = [x + width / 2, y + height / 2];
      const centered = { 'text-anchor': 'middle' };
      made.append(written(name, middle, detail ? center - 2 : center + 4, NAME_SIZE, centered));
      if (kind === 'module' && state === 'gradient') {
        const level = this.scale.level(vertices.norm[row]);
        made.append(drawn('rect', { class: 'bar', x: x + 3, y: y + 3, width: 4, height: height - 6, rx: 2, style: `fill: var(--g${level})` }));
      }
      if (detail) made.append(written(detail, middle, center + 12, DETAIL_SIZE, { ...centered, class: 'soft' }));
    }
    if (vertices.severity[row]) {
      made.append(drawn('circle', { class: `finding ${vertices.severity[row]}`, cx: x + width - 1, cy: y + 1, r: 5 }));
    }
    return made;
  }

  // The links of the drawing that is open.
  table() {
    const { drawings, links, vertices } = this.tables;
    const at = this.index.get(this.module);
    const first = drawings.vertex[at];
    const count = drawings.link[at + 1] - drawings.link[at];
    const rows = Array.from({ length: count }, (_, index) => drawings.link[at] + index).map((row) => [
      vertices.label[first + links.source[row]], vertices.label[first + links.target[row]],
      links.kind[row], links.state[row], links.norm[row], links.tensors[row]]);
    return { header: ['from', 'to', 'link', 'state', 'gradient norm', 'tensors'], rows };
  }

  width(text, size) {
    this.pen ??= document.createElement('canvas').getContext('2d');
    this.pen.font = `${size}px ${colour('sans')}`;
    return this.pen.measureText(text).width;
  }

  tooltip(row) {
    const { vertices } = this.tables;
    const lines = [`${vertices.label[row]} ${vertices.class[row] ?? ''}`.trim()];
    if (vertices.shape[row]) lines.push(vertices.shape[row]);
    if (vertices.line[row]) lines.push(vertices.line[row]);
    const state = vertices.state[row];
    if (vertices.norm[row] !== null) lines.push(`gradient norm ${spelled(vertices.norm[row])}`);
    else if (state) lines.push({ frozen: 'frozen', unknown: 'gradient not measured' }[state] ?? 'no gradient');
    if (vertices.cut[row]) lines.push('cut off from the loss');
    if (vertices.nodes[row] > 1) lines.push(`${count(vertices.nodes[row])} nodes`);
    return lines.join('\n');
  }

  light(event) {
    const vertex = event.target.closest?.('.vertex');
    this.dim(vertex ? vertex.dataset.row : null);
  }

  dim(row) {
    for (const link of this.svg.querySelectorAll('.edge')) {
      link.classList.toggle('dim', row !== null && !link.dataset.ends.split(' ').includes(row));
    }
  }
}

painter('graph', (canvas, content, tab) => {
  const plan = new Plan(canvas, content, tab);
  plan.show(tab.selection);
  return {
    show: (selection) => plan.show(selection), table: () => plan.table(), image: (format) => imageOfGraph(plan.svg, format),
  };
});
