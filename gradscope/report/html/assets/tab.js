// A tab's data, what is selected on it, and the painters of its charts.

const painters = new Map();

function painter(kind, paint) {
  painters.set(kind, paint);
}

function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made && !key.startsWith('aria')) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

class Tab {
  constructor(article, data) {
    this.selection = { module: null, parameter: null, tensor: null, step: null, base: null };
    this.painted = new Map();
    this.listeners = [];
    this.take(article, data);
  }

  // Takes the element and the data, at first and whenever a newer page replaces them.
  take(article, data) {
    this.article = article;
    this.data = data;
    this.modules = { path: [], class: [], parent: [], ...decoded(data.modules) };
    this.contents = new Map();
    this.inside = null;
    this.children = this.modules.path.map(() => []);
    this.modules.parent.forEach((parent, index) => {
      if (parent !== null) this.children[parent].push(index);
    });
  }

  name(module) {
    return this.modules.path[module] || this.modules.class[module] || 'the model';
  }

  // The module and those it lies in, the outermost first.
  above(module) {
    const found = [];
    for (let at = module; at !== null && at !== undefined; at = this.modules.parent[at]) found.unshift(at);
    return found;
  }

  select(change) {
    const next = { ...this.selection, ...change };
    // What lies in another module is selected no longer.
    if ('module' in change && change.module !== this.selection.module) {
      if (!('parameter' in change)) next.parameter = null;
      if (!('tensor' in change)) next.tensor = null;
    }
    const isSame = Object.keys(next).every((key) => next[key] === this.selection[key]);
    if (isSame) return;
    this.selection = next;
    this.inside = null;
    for (const chart of this.painted.values()) this.show(chart);
    for (const listener of this.listeners) listener(next);
  }

  clear() {
    this.select({ module: null, parameter: null, tensor: null, step: null, base: null });
  }

  // Whether a module is the selected one or lies in it.
  isInside(module) {
    if (this.selection.module === null || module === null || module === undefined) return false;
    if (!this.inside) {
      this.inside = new Set();
      const pending = [this.selection.module];
      while (pending.length) {
        const at = pending.pop();
        this.inside.add(at);
        pending.push(...(this.children[at] ?? []));
      }
    }
    return this.inside.has(module);
  }

  // Data of a chart; undefined if the tab has none of that name.
  content(name) {
    if (!this.contents.has(name)) this.contents.set(name, decoded(this.data.charts[name]?.content ?? null));
    return this.contents.get(name);
  }

  paint(section) {
    const name = section.dataset.chart;
    if (this.painted.has(name)) return;
    const { kind } = this.data.charts[name];
    const canvas = section.querySelector('.canvas');
    // Noted before, so that a chart that cannot be drawn is not tried again and again.
    this.painted.set(name, {});
    const chart = painters.get(kind)(canvas, this.content(name), this) ?? {};
    this.painted.set(name, { ...chart, canvas });
  }

  // A chart that is collapsed has no width: it is drawn again when it opens.
  show(chart) {
    chart.isStale = !chart.canvas?.clientWidth;
    if (!chart.isStale) chart.show?.(this.selection);
  }

  theme() {
    for (const chart of this.painted.values()) {
      chart.isStale = !chart.canvas?.clientWidth;
      if (!chart.isStale) chart.theme?.();
    }
  }

  refresh() {
    for (const chart of this.painted.values()) {
      if (!chart.isStale || !chart.canvas?.clientWidth) continue;
      chart.isStale = false;
      chart.theme?.();
      chart.show?.(this.selection);
    }
  }
}
