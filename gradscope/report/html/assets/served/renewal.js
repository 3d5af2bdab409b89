// Brings a page up to date with a newer one of the same recording. Texts are replaced; charts that
// are painted take the newer data, so that scroll, zoom, selection, filters and open parts stay.

const SCROLLED = '.rows, .events, .lanes, .wide';

// Parts that a reader opens and closes, by what they say.
const partsOf = (article) => new Map([...article.querySelectorAll('details')].map((one) => (
  [one.dataset.chart ?? one.querySelector('summary').textContent.replace(/\s+/g, ' '), one])));

function keepOpen(before, after) {
  const known = partsOf(before);
  for (const [name, details] of partsOf(after)) {
    if (known.has(name)) details.open = known.get(name).open;
  }
}

// Moves a painted chart into the newer page; false if it has to be painted again.
function keepChart(tab, section, data) {
  const name = section.dataset.chart;
  const chart = tab.painted.get(name);
  if (!chart?.canvas) return false;
  const before = tab.data.charts[name];
  const isSame = before.kind === data.kind && JSON.stringify(before.content) === JSON.stringify(data.content);
  if (!isSame && (before.kind !== data.kind || !chart.update)) return false;
  section.querySelector('.canvas').replaceWith(chart.canvas);
  return isSame ? 'same' : 'changed';
}

function renewTab(tab, article, data) {
  const kept = [];
  keepOpen(tab.article, article);
  for (const section of article.querySelectorAll('.chart')) {
    const name = section.dataset.chart;
    const how = keepChart(tab, section, data.charts[name]);
    if (!how) tab.painted.delete(name);
    else if (how === 'changed') kept.push(name);
  }
  for (const name of tab.painted.keys()) if (!data.charts[name]) tab.painted.delete(name);
  tab.take(article, data);
  return kept;
}

// Charts that are out of sight have no size to be drawn in: they are drawn when they are shown.
function updateCharts(tab, names) {
  for (const name of names) {
    const chart = tab.painted.get(name);
    if (chart.update(tab.content(name)) === false) {
      tab.painted.delete(name);
      chart.canvas.replaceChildren();
    }
  }
}

// What is at the top of the window, and where: it stays there while parts above it change.
function anchored() {
  const found = [...current.article.querySelectorAll('.canvas, .finding, .head, .summary')]
    // What lies higher is below the bar.
    .find((one) => one.getBoundingClientRect().bottom > 60);
  if (!found || scrollY === 0) return null;
  const section = found.closest('[data-chart]');
  return { name: section?.dataset.chart, top: (section ?? found).getBoundingClientRect().top };
}

function restore(anchor, top) {
  const section = anchor?.name && current.article.querySelector(`[data-chart="${anchor.name}"]`);
  const by = section ? section.getBoundingClientRect().top - anchor.top : top - scrollY;
  // The style asks for smooth scrolling, which would show the jump.
  if (by) scrollBy({ top: by, behavior: 'instant' });
}

function renewManuals(next) {
  const open = shownManual();
  for (const manual of document.querySelectorAll('dialog.manual')) if (manual.id !== `manual-${open}`) manual.remove();
  for (const manual of next.querySelectorAll('dialog.manual')) {
    if (manual.id !== `manual-${open}`) document.body.append(document.importNode(manual, true));
  }
}

// Title, state and the row of tabs; the search field keeps what is typed.
function renewBar(next) {
  document.title = next.title;
  for (const part of ['.served', '.tabs']) {
    const [before, after] = [document, next].map((page) => page.querySelector(`.bar ${part}`));
    if (before && after) before.replaceWith(document.importNode(after, true));
  }
}

function renew(next) {
  const panels = panelsOf(next);
  // A message in place of the report, or the first tabs of it: other parts are needed.
  if (!panels.length || (panels.length > 1) !== (tabs.length > 1)) {
    location.reload();
    return;
  }
  const titles = titlesOf(next);
  const known = new Map(tabs.map((tab, index) => [address.titles[index] ?? '', tab]));
  const pinned = pin.index === null ? null : tabs[pin.index];
  const [anchor, top, focused] = [anchored(), scrollY, document.activeElement];
  const scrolled = [...document.querySelectorAll(SCROLLED)].map((one) => [one, one.scrollTop, one.scrollLeft]);
  // Meanwhile nothing is written to the address, which `follow` reads at the end.
  isFollowing = true;
  const changed = [];
  const newer = panels.map((panel, index) => {
    const [article, data] = [document.importNode(panel, true), dataOf(next, index)];
    const tab = known.get(titles[index] ?? '');
    if (tab) {
      changed.push([tab, renewTab(tab, article, data)]);
      return tab;
    }
    const made = new Tab(article, data);
    made.listeners.push(showCrumbs, remember);
    pin.join(made);
    return made;
  });
  document.getElementById('main').replaceChildren(...newer.map((tab) => tab.article));
  renewBar(next);
  renewManuals(next);
  tabs.splice(0, tabs.length, ...newer);
  address.titles = titles;
  pin.index = tabs.includes(pinned) ? tabs.indexOf(pinned) : null;
  current = tabs.includes(current) ? current : tabs[0];
  open(tabs.indexOf(current));
  for (const [tab, names] of changed) updateCharts(tab, names);
  labelCells();
  tabs.forEach(watch);
  follow();
  isFollowing = false;
  for (const [one, down, right] of scrolled) Object.assign(one, { scrollTop: down, scrollLeft: right });
  restore(anchor, top);
  if (focused !== document.activeElement && document.contains(focused)) focused.focus({ preventScroll: true });
}

new Following(renew);
