// Assembles a page: its tabs, the bar on top, keys, theme and print.

const panelsOf = (page) => [...page.querySelectorAll('.tab-panel')];
const dataOf = (page, index) => JSON.parse(page.getElementById(`data-${index}`).textContent);
const titlesOf = (page) => [...page.querySelectorAll('[role=tab]')].map((button) => button.textContent);

const tabs = panelsOf(document).map((article, index) => new Tab(article, dataOf(document, index)));
let current = tabs[0];
const address = new Address(tabs, titlesOf(document));
const pin = new Pin(tabs, document.querySelector('.pin'));
// While the page follows the address, it does not write it.
let isFollowing = true;

function remember() {
  if (!isFollowing) address.write(tabs.indexOf(current), shownManual(), pin.index);
}

const bar = {
  selected: document.querySelector('.selected'),
  crumbs: document.querySelector('.crumbs'),
  input: document.querySelector('.find input'),
  layers: document.getElementById('layers'),
  noHit: document.querySelector('.no-hit'),
};

const isPlot = (tab, section) => tab.data.charts[section.dataset.chart].kind === 'plot';

function paint(tab, section) {
  if (isPlot(tab, section) && !startPlotly()) {
    sketchOf(tab, section);
    return;
  }
  try {
    section.querySelector('.sketch')?.remove();
    tab.paint(section);
  } catch (error) {
    section.querySelector('.canvas').replaceChildren(
      element('p', { className: 'failure', textContent: `This chart could not be drawn: ${error.message}` }));
    console.error(error);
  }
}

// Charts are painted when they come into view, one after the other, so that the page is there at
// once and the first chart does not wait for the second.
// Then those out of sight, while nothing else is to be done: whoever searches, prints or
// photographs the page finds all of them.
const waiting = [];
const sketched = [];
const tabOf = (part) => tabs.find((tab) => tab.article.contains(part));

function paintNext() {
  const section = waiting.shift();
  if (section?.isConnected) (hasPlotly() ? paint : paintOrSketch)(tabOf(section), section);
  if (waiting.length) nextFrame(paintNext);
  else if (sketched.length) nextFrame(paintSketched);
  else whenIdle(paintRest);
}

// Safari has no idle callbacks.
const whenIdle = (act) => (window.requestIdleCallback ?? setTimeout)(act);

const nextFrame = (act) => requestAnimationFrame(() => setTimeout(act));

const paintOrSketch = (tab, section) => (isPlot(tab, section) ? sketchOf : paint)(tab, section);

function sketchOf(tab, section) {
  sketch(section.querySelector('.canvas'), tab.content(section.dataset.chart));
  sketched.push(section);
}

function paintSketched() {
  if (!startPlotly()) {
    addEventListener('DOMContentLoaded', paintSketched, { once: true });
    return;
  }
  waiting.push(...sketched.splice(0));
  nextFrame(paintNext);
}

function paintRest() {
  if (document.readyState === 'loading') {
    whenIdle(paintRest);
    return;
  }
  const section = [...current.article.querySelectorAll('.chart[open]')].find(
    (one) => !current.painted.has(one.dataset.chart));
  if (!section || waiting.length) return;
  paint(current, section);
  whenIdle(paintRest);
}

// By the margin, charts just below the window are painted before a reader gets there.
const watcher = new IntersectionObserver((entries) => {
  const isIdle = !waiting.length;
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    watcher.unobserve(entry.target);
    waiting.push(entry.target.closest('.chart'));
  }
  if (isIdle && !sketched.length) paintNext();
}, { rootMargin: '200px' });

function showCrumbs() {
  const { module, step, base } = current.selection;
  const crumbs = module === null ? [] : current.above(module).map((at) => {
    const path = current.modules.path[at] ?? '';
    const parent = current.modules.parent[at];
    const start = parent === null ? '' : current.modules.path[parent];
    const name = start && path.startsWith(`${start}.`) ? path.slice(start.length + 1) : path;
    const button = element('button', { type: 'button', textContent: name || current.name(at) });
    button.addEventListener('click', () => current.select({ module: at }));
    return button;
  });
  const parts = crumbs.flatMap((crumb, index) => (index ? [' › ', crumb] : [crumb]));
  if (step !== null) parts.push(`${parts.length ? ' · ' : ''}step ${count(step)}`);
  if (base !== null) parts.push(`${parts.length ? ' · ' : ''}compared with step ${count(base)}`);
  bar.crumbs.replaceChildren(...parts);
  bar.selected.hidden = !parts.length;
}

// Of thousands of layers those that fit what is typed.
function showLayers() {
  const typed = bar.input.value.trim().toLowerCase();
  const names = current.modules.path.map((path, at) => path || current.name(at));
  const fitting = names.filter((name) => name.toLowerCase().includes(typed)).slice(0, LISTED);
  bar.layers.replaceChildren(...fitting.map((name) => element('option', { value: name })));
}
const LISTED = 100;

function open(index) {
  current = tabs[index];
  tabs.forEach((_, at) => {
    const button = document.getElementById(`tab-${at}`);
    button?.setAttribute('aria-selected', String(at === index));
    if (button) button.tabIndex = at === index ? 0 : -1;
  });
  pin.show(index);
  current.refresh();
  showCrumbs();
  remember();
}

function openFromTop(index) {
  open(index);
  scrollTo(0, 0);
}

// Shows what the address says, at the start and after Back.
function follow() {
  const wanted = address.read();
  if (!wanted) return;
  isFollowing = true;
  address.written = location.hash.slice(1);
  pin.index = wanted.pinned;
  open(wanted.index);
  current.select(wanted.selection);
  showManual(wanted.manual);
  isFollowing = false;
}

// Paints the charts of a tab as they come into view.
function watch(tab) {
  tab.article.querySelectorAll('.chart').forEach((section) => {
    watcher.observe(section.querySelector('.canvas'));
    section.addEventListener('toggle', () => {
      tab.refresh();
      whenIdle(paintRest);
    });
  });
}

function showSelected(button) {
  const { module, step } = button.dataset;
  const tab = tabOf(button);
  const change = {};
  if (module !== undefined) change.module = Number(module);
  if (step !== undefined) change.step = Number(step);
  tab.select(change);
  tab.article.querySelector('.charts')?.scrollIntoView();
}

// On narrow screens rows are cards, whose cells name their columns.
function labelCells() {
  document.querySelectorAll('.told-section table').forEach((table) => {
    const titles = [...table.querySelectorAll('th')].map((cell) => cell.textContent);
    table.querySelectorAll('tbody tr').forEach((row) => {
      [...row.cells].forEach((cell, at) => { cell.dataset.label = titles[at] ?? ''; });
    });
  });
}

async function copyFix(button) {
  await navigator.clipboard.writeText(`${button.closest('.fix').querySelector('pre').textContent}\n`);
  button.textContent = 'copied';
}

function downloadOf(button) {
  const section = button.closest('.chart');
  const tab = tabOf(section);
  return download(section, button.dataset.format, address.titles[tabs.indexOf(tab)] ?? document.title, () => {
    paint(tab, section);
    return tab.painted.get(section.dataset.chart);
  });
}

function turnPin() {
  pin.index = pin.index === null ? tabs.indexOf(current) : null;
  open(tabs.indexOf(current));
}

// What a click on each kind of button does.
const CLICKS = [
  ['[role=tab]', (button) => openFromTop(Number(button.id.slice('tab-'.length)))],
  ['button[data-tab]', (button) => openFromTop(Number(button.dataset.tab))],
  ['button.select', showSelected],
  ['button.pin', turnPin],
  ['button[data-format]', downloadOf],
  ['.fix .copy', copyFix],
];

// One listener also serves buttons that a newer page brings.
document.addEventListener('click', (event) => {
  for (const [selector, act] of CLICKS) {
    const button = event.target.closest?.(selector);
    if (button) {
      act(button);
      return;
    }
  }
});

document.addEventListener('keydown', (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const button = event.target.closest?.('[role=tab]');
  if (!step || !button) return;
  const next = (Number(button.id.slice('tab-'.length)) + step + tabs.length) % tabs.length;
  document.getElementById(`tab-${next}`).focus();
  openFromTop(next);
});

document.querySelector('.selected .clear').addEventListener('click', () => current.clear());
document.querySelector('.find').addEventListener('submit', (event) => event.preventDefault());
bar.input.addEventListener('focus', showLayers);
bar.input.addEventListener('input', () => {
  bar.noHit.hidden = true;
  showLayers();
});
bar.input.addEventListener('change', () => {
  const wanted = bar.input.value.trim();
  const { path } = current.modules;
  const exact = path.findIndex((name, at) => (name || current.name(at)) === wanted);
  const at = exact >= 0 ? exact : path.findIndex((name) => wanted && name?.includes(wanted));
  if (at >= 0) current.select({ module: at });
  bar.noHit.hidden = !wanted || at >= 0;
  bar.noHit.textContent = bar.noHit.hidden ? '' : `No layer has “${wanted}” in its name`;
});

document.addEventListener('keydown', (event) => {
  const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  // Escape in a manual closes the manual.
  if (event.key === 'Escape' && shownManual()) return;
  if (event.key === 'Escape') {
    event.target.blur?.();
    current.clear();
  } else if (event.key === '/' && !isTyping && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    bar.input.focus();
  }
});

const repaint = () => tabs.forEach((tab) => tab.theme());
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', repaint);
// What is open is printed, one tab or two beside each other: each of a run's captured steps would
// take pages. Its panels are whole, and drawn in the width of paper.
let closed = [];
addEventListener('beforeprint', () => {
  document.documentElement.classList.add('printing');
  for (const tab of tabs.filter(({ article }) => !article.hidden)) {
    const folded = [...tab.article.querySelectorAll('details:not([open])')];
    closed.push(...folded);
    folded.forEach((details) => { details.open = true; });
    tab.article.querySelectorAll('.chart').forEach((section) => paint(tab, section));
  }
  repaint();
});
addEventListener('afterprint', () => {
  document.documentElement.classList.remove('printing');
  closed.forEach((details) => { details.open = false; });
  closed = [];
  repaint();
});

for (const tab of tabs) {
  tab.listeners.push(showCrumbs, remember);
  watch(tab);
}
labelCells();
listenForManuals(remember);
addEventListener('popstate', follow);
open(0);
follow();
isFollowing = false;
