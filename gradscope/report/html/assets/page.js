// Assembles a page: its tabs, the bar on top, keys, theme and print.

const sheets = [...document.querySelectorAll('.sheet')].map((article, place) => (
  new Sheet(article, JSON.parse(document.getElementById(`data-${place}`).textContent))));
let current = sheets[0];
const address = new Address(sheets, [...document.querySelectorAll('[role=tab]')].map((tab) => tab.textContent));
const pin = new Pin(sheets, document.querySelector('.pin'));
// While the page follows the address, it does not write it.
let isFollowing = true;

function remember() {
  if (!isFollowing) address.write(sheets.indexOf(current), shownManual(), pin.place);
}

const bar = {
  selected: document.querySelector('.selected'),
  crumbs: document.querySelector('.crumbs'),
  input: document.querySelector('.find input'),
  layers: document.getElementById('layers'),
  noHit: document.querySelector('.no-hit'),
};

function paint(sheet, section) {
  try {
    sheet.paint(section);
  } catch (error) {
    section.querySelector('.canvas').replaceChildren(
      element('p', { className: 'failure', textContent: `This chart could not be drawn: ${error.message}` }));
    console.error(error);
  }
}

// Pictures are painted when they come into view, one after the other, so that the page is there at
// once and the first picture does not wait for the second.
// Then those out of sight, while nothing else is to be done: whoever searches, prints or
// photographs the page finds all of them.
const waiting = [];
const sheetOf = (section) => sheets.find((sheet) => sheet.article.contains(section));

function paintNext() {
  const section = waiting.shift();
  if (section) paint(sheetOf(section), section);
  if (waiting.length) requestAnimationFrame(() => setTimeout(paintNext));
  else requestIdleCallback(paintRest);
}

function paintRest() {
  const section = [...current.article.querySelectorAll('.picture[open]')].find(
    (one) => !current.painted.has(one.dataset.picture));
  if (!section || waiting.length) return;
  paint(current, section);
  requestIdleCallback(paintRest);
}

const watcher = new IntersectionObserver((entries) => {
  const isIdle = !waiting.length;
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    watcher.unobserve(entry.target);
    waiting.push(entry.target.closest('.picture'));
  }
  if (isIdle) paintNext();
}, { rootMargin: '200px' });

function showCrumbs() {
  const { module, step } = current.selection;
  const crumbs = module === null ? [] : current.above(module).map((at) => {
    const path = current.modules.path[at] ?? '';
    const parent = current.modules.parent[at];
    const start = parent === null ? '' : current.modules.path[parent];
    const name = start && path.startsWith(`${start}.`) ? path.slice(start.length + 1) : path;
    const button = element('button', { type: 'button', textContent: name || current.name(at) });
    button.addEventListener('click', () => current.select({ module: at }));
    return button;
  });
  const parts = crumbs.flatMap((crumb, place) => (place ? [' › ', crumb] : [crumb]));
  if (step !== null) parts.push(`${parts.length ? ' · ' : ''}step ${count(step)}`);
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

function open(place) {
  current = sheets[place];
  sheets.forEach((_, at) => {
    const tab = document.getElementById(`tab-${at}`);
    tab?.setAttribute('aria-selected', String(at === place));
    if (tab) tab.tabIndex = at === place ? 0 : -1;
  });
  pin.show(place);
  current.refresh();
  showCrumbs();
  remember();
}

function openFromTop(place) {
  open(place);
  scrollTo(0, 0);
}

// Shows what the address says, at the start and after Back.
function follow() {
  const wanted = address.read();
  if (!wanted) return;
  isFollowing = true;
  address.written = location.hash.slice(1);
  pin.place = wanted.pinned;
  open(wanted.place);
  current.select(wanted.selection);
  showManual(wanted.manual);
  isFollowing = false;
}

for (const sheet of sheets) {
  sheet.listeners.push(showCrumbs, remember);
  sheet.article.querySelectorAll('.picture').forEach((section) => {
    watcher.observe(section.querySelector('.canvas'));
    section.addEventListener('toggle', () => {
      sheet.refresh();
      requestIdleCallback(paintRest);
    });
  });
  sheet.article.querySelectorAll('button.select:not([data-sheet])').forEach((button) => button.addEventListener('click', () => {
    const { module, step } = button.dataset;
    const change = {};
    if (module !== undefined) change.module = Number(module);
    if (step !== undefined) change.step = Number(step);
    sheet.select(change);
    sheet.article.querySelector('.pictures')?.scrollIntoView();
  }));
}

document.querySelectorAll('[role=tab]').forEach((tab, place, tabs) => {
  tab.addEventListener('click', () => openFromTop(place));
  tab.addEventListener('keydown', (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = (place + step + tabs.length) % tabs.length;
    tabs[next].focus();
    openFromTop(next);
  });
});

document.querySelector('.pin')?.addEventListener('click', () => {
  pin.place = pin.place === null ? sheets.indexOf(current) : null;
  open(sheets.indexOf(current));
});

document.querySelectorAll('button[data-sheet]').forEach((button) => {
  button.addEventListener('click', () => openFromTop(Number(button.dataset.sheet)));
});

for (const button of document.querySelectorAll('[data-format]')) {
  const section = button.closest('.picture');
  const sheet = sheetOf(section);
  button.addEventListener('click', () => download(section, button.dataset.format, address.titles[sheets.indexOf(sheet)] ?? document.title, () => {
    paint(sheet, section);
    return sheet.painted.get(section.dataset.picture);
  }));
}

document.querySelectorAll('.fix .copy').forEach((button) => {
  button.addEventListener('click', async () => {
    await navigator.clipboard.writeText(`${button.closest('.fix').querySelector('pre').textContent}\n`);
    button.textContent = 'copied';
  });
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

const repaint = () => sheets.forEach((sheet) => sheet.theme());
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', repaint);
// Every tab is printed, in the width of a sheet of paper: what is hidden has no width to draw in.
addEventListener('beforeprint', () => {
  document.documentElement.classList.add('printing');
  document.querySelectorAll('details').forEach((details) => { details.open = true; });
  for (const sheet of sheets) sheet.article.querySelectorAll('.picture').forEach((section) => paint(sheet, section));
  repaint();
});
addEventListener('afterprint', () => {
  document.documentElement.classList.remove('printing');
  repaint();
});

listenForManuals(remember);
addEventListener('popstate', follow);
open(0);
follow();
isFollowing = false;
