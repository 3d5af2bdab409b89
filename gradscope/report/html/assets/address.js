// The part of the address after `#`: which tab is open, and what is selected on it.

// Steps that follow each other this fast, as while a key is held, are one entry of the history.
const ONE_ENTRY_MS = 300;
const ROWS = ['parameter', 'tensor'];

class Address {
  constructor(tabs, titles) {
    Object.assign(this, { tabs, titles, written: '', at: -Infinity, timer: null });
  }

  // A tab is named by its title, or by its position where titles are equal or look like one.
  tabName(index) {
    const title = this.titles[index];
    return this.titles.indexOf(title) === this.titles.lastIndexOf(title) && !/^\d+$/.test(title)
      ? title : String(index);
  }

  indexOfTab(name) {
    const indices = this.titles.map((_, index) => index);
    return Math.max(indices.findIndex((index) => this.tabName(index) === name), 0);
  }

  // Modules of several models may have one path: these are told apart by their position.
  layerName(tab, module) {
    const name = tab.name(module);
    const same = tab.modules.path.flatMap((_, at) => (tab.name(at) === name ? [at] : []));
    return same.length > 1 ? `${name}@${same.indexOf(module)}` : name;
  }

  layerOf(tab, name) {
    const at = tab.modules.path.findIndex((_, module) => this.layerName(tab, module) === name);
    return at < 0 ? null : at;
  }

  text(index, manual, pinned) {
    const tab = this.tabs[index];
    const { module, step, base } = tab.selection;
    const found = new URLSearchParams();
    if (index) found.set('tab', this.tabName(index));
    if (module !== null) found.set('layer', this.layerName(tab, module));
    for (const key of ROWS) if (tab.selection[key] !== null) found.set(key, tab.selection[key]);
    if (base !== null) found.set('base', base);
    if (step !== null) found.set('step', step);
    if (pinned !== null) found.set('pin', this.tabName(pinned));
    if (manual) found.set('rule', manual);
    return String(found);
  }

  // What the address shows: null where it is of something else, as of a heading.
  read() {
    const found = new URLSearchParams(location.hash.slice(1));
    const isOurs = ['tab', 'layer', 'step', 'base', 'rule', 'pin', ...ROWS].some((key) => found.has(key));
    if (location.hash.length > 1 && !isOurs) return null;
    const index = this.indexOfTab(found.get('tab') ?? this.tabName(0));
    const number = (key) => (/^\d+$/.test(found.get(key) ?? '') ? Number(found.get(key)) : null);
    const module = found.has('layer') ? this.layerOf(this.tabs[index], found.get('layer')) : null;
    const selection = { module, parameter: number('parameter'), tensor: number('tensor'), step: number('step'), base: number('base') };
    const pinned = found.has('pin') ? this.indexOfTab(found.get('pin')) : null;
    return { index, selection, manual: found.get('rule'), pinned };
  }

  // An entry of the history for each view but for steps in quick succession.
  write(index, manual, pinned) {
    const text = this.text(index, manual, pinned);
    if (text === this.written) return;
    const withoutStep = (one) => one.replace(/&?step=\d+/, '');
    const isSuccession = /step=/.test(this.written) && withoutStep(text) === withoutStep(this.written);
    const now = performance.now();
    const isQuick = isSuccession && now - this.at < ONE_ENTRY_MS;
    this.written = text;
    this.at = now;
    clearTimeout(this.timer);
    // Browsers refuse a hundred changes of the address within seconds, as a held key makes them.
    if (isQuick) this.timer = setTimeout(() => history.replaceState(null, '', this.url()), ONE_ENTRY_MS);
    else history.pushState(null, '', this.url());
  }

  url() {
    return this.written ? `#${this.written}` : location.href.split('#')[0];
  }
}
